"""Intervals and tests: sacreBLEU's draws, its figures, and a verdict that claims no more than they allow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from regard.errors import DataError
from regard.evaluation import metrics, significance
from regard.evaluation.metrics import Lines, Tally
from regard.evaluation.significance import Difference, bootstrap, compare, in_words, interval, verdict
from tests.evaluation.texts import references, spoilt

EXPECTED = references(80)
GOOD, BAD = spoilt(EXPECTED, 0.08, 1), spoilt(EXPECTED, 0.14, 2)
CLOSE = spoilt(EXPECTED, 0.09, 3)


def tallies(hypotheses: list[str]) -> list[Tally]:
    lines = Lines(hypotheses, [EXPECTED])
    return [metrics.bleu(lines), metrics.chrf(lines)]


@pytest.mark.parametrize("other", [BAD, CLOSE])
def test_p_values_and_scores_are_those_of_sacrebleu(other: list[str]) -> None:
    ours = compare(tallies(GOOD), tallies(other), samples=200, swaps=300)
    by_name: dict[str, Metric] = {"BLEU": BLEU(references=[EXPECTED]), "chrF2": CHRF(references=[EXPECTED])}
    for kind, trials, attribute in (("bs", 200, "bootstrap_p"), ("ar", 300, "randomisation_p")):
        _, scores = PairedTest([("a", GOOD), ("b", other)], by_name, None, kind, trials)()
        for found, name in zip(ours, by_name, strict=True):
            one, two = scores[name]
            assert (found.a, found.b) == (pytest.approx(one.score), pytest.approx(two.score))
            assert getattr(found, attribute) == pytest.approx(two.p_value)


def test_large_matrices_are_made_in_pieces_from_the_same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    both = tallies(GOOD), tallies(BAD)
    whole = compare(*both, samples=50, swaps=100)
    seen: list[tuple[str, int]] = []
    monkeypatch.setattr(significance, "ENTRIES_AT_A_TIME", 80 * 40)
    assert compare(*both, samples=50, swaps=100, progress=lambda *now: seen.append(now)) == whole
    assert seen == [("resamples", 40), ("resamples", 50), ("swaps", 32), ("swaps", 64), ("swaps", 96), ("swaps", 100)]


def test_the_interval_is_the_middle_and_holds_the_figure() -> None:
    assert interval(np.arange(1000.0)[::-1]) == (25, 974)
    assert interval(np.array([7.0])) == (7, 7)
    for tally, figures in zip(tallies(GOOD), bootstrap(tallies(GOOD)), strict=True):
        low, high = interval(figures)
        assert low < tally.score().value < high


def test_another_seed_draws_other_lines() -> None:
    one, two = (bootstrap(tallies(GOOD), 20, seed)[0] for seed in (1, 2))
    assert one.tolist() == bootstrap(tallies(GOOD), 20, 1)[0].tolist()
    assert one.tolist() != two.tolist()


def test_a_clear_difference_is_claimed_in_either_order() -> None:
    assert {found.better for found in compare(tallies(GOOD), tallies(BAD))} == {"A"}
    for found in compare(tallies(BAD), tallies(GOOD)):
        assert found.better == "B"
        assert 0 < found.low < found.size < found.high


def test_no_difference_is_claimed_where_there_is_none() -> None:
    assert {found.better for found in compare(tallies(GOOD), tallies(GOOD))} == {None}
    assert {found.p for found in compare(tallies(GOOD), tallies(GOOD))} == {1.0}


def test_one_line_is_no_evidence() -> None:
    # Whichever way this line is swapped, the difference stays: every swap is as large as what was observed.
    changed = [EXPECTED[0][:-9], *GOOD[1:]]
    for found in compare(tallies([EXPECTED[0], *GOOD[1:]]), tallies(changed), samples=100, swaps=100):
        assert found.size < 0
        assert found.randomisation_p == 1.0
        assert found.better is None


def test_systems_of_different_lines_are_not_compared() -> None:
    shorter = Lines(GOOD[:-1], [EXPECTED[:-1]])
    with pytest.raises(DataError, match="the same lines"):
        compare(tallies(GOOD), [metrics.bleu(shorter), metrics.chrf(shorter)])


def test_the_verdict_claims_what_both_tests_allow() -> None:
    sure = Difference("BLEU", "tok:13a", 20.0, 21.2, 0.4, 2.0, 0.003, 0.002)
    unsure = replace(sure, name="chrF", b=20.3, bootstrap_p=0.04, randomisation_p=0.2)
    worse = replace(sure, name="chrF", b=18.0)
    assert verdict([sure]) == "B is better: the difference of 1.20 BLEU (p = 0.003) is unlikely to be chance."
    assert verdict([unsure]) == (
        "No difference can be claimed: the difference of 0.30 chrF (p = 0.200) could be chance."
    )
    assert verdict([sure, unsure]) == (
        "B is better: the difference of 1.20 BLEU (p = 0.003) is unlikely to be chance. "
        "By chrF no difference can be claimed."
    )
    assert verdict([worse]).startswith("A is better: the difference of 2.00 chrF")
    assert "are unlikely" in verdict([sure, replace(sure, name="chrF")])
    assert verdict([sure, worse]) == (
        "The metrics contradict each other: A is better by chrF, B by BLEU. Read the translations."
    )


def test_small_p_values_are_not_rounded_to_nothing() -> None:
    assert (in_words(0.0001), in_words(0.0499)) == ("p < 0.001", "p = 0.050")
