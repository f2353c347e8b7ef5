"""Trees of plain values, and TOML text: files with `extends`, `key=value` arguments, values as TOML writes them."""

import datetime
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import MissingError, UsageError

Tree = Mapping[str, Any]


class Kinds(NamedTuple):
    """What a table may be: its kind where none is named, and for each kind the class that has its keys."""

    default: str | None
    classes: Mapping[str, type]

    def keys_differ(self, one: Tree, other: Tree) -> bool:
        """Whether two tables are of kinds that have other keys."""
        kinds = [table.get("kind", self.default) for table in (one, other)]
        found = [self.classes.get(kind) if isinstance(kind, str) else None for kind in kinds]
        return None not in found and found[0] is not found[1]


NO_KINDS: Mapping[str, Kinds] = {}

_DOTTED = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


def read(place: Path, find: Callable[[str], Path], kinds: Mapping[str, Kinds] = NO_KINDS) -> dict[str, Any]:
    """The tree in a TOML file, on top of the files it extends.

    `extends` names a file (relative to this one) or a preset (a bare name, which `find` turns into a file),
    or a list of them, of which later ones win. Tables merge; anything else replaces what is underneath, and
    so does a table of another `kind`. `kinds` are those of each table, by its dotted path: see `table_kinds`.
    """
    return _read(place, find, (), kinds)


def override(tree: Tree, arguments: Iterable[str], kinds: Mapping[str, Kinds] = NO_KINDS) -> dict[str, Any]:
    """The tree with `dotted.key=value` arguments on top; a value that is not TOML is a plain string."""
    top: dict[str, Any] = {}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if not equals or not _DOTTED.fullmatch(key.strip()):
            raise UsageError(
                f"{argument}: an override is written `key=value`, but this is not; "
                "write the key with dots, such as training.steps=500"
            )
        value = value_of(text.strip(), argument)
        for part in reversed(key.strip().split(".")):
            value = {part: value}
        # First all arguments together, then onto the tree: model.layers=3 model.kind=gpt works in any order.
        # For the same reason, one that names no kind is not yet of the default's.
        top = _merge(top, value, NO_KINDS)
    return _merge(tree, top, kinds)


def value_of(text: str, place: str) -> Any:
    """The value that a text is in TOML, or the text itself."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError) as error:
        # A shell eats quotes: [a,b] was meant as a list, and as a string it would only be a puzzle later.
        if text.startswith(("[", "{", '"', "'")):
            fix = """protect its quotes from the shell, such as 'key=["a", "b"]'"""
            raise UsageError(
                f"{place}: a value that begins with {text[0]} must be TOML, but: {error}; {fix}"
            ) from error
        return text
    # A bare date is more likely a name, and a line break could smuggle in a second key.
    is_value = len(parsed) == 1 and not isinstance(parsed["value"], datetime.date | datetime.time)
    return parsed["value"] if is_value else text


def text_of(value: Any) -> str:
    """A plain value as TOML writes it, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return re.sub(r"e\+?(-?)0*", r"e\1", repr(value))
    if isinstance(value, str):
        # JSON's escapes are also TOML's; only DEL must be escaped in TOML alone.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(text_of(item) for item in value)}]"
    return str(value)


def _read(
    place: Path, find: Callable[[str], Path], chain: tuple[Path, ...], kinds: Mapping[str, Kinds]
) -> dict[str, Any]:
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
        raise UsageError(
            f'{place}: extends: must be a name or a list of names, but is {text_of(names)}; write extends = "base"'
        )
    under: dict[str, Any] = {}
    for name in names:
        is_file = name.endswith(".toml") or "/" in name
        try:
            below = place.parent / name if is_file else find(name)
        except (MissingError, UsageError) as error:
            raise type(error)(f"{place}: extends: {error}") from error
        under = _merge(under, _read(below, find, (*chain, place), kinds), kinds)
    return _merge(under, tree, kinds)


def _load(place: Path) -> dict[str, Any]:
    data = place.read_bytes()
    try:
        # Windows editors like to begin a file with a byte order mark.
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line, column = data.count(b"\n", 0, error.start) + 1, error.start - data.rfind(b"\n", 0, error.start)
        raise UsageError(
            f"{place}:{line}:{column}: must be UTF-8 text, but has the byte {data[error.start]:#04x}; "
            "save the file as UTF-8"
        ) from error
    except (ValueError, RecursionError) as error:
        lines = data.decode("utf-8-sig").split("\n")
        spot = re.search(r"at line (\d+), column (\d+)", str(error))
        line, column = map(int, spot.groups()) if spot else (len(lines), len(lines[-1]) + 1)
        what = re.sub(r" \(at .*", "", str(error))
        raise UsageError(
            f"{place}:{line}:{column}: must be TOML, but: {what}, in `{lines[line - 1].strip()}`; "
            "check the quotes and brackets there (a string needs quotes)"
        ) from error


def _merge(under: Tree, over: Tree, kinds: Mapping[str, Kinds], path: str = "") -> dict[str, Any]:
    # Another kind has other keys: nothing of the table underneath may leak into it. Only a kind that is named on top
    # says so: a table without one is about whatever is underneath.
    if "kind" in over:
        named = "kind" in under and under["kind"] != over["kind"]
        if named or (path in kinds and "kind" not in under and kinds[path].keys_differ(under, over)):
            return dict(over)
    merged = dict(under)
    for key, value in over.items():
        below: Any = merged.get(key)
        is_table = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[key] = _merge(below, value, kinds, f"{path}.{key}" if path else key) if is_table else value
    return merged
