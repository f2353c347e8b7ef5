"""How long a run has been training: `training.minutes` ends it, and `training.by_clock` lets its rate fall in time."""

from __future__ import annotations

import time


class Stopwatch:
    """The seconds of a run: those of this part of it, once started, on top of what earlier parts took.

    Whatever happens while it runs counts: compilation, steps, validations, checkpoints. One that was never started
    stands still.
    """

    def __init__(self) -> None:
        self.warm = 0.0
        """When the warm-up was over, in seconds of the run; as long as it is not, the beginning of the newest step."""
        self._before = 0.0
        self._since: float | None = None

    def start(self) -> None:
        """From now on time counts."""
        self._since = time.monotonic()

    @property
    def seconds(self) -> float:
        """Of all parts of the run."""
        return self._before + (0.0 if self._since is None else time.monotonic() - self._since)

    def go_on_from(self, seconds: float, warm: float) -> None:
        """Take over what a checkpoint says. A run under way that goes back to one has spent its time all the same."""
        if self._since is None:
            self._before = seconds
        self.warm = warm

    def over(self, limit: float, warming: bool) -> float:
        """How much of the time from the end of the warm-up to the `limit`, in seconds, is over: from 0 to 1."""
        seconds = self.seconds
        if warming:
            self.warm = seconds
            return 0.0
        return min(1.0, (seconds - self.warm) / (limit - self.warm)) if self.warm < limit else 1.0
