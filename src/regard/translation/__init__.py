"""From texts to translations: cut, search, join, and say what looks odd."""
