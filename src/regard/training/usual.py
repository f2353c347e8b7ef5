"""How a recipe usually learns, and whether a run keeps to it: "0.4 nats above the usual here".

Single batches jump about too much to be compared. What is compared is the mean training loss of a *stretch* of steps,
and the validation loss. Usual is what several runs had that differ in their seed alone:

    mean ± max(3 · sd, 0.05 nats)

Losses above that are told; those below are nobody's trouble.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from regard.counts import so_many
from regard.training.report import StepReport

WIDTH = 3.0  # standard deviations to either side
FLOOR = 0.05  # nats: runs that agree by chance must not make the band narrower
READ_ON = "See “The usual course” in docs/training.md."
FAR = 3.0  # times the margin: then there is no waiting for a validation
TOO_HIGH = "a rate too high"
NOTHING_DIFFERS = (
    "Settings and corpus are those of the usual runs. What is left: the seed, the machine, and changes to the code or "
    "to the packages it uses."
)


@dataclass(frozen=True)
class Usual:
    """A loss at one step, in nats a token, over several runs."""

    step: int
    mean: float
    sd: float

    @property
    def margin(self) -> float:
        """How far from the mean is still usual."""
        return max(WIDTH * self.sd, FLOOR)

    @property
    def low(self) -> float:
        """The least that is usual; no loss is below zero."""
        return max(self.mean - self.margin, 0.0)

    @property
    def high(self) -> float:
        """The most that is usual."""
        return self.mean + self.margin


@dataclass(frozen=True)
class Course:
    """The usual course of a recipe."""

    recipe: str
    runs: int
    """How many it was measured with."""
    stretch: int
    """Steps that a training loss is the mean of."""
    training: tuple[Usual, ...]
    """With dropout and label smoothing, as logged; each at the last step of its stretch."""
    validation: tuple[Usual, ...]
    """Without them."""


class Stretches:
    """The mean loss of each stretch of steps of which at least half was seen."""

    def __init__(self, length: int) -> None:
        self.length = length
        self._begin(0)

    def _begin(self, end: int) -> None:
        self._end, self._sum, self._steps = end, 0.0, 0

    def add(self, step: int, steps: int, loss: float) -> tuple[int, float] | None:
        """Take in the mean loss of some steps up to `step`; the last step and the mean of a stretch that is over."""
        end, over = -(-step // self.length) * self.length, None
        if end != self._end:  # steps were reported past the end, or the run went back to a checkpoint
            over = self._mean()
            self._begin(end)
        self._sum += loss * steps
        self._steps += steps
        if step == end:
            over = self._mean()
            self._begin(0)
        return over

    def of(self, reports: Iterable[tuple[int, int, float]]) -> Iterator[tuple[int, float]]:
        """All of them, of a whole run."""
        return (over for report in reports if (over := self.add(*report)) is not None)

    def _mean(self) -> tuple[int, float] | None:
        return (self._end, self._sum / self._steps) if 2 * self._steps >= max(self.length, 1) else None


@dataclass(frozen=True)
class _Reading:
    """A loss beside the usual one."""

    what: str
    loss: float
    usual: Usual

    @property
    def above(self) -> float:
        return self.loss - self.usual.mean

    @property
    def unusual(self) -> bool:
        return self.loss > self.usual.high

    @property
    def far(self) -> bool:
        return self.above > FAR * self.usual.margin


class CourseWatch:
    """Compares a run with the usual course, and says so once each time it leaves it, and once when it is back."""

    def __init__(self, course: Course, causes: Sequence[str], thoughts: Sequence[str] = ()) -> None:
        self.course, self.causes, self.thoughts = course, causes, thoughts
        self.aside = ""
        """What the line about the newest step should add, of the newest stretch that is over; empty unless it was said
        that the loss is unusual."""
        self._training = {usual.step: usual for usual in course.training}
        self._validation = {usual.step: usual for usual in course.validation}
        self._stretches = Stretches(course.stretch)
        self._newest: dict[str, _Reading] = {}
        self._spoken = False
        self._skipped = 0

    def report(self, report: StepReport) -> str | None:
        """Take in some steps of training; a sentence if the loss is far off, or back."""
        self._skipped += report.skipped
        made = report.steps - report.skipped
        over = self._stretches.add(report.step, made, report.loss) if made else None
        if over is None:
            return None
        self.aside = ""
        if (usual := self._training.get(over[0])) is None:
            return None
        reading = _Reading("training loss", over[1], usual)
        self._newest[reading.what] = reading
        note = self._sentence(speaks=reading.far)
        if reading.unusual and self._spoken:
            self.aside = f"{reading.above:.2f} above the usual at step {usual.step:,}"
        return note

    def validated(self, step: int, nll: float) -> str | None:
        """Take in a validation; a sentence if the run has left the usual course, or is back."""
        if usual := self._validation.get(step):
            self._newest["validation loss"] = _Reading("validation loss", nll, usual)
        return self._sentence(speaks=True)

    def _sentence(self, speaks: bool) -> str | None:
        unusual = [reading for reading in self._newest.values() if reading.unusual]
        if self._spoken and not unusual:
            self._spoken = False
            return f"note: the loss is as usual for `{self.course.recipe}` again."
        if self._spoken or not unusual or not speaks:
            return None
        self._spoken = True
        # The newest one, for an older one may not be true any more; of two, the worse.
        told = max(unusual, key=lambda reading: (reading.usual.step, reading.above / reading.usual.margin))
        usual = told.usual
        return (
            f"note: {told.what} {told.loss:.2f} at step {usual.step:,} is {told.above:.2f} nats above the usual "
            f"{usual.mean:.2f} ± {usual.margin:.2f} of `{self.course.recipe}` ({so_many(self.course.runs, 'run')}). "
            f"{self._why()}"
        )

    def _why(self) -> str:
        """What differs, what to think of it, and where to read on."""
        causes, thoughts = list(self.causes), list(self.thoughts)
        if self._skipped:
            steps = so_many(self._skipped, "step was", "steps were")
            causes.insert(0, f"{steps} skipped, because gradients were no numbers")
            others = (thought for thought in thoughts if thought != TOO_HIGH)
            thoughts = [f"{TOO_HIGH}, most often the reason for steps that are skipped", *others]
        differs = f"What differs here: {'; '.join(causes)}." if causes else NOTHING_DIFFERS
        think = f" Think of {'; or '.join(thoughts)}." if thoughts else ""
        return f"{differs}{think} {READ_ON}"
