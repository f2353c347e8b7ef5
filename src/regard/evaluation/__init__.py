"""How good a translation is, said so that nobody can misread it."""
