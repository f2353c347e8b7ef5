"""Settings: TOML files and `key=value` arguments in, a tree of frozen dataclasses out, and back again.

    kinds = table_kinds(Recipe)                        a table of another kind replaces the one underneath
    tree = read(Path("my.toml"), preset_file, kinds)   extends = "base" is merged underneath
    tree = override(tree, ["training.steps=5"], kinds) the command line has the last word
    recipe = build(Recipe, tree, "my.toml")            every mistake at once, each with a fix
    text = to_toml(recipe)                             build reads it back to an equal recipe
    editors = schema(Recipe)                           JSON schema: completion and explanation

The dataclasses are plain Python, and need nothing from here:

    @dataclass(frozen=True)
    class Training:
        \"""How the model learns.\"""

        steps: Annotated[int, Gt(0)] = 100_000         a bound, from annotated_types
        \"""Updates of the weights.\"""                  a string under a field explains it
        clip: float | None = None                      None has no TOML form: it is the default, left out
        optimiser: Adam | Muon = Adam()                each with its `kind: Literal["adam"]`

    __post_init__ may raise ValueError or UsageError for a rule between fields. With `check_words(self)` in it, settings
    made in Python are held to their Literals, too.
"""

from regard.settings.building import build
from regard.settings.shape import check_tree, table_kinds
from regard.settings.tree import override, read
from regard.settings.words import check_words
from regard.settings.writing import schema, to_toml

__all__ = ["build", "check_tree", "check_words", "override", "read", "schema", "table_kinds", "to_toml"]
