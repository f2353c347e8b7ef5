"""How good each validation of a run was: which checkpoints stay, which become the model, and when to stop."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from regard.training.report import Ending
from regard.training.trainer import TrainingSettings


class Ranking:
    """The steps of a run that were validated, and how good each was; more is better."""

    def __init__(self, course: TrainingSettings, validations: Iterable[tuple[int, float]] = ()) -> None:
        self._course = course
        self._goodness: dict[int, float] = {}
        for step, goodness in validations:
            self.add(step, goodness)

    @property
    def validations(self) -> tuple[tuple[int, float], ...]:
        """(step, how good) of each, for a checkpoint."""
        return tuple(self._goodness.items())

    @property
    def highest(self) -> float:
        """How good the best one was."""
        return max(self._goodness.values())

    def __contains__(self, step: int) -> bool:
        return step in self._goodness

    def add(self, step: int, goodness: float) -> None:
        """Rank one more. Each step counts once: a run that goes on at its end makes the last validation anew."""
        self._goodness.pop(step, None)
        # Nothing compares with what is no number: as the first, it would be the best for ever.
        self._goodness[step] = goodness if math.isfinite(goodness) else -math.inf

    def best(self) -> list[int]:
        """The steps whose checkpoints stay for being the best, the best first; of equal ones the earlier.

        Those whose validation was no number are among them only where there are no others.
        """
        numbers = [step for step, goodness in self._goodness.items() if goodness > -math.inf]
        ranked = sorted(numbers or self._goodness, key=lambda step: (-self._goodness[step], step))
        return ranked[: self._course.keep_best]

    def spared(self, step: int) -> list[int]:
        """The steps whose checkpoints must stay when that of `step` is written, however many newer ones there are."""
        # A checkpoint that a signal asked for must not push out one that an unbroken run would have averaged.
        every, whole = self._course.save_every, step // self._course.save_every
        regular = [every * number for number in range(whole, max(whole - self._course.keep, 0), -1)]
        return [*self.best(), *regular]

    def averaged(self, kept: Collection[int], last: int, count: int) -> list[int]:
        """Up to `count` of the `kept` steps of a run that ended with `last`: the model is the mean of their weights."""
        if self._course.average_of == "best":
            return [step for step in self.best() if step in kept][:count]
        # Not those that a signal asked for: the model must not depend on when its training was interrupted.
        regular = [step for step in kept if step > 0 and step % self._course.save_every == 0]
        return sorted({*regular, last} & {*kept})[-count:]

    def no_improvement(self, step: int) -> Ending | None:
        """Why the run stops at `step`, if its last validations were no better than the best one for too long."""
        if self._course.patience is None or not self._goodness:
            return None
        best_step = min(self._goodness, key=lambda each: (-self._goodness[each], each))
        since = sum(each > best_step for each in self._goodness)
        if since < self._course.patience:
            return None
        measure = "BLEU" if self._course.best_by == "bleu" else "loss"
        return Ending.no_improvement(step, measure, abs(self._goodness[best_step]), best_step, since)
