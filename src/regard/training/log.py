"""What a person sees while a model learns, and what a program can read afterwards (`metrics.jsonl`)."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

from regard.files import write_file
from regard.status import StatusLine, clock
from regard.training.trainer import StepReport

SMOOTHING = 0.98


class TrainingLog:
    """Appends every report to `metrics.jsonl` and keeps the status line: step, loss, speed, time left."""

    def __init__(self, metrics: Path, steps: int, first: int, status: StatusLine | None = None) -> None:
        if metrics.is_file():
            _forget_after(metrics, first)
        self._metrics = metrics.open("a", encoding="utf-8")
        self._steps, self._first = steps, first
        self._status = status or StatusLine()
        self._started = time.monotonic()
        self._seen, self._tokens, self._loss = 0, 0, 0.0

    def step(self, report: StepReport) -> None:
        """Record one step; show it if it is time."""
        self._write({"event": "step", **vars(report)})
        self._tokens += report.tokens
        self._seen += 1
        # The mean of the first steps, then a slowly moving one: single batches jump about too much to read.
        weight = min(SMOOTHING, 1 - 1 / self._seen)
        self._loss = weight * self._loss + (1 - weight) * report.loss
        self._status.show(lambda: self._line(report.step), now=report.step == self._steps)

    def event(self, event: str, values: Mapping[str, object]) -> None:
        """Record something that happens now and then: a validation, an average."""
        self._write({"event": event, **values})

    def say(self, line: str) -> None:
        """Print a line that stays, above the status line."""
        self._status.say(line)

    def close(self) -> None:
        """End the status line and close the file."""
        self._status.close()
        self._metrics.close()

    def _line(self, step: int) -> str:
        elapsed = max(time.monotonic() - self._started, 1e-9)
        left = (self._steps - step) * elapsed / max(step - self._first, 1)
        return (
            f"step {step:,}/{self._steps:,}  loss {self._loss:.3f}  "
            f"{self._tokens / elapsed:,.0f} tokens/s  {clock(left)} left"
        )

    def _write(self, values: Mapping[str, object]) -> None:
        seconds = round(time.monotonic() - self._started, 3)
        self._metrics.write(json.dumps({**values, "seconds": seconds}) + "\n")
        self._metrics.flush()


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
