"""A model that knows its texts by heart, alone and with another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from regard import folder
from regard.api import Model, load
from regard.models.build import build
from regard.text.tokenizer import Tokenizer, TokenizerSettings
from tests.tiny import ENGLISH


@pytest.fixture(scope="module")
def model(words_model: Path) -> Model:
    return load(words_model)


@pytest.fixture
def mixed(model: Model) -> Model:
    """An ensemble of two models that write the same tokens, and read others."""
    letters = Tokenizer.learn(ENGLISH, TokenizerSettings(kind="characters", vocabulary=80))
    tokenizer = Tokenizer(model.tokenizer._inner, letters)
    settings = replace(model.recipe.model, tie="none")  # type: ignore[type-var]
    with torch.random.fork_rng():
        torch.manual_seed(3)
        network = build(settings, tokenizer.size, letters.size).eval()
    return model.together([Model(folder.Loaded(model.recipe, tokenizer, network))])
