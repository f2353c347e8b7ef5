"""BERT, Transformer-XL and XLNet end to end at toy size: train, stop and go on, use, look at, measure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from regard.api import load
from regard.errors import UsageError
from regard.folder import WEIGHTS
from tests.tiny import ENGLISH, GERMAN, failed, regard, write_lines

COUNTING = [" ".join(words[first : first + 5]) for words in (ENGLISH, GERMAN) for first in range(8)] * 4
COMMON = [
    "tokenizer={kind='words', vocabulary=60}",
    "batch={tokens=240, row=24}",
    "training={steps=90, validate_every=90, save_every=45, report_every=45, average=1, keep_best=1}",
    "training.optimiser={rate=0.005, warmup=10}",
    "device=cpu",
]
SIZES = "layers=2, d_model=32, d_ff=48, heads=2, dropout=0.0"
MODELS = {
    "bert-small": [f"model={{{SIZES}, positions='learned', max_positions=24}}", "batch.layout=buckets"],
    "transformer-xl-small": [f"model={{{SIZES}, memory=8}}"],
    "xlnet-small": [f"model={{{SIZES}}}", "batch.layout=buckets"],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text, and a model of each kind that learned from it."""
    place = tmp_path_factory.mktemp("relatives")
    text = write_lines(place / "text.txt", COUNTING)
    for recipe, sizes in MODELS.items():
        data = f"data={{text='{text}', held_out=0.2}}"
        ran = regard("train", recipe, data, *sizes, *COMMON, "--out", place / recipe)
        assert ran.code == 0, ran.err
        assert ("regard fill" if recipe == "bert-small" else "regard generate") in ran.err
    return place


@pytest.mark.parametrize("recipe", MODELS)
def test_promises_are_kept(place: Path, recipe: str) -> None:
    """A run that stops goes on exactly: what is hidden, and what is remembered, are the same."""
    ran = regard("verify", place / recipe, "--texts", 6)
    assert ran.code == 0, ran.out + ran.err
    assert {"neighbours", "resume"} <= set(ran.out.split())


@pytest.mark.parametrize("recipe", ["bert-small", "xlnet-small"])
def test_gaps_are_filled_from_both_sides(place: Path, recipe: str) -> None:
    ran = regard("fill", place / recipe, "three _ five six seven", "--count", 2)
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[0] == "three four five six seven"
    assert ran.out.splitlines()[1].startswith("  gap 1:  ▁four ")
    ran = regard(
        "fill", place / recipe, "--json", "--count", 1, stdin=b"_ two three four five\nvier _ sechs sieben acht\n"
    )
    found = [json.loads(line) for line in ran.out.splitlines()]
    # The first word is known from what comes after it alone.
    assert [each["gaps"][0][0][0] for each in found] == ["▁one", "▁fünf"]
    ran = regard("fill", place / recipe, "--count", 1, stdin=b"one\n\ntwo three _ five six\n")
    assert [line for line in ran.out.splitlines() if "gap" not in line] == ["one", "", "two three four five six"]
    failed(regard("fill", place / recipe, stdin=None), 2, "stdin: must be open to be read from, but is closed")
    (filled,) = load(place / recipe).fill(["two three _ five six"])
    assert filled.gaps[0].tokens[0] == "▁four"


@pytest.mark.parametrize("recipe", ["transformer-xl-small", "xlnet-small"])
def test_language_models_write_and_are_measured(place: Path, recipe: str) -> None:
    ran = regard("generate", place / recipe, "two three four", "--temperature", 0, "--max-tokens", 1)
    assert ran.code == 0, ran.err
    assert ran.out.split() == ["five"]
    report = json.loads(regard("evaluate", place / recipe, place / "text.txt", "--json").out)
    perplexity = {score["name"]: score["value"] for score in report["scores"]}["perplexity per token"]
    assert 1 < perplexity < 12
    model = load(place / recipe)
    right, wrong = model.score(["two three four five six", "two six four three five"])
    assert right.log_probability > wrong.log_probability


@pytest.mark.parametrize("recipe", MODELS)
def test_what_they_look_at(place: Path, tmp_path: Path, recipe: str) -> None:
    text = "three _ five six" if recipe == "bert-small" else "three four five six"
    for what, out in (("heads", "heads.svg"), ("page", "page.html"), ("curves", "curves.svg")):
        ran = regard("view", place / recipe, text, "--what", what, "--out", tmp_path / out)
        assert ran.code == 0, ran.err
    looked = load(place / recipe).attention(text)
    assert len(looked.layers) == 2
    weights = torch.from_numpy(looked.head(looked.layers[0].name, 0, "mean").copy())
    above = weights.triu(diagonal=1)
    assert (above > 0).any() == (recipe == "bert-small"), "a BERT sees both sides, the others the past"
    if recipe == "bert-small":
        assert looked.layers[0].queries[1] == "_"


def test_a_bert_becomes_a_classifier(place: Path, tmp_path: Path) -> None:
    lines = [f"{word}\t{label}" for label, words in (("en", ENGLISH), ("de", GERMAN)) for word in words]
    table = write_lines(tmp_path / "table.tsv", lines)
    data = f"data={{table='{table}', valid='{table}', test='{table}'}}"
    begin = ["train", "classify-table", f"init={place / 'bert-small'}", data, "batch.tokens=64", "device=cpu"]
    still = ["training={steps=1, validate_every=1, save_every=1}", "training.optimiser={rate=1e-9, warmup=1}"]
    ran = regard(*begin, *still, "--out", tmp_path / "still")
    assert ran.code == 0, ran.err
    before, after = (load_file(each / WEIGHTS) for each in (place / "bert-small", tmp_path / "still"))
    taken = [name for name in after if name.startswith("body.")]
    assert len(taken) > 20
    for name in taken:
        torch.testing.assert_close(before[name][: len(after[name])], after[name], atol=1e-6, rtol=0)
    course = ["training={steps=30, validate_every=30, save_every=30}", "training.optimiser={rate=0.01, warmup=5}"]
    assert regard(*begin, *course, "--out", tmp_path / "out").code == 0
    assert regard("classify", tmp_path / "out", stdin=b"drei\nseven\n").out.split() == ["de", "en"]
    failed(regard(*begin, "model.body.heads=4", "--out", tmp_path / "no"), 2, "model.body.heads must be 2, but is 4")


def test_what_a_bert_is_not_for(place: Path, tmp_path: Path) -> None:
    model = place / "bert-small"
    for command in (["translate"], ["generate", "x"], ["score", place / "text.txt"], ["evaluate", place / "text.txt"]):
        failed(regard(command[0], model, *command[1:], stdin=b"one\n"), 2, "fills gaps. Use `fill`")
    failed(regard("view", model, "one", "--what", "beam", "--out", tmp_path / "x.svg"), 2, "of a `bert`", "heads")
    failed(regard("serve", model), 2, "fills gaps")
    failed(regard("export", model, tmp_path / "x", "--to", "huggingface"), 2, "bert")
    ran = regard("train", "bert-small", f"data.text={place / 'text.txt'}", "--plan")
    assert "plan: bert-small on " in ran.out, ran.err
    failed(regard("fill", model, "one _", "--gap", ""), 2, "`--gap` must be a sign", "is empty")
    failed(regard("fill", model, "--gap", ""), 2, "`--gap` must be a sign")
    failed(regard("fill", place / "transformer-xl-small", "one _"), 2, "sees both sides", "transformer-xl")
    with pytest.raises(UsageError, match="at least 1"):
        load(model).fill(["one _"], count=0)
    assert load(model).task == "fill"
    assert "pipeline_tag: fill-mask" in (model / "card.md").read_text(encoding="utf-8")
    assert regard("inspect", model).out.startswith("bert-small: bert, 28 tokens, ")


def test_memory_lives_in_streams(place: Path, tmp_path: Path) -> None:
    data = f"data={{text='{place / 'text.txt'}', held_out=0.2}}"
    ran = regard("train", "xlnet-small", data, *COMMON, "batch.layout=stream", "--out", tmp_path / "x")
    failed(ran, 2, "batch.layout", "a `recurrent-lm` or a `transformer-xl`")
    ran = regard("train", "transformer-xl-small", data, *COMMON, "training.parts=2", "--out", tmp_path / "z")
    failed(ran, 2, 'training.parts: must be 1 with `batch.layout = "stream"`', "but is 2")
    short = "training={steps=1, validate_every=1, save_every=1, average=1, keep_best=1}"
    for layout in ("packed", "buckets", "blocks", "stream"):
        wish = [
            *MODELS["transformer-xl-small"],
            *COMMON,
            short,
            "training.optimiser.warmup=1",
            f"batch.layout={layout}",
        ]
        ran = regard("train", "transformer-xl-small", data, *wish, "--out", tmp_path / layout)
        assert ran.code == 0, ran.err
        told = f"whose memory of 8 tokens goes on from row to row, but is `{layout}`" in ran.err
        assert told == (layout != "stream")
        assert ran.err.count("warning: ") == told
    pairs = "data={kind='generated', pairs=50, valid=5, test=5}"
    failed(regard("train", "bert-small", pairs, "device=cpu", "--out", tmp_path / "y"), 2, "reads text alone")
