"""How a run went, as one picture: loss, validation scores, learning rate, gradient norm and speed against steps.

Everything is read from `metrics.jsonl`, so that the picture can be drawn while a run goes on, after it, and anew.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from regard.counts import so_many
from regard.training.usual import Course
from regard.viewing.curves import SMALL_WIDE, Axis, Curve, Plot, plots_svg

CURVES = "curves.svg"
APART = "training with dropout and label smoothing, where the recipe has them; validation without"
POINTS = 240  # of a curve; more would not be told apart
SPREAD = 30.0  # largest over smallest value from which on an axis is logarithmic
FALLEN = 4.0  # the same for losses: on a linear axis, the first steps would press all others into one flat line

Event = Mapping[str, Any]
Points = list[tuple[float, float]]


def read_metrics(file: Path) -> list[Event]:
    """The events of a `metrics.jsonl`, in order; a line that was cut short by a crash is left out."""
    events: list[Event] = []
    for line in file.read_bytes().split(b"\n"):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("step"), int):
            events.append(event)
    return events


def training_svg(
    events: Sequence[Event],
    title: str,
    usual: Course | None = None,
    note: str | None = APART,
    columns: int = 2,
    wide: int = SMALL_WIDE,
    say: Callable[[str], str] = str,
) -> str | None:
    """Draw what the events of a run hold, over what is usual; None where there is no step yet.

    `note` says why two losses on one axis cannot be compared; it stands where there are two. `say` puts
    all other words and numbers into another language, but for the title.
    """
    events = _without_detours(events)
    steps = [event for event in events if event.get("event") == "step"]
    validations = [event for event in events if event.get("event") == "validation"]
    if not _points(steps, "loss"):
        return None
    plots = [_loss(steps, validations, usual)]
    if bleu := _points(validations, "bleu"):
        plots.append(_plot("BLEU of the validation set, greedy", [("", bleu, ".1f")], marks=(max, ".1f"), zero=True))
    elif accuracy := _points(validations, "accuracy"):
        plots.append(_plot("accuracy in percent, validation set", [("", accuracy, ".1f")], marks=(max, ".1f")))
    elif perplexity := _points(validations, "perplexity"):
        plots.append(
            _plot("validation perplexity a token", [("", perplexity, ".4g")], marks=(min, ".4g"), log=_wide(perplexity))
        )
    rates, norms = _points(steps, "learning_rate"), [point for point in _points(steps, "gradient_norm") if point[1] > 0]
    plots.append(_plot("learning rate", [("", _thinned(rates), ".2g")]))
    if norms:
        plots.append(_plot("gradient norm, before clipping", [("", _thinned(norms), ".3g")], log=_wide(norms)))
    if speeds := _speeds(steps):
        plots.append(_plot("tokens read a second, no padding", [("", _thinned(speeds), ",.0f")], zero=True))
    plots = [replace(plot, say=say) for plot in plots]
    return plots_svg(plots, title, columns, wide, note if len(plots[0].curves) > 1 else None)


def loss_by_tokens(events: Sequence[Event], points: int) -> tuple[tuple[float, float], ...]:
    """The training loss against the tokens read so far, smoothed: each point is the mean of a stretch of its own.

    All stretches, of which there are at most so many, have about as many tokens.
    """
    reports, read = [], 0
    for event in _without_detours(events):
        if event.get("event") == "step":
            tokens, loss = int(event.get("tokens") or 0), event.get("loss")
            if isinstance(loss, int | float) and math.isfinite(loss):
                reports.append((read + tokens / 2, float(loss), int(event.get("steps") or 1)))
            read += tokens
    stretches: dict[int, list[tuple[float, float, int]]] = {}
    for report in reports:
        stretches.setdefault(int(points * report[0] / max(read, 1)), []).append(report)
    return tuple(
        (fmean(middle for middle, _, _ in kept), fmean([loss for _, loss, _ in kept], [steps for *_, steps in kept]))
        for kept in stretches.values()
    )


def _without_detours(events: Sequence[Event]) -> list[Event]:
    """The events that led to the end: a run that went back to a checkpoint made some steps twice."""
    kept: list[Event] = []
    for event in events:
        if event.get("event") == "step":
            while kept and kept[-1]["step"] >= event["step"]:
                kept.pop()
        kept.append(event)
    return kept


def _loss(steps: Sequence[Event], validations: Sequence[Event], usual: Course | None) -> Plot:
    curves = [("training", _thinned(_points(steps, "loss")), ".3f")]
    if nll := _points(validations, "nll"):
        curves.append(("validation", nll, ".3f"))
    answer = "label" if _points(validations, "accuracy") else "token"
    title = f"loss in nats a {answer}"
    losses = [point for _, points, _ in curves for point in points]
    log = _wide(losses, FALLEN)
    plot = _plot(title, curves, log=log)
    if usual is None:
        return plot
    # As far as the run has come: what lies ahead would press together what is there. A mean stands amid its stretch.
    # What is usual may begin at nothing, which no logarithmic axis has.
    least = min(loss for _, loss in losses) / 2 if log else 0.0
    bands = [
        tuple(
            (point.step - back, max(point.low, least), max(point.high, least))
            for point in points if point.step <= steps[-1]["step"]
        )
        for points, back in ((usual.training, (usual.stretch - 1) / 2), (usual.validation, 0.0))
    ]  # fmt: skip
    shaded = replace(plot.y, title=f"{title}; shaded: usual, {so_many(usual.runs, 'run')}")
    return replace(plot, y=shaded, bands=tuple(bands[: len(curves)]))


def _plot(
    title: str,
    curves: Sequence[tuple[str, Points, str]],
    marks: tuple[Callable[..., tuple[float, float]], str] | None = None,
    log: bool = False,
    zero: bool = False,
) -> Plot:
    """Curves that end in their last value; `marks` says how to find the best point, which the title names."""
    drawn = tuple(Curve(f"{name} {points[-1][1]:{form}}".strip(), tuple(points)) for name, points, form in curves)
    if marks is not None and len(curves[0][1]) > 1:
        choose, form = marks
        step, value = choose(curves[0][1], key=lambda point: point[1])
        title = f"{title}; best {value:{form}} at step {step:,.0f}"
    return Plot(drawn, Axis("step", zero=True), Axis(title, "log" if log else "linear", zero=zero))


def _points(events: Sequence[Event], name: str) -> Points:
    """The steps and values of those events that have one; a step that was skipped has no loss."""
    return [
        (float(event["step"]), float(value)) for event in events
        if isinstance(value := event.get(name), int | float) and math.isfinite(value)
    ]  # fmt: skip


def _speeds(steps: Sequence[Event]) -> Points:
    timed = [event for event in steps if (event.get("took") or 0) > 0 and event.get("tokens")]
    return [(float(event["step"]), event["tokens"] / event["took"]) for event in timed]


def _thinned(points: Points) -> Points:
    """At most POINTS of them, each the mean of neighbours."""
    count = min(POINTS, len(points))
    edges = [number * len(points) // count for number in range(count + 1)]
    parts = [points[first:last] for first, last in pairwise(edges)]
    return [(sum(x for x, _ in part) / len(part), sum(y for _, y in part) / len(part)) for part in parts]


def _wide(points: Points, spread: float = SPREAD) -> bool:
    values = [value for _, value in points]
    return min(values) > 0 and max(values) > spread * min(values)
