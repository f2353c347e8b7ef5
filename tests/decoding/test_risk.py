"""Minimum Bayes risk by hand, and with chrF between texts."""

from __future__ import annotations

import math

import pytest
from sacrebleu.metrics.chrf import CHRF

from regard.decoding.risk import minimum_bayes_risk
from regard.errors import UsageError


def close(a: float, b: float) -> float:
    return -abs(a - b)


def test_the_middle_of_numbers_is_nearest_to_all() -> None:
    choice = minimum_bayes_risk([1.0, 9.0, 4.0, 5.0], close)
    assert choice.best == 2
    assert choice.utilities == pytest.approx((-(0 + 8 + 3 + 4) / 4, -17 / 4, -9 / 4, -9 / 4))


def test_a_text_that_was_drawn_often_counts_often() -> None:
    assert minimum_bayes_risk([1.0, 9.0, 4.0, 9.0, 9.0], close).best == 1


def test_log_probabilities_weigh_and_may_be_very_small() -> None:
    choice = minimum_bayes_risk([1.0, 9.0, 4.0], close, [-2000.0, -2000.0 + math.log(8), -2000.0])
    assert choice.best == 1
    assert choice.utilities == pytest.approx((-6.7, -1.3, -4.3))


def test_the_utility_is_asked_once_a_pair() -> None:
    asked = []

    def utility(a: str, b: str) -> float:
        asked.append((a, b))
        return float(a == b)

    assert minimum_bayes_risk(["a", "b", "b", "a", "b"], utility).best == 1
    assert sorted(asked) == [("a", "a"), ("a", "b"), ("b", "a"), ("b", "b")]


def test_with_chrf() -> None:
    chrf = CHRF()
    texts = ["the cat sat", "the cat sat down", "a dog ran"]
    assert minimum_bayes_risk(texts, lambda h, r: chrf.sentence_score(h, [r]).score).best in (0, 1)


def test_mistakes_are_named() -> None:
    with pytest.raises(UsageError, match="at least one candidate"):
        minimum_bayes_risk([], close)
    with pytest.raises(UsageError, match=r"one number a candidate \(2\), but has 1"):
        minimum_bayes_risk([1.0, 2.0], close, [0.0])
