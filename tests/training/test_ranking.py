"""What follows from how good the validations of a run were; whole runs are in tests/test_experiment.py."""

from __future__ import annotations

import math
from typing import Any

import pytest

from regard.training.ranking import Ranking
from regard.training.trainer import TrainingSettings

FOUND = [(10, -3.0), (20, -1.0), (30, -2.0), (40, -1.0)]


def ranking(**course: Any) -> Ranking:
    return Ranking(TrainingSettings(**course), FOUND)


def test_of_equally_good_steps_the_earlier_is_the_better() -> None:
    assert ranking(keep_best=3).best() == [20, 40, 30]
    assert ranking(keep_best=0).best() == []
    assert ranking().highest == -1.0


def test_a_step_that_is_validated_anew_counts_once() -> None:
    found = ranking(keep_best=1)
    found.add(10, 0.5)
    assert found.validations == ((20, -1.0), (30, -2.0), (40, -1.0), (10, 0.5))
    assert (found.best(), 10 in found, 50 in found) == ([10], True, False)


def test_the_best_and_those_an_unbroken_run_would_have_stay() -> None:
    assert ranking(save_every=10, keep=2, keep_best=1, average=1).spared(47) == [20, 40, 30]
    assert ranking(save_every=10, keep=5).spared(12) == [10]


@pytest.mark.parametrize(
    ("course", "kept", "steps"),
    [
        ({"save_every": 10}, [0, 10, 17, 20, 30, 33], [20, 30, 33]),  # 17 was asked for by a signal
        ({"save_every": 10}, [0, 10], [10]),
        ({"average_of": "best", "keep_best": 5}, [0, 10, 30, 33, 40], [40, 30, 10]),
        ({"average_of": "best", "keep_best": 5}, [0, 33], []),
    ],
)
def test_the_newest_or_the_best_are_averaged(course: dict[str, Any], kept: list[int], steps: list[int]) -> None:
    assert ranking(**course).averaged(kept, last=33, count=3) == steps


def test_a_run_stops_when_too_many_validations_were_no_better() -> None:
    ending = ranking(patience=2).no_improvement(40)
    assert ending is not None
    assert ending.sentence == "Stopped at step 40: 2 validations in a row had no better loss than the 1 of step 20."
    assert ranking(patience=3).no_improvement(40) is None
    assert ranking().no_improvement(40) is None
    assert Ranking(TrainingSettings(patience=1)).no_improvement(0) is None


def test_a_validation_that_is_no_number_is_the_worst() -> None:
    for wrong in (math.nan, math.inf, -math.inf):
        found = Ranking(TrainingSettings(keep_best=3, patience=1, average_of="best", average=3), [(1, wrong)])
        assert (found.highest, found.best()) == (-math.inf, [1])  # there is none but this
        found.add(2, -3.0)
        found.add(3, -2.0)
        assert (found.highest, found.best()) == (-2.0, [3, 2])
        assert found.averaged([1, 2, 3], last=3, count=3) == [3, 2]
        assert found.no_improvement(3) is None
        found.add(4, wrong)
        ending = found.no_improvement(4)
        assert ending is not None
        assert "no better loss than the 2 of step 3" in ending.sentence
        assert Ranking(TrainingSettings(keep_best=1), [(1, math.nan), (2, -3.0)]).best() == [2]  # from a checkpoint
