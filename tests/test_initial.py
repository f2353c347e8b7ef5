"""`init`: a run that begins with another model, or says clearly why it cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from regard import experiment, folder
from regard.data.corpus import Files
from regard.errors import MissingError, UsageError
from regard.initial import beginning_of
from regard.recipe import Recipe, load_recipe
from tests.tiny import ENGLISH, GERMAN, failed, language_model, regard, write_lines

FEW = [
    "training={steps=2, validate_every=2, save_every=2, keep=1, average=1, label_smoothing=0.0}",
    "training.optimiser={schedule='constant', rate=1e-9, warmup=0}",
    "batch={tokens=256, layout='packed', row=32}",
    "log.tensorboard=false",
    "device=cpu",
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a language model `gpt` and two sides of a corpus."""
    place = tmp_path_factory.mktemp("initial")
    language_model(place / "gpt")
    write_lines(place / "a.en", ENGLISH)
    write_lines(place / "a.de", GERMAN)
    return place


def pairs(place: Path) -> str:
    return f"data={{kind='files', source='{place}/a.en', target='{place}/a.de', filters={{drop_identical=false}}}}"


def translator(place: Path, *changes: str) -> Recipe:
    return load_recipe("decoder-only", [f"init={place / 'gpt'}", pairs(place), *FEW, *changes])


def test_a_recipe_takes_over_vocabulary_and_sizes(place: Path) -> None:
    recipe, before = translator(place, "model.dropout=0.4"), folder.read_recipe(place / "gpt")
    assert recipe.tokenizer == before.tokenizer
    assert (recipe.model.kind, recipe.model.layers, recipe.model.dropout) == ("decoder-only", 2, 0.4)
    assert recipe.model.max_positions == before.model.max_positions == 32
    assert recipe.training.steps == 2


def test_a_run_begins_with_the_weights(place: Path, tmp_path: Path) -> None:
    experiment.train(translator(place), tmp_path / "out")
    before, after = (load_file(each / folder.WEIGHTS) for each in (place / "gpt", tmp_path / "out"))
    assert before.keys() == after.keys()
    assert max(float((before[name] - after[name]).abs().max()) for name in before) < 1e-7
    assert (tmp_path / "out" / folder.TOKENIZER).read_bytes() == (place / "gpt" / folder.TOKENIZER).read_bytes()
    # The folder says where its weights began, and goes on without that model.
    assert folder.read_recipe(tmp_path / "out").init == str(place / "gpt")
    experiment.train(folder.read_recipe(tmp_path / "out", ["training.steps=4"]), tmp_path / "out", resume=True)


def test_two_typed_words_are_enough(place: Path, tmp_path: Path) -> None:
    arguments = ["--source", place / "a.en", "--target", place / "a.de", "--out", tmp_path / "out"]
    ran = regard("train", f"init={place / 'gpt'}", "model.kind=decoder-only", *FEW, *arguments)
    assert ran.code == 0, ran.err
    assert folder.read_recipe(tmp_path / "out").model.kind == "decoder-only"
    assert "unknown" in ran.err  # the corpus is reported in the tokens of the vocabulary that was taken over
    lines = regard("translate", tmp_path / "out", place / "a.en", "--extra-length", 2).out.splitlines()
    assert len(lines) == len(ENGLISH)


def test_what_does_not_fit_is_said_all_at_once(place: Path) -> None:
    recipe = translator(place, "model.max_positions=64", "model.norm=post", "tokenizer.vocabulary=400")
    with pytest.raises(UsageError) as caught:
        beginning_of(recipe)
    said = str(caught.value)
    assert "tokenizer.vocabulary must be 300, but is 400: each token has its own weights" in said
    assert "model.max_positions must be 32, but is 64: so many positions were learned" in said
    assert 'model.norm must be "pre", but is "post": its weights were learned so' in said
    assert "Leave these settings out" in said


def test_settings_without_weights_may_differ(place: Path) -> None:
    found = beginning_of(translator(place, "model.reach=7", "model.source_loss=1.0", "tokenizer.dropout=0.1"))
    assert found is not None
    assert isinstance(next(iter(found.weights.values())), torch.Tensor)


@pytest.mark.parametrize(("kind", "dropout"), [("bytes", 0.1), ("characters", 0.0)])
def test_dropout_of_a_recipe_file_stays_where_there_are_merges(tmp_path: Path, kind: str, dropout: float) -> None:
    before = language_model(tmp_path / "gpt", [f"tokenizer={{kind='{kind}', vocabulary=300}}"])
    file = tmp_path / "mine.toml"
    write_lines(
        file, ["extends = 'decoder-only'", f"init = '{before}'", "model.dropout = 0.4", "tokenizer.dropout = 0.1"]
    )
    recipe = load_recipe(str(file))
    assert recipe.model.dropout == 0.4
    assert recipe.tokenizer == replace(folder.read_recipe(before).tokenizer, dropout=dropout)


def test_another_kind_of_model_is_refused(place: Path) -> None:
    with pytest.raises(UsageError, match="must hold a `transformer` as the recipe asks for, but holds a `gpt`"):
        load_recipe("small", [f"init={place / 'gpt'}", pairs(place)])
    with pytest.raises(
        UsageError, match="only a `gpt` can go on as a `decoder-only` and the other way round, and a `bert`"
    ):
        load_recipe("small", [f"init={place / 'gpt'}", pairs(place)])
    with pytest.raises(MissingError, match=r"init: must be a model folder, but .* has no recipe\.toml"):
        load_recipe("small", [f"init={place}"])
    with pytest.raises(UsageError, match=r"init: must be a model folder.*but is empty"):
        load_recipe("small", ["init="])


def test_texts_longer_than_the_positions(place: Path, tmp_path: Path) -> None:
    long = write_lines(tmp_path / "long", [" ".join(ENGLISH), *ENGLISH])
    data = f"data={{kind='files', source='{long}', target='{long}', filters={{drop_identical=false}}}}"
    ran = regard("train", "decoder-only", f"init={place / 'gpt'}", data, *FEW, "--out", tmp_path / "out")
    failed(ran, 2, "model.max_positions: must be at least", "twice the tokens of the longest text (the source of ")
    assert "but is 32. Drop long pairs (1 of 14) by a lower `max_words` or `max_characters` in `data" in ran.err


def test_a_long_text_to_validate_on_is_named(place: Path, tmp_path: Path) -> None:
    """No filter touches it: what helps in training would not help here."""
    short = write_lines(tmp_path / "short", ENGLISH)
    source = write_lines(tmp_path / "dev.en", ["one", " ".join(ENGLISH), "two"])
    target = write_lines(tmp_path / "dev.de", GERMAN[1:4])
    sides = f"source='{short}', target='{short}', valid_source='{source}', valid_target='{target}'"
    data = f"data={{kind='files', {sides}, filters={{drop_identical=false, max_words=3}}}}"
    ran = regard("train", "decoder-only", f"init={place / 'gpt'}", data, *FEW, "--out", tmp_path / "out")
    failed(ran, 2, "the longest text (the source of pair 2 of dev.en + dev.de, which begins with", "but is 32. Shorten "
           "what is too long in dev.en + dev.de (1 of 3), or take it out: no filter touches it. Or begin")  # fmt: skip
    assert "max_words" not in ran.err


def test_unknown_tokens_of_a_vocabulary_that_was_taken_over(tmp_path: Path) -> None:
    begun = language_model(tmp_path / "gpt", ["tokenizer={kind='characters', vocabulary=20}"], ["one two three"])
    text = write_lines(tmp_path / "a.txt", ["twenty-six boxes", "jumping quickly"] * 20)
    data = f"data={{kind='text', text='{text}'}}"
    ran = regard("train", f"init={begun}", data, *FEW, "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert "are unknown to the vocabulary, which was learned from other text. Take over one that knows" in ran.err
    assert "larger `tokenizer.vocabulary`" not in ran.err


def test_what_is_typed_takes_the_place_of_the_whole_corpus(place: Path, tmp_path: Path) -> None:
    """A model that goes on would validate on the old corpus, or read the new source beside the old target."""
    old, new = (tmp_path / name for name in ("old", "new"))
    files = {key: str(place / name) for key, name in (("valid_source", "a.en"), ("valid_target", "a.de"))}
    first = [pairs(place), *(f"data.{key}={file}" for key, file in files.items()), "model.kind=decoder-only"]
    assert regard("train", f"init={place / 'gpt'}", *first, *FEW, "licence=cc-by-4.0", "--out", old).code == 0
    write_lines(tmp_path / "b.tsv", [f"{one}\t{two}!" for one, two in zip(ENGLISH, GERMAN, strict=True)])
    ran = regard("train", f"init={old}", *FEW, "--source", tmp_path / "b.tsv", "--out", new)
    assert ran.code == 0, ran.err
    assert folder.read_recipe(new).data == Files(str(tmp_path / "b.tsv"))
    assert (folder.read_recipe(old).licence, folder.read_recipe(new).licence) == ("cc-by-4.0", None)


def test_whose_data_the_first_model_learned_from_is_told_of_the_second() -> None:
    owed = load_recipe("everyday-en-de").attribution
    assert owed
    found = load_recipe("small", ["init=everyday-en-de", "attribution=['Somebody else.']"]).attribution
    assert found == ("Somebody else.",)  # what is typed stands
    assert load_recipe("small", ["init=everyday-en-de"]).attribution == owed


def test_without_a_folder_it_is_named_after_the_model_that_goes_on(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    begin = ("train", f"init={place / 'gpt'}", f"data={{kind='text', text='{place}/a.en'}}", *FEW)
    before = folder.read_recipe(place / "gpt").name
    for named, name in (((), f"{before}-further"), (("name=mine",), "mine")):
        ran = regard(*begin, *named)
        assert ran.code == 0, ran.err
        assert folder.read_recipe(tmp_path / "runs" / name).name == name
    assert regard(*begin, "name=mine", "--out", "elsewhere").code == 0
    assert folder.read_recipe(tmp_path / "elsewhere").name == "mine"


def test_a_run_that_begins_from_nothing() -> None:
    assert beginning_of(load_recipe("demo")) is None


def test_without_a_recipe_the_folders_own_is_used(place: Path, tmp_path: Path) -> None:
    data = f"data={{kind='text', text='{place}/a.en'}}"
    ran = regard("train", f"init={place / 'gpt'}", data, *FEW, "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    found, before = folder.read_recipe(tmp_path / "out"), folder.read_recipe(place / "gpt")
    assert (found.model, found.tokenizer) == (before.model, before.tokenizer)
    assert (found.name, (tmp_path / "out" / "card.md").read_text().count("# out\n")) == ("out", 1)
    failed(regard("train", "training.steps=3"), 2, "or a model to go on from, as init=FOLDER")


def test_texts_that_are_too_long_for_what_was_learned(place: Path, tmp_path: Path) -> None:
    long = write_lines(tmp_path / "long.txt", [" ".join(ENGLISH * 3)])
    ran = regard("train", f"init={place / 'gpt'}", f"data={{kind='text', text='{long}', valid='{long}'}}", *FEW,
                 "--out", tmp_path / "out")  # fmt: skip
    failed(ran, 2, "model.max_positions: must be at least", f"those of {place / 'gpt'} were learned")
    assert 'the longest text (a text to train on, which begins with "zero' in ran.err
    assert "Cut long texts (1 of 1) into several, and shorten what is too long in long.txt (1 of 1)" in ran.err
    assert "sinusoidal" not in ran.err
