"""The textbook's BLEU, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.evaluation.metrics import Lines
from regard.evaluation.weighted import sentence_bleu, weighted_bleu

TOKENS = st.lists(st.sampled_from("abc"), max_size=8)


@pytest.mark.parametrize(
    ("prediction", "label", "k", "expected"),
    [
        # p_1 = 4/5, p_2 = 3/4; as long as the label, so there is no penalty.
        ("a b c d x", "a b c d e", 2, (4 / 5) ** (1 / 2) * (3 / 4) ** (1 / 4)),
        ("a b c d x", "a b c d e", 4, (4 / 5) ** 0.5 * (3 / 4) ** 0.25 * (2 / 3) ** 0.125 * (1 / 2) ** 0.0625),
        # A part of the label: every precision is 1, and what is left is exp(1 − 6/3).
        ("b c d", "a b c d e f", 3, math.exp(-1)),
        # A token of the label is not used twice: one of three is right.
        ("a a a", "a b", 1, math.sqrt(1 / 3)),
        ("a b", "b a", 1, 1.0),
        ("a b", "b a", 2, 0.0),
        # Fewer than k tokens: the product ends with what there is.
        ("a", "a b", 4, math.exp(-1)),
        ("", "", 4, 1.0),
        ("", "a", 4, 0.0),
        ("a", "", 4, 0.0),
    ],
)
def test_by_hand(prediction: str, label: str, k: int, expected: float) -> None:
    assert sentence_bleu(prediction.split(), label.split(), k) == pytest.approx(expected)


@given(TOKENS, TOKENS)
def test_it_is_at_most_one_and_one_for_the_label_itself(prediction: list[str], label: list[str]) -> None:
    assert 0 <= sentence_bleu(prediction, label) <= 1
    assert sentence_bleu(label, label) == 1


def test_a_corpus_has_the_mean_of_its_lines_in_percent_and_the_best_reference_counts() -> None:
    found = weighted_bleu(Lines(["a b", "c"], [["a b", "x"], ["x", "c d"]]), "13a").score()
    assert found.value == pytest.approx(100 * (1 + math.exp(-1)) / 2)
    assert found.signature == "nrefs:2|case:mixed|tok:13a|k:4|weights:1/2^n|mean of lines in percent"
