"""Scores: right at the ends of their scale, those of the sacrebleu command, and never without their definition."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from regard.errors import DataError
from regard.evaluation import metrics
from regard.evaluation.metrics import Lines, Score, Tally, score
from regard.evaluation.significance import with_intervals
from tests.evaluation.texts import references, spoilt
from tests.tiny import write_lines

LINES = ["Der Zug fährt am Samstag um 15:04 Uhr ab.", "einhunderteins", "Samstag, 14. März 2015"]
CHINESE = ["我们在火车站等你。", "他今天买了3本书，花了20元。", "天气很好 OK!", "你好"]
ALMOST = ["我们在车站等他。", "他今天买了3本书。", "天气好 ok!", ""]


def values(hypotheses: list[str], expected: list[str]) -> dict[str, float]:
    return {found.name: found.value for found in score(hypotheses, expected)}


def sacrebleu(place: Path, hypotheses: list[str], *sets: list[str], options: str = "") -> list[dict[str, Any]]:
    """What the sacrebleu command prints of the same lines in files."""
    files = [write_lines(place / f"reference{number}", texts) for number, texts in enumerate(sets)]
    found = write_lines(place / "hypotheses", hypotheses)
    line = [sys.executable, "-m", "sacrebleu", *map(str, files), "-i", str(found), "--format", "json", "-w", "6"]
    done = subprocess.run([*line, *options.split()], capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    return answer if isinstance(answer, list) else [answer]


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
    assert str(Score("BLEU", 27.345, "tok:13a", 26.0, 28.5)) == "BLEU 27.34 [26.00, 28.50]  (tok:13a)"


@pytest.mark.parametrize(
    ("hypotheses", "expected", "found"),
    [
        ([], [], "0 translations and 0 references"),
        (["a"], [], "1 translation and 0 references"),
        (["a", "b"], ["a"], "2 translations and 1 reference"),
    ],
)
def test_lists_that_do_not_fit_are_named(hypotheses: list[str], expected: list[str], found: str) -> None:
    with pytest.raises(DataError, match=f"but found {found}\\."):
        score(hypotheses, expected)


def test_no_references_at_all_are_named() -> None:
    with pytest.raises(DataError, match="1 translation and 0 references"):
        Lines(["a"], [])


# The sacrebleu command


@pytest.mark.parametrize(
    ("tokenize", "lowercase", "chinese"),
    [("intl", False, False), ("char", True, False), ("zh", False, True), ("13a", True, True), ("none", False, False)],
)
def test_bleu_and_its_signature_are_those_of_the_command(
    tokenize: str, lowercase: bool, chinese: bool, tmp_path: Path
) -> None:
    expected = CHINESE if chinese else references(40)
    hypotheses = ALMOST if chinese else spoilt(expected, 0.2, 1)
    options = f"--tokenize {tokenize}{' --lowercase' if lowercase else ''} --force"
    (theirs,) = sacrebleu(tmp_path, hypotheses, expected, options=options)
    ours = metrics.bleu(Lines(hypotheses, [expected]), tokenize, lowercase).score()
    assert ours.value == pytest.approx(theirs["score"], abs=1e-6)
    assert ours.signature == theirs["signature"]


def test_figures_signatures_and_intervals_of_two_references_are_those_of_the_command(tmp_path: Path) -> None:
    expected = references(60)
    hypotheses, second = [*spoilt(expected[1:], 0.2, 1), ""], spoilt(expected, 0.1, 2)
    lines = Lines(hypotheses, [expected, second])
    tallies = [metrics.bleu(lines), metrics.chrf(lines, words=2), metrics.ter(lines)]
    options = "--metrics bleu chrf ter --chrf-word-order 2"
    for ours, theirs in zip(tallies, sacrebleu(tmp_path, hypotheses, expected, second, options=options), strict=True):
        assert ours.score().value == pytest.approx(theirs["score"], abs=1e-6)
        assert ours.signature == theirs["signature"]
    again = sacrebleu(tmp_path, hypotheses, expected, second, options=f"{options} --confidence")
    for found, theirs in zip(with_intervals(tallies), again, strict=True):
        assert found.low is not None
        assert found.high is not None
        # The command sums in fp32.
        assert (found.high - found.low) / 2 == pytest.approx(theirs["confidence_var"], abs=1e-4)


# Formulas


@given(st.lists(st.tuples(*[st.text("ab c.", max_size=12)] * 2), min_size=1, max_size=5))
def test_formulas_are_those_of_sacrebleu_for_any_text(pairs: list[tuple[str, str]]) -> None:
    hypotheses, expected = ([pair[side] for pair in pairs] for side in (0, 1))
    lines = Lines(hypotheses, [expected])
    for metric, tally in {
        BLEU(): metrics.bleu(lines),
        BLEU(tokenize="none", smooth_method="none"): metrics.bleu_of_tokens(lines, "", "none", False),
        CHRF(): metrics.chrf(lines),
        CHRF(word_order=2): metrics.chrf(lines, words=2),
        TER(): metrics.ter(lines),
    }.items():
        assert tally.score().value == pytest.approx(metric.corpus_score(hypotheses, [expected]).score, abs=1e-9)


def test_one_tally_gives_the_figure_of_all_some_and_each() -> None:
    expected = references(10)
    hypotheses = spoilt(expected, 0.3, 1)
    tally = metrics.chrf(Lines(hypotheses, [expected]))
    some = np.arange(10) % 2 == 0
    assert tally.of(some) == pytest.approx(CHRF().corpus_score(hypotheses[::2], [expected[::2]]).score)
    each = [CHRF().sentence_score(*pair).score for pair in zip(hypotheses, ([one] for one in expected), strict=True)]
    assert tally.each().tolist() == pytest.approx(each)


def test_counting_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "LINES_AT_A_TIME", 4)
    seen: list[tuple[str, int]] = []
    whole = metrics.bleu(Lines(["a b"] * 10, [["a c"] * 10]), progress=lambda *now: seen.append(now))
    assert seen == [("BLEU", 4), ("BLEU", 8), ("BLEU", 10)]
    assert whole.counts_LC.shape == (10, 10)


def test_an_exact_match_with_any_reference_counts() -> None:
    tally: Tally = metrics.exact_match(Lines(["a", "b", "c"], [["a", "x", "x"], ["x", "b", "x"]]))
    assert tally.score().value == pytest.approx(200 / 3)
