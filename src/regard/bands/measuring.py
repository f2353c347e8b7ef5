"""How a band is made: from finished runs of one recipe that differ in their seed alone, or from a single one."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path, PurePath
from statistics import fmean, stdev, variance
from typing import Any

from regard import folder
from regard.bands.band import Band
from regard.bands.decisive import corpus_hashes, decisive_settings, languages_of
from regard.errors import DataError, MissingError, UsageError
from regard.recipe import Recipe
from regard.training.usual import Course, Stretches, Usual
from regard.viewing.training_curves import Event, read_metrics

STRETCHES = 20  # at least so many in a run
NEIGHBOURS = 1  # to either side, whose variance counts as well
ASSUMED = 0.05  # nats, and the share of a loss: the standard deviation where one run cannot tell it is about that
FALLING = 6.0  # so many times less than the loss fell since the stretch before, but between those two


def band_of_runs(places: Sequence[Path]) -> Band:
    """The usual course of finished runs, or of a single one, that differ in their seed alone."""
    recipes = [folder.read_recipe(place) for place in places]
    corpora = [_fingerprint(place) for place in places]
    _check_only_seeds_differ(places, recipes, corpora)
    first, corpus = recipes[0], corpora[0]
    events = [_events(place) for place in places]
    stretch = _round_below(min(run[-1]["step"] for run in events) / STRETCHES)
    training = [dict(Stretches(stretch).of(_losses(run))) for run in events]
    validation = [
        {event["step"]: event["nll"] for event in run if event.get("event") == "validation"} for run in events
    ]
    start = next(event for event in events[0] if event.get("event") == "start")
    return Band(
        Course(first.name, len(places), stretch, _usual(training), _usual(validation)),
        {key: value for key, (value, default) in decisive_settings(first).items() if value != default},
        corpus["examples"], corpus["tokens"], corpus_hashes(corpus),
        tuple(recipe.seed for recipe in recipes), _command(start), f"{start['machine']}, torch {start['torch']}",
        languages_of(first),
    )  # fmt: skip


def _check_only_seeds_differ(
    places: Sequence[Path], recipes: Sequence[Recipe], corpora: Sequence[Mapping[str, Any]]
) -> None:
    first = _all_but_seed(recipes[0], corpora[0])
    for place, recipe, corpus in zip(places, recipes, corpora, strict=True):
        here = _all_but_seed(recipe, corpus)
        if other := next((what for what in first if here[what] != first[what]), None):
            raise UsageError(
                f"{place}: runs must differ in their seed alone, but its {other} differ from {places[0]}'s."
            )
    if len(seeds := {recipe.seed for recipe in recipes}) < len(recipes):
        raise UsageError(f"each run must have a seed of its own, but the seeds are {sorted(seeds)}. Leave one out.")


def _all_but_seed(recipe: Recipe, corpus: Mapping[str, Any]) -> dict[str, Any]:
    """What runs of one course have in common, by a word for it."""
    return {
        "examples": corpus["examples"], "tokens": corpus["tokens"], "corpus": corpus_hashes(corpus),
        "settings": (recipe.name, decisive_settings(recipe)),
    }  # fmt: skip


def _usual(runs: Sequence[Mapping[int, float]]) -> tuple[Usual, ...]:
    """Mean and standard deviation at the steps that all runs have.

    Of a few runs a standard deviation is known badly. How much runs differ changes slowly, so the variances of the
    steps next to it are taken in, too; it is never less than the step's own.
    """
    if len(runs) == 1:
        return assumed(runs[0])
    steps = sorted(set.intersection(*(set(run) for run in runs)))
    variances = [variance(run[step] for run in runs) for step in steps]
    found = []
    for place, step in enumerate(steps):
        pooled = fmean(variances[max(place - NEIGHBOURS, 0) : place + NEIGHBOURS + 1]) ** 0.5
        values = [run[step] for run in runs]
        found.append(Usual(step, fmean(values), max(pooled, stdev(values))))
    return tuple(found)


def assumed(run: Mapping[int, float]) -> tuple[Usual, ...]:
    """A single run, and how far others may be from it by our guess.

    Where the loss falls steeply, a run that is a few steps behind has a much higher one. But the first steps fall
    further than any: half of that would be wider than all the rest of the course, so there is an upper bound, too.
    """
    rows = sorted(run.items())
    falls = [abs(before - after) / FALLING for (_, before), (_, after) in pairwise(rows)]
    # The first has nothing before it, and fell further than any.
    falls = [*falls[:1], *falls] or [0.0] * len(rows)
    return tuple(
        Usual(step, loss, min(max(fall, ASSUMED * min(loss, 1.0)), ASSUMED * max(loss, 1.0)))
        for (step, loss), fall in zip(rows, falls, strict=True)
    )


def _losses(events: Sequence[Event]) -> Iterator[tuple[int, int, float]]:
    for event in events:
        made = event["steps"] - event.get("skipped", 0) if event.get("event") == "step" else 0
        if made and event["loss"] is not None:
            yield event["step"], made, event["loss"]


def _command(start: Event) -> str | None:
    """What was typed, wherever the files lay and the model went."""
    words = shlex.split(start.get("command") or "")
    kept = [word for before, word in zip(["", *words], words, strict=False) if "--out" not in (before, word)]
    return shlex.join(_without_folder(word) for word in kept if not word.startswith("--out=")) or None


def _without_folder(word: str) -> str:
    """`data.source=/corpora/train.en` as `data.source=train.en`."""
    key, equals, value = word.rpartition("=")
    return f"{key}{equals}{PurePath(value).name}" if PurePath(value).is_absolute() else word


def _events(place: Path) -> list[Event]:
    if not (place / folder.METRICS).is_file():
        raise MissingError(f"{place}: must be the folder of a run, but has no {folder.METRICS}. Is the path right?")
    events, training = read_metrics(place / folder.METRICS), folder.read_recipe(place).training
    ends = ["done"]
    if training.by_clock:
        ends.append("time")
    if training.patience is not None:
        ends.append("no improvement")
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
