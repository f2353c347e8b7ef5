"""A run beside the usual course of its recipe: whether they can be compared, and what the run has otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard import folder
from regard.bands.band import Band, all_bands, band_of_recipe
from regard.bands.decisive import (
    CORPUS,
    MUST_BE_SAME,
    OPTIMISER,
    corpus_hashes,
    decisive_settings,
    languages_of,
    unused_settings,
    within,
)
from regard.data.generated import Generated
from regard.recipe import Recipe
from regard.settings.tree import text_of
from regard.training.optim import height_of
from regard.training.usual import TOO_HIGH, Course, CourseWatch

AMOUNT = 0.05  # the share by which a corpus may be larger or smaller: of lines that are not aligned, filters drop some
NAMED = 3  # at most so many differences, where a run is not compared
TOO_LOW = "a rate too low, which learns the same later"
TOO_SHORT = "a warm-up too short"
THOUGHTS = {
    OPTIMISER: f"{TOO_HIGH}, {TOO_SHORT}, or {TOO_LOW}",
    "batch": "fewer examples in as many steps, and noisier gradients",
    "training.steps": "a rate that falls at other steps",
    "training.by_clock": "a rate that falls at other steps",
    "training.minutes": "a rate that falls at other steps",
    "training.precision": "fewer bits",
    "training.parts": "sums in another order, though that is seldom seen",
    "training.deterministic": "sums in another order, though that is seldom seen",
    CORPUS: "other sentences of the same kinds",
}  # docs/training.md has the same as a table


@dataclass(frozen=True)
class Comparison:
    """A band, and a run of this recipe on the corpus of this fingerprint."""

    band: Band
    recipe: Recipe
    fingerprint: Mapping[str, Any]

    def same_corpus(self) -> bool:
        """Whether the run reads the very corpus that was measured: the same files, or generated with equal settings."""
        generated_otherwise = any(within(key, [CORPUS]) for key in self._differing())
        return corpus_hashes(self.fingerprint) == self.band.corpus and not generated_otherwise

    def hindrances(self) -> list[str]:
        """What the run has otherwise that gives its losses another meaning; nothing where they can be compared."""
        differing = self._differing()
        found = [_in_words(key, *values) for key, values in differing.items() if within(key, MUST_BE_SAME)]
        if self._swapped():
            found.append("its files are the same the other way round")
        here, usual = languages_of(self.recipe), self.band.languages
        if here and usual and here != usual:
            found.append(f"it is from {' to '.join(here)}, not from {' to '.join(usual)}")
        amounts = self._other_amounts()
        if amounts and not found:
            asked = [_in_words(key, *values) for key, values in differing.items() if within(key, [CORPUS])]
            found = asked or amounts[:1]
        return found

    def causes(self) -> list[str]:
        """What the run has otherwise than those that were measured, though its losses mean the same."""
        differing = self._differing()
        found = [_in_words(key, *values) for key, values in differing.items() if not within(key, MUST_BE_SAME)]
        if corpus_hashes(self.fingerprint) != self.band.corpus:
            lines = ", whose lines may not stand beside their translations" if self.recipe.data.kind == "files" else ""
            found.append(f"the corpus is about as large, but another one{lines}")
        return found

    def thoughts(self) -> list[str]:
        """What to think of where the run learns badly, in a few words."""
        differing = self._differing()
        found = []
        for place, thought in THOUGHTS.items():
            if any(within(key, [place]) for key in differing):
                found += self._of_rate(differing) or [thought] if place == OPTIMISER else [thought]
        if not found and self.recipe.training.by_clock:
            theirs = self.band.machine.partition(", torch")[0]
            found.append(f"a machine faster than theirs ({theirs}), where the rate falls at later steps by the clock")
        return list(dict.fromkeys(found))

    def _of_rate(self, differing: Mapping[str, tuple[Any, Any]]) -> list[str]:
        """Whether the rate is too high or too low, if it is known to be above or below the usual one."""
        schedule = self.recipe.training.optimiser.schedule
        # By `inverse-sqrt`, a longer warm-up has lower rates first and higher ones later.
        unknown = ("kind", "schedule", *(["warmup"] if schedule == "inverse-sqrt" else []))
        if any(f"{OPTIMISER}.{name}" in differing for name in unknown):
            return []
        found = []
        for name, above, below in ((height_of(schedule), TOO_HIGH, TOO_LOW), ("warmup", TOO_LOW, TOO_SHORT)):
            if values := differing.get(f"{OPTIMISER}.{name}"):
                found.append(above if values[0] > values[1] else below)
        contrary = TOO_LOW in found and {TOO_HIGH, TOO_SHORT} & set(found)
        return [] if contrary else found

    def _differing(self) -> dict[str, tuple[Any, Any]]:
        """By dotted key, the values here that are other than the usual ones, and these; of a corpus if it can be."""
        here, usually = decisive_settings(self.recipe), self.band.settings
        schedule, by_clock = (usually.get(key, here[key][1]) for key in (f"{OPTIMISER}.schedule", "training.by_clock"))
        unused = unused_settings(schedule, by_clock)  # there, a default is no value that somebody chose
        both_generated = not self.band.corpus and isinstance(self.recipe.data, Generated)
        found = {}
        # What such a run does not have at all is told only where it must be the same.
        for key in {**here, **{key: None for key in usually if within(key, MUST_BE_SAME)}}:
            value, default = here.get(key, (None, None))
            usual = usually.get(key, default)
            if value != usual and key not in unused and (both_generated or not within(key, [CORPUS])):
                found[key] = (value, usual)
        return found

    def _swapped(self) -> bool:
        """Whether the files are the same in another order: to translate the other way round is another thing."""
        here, usual = corpus_hashes(self.fingerprint), self.band.corpus
        return here != usual and sorted(here) == sorted(usual)

    def _other_amounts(self) -> list[str]:
        """Examples and tokens, if the corpus has many more or fewer than usual."""
        pairs = (("examples", self.band.examples), ("tokens", self.band.tokens))
        amounts = ((name, self.fingerprint.get(name) or 0, usual) for name, usual in pairs)
        return [
            f"its corpus has {here:,} {name}, not about {usual:,}"
            for name, here, usual in amounts
            if abs(here - usual) > AMOUNT * usual
        ]


def not_compared(recipe: Recipe, fingerprint: Mapping[str, Any]) -> str | None:
    """Why a run is not compared with the usual course of its recipe; None where it is, or where none was measured.

    Nor is anything said of one that goes on from another model: it has the recipe of that, and is meant to differ. One
    of another name is a recipe of its own.
    """
    band = band_of_recipe(recipe.name)
    if band is None or recipe.init != band.settings.get("init"):
        return None
    if not (found := Comparison(band, recipe, fingerprint).hindrances()):
        return None
    more = [f"{len(found) - NAMED:,} more"] if len(found) > NAMED else []
    named = "; ".join([*found[:NAMED], *more])
    return f"note: this run is not compared with the usual course of `{recipe.name}`: {named}."


def watch_of(recipe: Recipe, fingerprint: Mapping[str, Any]) -> CourseWatch | None:
    """What compares a run of this recipe, on the corpus of this fingerprint, with the usual; None where none fits."""
    if (named := band_of_recipe(recipe.name)) is not None:
        found = [Comparison(named, recipe, fingerprint)]
    else:  # under a name of its own, it may still be a recipe that was measured, on the very same corpus
        comparisons = (Comparison(band, recipe, fingerprint) for band in all_bands())
        found = [comparison for comparison in comparisons if comparison.same_corpus()]
    for comparison in found:
        if not comparison.hindrances():
            return CourseWatch(comparison.band.course, comparison.causes(), comparison.thoughts())
    return None


def usual_course(place: Path) -> Course | None:
    """The usual course of the run in a folder; None where none was measured."""
    fingerprint = folder.read_fingerprint(place)
    found = None if fingerprint is None else watch_of(folder.read_recipe(place), fingerprint)
    return None if found is None else found.course


def _in_words(key: str, value: Any, usual: Any) -> str:
    than = "usually not set" if usual is None else f"not {text_of(usual)}"
    return f"`{key}` is {'not set' if value is None else text_of(value)}, {than}"
