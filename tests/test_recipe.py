"""Recipes: the presets, files that build on them, and mistakes in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from regard import settings
from regard.data.corpus import Files
from regard.data.generated import Generated
from regard.errors import MissingError, UsageError
from regard.models.gpt import GPTSettings
from regard.models.transformer import TransformerSettings
from regard.recipe import Recipe, build_recipe, find, load_recipe, presets
from regard.text.tokenizer import GPT2Files, TokenizerSettings


@pytest.mark.parametrize("name", presets())
def test_every_preset_is_a_whole_recipe_and_bears_its_name(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    assert build_recipe(settings.read(find(name), find), [], name) == recipe


def test_the_presets_of_the_papers_are_there() -> None:
    assert {"base", "big", "demo", "small"} <= set(presets())


@pytest.mark.parametrize("name", presets())
def test_a_recipe_survives_being_written_and_read(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    file = tmp_path / "recipe.toml"
    file.write_text(settings.to_toml(recipe), encoding="utf-8")
    assert load_recipe(str(file)) == recipe


def test_the_base_model_is_the_papers() -> None:
    recipe = load_recipe("base")
    model = recipe.model
    assert isinstance(model, TransformerSettings)
    sizes = (model.encoder_layers, model.decoder_layers, model.d_model, model.d_ff, model.heads, model.dropout)
    assert sizes == (6, 6, 512, 2048, 8, 0.1)
    assert (recipe.training.steps, recipe.training.label_smoothing) == (100_000, 0.1)
    assert (recipe.search.beam, recipe.search.alpha) == (4, 0.6)


def test_a_file_builds_on_a_preset_and_the_command_line_has_the_last_word(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('extends = "small"\nname = "mine"\n[training]\nsteps = 70\nsave_every = 7\n')
    recipe = load_recipe(str(file), ["training.steps=71", "seed=5"])
    assert (recipe.name, recipe.training.steps, recipe.training.save_every, recipe.seed) == ("mine", 71, 7, 5)
    assert recipe.model == load_recipe("small").model


def test_another_kind_of_data_replaces_the_whole_table() -> None:
    recipe = load_recipe("demo", ["data={kind='files', source='a', target='b'}"])
    assert isinstance(load_recipe("demo").data, Generated)
    assert recipe.data == Files("a", "b")


def test_a_name_that_is_neither_file_nor_preset_is_named_with_the_presets() -> None:
    with pytest.raises(MissingError) as caught:
        load_recipe("bse")
    assert "bse: there is neither such a file nor such a preset" in str(caught.value)
    assert "Did you mean `base`?" in str(caught.value)
    with pytest.raises(MissingError) as caught:
        load_recipe("nothing")
    assert all(name in str(caught.value) for name in presets())
    with pytest.raises(MissingError, match=r"nothing\.toml"):
        load_recipe("nothing.toml")


def test_every_mistake_is_named_at_once_with_place_and_suggestion(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('extends = "small"\n[training]\nstpes = 70\n[search]\nbeam = "four"\nalpha = -1.0\n')
    with pytest.raises(UsageError) as caught:
        load_recipe(str(file), ["model.heads=7"])
    for words in ("training.stpes", "did you mean `steps`?", "search.beam", "`d_model` must be a multiple of `heads`"):
        assert words in str(caught.value)
    assert all(line.startswith(f"{file}: ") for line in str(caught.value).split("\n"))


@pytest.mark.parametrize("name", ["tiny", "small", "medium", "base", "big"])
def test_another_kind_fits_on_any_preset(name: str, tmp_path: Path) -> None:
    published = load_recipe(name, ["tokenizer={kind='gpt2', encoder='encoder.json', merges='vocab.bpe'}"])
    assert published.tokenizer == GPT2Files("encoder.json", "vocab.bpe")
    assert load_recipe(name, ["model={kind='gpt'}"]).model == GPTSettings()
    file = tmp_path / "mine.toml"
    file.write_text(f"extends = '{name}'\n[tokenizer]\nkind = 'gpt2'\nencoder = 'encoder.json'\nmerges = 'vocab.bpe'\n")
    assert load_recipe(str(file)).tokenizer == published.tokenizer
    # Kinds that have the same keys keep them.
    learned = load_recipe(name).tokenizer
    assert isinstance(learned, TokenizerSettings)
    assert load_recipe(name, ["tokenizer.kind=bytes"]).tokenizer == replace(learned, kind="bytes")


@pytest.mark.parametrize(
    ("name", "row"), [("gpt2", 1_024), ("gpt2-xl", 1_024), ("character", 512), ("transformer-decoder", 4_000)]
)
def test_language_models_read_running_text(name: str, row: int) -> None:
    recipe = load_recipe(name)
    assert (recipe.batch.layout, recipe.batch.row) == ("blocks", row)
    assert isinstance(recipe.model, GPTSettings)
    assert recipe.model.limit is None or row <= recipe.model.limit


def test_the_defaults_are_a_recipe() -> None:
    assert build_recipe({}, [], "nothing") == Recipe()


def test_a_table_that_two_kinds_have_is_named_once() -> None:
    with pytest.raises(UsageError) as caught:
        load_recipe("classify-table", ["model.d_model=3"])
    assert str(caught.value).count('[model.body] of kind "recurrent"') == 1
