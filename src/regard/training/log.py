"""What a person sees while a model learns, and what a program can read afterwards (`metrics.jsonl`)."""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from regard.files import write_file
from regard.status import StatusLine, clock, cut
from regard.training.adapters import Sink
from regard.training.report import Ending, StepReport

LATEST = 20  # steps whose mean loss is shown: single batches jump about too much to read
RECENT = 20.0  # seconds of training whose speed is shown


class Sample(NamedTuple):
    """A sentence to watch: what the model makes of it, and what it should."""

    source: str
    reference: str | None
    """None where there is no one right answer: how a text goes on, say."""
    translation: str


class TrainingLog:
    """Appends every report to `metrics.jsonl`, passes its numbers on, and keeps the status line up to date."""

    def __init__(
        self, metrics: Path, steps: int, first: int, status: StatusLine | None = None, sinks: Sequence[Sink] = ()
    ) -> None:
        if metrics.is_file():
            _forget_after(metrics, first)
        self._metrics = metrics.open("a", encoding="utf-8")
        self._steps = steps
        self._status = status or StatusLine()
        self._sinks = list(sinks)
        self._started = time.monotonic()
        self._losses: deque[tuple[int, float]] = deque()  # of so many steps their mean
        self._skipped = 0
        self._recent: deque[StepReport] = deque()
        self._second: tuple[int, float] | None = None  # where the second report began, and when

    def step(self, report: StepReport, aside: str = "", time_left: float = math.inf) -> None:
        """Record some steps; show them if it is time, with a few words more. A time limit leaves `time_left`."""
        self._write({"event": "step", **{("took" if key == "seconds" else key): v for key, v in vars(report).items()}})
        self._pass_on(
            report.step,
            {
                "train/loss": report.loss,
                "train/learning_rate": report.learning_rate,
                "train/gradient_norm": report.gradient_norm,
                "train/tokens_per_second": report.tokens_per_second,
            },
        )
        made = report.steps - report.skipped
        if made > 0 and math.isfinite(report.loss):
            self._losses.append((made, report.loss))
            while sum(steps for steps, _ in self._losses) - self._losses[0][0] >= LATEST:
                self._losses.popleft()
        self._skipped += report.skipped
        self._recent.append(report)
        while sum(each.seconds for each in self._recent) - self._recent[0].seconds > RECENT:
            self._recent.popleft()
        self._status.show(lambda: self._line(report, aside, time_left), now=report.step >= self._steps)
        if self._second is None:
            self._second = report.step, time.monotonic()

    def event(self, event: str, values: Mapping[str, object]) -> None:
        """Record something that happens now and then: a start, a validation, an average. `values` hold its step."""
        self._write({"event": event, **values})
        # Whole numbers are counts, of no interest as a curve.
        numbers = {f"{event}/{name}": value for name, value in values.items() if isinstance(value, float)}
        if numbers and isinstance(step := values.get("step"), int):
            self._pass_on(step, numbers)

    def say(self, line: str) -> None:
        """Print a line that stays, above the status line."""
        self._status.say(line)

    def samples(self, samples: Sequence[Sample]) -> None:
        """Show what the model makes of some sentences."""
        for sample in samples:
            for line in sample_lines(sample, self._status.width):
                self.say(line)

    def end(self, ending: Ending) -> None:
        """Record why the run ended."""
        self._write({"event": "end", "step": ending.step, "reason": ending.reason, "sentence": ending.sentence})

    def close(self) -> None:
        """End the status line, and close the file and whatever else keeps the numbers."""
        self._status.close()
        self._metrics.close()
        for sink in self._sinks:
            try:
                sink.close()
            except Exception as error:  # see `_pass_on`
                self._status.say(f"warning: {sink.name}: {error}.")

    def _line(self, report: StepReport, aside: str, time_left: float) -> str:
        tokens, seconds = (sum(getattr(each, name) for each in self._recent) for name in ("tokens", "seconds"))
        steps = sum(steps for steps, _ in self._losses)
        loss = sum(steps * loss for steps, loss in self._losses) / max(steps, 1)
        skipped = f"  {self._skipped:,} skipped" if self._skipped else ""
        return (
            f"step {report.step:,}/{self._steps:,}  loss {loss:.3f}  rate {report.learning_rate:.1e}  "
            f"{tokens / max(seconds, 1e-9):,.0f} tokens/s  {clock(min(self._left(report), time_left))} left{skipped}"
            f"{'  ' if aside else ''}{aside}"
        )

    def _left(self, report: StepReport) -> float:
        """Seconds to the end, as fast as since the first report: those steps waited for the compiler and caches."""
        pace = report.seconds / max(report.steps, 1)
        if self._second is not None and report.step > self._second[0]:
            pace = (time.monotonic() - self._second[1]) / (report.step - self._second[0])
        return max(self._steps - report.step, 0) * pace

    def _write(self, values: Mapping[str, object]) -> None:
        # JSON has no NaN and no infinity, and some readers stop at them.
        plain = {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in values.items()}
        seconds = round(time.monotonic() - self._started, 3)
        self._metrics.write(json.dumps({**plain, "seconds": seconds}, ensure_ascii=False) + "\n")
        self._metrics.flush()

    def _pass_on(self, step: int, values: Mapping[str, float]) -> None:
        for sink in list(self._sinks):
            try:
                sink.write(step, values)
            except Exception as error:  # days of training must not end because a server elsewhere did
                self._sinks.remove(sink)
                self.say(f"warning: {sink.name} gets no more numbers of this run: {error}. `metrics.jsonl` goes on.")


def sample_lines(sample: Sample, width: int) -> list[str]:
    """A sample for people: on one line where it fits, else each side on its own, cut to `width` columns."""
    mark = "·" if sample.reference is None else "✓" if sample.translation == sample.reference else "✗"
    line = f"  {mark} {sample.source}  →  {sample.translation}"
    if line == cut(line, width):
        return [line]
    return [cut(f"  {mark} {sample.source}", width), cut(f"    → {sample.translation}", width)]


def _forget_after(metrics: Path, step: int) -> None:
    """Keep what was written up to `step`: a run that crashed had gone on past its checkpoint, or died in mid-line."""
    kept = []
    for line in metrics.read_bytes().split(b"\n"):
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line + b"\n")
        except (ValueError, KeyError, TypeError):
            continue
    write_file(metrics, b"".join(kept))
