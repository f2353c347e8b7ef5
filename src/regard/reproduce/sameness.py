"""Whether a model was made as another one: from the same corpus, with the settings that decide what becomes of it.

Not all settings do. A run may have another name and seed, be on another device, compile, validate and save otherwise,
and read each batch in other parts or with other bits; the files of its corpus may lie elsewhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard import folder
from regard.bands.decisive import MAY_BE_CAUSE, MUST_BE_SAME, within
from regard.data.sources import Files
from regard.recipe import Recipe
from regard.settings.tree import text_of
from regard.viewing.training_curves import read_metrics

SHOWN_OF_CHECKSUM = 12
# Where the files lie is not what is in them; and what they are may be said, or be left to be found out.
PLACES = {"source", "target", "text", "valid", "test", *(f"{split}_{side}" for split in ("valid", "test")
          for side in ("source", "target")), "format", "language", "source_language", "target_language"}  # fmt: skip
# Sums in another order, or of fewer bits, as another machine would have them.
FREE = ("training.precision", "training.parts", "training.deterministic", "search.nbest")
# When these decide, the end of the run tells.
ENDS = ("training.steps", "training.minutes", "training.patience")
KEPT = ("training.average", "training.average_of")
# Where a model is the mean of several, which there are to choose from.
CHOSEN_FROM = {"best": ("training.keep_best", "training.validate_every"), "newest": ("training.save_every",)}


@dataclass(frozen=True)
class Made:
    """How a model came about."""

    recipe: Recipe
    files: Mapping[str, str] | None = None
    """The SHA-256 of each file of its corpus; None where nothing says."""
    ended: str | None = None
    """Why its training ended; None where nothing says."""

    @classmethod
    def read(cls, place: Path, recipe: Recipe) -> Made:
        """What a model folder says of it."""
        fingerprint, metrics = folder.read_fingerprint(place), place / folder.METRICS
        events = read_metrics(metrics) if metrics.is_file() else []
        ends = [str(event.get("reason")) for event in events if event.get("event") == "end"]
        return cls(recipe, None if fingerprint is None else fingerprint.get("files", {}), ends[-1] if ends else None)


@dataclass(frozen=True)
class Wanted:
    """How a model has to have come about."""

    recipe: Recipe
    corpus: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """By the key of `data`, a file to train on and its SHA-256; none where any corpus will do."""
    searches: bool = True
    """Whether its search decides, too."""

    def departures(self, made: Made) -> list[str]:
        """What was otherwise, in words, a setting each; nothing where a model was made as it had to be."""
        places = [place for place in (*MUST_BE_SAME, *MAY_BE_CAUSE, *KEPT) if place not in ENDS]
        if (training := self.recipe.training).average > 1:
            places += CHOSEN_FROM[training.average_of]
        places += [*self._ends(made), *(["search"] if self.searches else [])]
        found = [
            in_words(key, *values)
            for key, values in differing(made.recipe, self.recipe).items()
            if within(key, places) and not within(key, FREE) and not _is_place(key)
        ]
        return [*self._other_files(made), *found]

    def _ends(self, made: Made) -> Iterator[str]:
        """Which of the settings that may end a run did: the clock, if it is set to, or else the steps."""
        clocks = made.recipe.training.by_clock, self.recipe.training.by_clock
        if not any(clocks) or (all(clocks) and made.ended == "done"):
            yield "training.steps"
        if all(clocks) or (not any(clocks) and made.ended == "time"):
            yield "training.minutes"
        if made.ended == "no improvement":
            yield "training.patience"

    def _other_files(self, made: Made) -> list[str]:
        data = made.recipe.data
        if made.files is None or not isinstance(data, Files):
            return []  # a corpus of another kind has its own line
        found = []
        for key, (file, sha256) in self.corpus.items():
            place = getattr(data, key)
            has = None if place is None else made.files.get(str(Path(place)))
            if has != sha256:
                said = "" if has is None else f" ({has[:SHOWN_OF_CHECKSUM]}…)"
                other = "not set" if place is None else f"{text_of(place)}{said}"
                found.append(f"`data.{key}` is {other}, not {file} ({sha256[:SHOWN_OF_CHECKSUM]}…)")
        return found


def differing(one: Any, other: Any) -> dict[str, tuple[Any, Any]]:
    """By dotted key, the values of both settings where they are not the same; None stands for what is not set.

    Of tables of two kinds with other keys, only the kinds are told, and the keys that both have.
    """
    here, there = dict(_flat(one)), dict(_flat(other))
    found = {key: (here.get(key), there.get(key)) for key in {**here, **there} if here.get(key) != there.get(key)}
    tables = tuple(key.removesuffix("kind") for key in found if key.endswith(".kind"))
    both = here.keys() & there.keys()
    return {key: values for key, values in found.items() if key in both or not key.startswith(tables)}


def in_words(key: str, value: Any, wanted: Any) -> str:
    """A difference as part of a sentence."""
    if wanted is None:
        return f"`{key}` is {text_of(value)}, but must not be set"
    return f"`{key}` is {'not set, but must be' if value is None else f'{text_of(value)}, not'} {text_of(wanted)}"


def _flat(settings: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for each in dataclasses.fields(settings):
        value, key = getattr(settings, each.name), f"{path}{each.name}"
        if dataclasses.is_dataclass(value):
            yield from _flat(value, f"{key}.")
        elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            for number, one in enumerate(value):
                yield from _flat(one, f"{key}.{number}.")
        else:
            yield key, value


def _is_place(key: str) -> bool:
    return within(key, ["data"]) and key.rpartition(".")[2] in PLACES
