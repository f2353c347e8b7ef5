"""A band: the usual course of a recipe, what it was measured with, and the file that holds both."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import DataError
from regard.recipe import PRESETS
from regard.settings.tree import text_of
from regard.training.usual import Course, Usual

BANDS = PRESETS / "bands"


@dataclass(frozen=True)
class Band:
    """The usual course of a recipe, and what it was measured with."""

    course: Course
    settings: Mapping[str, Any]
    """Those that decide how it learns, without those at their default."""
    examples: int
    tokens: int
    corpus: tuple[str, ...]
    """The SHA-256 of each of its files, in order; none where it is generated."""
    seeds: tuple[int, ...]
    command: str | None
    machine: str
    """And the version of torch."""
    languages: tuple[str, ...] = ()
    """Of source and target, where they are known."""

    def to_toml(self) -> str:
        """The file it is kept in."""
        course = self.course
        lines = [
            f"# The usual course of `{course.recipe}`, made by `python -m benchmarks.bands`, in nats a token.",
            f"recipe = {text_of(course.recipe)}",
            f"seeds = {text_of(self.seeds)}",
            *([] if self.command is None else [f"command = {text_of(self.command)}"]),
            f"machine = {text_of(self.machine)}",
            f"examples = {self.examples}",
            f"tokens = {self.tokens}",
            f"corpus = {text_of(self.corpus)}",
            *([f"languages = {text_of(self.languages)}"] if self.languages else []),
            f"stretch = {course.stretch}",
            "",
            "# Each row: step, mean over the runs, standard deviation. A training loss is the mean of a stretch.",
            *(["# One run has no standard deviation: it is assumed."] if course.runs == 1 else []),
        ]
        for name, rows in (("training", course.training), ("validation", course.validation)):
            values = (f"  [{usual.step}, {usual.mean:.4f}, {usual.sd:.4f}]," for usual in rows)
            lines += [f"{name} = [", *values, "]"]
        lines += ["", "# What the recipe sets and a course depends on.", "[settings]"]
        lines += [f"{text_of(key)} = {text_of(value)}" for key, value in self.settings.items()]
        return "\n".join(lines) + "\n"


def band_of_recipe(name: str) -> Band | None:
    """The band of a recipe that comes with Regard; None where none was measured."""
    file = BANDS / f"{name}.toml"
    if Path(name).name != name or not file.is_file():
        return None
    return read_band(file)


def all_bands() -> Iterator[Band]:
    """The bands of all recipes that were measured."""
    return (read_band(file) for file in sorted(BANDS.glob("*.toml")))


def read_band(file: Path) -> Band:
    """A band from its file."""
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
        rows = (tuple(Usual(*row) for row in found[name]) for name in ("training", "validation"))
        course = Course(found["recipe"], len(found["seeds"]), found["stretch"], *rows)
        return Band(
            course, found["settings"], found["examples"], found["tokens"], tuple(found["corpus"]),
            tuple(found["seeds"]), found.get("command"), found["machine"], tuple(found.get("languages", ())),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{file}: must be a band as `python -m benchmarks.bands` writes it, but is not ({error!r}). Write it anew."
        ) from error
