"""Texts in, translations out."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from regard.api import Model, load
from regard.decoding.search import SearchSettings
from regard.errors import DataError, UsageError
from regard.translation import units
from tests.tiny import ENGLISH, GERMAN


def test_what_was_learned_by_heart_is_translated_right_in_order(model: Model) -> None:
    order = random.Random(0).sample(range(13), 13)
    assert model.translate([ENGLISH[place] for place in order]) == [GERMAN[place] for place in order]


def test_an_empty_text_stays_empty_where_it_stands(model: Model) -> None:
    assert model.translate(["", "one", "  \t ", "two", ""]) == ["", "eins", "", "zwei", ""]
    assert model.translate([]) == []
    (found,) = model.translations([""])
    assert [(one.text, one.score, one.cut) for one in found] == [("", 0.0, False)]


def test_a_text_is_translated_the_same_in_any_company(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["one", "two " * 9, "six", "unknown ж", "x" * 40, "eleven twelve"]
    together = model.translations(texts)
    alone = [model.translations([text])[0] for text in texts]
    monkeypatch.setattr(units, "SLOTS_PER_BATCH", 1)
    small = model.translations(texts)
    for one, other in zip(together + small, alone + alone, strict=True):
        assert [found.text for found in one] == [found.text for found in other]
        for left, right in zip(one, other, strict=True):
            assert left.score == pytest.approx(right.score, abs=1e-4)


def test_the_best_comes_first(model: Model) -> None:
    (found,) = model.translations(["seven"], SearchSettings(beam=4, nbest=3))
    assert len(found) == 3
    assert len({translation.text for translation in found}) == 3
    assert all(first.score >= second.score for first, second in pairwise(found))
    assert found[0].text == "sieben" == model.translate(["seven"])[0]
    assert found[0].log_probability <= 0


def test_progress_counts_the_texts(model: Model) -> None:
    done: list[int] = []
    model.translations(["one", "", "three"], progress=lambda texts, tokens: done.append(texts))
    assert sum(done) == 3


def test_one_string_is_not_taken_for_a_list_of_letters(model: Model) -> None:
    with pytest.raises(UsageError, match=r"needs a list of texts, but has one, 'one'. Write \[text\]"):
        model.translate("one")


def test_half_a_character_is_named(model: Model) -> None:
    with pytest.raises(DataError, match="text 2: must be Unicode"):
        model.translate(["fine", "\udcff"])


def test_scores_that_are_no_numbers_are_not_taken_for_an_empty_translation(words_model: Path) -> None:
    model = load(words_model)
    with torch.no_grad():
        next(model.network.parameters()).fill_(math.nan)
    with pytest.raises(DataError, match="scores are not numbers"):
        model.translate(["one"])
