"""Parts and costs without weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard import folder
from regard.api import inspect, load
from regard.errors import MissingError
from regard.text.tokenizer import Tokenizer
from tests.tiny import ENGLISH, word_recipe


def test_inspect_counts_without_making_weights(words_model: Path) -> None:
    base = inspect("base")
    assert (base.name, base.vocabulary, base.parameters) == ("base", 37_000, 63_082_496)
    found = inspect(str(words_model))
    loaded = load(words_model)
    assert found.parameters == sum(weight.numel() for weight in loaded.network.parameters())
    assert found.vocabulary == loaded.tokenizer.size


def test_a_folder_that_is_no_model_does_not_hide_a_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # `regard demo` makes a folder `demo`, and the next thing a curious person types is `regard inspect demo`.
    (tmp_path / "demo" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert inspect("demo").name == "demo"
    with pytest.raises(MissingError, match=r"recipe\.toml"):
        inspect("demo/model")


def test_a_model_folder_named_like_a_preset_is_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = word_recipe(tmp_path)
    folder.write_beginning(Path("small"), recipe, Tokenizer.learn(ENGLISH, recipe.tokenizer))
    assert inspect("small").name == "words"


@pytest.mark.parametrize("preset", ["lm-shakespeare-small", "bert-small"])
def test_a_vocabulary_of_characters_is_not_known_before_the_text_is(preset: str) -> None:
    found = inspect(preset)
    assert found.vocabulary_is_limit
    assert "if the text has 8,000 tokens" in found.to_text()
    told = inspect(preset, vocabulary=68)
    assert not told.vocabulary_is_limit
    assert "if the text" not in told.to_text()
    assert not inspect("base").vocabulary_is_limit
