"""Accuracy, F1 and confusion of labels, against figures worked out by hand and by definition."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError
from regard.evaluation.labels import counted, evaluate_labels, restoring_tallies, tallies

LABELS = ("a", "b", "c")


def test_by_hand() -> None:
    # a: 2 right of 3, given 2; b: 1 right of 1, given 2; c never occurs.
    report = evaluate_labels(["w", "x", "y", "z"], [["a"], ["a"], ["a"], ["b"]], [["a"], ["a"], ["b"], ["b"]], LABELS)
    values = {score.name: score.value for score in report.scores}
    assert values["accuracy"] == values["micro F1"] == 75
    assert values["macro F1"] == pytest.approx(100 * (4 / 5 + 2 / 3) / 2)
    assert next(score.signature for score in report.scores if score.name == "macro F1").endswith("|labels:2")
    a, b, c = report.labels
    assert (a.precision, a.recall, a.f1) == (100, pytest.approx(100 * 2 / 3), pytest.approx(100 * 4 / 5))
    assert (b.precision, b.recall, b.f1, b.given) == (50, 100, pytest.approx(100 * 2 / 3), 2)
    assert (c.right, c.given, c.f1) == (0, 0, 0)
    assert report.confusion == [[2, 1, 0], [0, 1, 0], [0, 0, 0]]
    (mistake,) = report.mistakes
    assert (mistake.right, mistake.given, mistake.times, mistake.line, mistake.text) == ("a", "b", 1, 3, "y")
    assert json.loads(json.dumps(report.to_json()))["answers"] == 4
    assert "75.00" in report.to_text()
    assert re.search(r"^c +0 +0 +– +– +–$", report.to_text(), re.MULTILINE), "what never was has no figures"


@given(st.lists(st.lists(st.tuples(st.sampled_from(LABELS), st.sampled_from(LABELS)), max_size=4), min_size=1))
def test_by_definition(lines: list[list[tuple[str, str]]]) -> None:
    right, found = [[one for one, _ in line] for line in lines], [[other for _, other in line] for line in lines]
    pairs = [pair for line in lines for pair in line]
    if not pairs:
        with pytest.raises(DataError, match="at least one label"):
            counted(right, found, LABELS)
        return
    total, each = counted(right, found, LABELS)
    accuracy, macro, micro = (tally.score().value for tally in tallies(each))
    assert accuracy == micro == pytest.approx(100 * sum(one == other for one, other in pairs) / len(pairs))
    f1 = []
    for label in LABELS:
        hits = sum(one == other == label for one, other in pairs)
        wanted, given_ = sum(one == label for one, _ in pairs), sum(other == label for _, other in pairs)
        if wanted + given_:
            precision, recall = hits / given_ if given_ else 0, hits / wanted if wanted else 0
            f1.append(2 * precision * recall / (precision + recall) if hits else 0)
    assert macro == pytest.approx(100 * sum(f1) / len(f1))
    assert tallies(each)[1].signature.endswith(f"|labels:{len(f1)}")
    assert int(total.sum()) == len(pairs)


def test_a_label_the_model_does_not_know() -> None:
    with pytest.raises(DataError, match=r"text 2.*'d'"):
        counted([["a"], ["d"]], [["a"], ["a"]], LABELS)


def test_capitals_and_marks_apart() -> None:
    # Cases: 3 of 4 right. Marks: 2 right, 3 wanted, 3 given: F1 2/3.
    found = restoring_tallies([["C,", "l."], ["l", "U?"]], [["C,", "l,"], ["C", "U?"]])
    assert [tally.score().value for tally in found] == [75, pytest.approx(100 * 2 / 3)]
    nothing = restoring_tallies([["l"]], [["l"]])
    assert [tally.score().value for tally in nothing] == [100, 0]
