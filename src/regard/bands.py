"""The usual courses of recipes that come with Regard: which runs they hold for, and how they are made from runs.

A course is measured with runs of one recipe that differ in their seed alone, at best several, and kept in
`recipes/bands/RECIPE.toml`. It is meant for a run of the same recipe (its name, model, vocabulary and objective) on
about as much data, of a generated corpus also in the same languages. What else differs, the learning rate or the files
of the corpus say, does not make it another recipe: it may be the cause of an unusual loss, and is named as such.
"""

from __future__ import annotations

import dataclasses
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev, variance
from typing import Any

from regard import folder
from regard.data.generated import Generated
from regard.errors import DataError, MissingError, UsageError
from regard.recipe import PRESETS, Recipe
from regard.settings.tree import text_of
from regard.training.objective import ObjectiveSettings
from regard.training.optim import ENDING
from regard.training.usual import Course, Stretches, Usual, Watch
from regard.viewing.training_curves import Event, read_metrics

BANDS = PRESETS / "bands"
GENERATED = "data"  # of a corpus that is generated, settings say what hashes of files say of others
MUST_BE_SAME = ("init", "data.source", "data.target", "tokenizer", "model", "batch.layout",
                *(f"training.{field.name}" for field in dataclasses.fields(ObjectiveSettings)))  # fmt: skip
MAY_BE_CAUSE = (GENERATED, "batch", "training.optimiser", "training.precision", "training.steps", "training.by_clock",
                "training.parts", "training.deterministic", "training.ema")  # fmt: skip
THOUGHTS = {
    "training.optimiser": "a rate too high, a warm-up too short, or a rate too low, which learns the same later",
    "batch": "fewer examples in as many steps, and noisier gradients",
    "training.steps": "a rate that falls at other steps",
    "training.by_clock": "a rate that falls at other steps",
    "training.precision": "fewer bits",
    "training.parts": "sums in another order, though that is seldom seen",
    "training.deterministic": "sums in another order, though that is seldom seen",
    GENERATED: "other sentences of the same kinds",
}  # docs/training.md has the same as a table
NAMED = 3  # at most so many differences, where a run is not compared
AMOUNT = 0.05  # the share by which a corpus may be larger or smaller: of lines that are not aligned, filters drop some
STRETCHES = 20  # at least so many in a run
NEIGHBOURS = 1  # to either side, whose variance counts as well
ASSUMED = 0.05  # nats, or a twentieth of a loss below 1: the standard deviation where one run cannot tell it
FALLING = 6.0  # or so many times less than the loss fell since the stretch before, if that is more


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

    def fits(self, recipe: Recipe, fingerprint: Mapping[str, Any]) -> bool:
        """Whether a run of this recipe, on the corpus of this fingerprint, should learn like this."""
        return not self.hindrances(recipe, fingerprint)

    def hindrances(self, recipe: Recipe, fingerprint: Mapping[str, Any]) -> list[str]:
        """What such a run has otherwise that gives its losses another meaning; nothing where they can be compared."""
        if recipe.name != self.course.recipe:
            return [f"`name` is {text_of(recipe.name)}, not {text_of(self.course.recipe)}"]
        differing = self._differing(recipe)
        found = [_difference(key, *values) for key, values in differing.items() if _within(key, MUST_BE_SAME)]
        if self._swapped(fingerprint):
            found.append("its files are the same the other way round")
        amounts = [
            f"its corpus has {fingerprint.get(name) or 0:,} {name}, not about {usual:,}"
            for name, usual in (("examples", self.examples), ("tokens", self.tokens))
            if abs((fingerprint.get(name) or 0) - usual) > AMOUNT * usual
        ]
        if amounts and not found:
            asked = [_difference(key, *values) for key, values in differing.items() if _within(key, [GENERATED])]
            found = asked or amounts[:1]
        return found

    def _differing(self, recipe: Recipe) -> dict[str, tuple[Any, Any]]:
        """By dotted key, the values here that are other than the usual ones, and these; of a corpus if it can be."""
        here, generated = _settings(recipe), self._both_generated(recipe)
        found = {}
        # What such a run does not have at all is told only where it must be the same.
        for key in {**here, **{key: None for key in self.settings if _within(key, MUST_BE_SAME)}}:
            value, default = here.get(key, (None, None))
            usual = self.settings.get(key, default)
            if value != usual and (generated or not _within(key, [GENERATED])):
                found[key] = (value, usual)
        return found

    def _swapped(self, fingerprint: Mapping[str, Any]) -> bool:
        """Whether the files are the same in another order: to translate the other way round is another thing."""
        found = _corpus(fingerprint)
        return found != self.corpus and sorted(found) == sorted(self.corpus)

    def _both_generated(self, recipe: Recipe) -> bool:
        """Whether settings of the corpus can be compared: it has no files, neither here nor there."""
        return not self.corpus and isinstance(recipe.data, Generated)

    def causes(self, recipe: Recipe, fingerprint: Mapping[str, Any]) -> list[str]:
        """What such a run has otherwise than those that were measured."""
        differing = self._differing(recipe)
        found = [_difference(key, *values) for key, values in differing.items() if not _within(key, MUST_BE_SAME)]
        if _corpus(fingerprint) != self.corpus:
            lines = ", whose lines may not stand beside their translations" if recipe.data.kind == "files" else ""
            found.append(f"the corpus is about as large, but another one{lines}")
        return found

    def thoughts(self, recipe: Recipe) -> list[str]:
        """What to think of where such a run learns badly, in a few words."""
        differing = self._differing(recipe)
        found = [thought for place, thought in THOUGHTS.items() if any(_within(key, [place]) for key in differing)]
        return list(dict.fromkeys(found))

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


def read_band(file: Path) -> Band:
    """A band from its file."""
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
        rows = (tuple(Usual(*row) for row in found[name]) for name in ("training", "validation"))
        course = Course(found["recipe"], len(found["seeds"]), found["stretch"], *rows)
        return Band(
            course, found["settings"], found["examples"], found["tokens"], tuple(found["corpus"]),
            tuple(found["seeds"]), found.get("command"), found["machine"],
        )  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{file}: must be a band as `python -m benchmarks.bands` writes it, but is not ({error!r}). Write it anew."
        ) from error


def not_compared(recipe: Recipe, fingerprint: Mapping[str, Any]) -> str | None:
    """Why a run is not compared with the usual course of its recipe; None where it is, or where none was measured.

    Nor is anything said of one that goes on from another model: it has the recipe of that, and is meant to differ.
    """
    band = band_of_recipe(recipe.name)
    found = [] if band is None or recipe.init != band.settings.get("init") else band.hindrances(recipe, fingerprint)
    if not found:
        return None
    more = [f"{len(found) - NAMED:,} more"] if len(found) > NAMED else []
    named = "; ".join([*found[:NAMED], *more])
    return f"note: this run is not compared with the usual course of `{recipe.name}`: {named}."


def watch_of(recipe: Recipe, fingerprint: Mapping[str, Any]) -> Watch | None:
    """What compares a run of this recipe, on the corpus of this fingerprint, with the usual; None where none fits."""
    band = band_of_recipe(recipe.name)
    if band is None or not band.fits(recipe, fingerprint):
        return None
    return Watch(band.course, band.causes(recipe, fingerprint), band.thoughts(recipe))


def usual_course(place: Path) -> Course | None:
    """The usual course of the run in a folder; None where none was measured."""
    fingerprint = folder.read_fingerprint(place)
    found = None if fingerprint is None else watch_of(folder.read_recipe(place), fingerprint)
    return None if found is None else found.course


# ---- making them


def band_of_runs(places: Sequence[Path]) -> Band:
    """The usual course of finished runs, or of a single one, that differ in their seed alone."""
    recipes = [folder.read_recipe(place) for place in places]
    first, corpora = recipes[0], [_fingerprint(place) for place in places]
    for place, recipe, corpus in zip(places, recipes, corpora, strict=True):
        other = next((name for name in ("examples", "tokens") if corpus[name] != corpora[0][name]), None)
        other = other or ("corpus" if _corpus(corpus) != _corpus(corpora[0]) else None)
        other = other or ("settings" if (recipe.name, _settings(recipe)) != (first.name, _settings(first)) else None)
        if other is not None:
            raise UsageError(
                f"{place}: runs must differ in their seed alone, but its {other} differ from {places[0]}'s."
            )
    if len(seeds := {recipe.seed for recipe in recipes}) < len(recipes):
        raise UsageError(
            f"bands: each run must have a seed of its own, but the seeds are {sorted(seeds)}. Leave one out."
        )
    events = [_events(place) for place in places]
    stretch = _round_below(min(run[-1]["step"] for run in events) / STRETCHES)
    training = [dict(Stretches(stretch).of(_losses(run))) for run in events]
    validation = [
        {event["step"]: event["nll"] for event in run if event.get("event") == "validation"} for run in events
    ]
    start = next(event for event in events[0] if event.get("event") == "start")
    return Band(
        Course(first.name, len(places), stretch, _usual(training), _usual(validation)),
        {key: value for key, (value, default) in _settings(first).items() if value != default},
        corpora[0]["examples"], corpora[0]["tokens"], _corpus(corpora[0]),
        tuple(recipe.seed for recipe in recipes), _command(start), f"{start['machine']}, torch {start['torch']}",
    )  # fmt: skip


def _usual(runs: Sequence[Mapping[int, float]]) -> tuple[Usual, ...]:
    """Mean and standard deviation at the steps that all runs have.

    Of a few runs a standard deviation is known badly. How much runs differ changes slowly, so the variances of the
    steps next to it are taken in, too; it is never less than the step's own.
    """
    if len(runs) == 1:
        return _usual_of_one(runs[0])
    steps = sorted(set.intersection(*(set(run) for run in runs)))
    variances = [variance(run[step] for run in runs) for step in steps]
    found = []
    for place, step in enumerate(steps):
        pooled = fmean(variances[max(place - NEIGHBOURS, 0) : place + NEIGHBOURS + 1]) ** 0.5
        values = [run[step] for run in runs]
        found.append(Usual(step, fmean(values), max(pooled, stdev(values))))
    return tuple(found)


def _usual_of_one(run: Mapping[int, float]) -> tuple[Usual, ...]:
    """A single run, and how far others may be from it by our guess."""
    rows = sorted(run.items())
    falls = [abs(before - after) / FALLING for (_, before), (_, after) in pairwise(rows)]
    # The first has nothing before it, and fell further than any.
    falls = [*falls[:1], *falls] or [0.0] * len(rows)
    return tuple(
        Usual(step, loss, max(fall, ASSUMED * min(loss, 1.0))) for (step, loss), fall in zip(rows, falls, strict=True)
    )


def _losses(events: Sequence[Event]) -> Iterator[tuple[int, int, float]]:
    for event in events:
        made = event["steps"] - event.get("skipped", 0) if event.get("event") == "step" else 0
        if made and event["loss"] is not None:
            yield event["step"], made, event["loss"]


def _command(start: Event) -> str | None:
    """What was typed, wherever the model went."""
    words = shlex.split(start.get("command") or "")
    kept = [word for before, word in zip(["", *words], words, strict=False) if "--out" not in (before, word)]
    return shlex.join(word for word in kept if not word.startswith("--out=")) or None


def _events(place: Path) -> list[Event]:
    if not (place / folder.METRICS).is_file():
        raise MissingError(f"{place}: must be the folder of a run, but has no {folder.METRICS}. Is the path right?")
    events = read_metrics(place / folder.METRICS)
    ends = ("done", "time") if folder.read_recipe(place).training.by_clock else ("done",)
    if not any(event.get("event") == "end" and event.get("reason") in ends for event in events):
        raise DataError(f"{place}: must be a run that came to its end, but did not. Go on with it first.")
    return events


def _fingerprint(place: Path) -> Mapping[str, Any]:
    found = folder.read_fingerprint(place)
    if found is None:
        raise DataError(f"{place / folder.DATA}: must say which corpus it was, but does not. Train the model anew.")
    return found


def _round_below(value: float) -> int:
    """The largest of 1, 2 and 5 times a power of ten that is not above a value, but at least 1."""
    power = 10 ** max(len(str(int(value))) - 1, 0)
    return max((times * power for times in (1, 2, 5) if times * power <= value), default=1)


# ---- what decides how a run learns


def _settings(recipe: Recipe) -> dict[str, tuple[Any, Any]]:
    """By dotted key, the values that matter to a course, and their defaults."""
    found = {key: pair for key, pair in _walk(recipe, "") if _within(key, (*MUST_BE_SAME, *MAY_BE_CAUSE))}
    if recipe.training.optimiser.schedule not in ENDING:
        del found["training.steps"]
    generated = isinstance(recipe.data, Generated)
    # Files are known by their content, wherever they lie; and a corpus of another kind is told by that alone.
    return {
        key: pair for key, pair in found.items()
        if not _within(key, [GENERATED]) or (generated and key != f"{GENERATED}.kind")
    }  # fmt: skip


def _walk(settings: Any, path: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
    for field in dataclasses.fields(settings):
        value, key = getattr(settings, field.name), f"{path}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from _walk(value, f"{key}.")
        else:
            # A kind says which defaults hold, so it has none itself.
            default = None if field.name == "kind" else field.default
            yield key, (list(value) if isinstance(value, tuple) else value, default)


def _within(key: str, places: Sequence[str]) -> bool:
    return any(key == place or key.startswith(f"{place}.") for place in places)


def _difference(key: str, value: Any, usual: Any) -> str:
    than = "usually not set" if usual is None else f"not {text_of(usual)}"
    return f"`{key}` is {'not set' if value is None else text_of(value)}, {than}"


def _corpus(fingerprint: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(fingerprint.get("files", {}).values())
