"""Counts of what a server does, in the text format that Prometheus reads.

Labels are route templates, statuses and model names: never what somebody wrote, so there are only so many of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping
from threading import Lock

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)

Labels = tuple[tuple[str, str], ...]


class Histogram:
    """How often a value was at most each of some bounds."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: Labels) -> list[str]:
        """Its samples, cumulated as the format wants them."""
        total, found = 0, []
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            edge = "+Inf" if bound == float("inf") else f"{bound:g}"
            found.append(f"{name}_bucket{_braces((*labels, ('le', edge)))} {total}")
        return [*found, f"{name}_sum{_braces(labels)} {self.sum:g}", f"{name}_count{_braces(labels)} {total}"]


class Metrics:
    """All counts of one server; any thread may add to them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests: Counter[Labels] = Counter()
        self._tokens: Counter[Labels] = Counter()
        self._left: Counter[Labels] = Counter()
        self._seconds: dict[Labels, Histogram] = {}
        self._rows: dict[Labels, Histogram] = {}
        self.waiting: Mapping[str, Callable[[], int]] = {}
        """For each model, how many requests wait for it."""

    def answered(self, route: str, status: int, seconds: float) -> None:
        """A request to a route was answered."""
        with self._lock:
            self._requests[("route", route), ("status", str(status))] += 1
            self._seconds.setdefault((("route", route),), Histogram(SECONDS)).add(seconds)

    def worked(self, model: str, rows: int) -> None:
        """A model began to work on so many texts at a time."""
        with self._lock:
            self._rows.setdefault((("model", model),), Histogram(ROWS)).add(rows)

    def wrote(self, model: str, tokens: int) -> None:
        """A model wrote so many tokens."""
        with self._lock:
            self._tokens[(("model", model),)] += tokens

    def left(self, model: str) -> None:
        """Somebody left before the answer was there, or the deadline passed."""
        with self._lock:
            self._left[(("model", model),)] += 1

    def text(self) -> str:
        """Everything, as `/metrics` shows it."""
        with self._lock:
            lines = _counts("regard_requests_total", "Requests answered.", self._requests)
            lines += _histograms("regard_request_seconds", "Seconds until the whole answer was sent.", self._seconds)
            lines += _histograms("regard_batch_rows", "Texts that a model worked on at a time.", self._rows)
            lines += _counts("regard_tokens_total", "Tokens written.", self._tokens)
            lines += _counts("regard_abandoned_total", "Requests nobody waited for to the end.", self._left)
        lines += ["# HELP regard_waiting Requests that wait for a model.", "# TYPE regard_waiting gauge"]
        for model, count in self.waiting.items():
            lines.append(f"regard_waiting{_braces((('model', model),))} {count()}")
        return "\n".join(lines) + "\n"


def _counts(name: str, what: str, counts: Counter[Labels]) -> list[str]:
    samples = [f"{name}{_braces(labels)} {count}" for labels, count in sorted(counts.items())]
    return [f"# HELP {name} {what}", f"# TYPE {name} counter", *samples]


def _histograms(name: str, what: str, histograms: Mapping[Labels, Histogram]) -> list[str]:
    samples = [line for labels, each in sorted(histograms.items()) for line in each.lines(name, labels)]
    return [f"# HELP {name} {what}", f"# TYPE {name} histogram", *samples]


def _braces(labels: Labels) -> str:
    escaped = ((name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")) for name, value in labels)
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"
