"""What training tells whoever watches it: how some steps went, and why there are no more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.counts import so_many
from regard.status import clock


@dataclass(frozen=True)
class StepReport:
    """What the steps since the last report did.

    To ask a GPU for a number is to wait for it, so that a report may speak of several steps at once.
    """

    step: int
    """The newest step that it speaks of."""
    steps: int
    """How many it speaks of."""
    loss: float
    """Nats a target token, with label smoothing; the mean over these steps."""
    learning_rate: float
    """Of the newest step."""
    gradient_norm: float
    """Before clipping; the mean over these steps."""
    tokens: int
    """Read on both sides, without padding."""
    seconds: float
    """From the end of the last report's steps to the end of these, without what happens between steps."""
    skipped: int = 0
    """Steps that changed nothing because their gradient was not finite."""
    padding: float = 0.0
    """The share of all places of the batches that held no token."""
    progress: float = 0.0
    """How far the newest step is on the way from the end of the warm-up to that of the run, from 0 to 1."""

    @property
    def tokens_per_second(self) -> float:
        """Real tokens of both sides."""
        return self.tokens / max(self.seconds, 1e-9)


Reason = Literal["done", "no improvement", "signal", "time", "diverged"]


@dataclass(frozen=True)
class Ending:
    """Why a run ended, in a word and in a sentence."""

    reason: Reason
    step: int
    sentence: str

    @classmethod
    def done(cls, steps: int) -> Ending:
        """All steps of the recipe were made."""
        return cls("done", steps, "The only step is done." if steps == 1 else f"All {steps:,} steps done.")

    @classmethod
    def no_improvement(cls, step: int, measure: str, best: float, best_step: int, validations: int) -> Ending:
        """Early stopping: `validations` in a row had no better `measure` than the `best` one, of `best_step`."""
        which = so_many(validations, "validation", "validations in a row")
        return cls(
            "no improvement", step,
            f"Stopped at step {step:,}: {which} had no better {measure} than the {best:.4g} of step {best_step:,}.",
        )  # fmt: skip

    @classmethod
    def signal(cls, step: int, name: str) -> Ending:
        """Somebody asked the process to stop."""
        return cls("signal", step, f"Stopped by {name} after step {step:,}; nothing is lost.")

    @classmethod
    def out_of_time(cls, step: int, steps: int, limit: float) -> Ending:
        """The time limit, in seconds, was reached before the last step."""
        return cls(
            "time", step, f"Stopped after step {step:,} of {steps:,}: the time limit of {clock(limit)} is reached."
        )

    @classmethod
    def diverged(cls, step: int, rolled_back: int) -> Ending:
        """Gradients went on being infinite or NaN after going back to a checkpoint `rolled_back` times."""
        times = "once" if rolled_back == 1 else f"{rolled_back} times"
        return cls(
            "diverged", step,
            f"Gave up at step {step:,}: gradients were infinite or NaN again after going back to a checkpoint {times}. "
            "Lower the learning rate, lengthen the warm-up, or clip gradients.",
        )  # fmt: skip
