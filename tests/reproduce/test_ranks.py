"""Spearman's rank correlation, ties among them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.reproduce.ranks import ranks, spearman

# As Table 3 prints some of them: two pairs are equal.
PAPER, OURS = [4.92, 5.29, 5.00, 4.91, 5.01, 5.01], [9.1, 9.9, 9.3, 9.3, 9.2, 9.6]
VALUES = st.lists(st.integers(-3, 3).map(float), min_size=2, max_size=9)


def test_equal_values_share_the_mean_of_their_ranks() -> None:
    assert ranks([3, 1, 3, 2]) == [3.5, 1, 3.5, 2]
    assert ranks(PAPER) == [2, 6, 3, 1, 4.5, 4.5]


def test_it_is_pearsons_correlation_of_the_ranks() -> None:
    expected = np.corrcoef(ranks(PAPER), ranks(OURS))[0, 1]
    assert spearman(PAPER, OURS) == pytest.approx(expected)
    assert spearman(PAPER, OURS) == pytest.approx(10 / 17)  # by hand


@given(VALUES)
def test_an_order_agrees_with_itself_and_not_with_its_reverse(values: list[float]) -> None:
    expected = 1.0 if len(set(values)) > 1 else None
    assert spearman(values, [2 * value + 1 for value in values]) == (expected and pytest.approx(1))
    assert spearman(values, [-value for value in values]) == (expected and pytest.approx(-1))


def test_without_an_order_there_is_no_correlation() -> None:
    assert spearman([], []) is None
    assert spearman([1.0], [2.0]) is None
    assert spearman([1.0, 1.0], [1.0, 2.0]) is None
    with pytest.raises(ValueError, match="2 and 1"):
        spearman([1.0, 2.0], [1.0])
