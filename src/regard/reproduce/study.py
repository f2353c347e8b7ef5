"""A study: several models trained at one budget, to be compared with each other and with what a paper printed.

study = STUDIES["table3"]
row = study.rows[0]                         a preset, and what is changed in it
recipe_of(study, row, Asked(data))          the recipe that trains it, with the budget of all rows on top
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from regard.errors import MissingError, UsageError, proposal
from regard.recipe import Recipe, load_recipe
from regard.settings import override
from regard.settings.tree import text_of

DATA_FOLDER = "REGARD_DATA"  # the variable that names the folder of all corpora


@dataclass(frozen=True)
class Row:
    """One model of a study, and what the paper printed for it."""

    name: str
    """Also that of its folder."""
    what: str
    preset: str
    overrides: tuple[str, ...] = ()
    paper: Mapping[str, float] = field(default_factory=dict)
    """By the name of a measure: see `regard.reproduce.outcome.MEASURES`."""
    members: tuple[str, ...] = ()
    """The rows whose models write as one; then nothing is trained, and the preset is that of the first."""


@dataclass(frozen=True)
class Study:
    """Rows that differ in what is studied, and share everything else."""

    name: str
    sentence: str
    rows: tuple[Row, ...]
    budget: tuple[str, ...]
    """Settings on top of every row's: how long to train, at which rate, what to keep."""
    data: Mapping[str, str]
    """Settings of `data`, by their keys, to files inside the folder of all corpora."""
    corpus: str = ""
    """How the sentence ends: the words that name the corpus."""
    lowercase: bool = False
    """Whether BLEU ignores case."""
    lengths: tuple[int, ...] = ()
    """Words of a source at which one stretch of lengths ends and the next begins; none, and no picture is drawn."""
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Rows whose order is compared with the paper's by itself, by what they have in common."""
    notes: tuple[str, ...] = ()
    """What a reader of its table should know."""
    corpus_notes: tuple[str, ...] = ()
    """The same, where it was made on its own corpus."""

    def __post_init__(self) -> None:
        names = [row.name for row in self.rows]
        if len(set(names)) < len(names) or not names:
            raise ValueError(f"`rows` must have different names and be at least one, but are {names}")
        if not self.sentence.endswith(self.corpus):
            raise ValueError(f"`sentence` must end with `corpus`, {self.corpus!r}, but is {self.sentence!r}")
        if unknown := {name for group in self.groups.values() for name in group} - set(names):
            raise ValueError(f"`groups` must be of rows, but {sorted(unknown)} are not")
        for place, row in enumerate(self.rows):
            if unknown := set(row.members) - set(names[:place]):
                raise ValueError(f"`members` must be rows above `{row.name}`, but {sorted(unknown)} are not")

    def chosen(self, names: str | None) -> list[Row]:
        """The rows of these names, with commas between them; all of them for None."""
        known = {row.name: row for row in self.rows}
        if names is None:
            return list(self.rows)
        asked = [name.strip() for name in names.split(",")]
        if not all(asked):
            raise UsageError(
                f"--rows: must be names with commas between them, but is {names!r}. Write {','.join(list(known)[:2])}."
            )
        if unknown := [name for name in asked if name not in known]:
            raise UsageError(
                f"--rows: must be rows of {self.name}, but `{unknown[0]}` is not one. "
                + proposal(unknown[0], known, f"There are: {', '.join(known)}.")
            )
        return [known[name] for name in dict.fromkeys(asked)]


@dataclass(frozen=True)
class Asked:
    """What whoever runs a study adds to it: where the corpora are, fewer steps, other settings."""

    data: Path | None = None
    steps: int | None = None
    overrides: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.steps is not None and self.steps < 1:
            raise UsageError(f"--steps: must be at least 1, but is {self.steps}. Ask for more.")
        if wrong := [each for each in self.overrides if "=" not in each]:
            raise UsageError(f"{wrong[0]}: what follows the study must be KEY=VALUE, but this is not. Write it so.")

    @property
    def changes(self) -> list[str]:
        """What is other than the study has it."""
        return [*([] if self.steps is None else [f"--steps {self.steps}"]), *self.overrides]

    @property
    def own_corpus(self) -> bool:
        """Whether another corpus takes the place of the study's."""
        return replaces_corpus(self.overrides)


def replaces_corpus(changes: Sequence[str]) -> bool:
    """Whether changes put another corpus in the place of a study's: then none of its files is needed."""
    return "kind" in _changes_of_data(changes)


def changes_corpus(changes: Sequence[str]) -> bool:
    """Whether changes are of the corpus at all, be it of one of its files: then it is no longer the study's."""
    return bool(_changes_of_data(changes))


def _changes_of_data(changes: Sequence[str]) -> Mapping[str, object]:
    """The table of `data` in changes; `--steps` and its number are among these, and are none of it."""
    found = override({}, [each for each in changes if not each.startswith("--")]).get("data", {})
    return found if isinstance(found, Mapping) else {}


def recipe_of(study: Study, row: Row, asked: Asked) -> Recipe:
    """The recipe of one row: its preset, then its own changes, then the budget, the corpus, and what was asked for.

    Fewer steps shorten the warm-up with them: it stays the same share of all steps. A row's own changes of what the
    budget sets have the last word over it.
    """
    data = [] if asked.own_corpus else corpus_of(study, asked.data)
    try:
        return _recipe_of(study, row, asked, data)
    except UsageError as error:
        # Several rows share a preset; whoever reads this asked for a row.
        lines = [line.removeprefix(f"{row.preset}: ") for line in str(error).split("\n")]
        raise UsageError("\n".join(f"row `{row.name}` of {study.name}: {line}" for line in lines)) from error


def _recipe_of(study: Study, row: Row, asked: Asked, data: Sequence[str]) -> Recipe:
    fixed = [f"name={text_of(f'{study.name}-{row.name}')}", *study.budget, *row.overrides, *data]
    if asked.steps is not None:
        course = load_recipe(row.preset, [*study.budget, *row.overrides]).training
        warmup = max(1, round(course.optimiser.warmup * asked.steps / course.steps))
        fixed += [f"training.steps={asked.steps}", f"training.optimiser.warmup={warmup}"]
    return load_recipe(row.preset, [*fixed, *asked.overrides])


def corpus_of(study: Study, folder: Path | None) -> list[str]:
    """The settings of a study's corpus; raises unless its files are there."""
    place = folder_of_data(folder, study.name)
    files = {key: place / name for key, name in study.data.items()}
    if missing := [file for file in files.values() if not file.is_file()]:
        raise MissingError(
            f"{missing[0]}: {study.name} needs this file, but it is not there. Name the folder of all corpora with "
            f"--data or {DATA_FOLDER}; docs/reproduce.md says what has to be in it."
        )
    return ['data.kind="files"', *(f"data.{key}={text_of(str(file))}" for key, file in files.items())]


def folder_of_data(folder: Path | None, name: str) -> Path:
    """The folder of all corpora: the one given, or the one that the environment names."""
    named = os.environ.get(DATA_FOLDER)
    place = folder or (Path(named) if named else None)
    if place is None:
        raise UsageError(
            f"{name}: needs the folder of its corpora, but none is given. Name it with --data or in {DATA_FOLDER}."
        )
    if not place.is_dir():
        raise MissingError(f"{place}: must be the folder of all corpora, but is no folder. Check --data.")
    return place


def pairs_of(folder: str, stems: Sequence[str], ending: str = "") -> dict[str, str]:
    """The files of train, dev and test from English to German in a folder, by the keys of `data`."""
    sides = {"source": "en", "target": "de"}
    return {
        f"{split}{side}": f"{folder}/{stem}.{language}{ending}"
        for split, stem in zip(("", "valid_", "test_"), stems, strict=True)
        for side, language in sides.items()
    }
