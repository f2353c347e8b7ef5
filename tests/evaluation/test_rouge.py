"""ROUGE, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.evaluation.metrics import Lines
from regard.evaluation.rouge import in_order, n_grams, tallies, words

texts = st.lists(st.sampled_from("abcd"), max_size=8)


def test_figures_by_hand() -> None:
    written, wanted = ["the", "cat", "sat", "on", "a", "mat"], ["the", "cat", "was", "on", "the", "mat"]
    assert n_grams(written, wanted, 1) == pytest.approx(2 * 4 / 12)  # the, cat, on, mat; the second `the` is not there
    assert n_grams(written, wanted, 2) == pytest.approx(2 * 1 / 10)  # the cat
    assert in_order(written, wanted) == pytest.approx(2 * 4 / 12)
    assert in_order(["mat", "the", "on"], wanted) == pytest.approx(2 * 2 / 9)  # order counts: the on, or the mat


def test_words_are_letters_and_digits_in_small_letters() -> None:
    assert words("Re: Q3-Report, 2nd_draft!") == ["re", "q3", "report", "2nd", "draft"]


def test_the_reference_that_fits_best_counts() -> None:
    lines = Lines(["a b", "c"], [["a b", "x"], ["z", "c d"]])
    found = {tally.name: tally.score().value for tally in tallies(lines)}
    assert found["ROUGE-1"] == pytest.approx(100 * (1 + 2 / 3) / 2)
    assert found["ROUGE-2"] == pytest.approx(50)
    assert set(found) == {"ROUGE-1", "ROUGE-2", "ROUGE-L"}


@given(texts, texts)
def test_shared_words_in_order_are_no_more_than_shared_words(one: list[str], other: list[str]) -> None:
    assert 0 <= in_order(one, other) <= n_grams(one, other, 1) <= 1
    assert in_order(one, other) == in_order(other, one)
    assert in_order(one, one) == (1.0 if one else 0.0)
