"""Text in, text out."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pytest
import torch

import regard
from regard import api, folder
from regard.api import Model, load
from regard.decoding.search import SearchSettings
from regard.errors import DataError, MissingError, UsageError
from regard.layers import quantised
from regard.models.build import build
from regard.text.tokenizer import Tokenizer, TokenizerSettings
from regard.translation import translator
from tests.tiny import ENGLISH, GERMAN, generated_recipe, word_recipe


@pytest.fixture(scope="module")
def model(words_model: Path) -> Model:
    return load(words_model)


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
    monkeypatch.setattr(translator, "SLOTS_PER_BATCH", 1)
    small = model.translations(texts)
    for one, other in zip(together + small, alone + alone, strict=True):
        assert [found.text for found in one] == [found.text for found in other]
        for left, right in zip(one, other, strict=True):
            assert left.score == pytest.approx(right.score, abs=1e-4)


@pytest.mark.parametrize("precision", ["auto", "fp32", "int8"])
def test_a_model_computes_in_the_numbers_asked_for(
    words_model: Path, precision: Literal["auto", "fp32", "int8"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantised, "WORTHWHILE", 1)
    if precision == "int8" and not quantised.can_quantise():
        pytest.skip("torch cannot multiply in 8 bits here")
    model = load(words_model, "cpu", precision)
    assert model.translate(ENGLISH) == GERMAN
    eighth = [module for module in model.network.modules() if isinstance(module, quantised.Int8Linear)]
    assert bool(eighth) == (precision == "int8")
    with pytest.raises(UsageError, match="must be one of: auto, fp32, bf16, int8; but is `fp8`"):
        load(words_model, precision="fp8")  # type: ignore[arg-type]


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


def test_models_together_need_one_vocabulary(model: Model, words_model: Path) -> None:
    other = load(words_model)
    assert model.together([other], "probability").translate(ENGLISH) == GERMAN
    other.tokenizer = Tokenizer.learn(["other words"], TokenizerSettings(vocabulary=20))
    with pytest.raises(UsageError, match="must share a target vocabulary, but `words` has another"):
        model.together([other])


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


def test_the_perplexity_of_an_ensemble_is_that_of_its_scores(model: Model, mixed: Model) -> None:
    for both in (mixed, model.together([model])):
        found = both.score(GERMAN, ENGLISH)
        tokens = sum(len(each.log_probabilities) for each in found)
        expected = math.exp(-sum(each.log_probability for each in found) / tokens)
        scores = {score.name: score.value for score in both.evaluate(ENGLISH, GERMAN).scores}
        assert scores["perplexity per token"] == pytest.approx(expected, rel=1e-5)


def test_models_that_cut_sources_differently_are_asked_one_by_one(model: Model, mixed: Model) -> None:
    for ask in (lambda: mixed.align(["one"], ["eins"]), lambda: mixed.verify(count=2)):
        with pytest.raises(UsageError, match=r"different source vocabularies\. Ask each of them by itself"):
            ask()
    alike = model.together([model])
    assert len(alike.align(["one"], ["eins"])) == 1
    assert all(check.passed for check in alike.verify(count=2))
    with pytest.raises(UsageError, match="look: needs one model, but this is an ensemble"):
        alike.look("one")


def test_half_a_character_is_named(model: Model) -> None:
    with pytest.raises(DataError, match="text 2: must be Unicode"):
        model.translate(["fine", "\udcff"])


def test_scores_that_are_no_numbers_are_not_taken_for_an_empty_translation(words_model: Path) -> None:
    model = load(words_model)
    with torch.no_grad():
        next(model.network.parameters()).fill_(math.nan)
    with pytest.raises(DataError, match="scores are not numbers"):
        model.translate(["one"])


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


def test_a_picture_holds_every_attention_and_the_translation(model: Model) -> None:
    picture = model.look("seven")
    assert (picture.source, picture.translation) == ("seven", "sieben")
    assert [(one.name, one.layer) for one in picture.maps] == [("encoder", 0), ("decoder", 0), ("cross", 0)]
    page = picture.to_html()
    assert page.startswith("<!doctype html>")
    assert "sieben" in page
    with pytest.raises(UsageError, match="at least one word"):
        model.look("  ")


def test_load_says_what_is_wrong(tmp_path: Path, words_model: Path) -> None:
    with pytest.raises(MissingError, match="nowhere: must be a model folder, but is not there"):
        load(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="device"):
        load(words_model, device="gpu")
    assert load(str(words_model), device="cpu").device == torch.device("cpu")


def test_train_from_python(tmp_path: Path) -> None:
    with torch.random.fork_rng():
        model = regard.train(generated_recipe(["training.steps=1"]), tmp_path / "model")
        assert len(model.translate(["one"])) == 1
        with pytest.raises(UsageError, match="in use"):
            regard.train("demo", tmp_path / "model", ["training.steps=1"])
        with pytest.raises(UsageError, match="did you mean `steps`"):
            regard.train("demo", tmp_path / "other", ["training.step=1"])


def test_inspect_counts_without_making_weights(words_model: Path) -> None:
    base = api.inspect("base")
    assert (base.name, base.vocabulary, base.parameters) == ("base", 37_000, 63_082_496)
    found = api.inspect(str(words_model))
    loaded = load(words_model)
    assert found.parameters == sum(weight.numel() for weight in loaded.network.parameters())
    assert found.vocabulary == loaded.tokenizer.size


def test_a_folder_that_is_no_model_does_not_hide_a_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # `regard demo` makes a folder `demo`, and the next thing a curious person types is `regard inspect demo`.
    (tmp_path / "demo" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert api.inspect("demo").name == "demo"
    with pytest.raises(MissingError, match=r"recipe\.toml"):
        api.inspect("demo/model")


def test_a_model_folder_named_like_a_preset_is_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard import folder
    from regard.text.tokenizer import Tokenizer

    monkeypatch.chdir(tmp_path)
    recipe = word_recipe(tmp_path)
    folder.write_beginning(Path("small"), recipe, Tokenizer.learn(ENGLISH, recipe.tokenizer))
    assert api.inspect("small").name == "words"
