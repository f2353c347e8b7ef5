"""What the steps of a training did, added up on the device until somebody asks: nothing in a step waits for a GPU."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from regard.data.prefetch import Portion
from regard.training.report import StepReport
from regard.training.team import Team


class Tally:
    """What steps did since the last report."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.longest = 0
        """Of the steps in the last report, the most in a row whose gradient was no number."""
        self._clear()

    def _clear(self) -> None:
        self._since: float | None = None
        self._steps = self._tokens = self._slots = 0
        self._rate = self._progress = 0.0
        # Loss, norm, skipped steps, skipped in a row just now, the most in a row.
        self._sums = torch.zeros(5, dtype=torch.float64, device=self._device)

    def begin(self) -> None:
        """A step begins; what happened between steps does not count."""
        if self._since is None:
            self._since = time.monotonic()

    def add(self, loss: Tensor, norm: Tensor, usable: Tensor, portion: Portion, rate: float, progress: float) -> None:
        """Take in what a step did."""
        zero = torch.zeros_like(loss)
        streak = torch.where(usable, 0, self._sums[3] + 1)
        self._sums = torch.stack(
            [
                self._sums[0] + torch.where(usable, loss, zero),
                self._sums[1] + torch.where(usable, norm, zero),
                self._sums[2] + ~usable,
                streak,
                torch.maximum(self._sums[4], streak),
            ]
        )
        self._steps += 1
        self._tokens += portion.tokens
        self._slots += portion.slots
        self._rate, self._progress = rate, progress

    def report(self, step: int, team: Team) -> StepReport:
        """What the steps since the last report did; here, and only here, a GPU is waited for."""
        loss, norm, skipped, streak, longest = self._sums.tolist()
        self.longest = int(longest)
        counts = team.sum(torch.tensor([self._tokens, self._slots], dtype=torch.float64))
        tokens, slots = (int(count) for count in counts.tolist())
        seconds = time.monotonic() - (self._since or time.monotonic())
        used = max(1, self._steps - int(skipped))
        report = StepReport(
            step, self._steps, loss / used, self._rate, norm / used, tokens, seconds, int(skipped),
            padding=1 - tokens / max(slots, 1), progress=self._progress,
        )  # fmt: skip
        self._clear()
        self._sums[3] = streak
        return report
