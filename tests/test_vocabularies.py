"""A run with a vocabulary for each language, with BPE-dropout, and with every kind of token."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import regard
from regard import experiment, folder
from regard.api import inspect
from regard.errors import UsageError
from regard.recipe import build_recipe
from regard.text.tokenizer import Tokenizer

from .tiny import ENGLISH, GERMAN, word_recipe

OWN = ["tokenizer.shared=false", "tokenizer.dropout=0.1", "tokenizer.dropout_cuts=2", 'model.tie="target"']


def test_each_language_with_its_own_vocabulary_and_dropout_in_training(tmp_path: Path) -> None:
    recipe = word_recipe(tmp_path, OWN)
    experiment.train(recipe, tmp_path / "model")
    assert set(json.loads((tmp_path / "model" / folder.TOKENIZER).read_text(encoding="utf-8"))) == {"source", "target"}
    model = regard.load(tmp_path / "model")
    assert model.tokenizer.source.size != model.tokenizer.size
    found = model.translate(ENGLISH)
    assert sum(a == b for a, b in zip(found, GERMAN, strict=True)) >= 9
    # The picture names the source's tokens by the source's vocabulary.
    picture = model.look("twelve")
    cross = next(drawn for drawn in picture.maps if drawn.name == "cross")
    assert "".join(cross.keys) == "twelve‹end›"
    parameters = sum(weight.numel() for weight in model.network.parameters())
    assert inspect(str(tmp_path / "model")).parameters == parameters


def test_dropout_is_part_of_the_run_and_not_of_the_model(tmp_path: Path) -> None:
    recipe = word_recipe(tmp_path, ["tokenizer.dropout=0.5", "tokenizer.dropout_cuts=3", "training.steps=2"])
    experiment.train(recipe, tmp_path / "model")
    saved = Tokenizer.load(tmp_path / "model" / folder.TOKENIZER)
    assert saved.to_json() == Tokenizer.learn([*ENGLISH, *GERMAN], word_recipe(tmp_path).tokenizer).to_json()
    assert json.loads(saved.to_json())["model"]["dropout"] is None


@pytest.mark.parametrize("model", ['model.tie="all"', 'model.tie="embeddings"', 'model={kind="recurrent"}'])
def test_a_vocabulary_for_each_language_needs_an_embedding_for_each(model: str) -> None:
    with pytest.raises(UsageError, match=r"`tokenizer.shared` = false gives each language a vocabulary"):
        build_recipe({}, ["tokenizer.shared=false", model], "recipe")
    build_recipe({}, ["tokenizer.shared=false", 'model.tie="none"'], "recipe")


@pytest.mark.parametrize("kind", ["bpe-end", "bytes", "words", "characters"])
def test_every_kind_of_token_can_be_trained_and_used(kind: str, tmp_path: Path) -> None:
    recipe = word_recipe(tmp_path, [f"tokenizer={{kind={kind!r}, vocabulary=300}}", "training.steps=3"])
    experiment.train(recipe, tmp_path / "model")
    model = regard.load(tmp_path / "model")
    assert model.recipe.tokenizer.kind == kind
    assert len(model.translate(["one", "two"])) == 2
