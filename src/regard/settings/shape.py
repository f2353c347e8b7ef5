"""What a class of settings allows: its fields, its tables and their kinds, and rules in words."""

import dataclasses
import functools
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from regard.errors import InternalError
from regard.settings.tree import Kinds, text_of

_WORDS: dict[Any, str] = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


def check_tree(cls: type) -> None:
    """Raise InternalError unless every tree of this class can be written as TOML and read back."""
    for path, table in walk(cls):
        for name, (field, hint) in fields_of(table).items():
            spot, tables = f"{table.__qualname__}.{name}", tables_of(hint) or rows_of(hint)
            kinds = [kind for inner in tables for kind in kinds_of(inner) or (None,)]
            if not path and name == "extends":
                raise InternalError(f"{spot}: `extends` belongs to the file, not to its settings; rename it")
            if NoneType in options_of(hint) and field.default is not None:
                raise InternalError(
                    f"{spot}: allows None, which TOML cannot write, so None must be its default, but is not; "
                    "write `= None`"
                )
            if len(tables) > 1 and (None in kinds or len(set(kinds)) < len(kinds)):
                raise InternalError(
                    f"{spot}: tables that share a field must be told apart by their `kind`, but have {kinds}; "
                    'give each its own `kind: Literal["…"]`'
                )
            if not tables:
                describe(hint, spot)


def walk(cls: type, path: str = "", above: tuple[type, ...] = ()) -> Iterator[tuple[str, type]]:
    """Every table of the tree with its dotted path, the root first."""
    is_frozen = dataclasses.is_dataclass(cls) and cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    if not is_frozen or cls in above:
        raise InternalError(
            f"{cls.__qualname__}: settings must be a frozen dataclass that does not hold itself, "
            "but this is not; write @dataclass(frozen=True)"
        )
    yield path, cls
    for name, (_, hint) in fields_of(cls).items():
        for inner in tables_of(hint) or rows_of(hint):
            yield from walk(inner, join(path, name), (*above, cls))


@functools.cache
def table_kinds(cls: type) -> dict[str, Kinds]:
    """For each table of the tree that has kinds, by its dotted path: its default kind, and the class of each kind."""
    found: dict[str, Kinds] = {}
    for path, table in walk(cls):
        for name, (field, hint) in fields_of(table).items():
            classes = {kind: inner for inner in tables_of(hint) for kind in kinds_of(inner)}
            if classes:
                default: str | None = getattr(default_of(field), "kind", None)
                found.setdefault(join(path, name), Kinds(default, classes))
    return found


def default_of(field: dataclasses.Field[Any]) -> Any:
    """The value of a field that is left out; MISSING where it must not be."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def join(path: str, name: str) -> str:
    """The dotted path of a key."""
    return f"{path}.{name}" if path else name


@functools.cache
def fields_of(cls: type) -> dict[str, tuple[dataclasses.Field[Any], Any]]:
    """The fields that a table sets, each with its type hint, in declared order."""
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: (field, hints[field.name]) for field in dataclasses.fields(cls) if field.init}


def kinds_of(cls: type) -> tuple[str, ...]:
    """The values of `kind` by which a table is told apart; empty where it has no such field."""
    return get_args(fields_of(cls)["kind"][1]) if "kind" in fields_of(cls) else ()


def options_of(hint: Any) -> tuple[Any, ...]:
    """The plain types a hint allows: Annotated[A, …] | B | None → A, B, NoneType."""
    if get_origin(hint) is Annotated:
        return options_of(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return tuple(option for part in get_args(hint) for option in options_of(part))
    return (hint,)


def items_of(hint: Any) -> tuple[Any, ...]:
    """What the tuple of a hint holds: tuple[X, ...] | None → X, Ellipsis; empty where there is no tuple."""
    return next((get_args(option) for option in options_of(hint) if get_origin(option) is tuple), ())


def tables_of(hint: Any) -> tuple[type, ...]:
    """The dataclasses of a field that is a table; empty for any other field."""
    options = tuple(option for option in options_of(hint) if option is not NoneType)
    return options if all(dataclasses.is_dataclass(option) for option in options) else ()


def rows_of(hint: Any) -> tuple[type, ...]:
    """The dataclasses of a field that is a list of tables; empty for any other field."""
    items = items_of(hint)
    return tables_of(items[0]) if items[1:] == (...,) and NoneType not in options_of(items[0]) else ()


def describe(hint: Any, spot: str = "") -> str:
    """The rule of a plain value in words; InternalError for a type that settings cannot hold."""
    words: list[str] = []
    for option in options_of(hint):
        parts = [part for part in get_args(option) if part is not ...]
        if option in _WORDS:
            words.append(_WORDS[option])
        elif get_origin(option) is Literal:
            words.extend(text_of(value) for value in parts)
        elif get_origin(option) is tuple and not any(NoneType in options_of(part) for part in parts):
            inner = [describe(part, spot) for part in parts]
            is_open = ... in get_args(option)
            words.append(f"a list, each item {inner[0]}" if is_open else f"a list of {len(inner)} ({', '.join(inner)})")
        elif option is not NoneType:
            raise InternalError(
                f"{spot}: settings hold strings, numbers, booleans, Literals, tuples of these, tables and "
                f"tuples of tables, but this is {option}; use one of those"
            )
    return " or ".join(words)
