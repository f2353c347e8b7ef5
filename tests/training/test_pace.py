"""A run that becomes far slower is told so, once, and not for a moment's sake."""

from __future__ import annotations

import pytest

from regard.training.pace import Pace
from regard.training.report import StepReport


def steps(tokens: int, seconds: float) -> StepReport:
    return StepReport(1, 1, 2.0, 0.1, 1.0, tokens, seconds)


def said(*reports: tuple[int, float]) -> list[int]:
    """After which of these reports it is said that the run has fallen behind."""
    pace = Pace()
    return [number for number, report in enumerate(reports) if pace.fell_behind(steps(*report))]


def test_it_is_said_when_two_stretches_are_far_slower_and_never_again() -> None:
    pace = Pace()
    told = [pace.fell_behind(steps(tokens, 5.0)) for tokens in (5_000, 5_000, 900, 900, 900, 5_000, 900, 900)]
    assert told == [False, False, False, True, False, False, False, False]
    assert (pace.fastest, pace.now) == (1_000.0, 180.0)


@pytest.mark.parametrize(
    "reports",
    [
        [(5_000, 5.0), (1_001, 5.0), (1_001, 5.0), (1_001, 5.0)],  # a fifth is not as far
        [(5_000, 5.0), (5_000, 60.0), (5_000, 5.0), (5_000, 60.0)],  # paused, twice
        [(900, 5.0)] * 10,  # always so
        [(900, 5.0), (5_000, 5.0), (5_000, 5.0)],  # compiled first
    ],
)
def test_it_is_not_said(reports: list[tuple[int, float]]) -> None:
    assert said(*reports) == []


def test_short_steps_are_taken_together() -> None:
    assert said(*[(100, 0.5)] * 10, *[(10, 0.5)] * 19) == []
    assert said(*[(100, 0.5)] * 10, *[(10, 0.5)] * 20) == [29]
