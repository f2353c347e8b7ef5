"""Models together."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.api import Model, load
from regard.errors import UsageError
from regard.text.tokenizer import Tokenizer, TokenizerSettings
from tests.tiny import ENGLISH, GERMAN


def test_models_together_need_one_vocabulary(model: Model, words_model: Path) -> None:
    other = load(words_model)
    assert model.together([other], "probability").translate(ENGLISH) == GERMAN
    other.tokenizer = Tokenizer.learn(["other words"], TokenizerSettings(vocabulary=20))
    with pytest.raises(UsageError, match="must share a target vocabulary, but `words` has another"):
        model.together([other])


def test_models_that_cut_sources_differently_are_asked_one_by_one(model: Model, mixed: Model) -> None:
    for ask in (lambda: mixed.align(["one"], ["eins"]), lambda: mixed.verify(count=2)):
        with pytest.raises(UsageError, match=r"different source vocabularies\. Ask each of them by itself"):
            ask()
    alike = model.together([model])
    assert len(alike.align(["one"], ["eins"])) == 1
    assert all(check.passed for check in alike.verify(count=2))
    with pytest.raises(UsageError, match="look: needs one model, but this is an ensemble"):
        alike.look("one")
