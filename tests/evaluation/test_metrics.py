"""Scores: right at the ends of their scale, and never without their definition."""

from __future__ import annotations

import pytest

from regard.errors import DataError
from regard.evaluation.metrics import Score, score

LINES = ["Der Zug fährt am Samstag um 15:04 Uhr ab.", "einhunderteins", "Samstag, 14. März 2015"]


def values(hypotheses: list[str], references: list[str]) -> dict[str, float]:
    return {found.name: found.value for found in score(hypotheses, references)}


def test_a_perfect_translation_has_full_marks_and_nothing_has_none() -> None:
    assert values(LINES, LINES) == {
        "exact match": 100.0,
        "BLEU": pytest.approx(100.0),
        "chrF": pytest.approx(100.0),
    }
    assert values(["", "", ""], LINES) == {"exact match": 0.0, "BLEU": 0.0, "chrF": 0.0}


def test_exact_match_counts_lines_to_the_letter() -> None:
    nearly = [LINES[0], LINES[1].capitalize(), LINES[2] + " "]
    assert values(nearly, LINES)["exact match"] == pytest.approx(100 / 3)


def test_bleu_by_hand() -> None:
    # 4 of 5 words, 3 of 4 pairs, 2 of 3 triples, 1 of 2 quadruples; the lengths are equal.
    expected = 100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25
    assert values(["a b c d x"], ["a b c d e"])["BLEU"] == pytest.approx(expected)


def test_a_worse_translation_scores_less() -> None:
    good, bad = (values([line, *LINES[1:]], LINES) for line in ("Der Zug fährt am Samstag ab.", "Zug?"))
    assert all(good[name] > bad[name] for name in ("BLEU", "chrF"))


def test_every_score_says_how_it_was_computed() -> None:
    exact, bleu, chrf = score(LINES, LINES)
    assert exact.signature == "percent of 3 lines, to the letter"
    assert "tok:13a" in bleu.signature
    assert "version:" in bleu.signature
    assert "nc:6" in chrf.signature
    assert str(Score("BLEU", 27.345, "tok:13a")) == "BLEU 27.34  (tok:13a)"


@pytest.mark.parametrize(("hypotheses", "references"), [([], []), (["a"], []), (["a", "b"], ["a"])])
def test_lists_that_do_not_fit_are_named(hypotheses: list[str], references: list[str]) -> None:
    with pytest.raises(DataError, match=f"{len(hypotheses)} translations and {len(references)} references"):
        score(hypotheses, references)
