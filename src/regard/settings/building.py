"""A tree of plain values into dataclasses, with every mistake in it named at once."""

import dataclasses
import difflib
import functools
import json
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from regard.errors import UsageError
from regard.settings.shape import (
    check_tree,
    default_of,
    describe,
    fields_of,
    items_of,
    join,
    kinds_of,
    options_of,
    rows_of,
    tables_of,
    walk,
)
from regard.settings.tree import Tree, text_of, value_of

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

# Pydantic's names for a value of the right type that breaks a bound; only for these are its words the best.
_BOUNDS = ("greater_than", "less_than", "multiple_of", "too_", "string_too_", "finite")


def build(cls: type[T], tree: Tree, place: str) -> T:
    """The tree as a `cls`; otherwise one UsageError that lists every problem, each with place, key and fix.

    A rule between fields (`__post_init__`) is asked only where the tables in its table are right.
    """
    check_tree(cls)
    builder = _Builder(cls)
    built: T = builder.table((cls,), tree, "")
    if builder.problems:
        raise UsageError("\n".join(f"{place}: {problem}" for problem in builder.problems))
    return built


class _Builder:
    """Turns tables into dataclasses, and keeps the list of what was wrong on the way."""

    def __init__(self, cls: type) -> None:
        self.problems: list[str] = []
        self.homes: dict[str, list[str]] = {}
        for path, table in walk(cls):
            kinds = f" of kind {' or '.join(map(text_of, kinds_of(table)))}" if kinds_of(table) else ""
            for name in fields_of(table):
                self.homes.setdefault(name, []).append(f"{_header(path)}{kinds}")

    def table(self, tables: tuple[type, ...], value: Any, path: str) -> Any:
        """The dataclass in a table, or None after noting why not."""
        kinds = {kind: cls for cls in tables for kind in kinds_of(cls)}
        if not isinstance(value, Mapping):
            fix = f"{{kind = {text_of(value)}}}" if str(value) in kinds else f"its keys below a line {_header(path)}"
            self.problems.append(f"{path}: must be a table, but is {_show(value)}; write {fix}")
            return None
        before = len(self.problems)
        cls = tables[0]
        if len(tables) > 1:
            kind = self.entry(Literal[tuple(kinds)], value, "kind", path)
            if kind is None:
                return None
            cls = kinds[kind]
        fields = fields_of(cls)
        for key in value:
            if key not in fields:
                self.unknown(key, value[key], fields.keys(), path)
        values, wrong = {}, set()
        for name, (field, hint) in fields.items():
            if name in value or default_of(field) is dataclasses.MISSING:
                noted = len(self.problems)
                values[name] = self.entry(hint, value, name, path, default_of(field))
                if len(self.problems) > noted:
                    wrong.add(name)
        built = self.ruled(cls, values, wrong, path)
        return built if len(self.problems) == before else None

    def ruled(self, cls: type, values: dict[str, Any], wrong: set[str], path: str) -> Any:
        """The dataclass of these values, or None after noting the rules between fields (`__post_init__`) they break.

        A dataclass tells of one broken rule: the next is found without the keys that this one names. What a rule says
        of a key that is `wrong` already, and so has its default here, says nothing of what was meant.
        """
        fields = fields_of(cls)
        needed = {name for name, (field, hint) in fields.items() if _needed(field, hint)}
        values = {name: value for name, value in values.items() if name not in wrong}
        while not wrong & needed:
            try:
                return cls(**values)
            except (ValueError, UsageError) as error:
                said = str(error)
            if wrong.isdisjoint(re.findall(r"\w+", said)):
                self.problems.append(f"{path}: {said}" if path else said)
            named = set(re.findall(r"\w+", " ".join(re.findall("`(.+?)`", said)))) & values.keys()
            if not named:
                break
            wrong = wrong | named
            values = {name: value for name, value in values.items() if name not in named}
        return None

    def entry(self, hint: Any, table: Tree, name: str, path: str, default: Any = dataclasses.MISSING) -> Any:
        """The value of one key of a table, or None after noting why not."""
        key, tables, rows = join(path, name), tables_of(hint), rows_of(hint)
        if name not in table:
            what = f"[{key}]" if tables else f"[[{key}]]" if rows else f"`{name} = …` ({describe(hint)})"
            self.problems.append(f"{key}: must be set, but is missing; add {what}")
            return None
        value = table[name]
        if tables and isinstance(value, Mapping) and hasattr(default, "kind"):
            # Like any key that is left out, the kind of a table has a default.
            value = {"kind": default.kind} | dict(value)
        if tables:
            return self.table(tables, value, key)
        if rows and isinstance(value, list | tuple):
            return tuple(self.table(rows, row, f"{key}[{index}]") for index, row in enumerate(value))
        if rows:
            self.problems.append(f"{key}: must be a list of tables, but is {_show(value)}; write [[{key}]]")
            return None
        return self.plain(hint, value, key, default)

    def plain(self, hint: Any, value: Any, key: str, default: Any) -> Any:
        """A value that is no table, or None after noting what is wrong with it or its items."""
        from pydantic import ValidationError

        try:
            return _fit(hint, value)
        except ValidationError as error:
            spare = "write such a value"
            if default is not dataclasses.MISSING:
                spare += f", or leave {key} out"  # for what a file underneath says, or the default: not known here
            for spot, (inner, found, rule) in _faults(hint, value, key, error.errors()).items():
                fix = _correction(inner, found) or spare
                self.problems.append(f"{spot}: {rule}, but is {_show(found)}; {fix}")
            return None

    def unknown(self, key: str, value: Any, known: Collection[str], path: str) -> None:
        """Note a key that the table does not have, and where it may have been meant to be."""
        fixes = [f"did you mean `{near}`?" for near in difflib.get_close_matches(key, known, 1)]
        if key in self.homes:
            fixes.append(f"`{key}` belongs to {' or '.join(dict.fromkeys(self.homes[key]))}")
        fix = " ".join(fixes) or f"remove it; the keys there are {', '.join(known)}"
        self.problems.append(f"{join(path, key)}: {_header(path)} has no such key, but {_show(value)} is set; {fix}")


def _needed(field: dataclasses.Field[Any], hint: Any) -> bool:
    """Whether rules cannot be asked without this field: it has no default, or it is a table that others lean on."""
    return default_of(field) is dataclasses.MISSING or bool(tables_of(hint) or rows_of(hint))


def _fit(hint: Any, value: Any) -> Any:
    """The value as the hint has it, or ValidationError; a list fits a tuple and 1 a float, but no true fits 1."""
    # TOML's values are JSON's, save for dates, which no setting is: as an empty table they fit nowhere.
    return _adapter(hint).validate_json(json.dumps(value, default=lambda date: {}), strict=True)


@functools.cache
def _adapter(hint: Any) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    return TypeAdapter(hint)


def _faults(hint: Any, value: Any, key: str, errors: Iterable[Any]) -> dict[str, tuple[Any, Any, str]]:
    """For each spot at or below a key that breaks a rule: its hint, the value there, the rule in words."""
    faults: dict[str, tuple[Any, Any, str]] = {}
    for error in errors:
        spot, inner, found = key, hint, value
        for index in takewhile(lambda part: isinstance(part, int), error["loc"]):
            # A list that is too short is a fault of the list, not of the item it lacks.
            if index < len(found):
                parts, found, spot = items_of(inner), found[index], f"{spot}[{index}]"
                inner = parts[0] if ... in parts else parts[index]
        if error["type"].startswith(_BOUNDS):
            words = re.sub(r"( after validation)?, not \d+$", "", error["msg"])
            faults[spot] = inner, found, re.sub(r"^\w+ should", "must", words)
        elif error["type"] == "json_invalid":
            faults[spot] = inner, found, "must be Unicode text"
        else:
            # A union complains once for each of its types; one line is enough, and a broken bound says more.
            faults.setdefault(spot, (inner, found, f"must be {describe(inner)}"))
    return faults


def _correction(hint: Any, value: Any) -> str | None:
    """What was probably meant: the first of a few nearby values that the hint accepts."""
    guesses: list[Any] = []
    if isinstance(value, str):
        choices = [choice for option in options_of(hint) for choice in get_args(option) if isinstance(choice, str)]
        guesses += difflib.get_close_matches(value, choices, 1)
        with suppress(UsageError):
            guesses.append(value_of(value, "a guess"))
    elif isinstance(value, float) and value.is_integer():
        guesses.append(int(value))
    if not isinstance(value, list | Mapping):
        guesses += [[value], text_of(value)]
    for guess in guesses:
        with suppress(ValueError):
            _fit(hint, guess)
            return f"write {text_of(guess)}"
    return None


def _header(path: str) -> str:
    # data.sources[1] is the second [[data.sources]] of the file.
    line = f"[[{path}]]" if path.endswith("]") else f"[{path}]"
    return re.sub(r"\[\d+\]", "", line) if path else "the top of the file"


def _show(value: Any) -> str:
    text = "a table" if isinstance(value, Mapping) else text_of(value)
    # A name that came through the command line may not be Unicode; printing the message must not fail, too.
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= 60 else f"{text[:60]}…"
