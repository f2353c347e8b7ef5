"""Scores and perplexities."""

from __future__ import annotations

import math

import pytest

from regard.api import Model
from regard.errors import DataError, UsageError
from tests.tiny import ENGLISH, GERMAN


def test_the_perplexity_of_an_ensemble_is_that_of_its_scores(model: Model, mixed: Model) -> None:
    for both in (mixed, model.together([model])):
        found = both.score(GERMAN, ENGLISH)
        tokens = sum(len(each.log_probabilities) for each in found)
        expected = math.exp(-sum(each.log_probability for each in found) / tokens)
        scores = {score.name: score.value for score in both.evaluate(ENGLISH, GERMAN).scores}
        assert scores["perplexity per token"] == pytest.approx(expected, rel=1e-5)


def test_evaluate_scores_against_references(model: Model) -> None:
    scores = {score.name: score.value for score in model.evaluate(ENGLISH, [*GERMAN[:-1], "falsch"]).scores}
    assert scores["exact match"] == pytest.approx(100 * 12 / 13)
    with pytest.raises(UsageError, match="evaluate: needs one text on the other side for each source"):
        model.evaluate(["one"], [])
    with pytest.raises(DataError, match="one reference for each translation and at least one of each"):
        model.evaluate([], [])


def test_a_line_end_in_a_translation_is_scored_as_it_is_written(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Model, "translate", lambda *_: ["ein\nHaus"])
    scores = {score.name: score.value for score in model.evaluate(["a house"], ["ein Haus"]).scores}
    assert scores["exact match"] == 100


def test_sides_that_do_not_fit_are_named(model: Model) -> None:
    with pytest.raises(UsageError, match="align: needs a list of texts, but has one, 'one two'"):
        model.align("one two", "eins zwei")
    for sources, targets in ((["one"], []), (["one"], ["eins", "zwei"])):
        with pytest.raises(UsageError, match="align: needs one text on the other side for each source"):
            model.align(sources, targets)
    with pytest.raises(UsageError, match="score: needs a list of texts, but has one, 'ab'"):
        model.score(["ein", "zwei"], "ab")
    with pytest.raises(UsageError, match="evaluate: needs a list of texts, but has one, 'eins'"):
        model.evaluate(["a", "b", "c", "d"], "eins")
