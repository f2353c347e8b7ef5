"""The report: figures with uncertainty, where they come from, and what should make one careful."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU

from regard.evaluation import report as module
from regard.evaluation.catalogue import Scoring
from regard.evaluation.likelihood import Likelihood
from regard.evaluation.metrics import Lines
from regard.evaluation.report import Report, TestSet, evaluate
from tests.evaluation.texts import references, spoilt

EXPECTED = [*references(30), " ".join(references(5)), ""]
FOUND = [*spoilt(EXPECTED[:-2], 0.3, 1), EXPECTED[-2], ""]


@pytest.fixture(scope="module")
def report() -> Report:
    return evaluate(EXPECTED, Lines(FOUND, [EXPECTED]), Scoring(), examples=2)


def test_every_figure_lies_in_its_interval(report: Report) -> None:
    assert len(report.scores) == 11
    for score in report.scores:
        assert score.low is not None
        assert score.high is not None
        assert score.low <= score.value <= score.high


def test_lengths_are_disjoint_and_complete(report: Report) -> None:
    assert [(bucket.first, bucket.last) for bucket in report.lengths] == [(0, 10), (11, 20), (41, 50)]
    assert sum(bucket.lines for bucket in report.lengths) == 32
    longest = report.lengths[-1]
    assert (longest.lines, longest.bleu, longest.length_ratio) == (1, pytest.approx(100), 1)
    short = [
        (one, other) for one, other in zip(FOUND, EXPECTED, strict=True) if len(BLEU().tokenizer(other).split()) <= 10
    ]
    expected = BLEU().corpus_score([one for one, _ in short], [[other for _, other in short]]).score
    assert report.lengths[0].bleu == pytest.approx(expected)


def test_the_best_and_worst_lines_are_named(report: Report) -> None:
    assert [len(report.worst), len(report.best)] == [2, 2]
    assert report.worst[0].chrf <= report.worst[1].chrf < report.best[1].chrf <= report.best[0].chrf
    for example in (*report.worst, *report.best):
        assert (example.reference, example.translation) == (EXPECTED[example.line - 1], FOUND[example.line - 1])


def test_json_can_be_read_and_has_its_keys(report: Report) -> None:
    found = json.loads(json.dumps(report.to_json()))
    assert set(found) == {"lines", "files", "scores", "lengths", "worst", "best", "bootstrap", "notes"}
    assert set(found["scores"][0]) == {"name", "value", "signature", "low", "high"}
    assert set(found["lengths"][0]) == {"first", "last", "lines", "bleu", "chrf", "length_ratio"}
    assert set(found["worst"][0]) == {"line", "chrf", "source", "reference", "translation"}
    assert found["bootstrap"] == {"samples": 1000, "seed": 12345, "confidence": 0.95}


def test_the_text_shows_all_of_it(report: Report) -> None:
    text = report.to_text()
    for score in report.scores:
        assert score.signature in text
        assert f"{score.value:.2f}" in text
    for example in (*report.worst, *report.best):
        assert f"translation  {example.translation}".rstrip() in text
    assert "0–10" in text
    assert "Note: 1 of 32 translations is empty." in text


def test_no_lines_are_shown_if_none_are_asked_for() -> None:
    found = evaluate(["a"], Lines(["b"], [["a"]]), Scoring(), examples=0)
    assert (found.worst, found.best) == ([], [])
    assert "worst" not in found.to_text()


def test_hopeless_and_empty_translations_have_figures_too() -> None:
    for texts in (["", ""], ["x", "y y y y y"]):
        found = {score.name: score.value for score in evaluate(["", ""], Lines(texts, [["", "a"]]), Scoring()).scores}
        assert all(map(math.isfinite, found.values()))
        assert found["BLEU"] == 0


def test_files_are_known_by_their_checksum(tmp_path: Path) -> None:
    file = tmp_path / "a.de"
    file.write_bytes(b"eins\nzwei\n")
    expected = hashlib.sha256(b"eins\nzwei\n").hexdigest()
    assert TestSet.of("reference", file, ["eins", "zwei"]) == TestSet("reference", str(file), 2, expected)
    assert TestSet.of("source", None, ["eins", "zwei"]) == TestSet("source", "the recipe's test set", 2, expected)


@pytest.mark.parametrize(
    ("lines", "name", "warned"),
    [
        (2, "newstest2014.de", True),
        (2, "other.de", False),
        (4, "other.de", True),
        (5, "newstest2014.de", True),
        (5, "other.de", False),
    ],
)
def test_the_two_versions_of_newstest2014_are_told_apart(
    lines: int, name: str, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert module.NEWSTEST2014 == (3003, 2737)
    monkeypatch.setattr(module, "NEWSTEST2014", (5, 4))
    files = [TestSet("reference", name, lines, "0")]
    notes = evaluate(["a"] * lines, Lines(["a"] * lines, [["a"] * lines]), Scoring(), files=files).notes
    assert any("cannot be compared" in note for note in notes) == warned


def test_what_makes_figures_doubtful_is_noted() -> None:
    lines = Lines(["Ein Satz ."] * 100, [["Ein Satz."] * 100])
    ones = np.ones(100)
    notes = evaluate(["x"] * 100, lines, Scoring(), Likelihood(ones, ones, ones, 7, 50)).notes
    assert [note.split(".")[0] for note in notes] == [
        "100 translations end in a point with a space before it",
        "7 tokens of the reference are unknown to the vocabulary",
    ]
    (*_, note) = evaluate(["x"] * 100, lines, Scoring(), Likelihood(ones, ones, ones, 1, 50)).notes
    assert note.startswith("1 token of the reference is unknown to the vocabulary. It is easy to guess")
