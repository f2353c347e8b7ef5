"""Settings: TOML files and `key=value` arguments in, a tree of frozen dataclasses out, and back again.

    tree = read(Path("my.toml"), find=preset_file)         extends = "base" is merged underneath
    tree = override(tree, ["training.steps=500"])          the command line has the last word
    recipe = build(Recipe, tree, "my.toml")                every mistake at once, each with a fix
    text = to_toml(recipe)                                 build reads it back to an equal recipe
    editors = schema(Recipe)                               JSON schema: completion and explanation

The dataclasses are plain Python. A string under a field documents it; `Annotated[int, Gt(0)]` (annotated_types)
bounds it; `__post_init__` may raise ValueError or UsageError for a rule between fields. Where a field allows
several dataclasses, each has a field `kind: Literal["…"]` that tells them apart.
"""

import dataclasses
import datetime
import difflib
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from regard.errors import InternalError, MissingError, UsageError

T = TypeVar("T")
Tree = Mapping[str, object]

_DOTTED = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_BOUNDS = ("greater_than", "less_than", "multiple_of", "too_", "string_too_", "finite")
_WORDS: dict[object, str] = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


# ---- reading: files and arguments into one tree


def no_presets(name: str) -> Path:
    """The `find` of a place without presets: any bare name is a mistake."""
    raise UsageError(f'there is no preset "{name}"; write the name of a file, such as "{name}.toml"')


def read(place: Path, find: Callable[[str], Path] = no_presets) -> dict[str, object]:
    """The tree in a TOML file, on top of the files it extends.

    `extends` names a file (relative to this one) or a preset (a bare name, which `find` turns into a file),
    or a list of them, of which later ones win. Tables merge; anything else replaces what is underneath.
    """
    return _read(place, find, ())


def override(tree: Tree, arguments: Iterable[str]) -> dict[str, object]:
    """The tree with `dotted.key=value` arguments on top; a value that is not TOML is a plain string."""
    top: dict[str, object] = {}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if not equals or not _DOTTED.fullmatch(key.strip()):
            raise UsageError(
                f"{argument}: an override is written `key=value`, but this is not; "
                "write the key with dots, such as training.steps=500"
            )
        value = _parse(argument, text.strip())
        for part in reversed(key.strip().split(".")):
            value = {part: value}
        # First all arguments together, then onto the tree: model.layers=3 model.kind=gpt works in any order.
        top = _merge(top, value)  # type: ignore[arg-type]
    return _merge(tree, top)


def _read(place: Path, find: Callable[[str], Path], chain: tuple[Path, ...]) -> dict[str, object]:
    trail = " → ".join(str(step) for step in (*chain, place))
    if place.resolve() in [step.resolve() for step in chain]:
        raise UsageError(f"{trail}: a file must not extend itself, but this one does; remove one `extends`")
    try:
        tree = _load(place)
    except OSError as error:
        raise MissingError(
            f"{trail}: must be a file that can be read, but: {error.strerror}; check the name"
        ) from error
    names = tree.pop("extends", [])
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{place}: extends: must be a string or a list of strings, but is {_show(names)}")
    under: dict[str, object] = {}
    for name in names:
        is_file = name.endswith(".toml") or "/" in name
        under = _merge(under, _read(place.parent / name if is_file else find(name), find, (*chain, place)))
    return _merge(under, tree)


def _load(place: Path) -> dict[str, Any]:
    data = place.read_bytes()
    try:
        # Windows editors like to begin a file with a byte order mark.
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line, column = data.count(b"\n", 0, error.start) + 1, error.start - data.rfind(b"\n", 0, error.start)
        raise UsageError(
            f"{place}:{line}:{column}: must be UTF-8 text, but has the byte {data[error.start]:#x}; "
            "save the file as UTF-8"
        ) from error
    except (ValueError, RecursionError) as error:
        lines = data.decode("utf-8-sig").split("\n")
        spot = re.search(r" \(at line (\d+), column (\d+)\)", str(error))
        line, column = map(int, spot.groups()) if spot else (len(lines), len(lines[-1]) + 1)
        what = re.sub(r" \(at .*\)", "", str(error))
        raise UsageError(
            f"{place}:{line}:{column}: must be TOML, but: {what}, in `{lines[line - 1].strip()}`; "
            "check the quotes and brackets there (a string needs quotes)"
        ) from error


def _parse(argument: str, text: str) -> object:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError) as error:
        # A shell eats quotes: [a,b] was meant as a list, and a string "[a,b]" would only be a puzzle later.
        if text.startswith(("[", "{", '"', "'")):
            raise UsageError(
                f"{argument}: a value that begins with {text[0]} must be TOML, but: {error}; "
                """protect its quotes from the shell, such as 'key=["a", "b"]'"""
            ) from error
        return text
    is_plain = len(parsed) == 1 and not isinstance(parsed["value"], datetime.date | datetime.time)
    return parsed["value"] if is_plain else text


def _merge(under: Tree, over: Tree) -> dict[str, object]:
    # Another kind has other keys: nothing of the table underneath may leak into it.
    if "kind" in under and "kind" in over and under["kind"] != over["kind"]:
        return dict(over)
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[key] = _merge(below, value) if both else value  # type: ignore[arg-type]
    return merged


# ---- what a class of settings allows


def check_tree(cls: type) -> None:
    """Raise InternalError unless every tree of this class can be written as TOML and read back."""
    for path, table in _walk(cls):
        place = f"{table.__module__}.{table.__qualname__}"
        if not dataclasses.is_dataclass(table) or not table.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            raise InternalError(f"{place}: settings must be a frozen dataclass; write @dataclass(frozen=True)")
        for name, (field, hint) in _fields(table).items():
            spot = f"{place}.{name}"
            tables = _tables(hint) or _tables(_item(hint))
            if not path and name == "extends":
                raise InternalError(f"{spot}: `extends` belongs to the file, not to its settings; rename it")
            if NoneType in _options(hint) and field.default is not None:
                raise InternalError(
                    f"{spot}: allows None, which TOML cannot write, so None must be its default; write `= None`"
                )
            kinds = [kind for inner in tables for kind in _kinds(inner) or (None,)]
            if len(tables) > 1 and (None in kinds or len(set(kinds)) < len(kinds)):
                raise InternalError(
                    f"{spot}: tables that share a field must be told apart by `kind`, but have {kinds}; "
                    'give each its own `kind: Literal["…"]`'
                )
            if not tables:
                _describe(hint, spot)


def _walk(cls: type, path: tuple[str, ...] = (), above: tuple[type, ...] = ()) -> Iterator[tuple[str, type]]:
    if cls in above:
        raise InternalError(f"{cls.__qualname__}: a table of settings must not hold itself, but does; unroll it")
    yield ".".join(path), cls
    for name, (_, hint) in _fields(cls).items() if dataclasses.is_dataclass(cls) else ():
        for inner in _tables(hint) or _tables(_item(hint)):
            yield from _walk(inner, (*path, name), (*above, cls))


def _fields(cls: type) -> dict[str, tuple[dataclasses.Field[Any], Any]]:
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: (field, hints[field.name]) for field in dataclasses.fields(cls) if field.init}


def _options(hint: Any) -> tuple[Any, ...]:
    """The plain types a hint allows: Annotated[A, …] | B | None → A, B, NoneType."""
    if get_origin(hint) is Annotated:
        return _options(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return tuple(option for part in get_args(hint) for option in _options(part))
    return (hint,)


def _values(hint: Any) -> tuple[Any, ...]:
    return tuple(option for option in _options(hint) if option is not NoneType)


def _tables(hint: Any) -> tuple[type, ...]:
    options = _values(hint)
    return options if all(dataclasses.is_dataclass(option) for option in options) else ()


def _item(hint: Any, index: int = 0) -> Any:
    """The hint of an item, where the hint is that of a list; otherwise None."""
    options = _values(hint)
    if len(options) != 1 or get_origin(options[0]) is not tuple:
        return None
    arguments = get_args(options[0])
    return arguments[0] if Ellipsis in arguments else arguments[min(index, len(arguments) - 1)]


def _kinds(cls: type) -> tuple[str, ...]:
    fields = _fields(cls)
    return get_args(fields["kind"][1]) if "kind" in fields else ()


def _describe(hint: Any, spot: str = "") -> str:
    """The rule of a plain value in words; InternalError for a type that settings cannot hold."""
    words = []
    for option in _values(hint):
        arguments = get_args(option)
        if option in _WORDS:
            words.append(_WORDS[option])
        elif get_origin(option) is Literal:
            words.extend(_toml(value) for value in arguments)
        elif get_origin(option) is tuple and arguments and NoneType not in arguments:
            inner = [_describe(part, spot) for part in arguments if part is not Ellipsis]
            every = Ellipsis in arguments
            words.append(f"a list, each item {inner[0]}" if every else f"a list of {len(inner)}: {', '.join(inner)}")
        else:
            raise InternalError(
                f"{spot}: settings hold strings, numbers, booleans, Literals, tuples of these and tables, "
                f"but this field is {option}; use one of those"
            )
    return " or ".join(words) if len(words) < 3 else f"{', '.join(words[:-1])} or {words[-1]}"
