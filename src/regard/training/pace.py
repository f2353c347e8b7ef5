"""Whether a run on a CPU has become far slower than it was, as it does where other programs want the same cores.

Threads that share the work of a step wait for the last of them. If that one waits for its core, each of thousands of
small products takes as long as another program's turn: measured, a hundredth of the speed, where one thread alone had
two thirds of it.
"""

from __future__ import annotations

from regard.training.report import StepReport

STRETCH = 5.0  # seconds
FAR = 5.0  # times slower than the fastest stretch: batches of unlike lengths, and breaks, are not as far
IN_A_ROW = 2  # stretches: in a single one the process may have been paused


class Pace:
    """How fast steps go, by stretches of some seconds."""

    def __init__(self) -> None:
        self.fastest = self.now = 0.0
        """Tokens a second."""
        self._tokens, self._seconds, self._slow = 0, 0.0, 0

    def fell_behind(self, report: StepReport) -> bool:
        """Take in some steps; whether these end the stretch by which it is sure, once, that a run is far too slow."""
        self._tokens, self._seconds = self._tokens + report.tokens, self._seconds + report.seconds
        if self._seconds < STRETCH:
            return False
        self.now = self._tokens / self._seconds
        self._tokens, self._seconds = 0, 0.0
        self.fastest = max(self.fastest, self.now)
        if self._slow < IN_A_ROW:
            self._slow = self._slow + 1 if self.now * FAR < self.fastest else 0
            return self._slow == IN_A_ROW
        return False
