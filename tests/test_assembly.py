"""What of a recipe and its corpus does not fit together is said before training begins, not after it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from regard import experiment
from regard.assembly import new_trainer
from regard.data.dataset import read_dataset
from regard.errors import UsageError
from regard.recipe import Recipe, build_recipe
from regard.resumption import verify_resume
from regard.training.team import ALONE
from regard.training.trainer import Trainer
from tests.tiny import ENGLISH, GERMAN, generated_recipe, write_lines

LONG = " ".join(ENGLISH)
SIZES = "d_model=8, d_ff=8, heads=2, dropout=0.0, max_positions=12"
BODY = f"body={{kind='transformer', layers=1, {SIZES}, positions='learned'}}"
GPT = f"{{kind='gpt', layers=1, {SIZES}}}"
KINDS = {
    "translation": f"{{encoder_layers=1, decoder_layers=1, {SIZES}, positions='learned'}}",
    "decoder-only": "{kind='decoder-only', layers=1, d_model=8, d_ff=8, heads=2, dropout=0.0, max_positions=24}",
    "language model": GPT,
    "classifier": f"{{kind='classifier', {BODY}}}",
    "tagger": f"{{kind='tagger', {BODY}}}",
}


def recipe_of(data: str, model: str, layout: str = "buckets") -> Recipe:
    settings = [data, f"model={model}", "tokenizer={kind='words', vocabulary=40}", "device=cpu"]
    return build_recipe({}, [*settings, f"batch={{tokens=96, layout='{layout}', row=12}}"], "fits")


def corpus(place: Path, kind: str, long: str | None, splits: tuple[str, ...] = ("", "valid", "test")) -> str:
    """The settings of a corpus of a kind; the second text of the split `long` is longer than all others."""
    texts = {split: [ENGLISH[0], LONG if split == long else ENGLISH[1], *ENGLISH[2:]] for split in splits}
    settings = []
    for split, lines in texts.items():
        name = split or "train"
        if kind in ("translation", "decoder-only"):
            write_lines(place / f"{name}.en", lines)
            write_lines(place / f"{name}.de", GERMAN)
            before = f"{split}_" if split else ""
            settings += [f"{before}source='{place}/{name}.en'", f"{before}target='{place}/{name}.de'"]
            continue
        if kind == "classifier":
            lines = [f"{line}\t{'even' if number % 2 else 'odd'}" for number, line in enumerate(lines)]
        if kind == "tagger":
            lines = ["\n".join(f"{word} {'E' if 'e' in word else 'X'}" for word in [*text.split(), ""][:-1]) + "\n"
                     for text in lines]  # fmt: skip
        write_lines(place / f"{name}.txt", lines)
        key = split or {"language model": "text", "classifier": "table", "tagger": "words"}[kind]
        settings.append(f"{key}='{place}/{name}.txt'")
    name = {"language model": "text", "classifier": "labelled", "tagger": "tagged"}.get(kind, "files")
    return f"data={{kind='{name}', {', '.join(settings)}}}"


def assembled(recipe: Recipe) -> Trainer:
    with torch.random.fork_rng():
        return new_trainer(recipe, read_dataset(recipe.data, recipe.tokenizer, recipe.seed), ALONE)


@pytest.mark.parametrize("kind", KINDS)
def test_texts_that_fit_are_taken(tmp_path: Path, kind: str) -> None:
    assert assembled(recipe_of(corpus(tmp_path, kind, None), KINDS[kind])).step == 0


@pytest.mark.parametrize("split", ["valid", "test"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_text_that_is_too_long_is_named_before_training(tmp_path: Path, kind: str, split: str) -> None:
    """One text of 13 words and its end, where 12 positions are learned; decoder-only models share 24 for two sides."""
    with pytest.raises(UsageError) as caught:
        assembled(recipe_of(corpus(tmp_path, kind, split), KINDS[kind]))
    said, times = str(caught.value), 2 if kind == "decoder-only" else 1
    pairs = kind in ("translation", "decoder-only")
    name = f"{split}.en + {split}.de" if pairs else f"{split}.txt"
    which = f"the source of pair 2 of {name}" if pairs else f"text 2 of {name}"
    assert said.startswith(
        f"model.max_positions: must be at least {14 * times}, {'twice ' * (times - 1)}the tokens of "
    )
    assert f'the longest text ({which}, which begins with "zero one two' in said
    assert f"but is {12 * times}. Shorten what is too long in {name} (1 of 13), or take it out: no filter" in said


def test_files_that_are_too_long_are_all_named(tmp_path: Path) -> None:
    corpus(tmp_path, "language model", "valid")
    long = write_lines(tmp_path / "long.txt", [LONG, LONG, "one"])
    data = f"data={{kind='text', text='{long}', valid='{tmp_path}/valid.txt', test='{long}'}}"
    with pytest.raises(UsageError, match=r"Cut long texts \(2 of 3\) into several, and shorten what is too long in "
                       r"valid\.txt \(1 of 13\) and long\.txt \(2 of 3\), or take it out: no"):  # fmt: skip
        assembled(recipe_of(data, GPT))
    # The same file twice is one file to shorten.
    data = f"data={{kind='text', text='{tmp_path}/train.txt', valid='{long}', test='{long}'}}"
    with pytest.raises(UsageError, match=r"Shorten what is too long in long\.txt \(2 of 3\), or"):
        assembled(recipe_of(data, GPT))


def test_texts_held_out_to_test_on_came_from_the_files_of_training(tmp_path: Path) -> None:
    for label, words in (("en", ENGLISH), ("de", GERMAN)):
        write_lines(tmp_path / f"{label}.txt", [f"{word} {' '.join(words)}" for word in words])
    classes = ", ".join(f"{{label='{label}', text='{tmp_path}/{label}.txt'}}" for label in ("en", "de"))
    with pytest.raises(UsageError, match=r"Cut long texts \(26 of 26\) into several\. Or choose"):
        assembled(recipe_of(f"data={{kind='classes', classes=[{classes}]}}", KINDS["classifier"]))


def test_rows_of_running_text_need_no_shorter_lines(tmp_path: Path) -> None:
    """A language model that reads rows is tested in windows as long as they are."""
    data = corpus(tmp_path, "language model", "test")
    assert assembled(recipe_of(data, GPT, "blocks")).step == 0


def test_to_train_leaves_torchs_generators_alone(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    changes = ["training={steps=2, validate_every=1, save_every=1, keep=1, average=1}", "device=cpu"]
    experiment.train(generated_recipe(changes), tmp_path / "run")
    verify_resume(tmp_path / "run", steps=2)
    assert torch.equal(torch.get_rng_state(), before)
