"""Every recipe beyond translation, end to end at toy size: train, measure, use; and a language model that goes on."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from regard.recipe import load_recipe, presets
from tests.tiny import ENGLISH, GERMAN, regard, write_lines

LANGUAGE_MODELS = [name for name in presets() if name.startswith("lm-")]
TRANSLATORS = [name for name in presets() if name.startswith("decoder-only")]
SUMMARIES = [name for name in presets() if name.startswith("summary-")]
STACK = "model={layers=1, d_model=16, d_ff=16, heads=2}"
SMALL = {
    "gpt": STACK,
    "decoder-only": STACK,
    "recurrent-lm": "model={layers=1, d_model=16}",
    "wavenet": "model={channels=8, skip_channels=8, dilations=[1, 2], repeats=1}",
}
COURSE = [
    "training={steps=4, validate_every=2, save_every=2, report_every=2}",
    "training.optimiser.warmup=1",
    "batch={tokens=96, row=32}",
    "search={beam=2, extra_length=2}",
    "log.tensorboard=false",
    "device=cpu",
]
BY_HEART = ["training={steps=100, validate_every=50, save_every=50}", "training.optimiser.rate=0.01"]
PLAY = ["First Citizen:", "Before we proceed any further, hear me speak.", "", "All:", "Speak, speak."] * 6


def train(out: Path, recipe: str, *changes: str) -> None:
    """Train a toy of a recipe."""
    small = SMALL[load_recipe(recipe).model.kind]
    own = [] if any(change.startswith("init=") for change in changes) else [small]
    ran = regard("train", recipe, *own, *COURSE, *changes, "--out", out)
    assert ran.code == 0, ran.err


def scores(out: Path, *arguments: object) -> dict[str, float]:
    ran = regard("evaluate", out, *arguments, "--json")
    assert ran.code == 0, ran.err
    return {score["name"]: score["value"] for score in json.loads(ran.out)["scores"]}


@pytest.mark.parametrize("recipe", LANGUAGE_MODELS)
def test_language_models(recipe: str, tmp_path: Path) -> None:
    text = write_lines(tmp_path / "text.txt", PLAY)
    others = [f"data.{split}={text}" for split in ("valid", "test") if recipe.startswith("lm-ptb")]
    fast = [] if load_recipe(recipe).training.optimiser.kind == "sgd" else ["training.optimiser.rate=0.01"]
    longer = ["training={steps=40, validate_every=20, save_every=20}", *fast]
    train(tmp_path / "out", recipe, f"data.text={text}", *others, *longer)
    found = scores(tmp_path / "out", text)
    # The same nats, shared out among words and ends of lines, and among bytes.
    words, size = sum(len(line.split()) + 1 for line in PLAY), text.stat().st_size
    assert math.log(found["perplexity per word"]) * words == pytest.approx(
        math.log(found["perplexity per byte"]) * size
    )
    backwards = write_lines(tmp_path / "backwards.txt", [line[::-1] for line in PLAY])
    assert 1 < found["perplexity per byte"] < 0.8 * scores(tmp_path / "out", backwards)["perplexity per byte"]
    assert recipe.startswith("lm-ptb") == ("perplexity per word" in str(regard("evaluate", tmp_path / "out").out))
    ran = regard("generate", tmp_path / "out", "All", "--lines", 3, "--max-tokens", 8)
    assert ran.code == 0, ran.err


@pytest.mark.parametrize("recipe", TRANSLATORS)
def test_translation_without_an_encoder(recipe: str, tmp_path: Path) -> None:
    sides = write_lines(tmp_path / "a.en", ENGLISH), write_lines(tmp_path / "a.de", GERMAN)
    data = ", ".join(f"{split}source='{sides[0]}', {split}target='{sides[1]}'" for split in ("", "valid_", "test_"))
    train(tmp_path / "out", recipe, f"data={{kind='files', {data}}}")
    ran = regard("translate", tmp_path / "out", sides[0])
    assert ran.code == 0, ran.err
    assert len(ran.out.splitlines()) == len(ENGLISH)
    assert "BLEU" in scores(tmp_path / "out")
    checks = [json.loads(line) for line in regard("verify", tmp_path / "out", "--json").out.splitlines()]
    assert checks
    assert all(check["passed"] for check in checks)


@pytest.mark.parametrize("recipe", SUMMARIES)
def test_summaries_of_a_language_model_that_goes_on(recipe: str, tmp_path: Path) -> None:
    text = write_lines(tmp_path / "text.txt", PLAY)
    train(tmp_path / "lm", "lm-bytes", f"data.text={text}")
    bodies = [f"First Citizen: {words}" for words in ("Before.", "All of it, hear.", "Speak, any further.")]
    subjects = ["speak to all", "hear me now", "we proceed no further"]
    lines = [
        {"body": body, "subject": subject}
        if recipe == "summary-aeslc"
        else {"source": [body, "Speak."], "target": [subject, "speak"]}
        for body, subject in zip(bodies, subjects, strict=True)
    ]
    file = write_lines(tmp_path / "mail.jsonl", [json.dumps(line) for line in lines])
    data = [f"data.{split}source={file}" for split in ("", "valid_", "test_")]
    train(tmp_path / "out", recipe, f"init={tmp_path / 'lm'}", *data, *BY_HEART, "model.dropout=0.0")
    found = scores(tmp_path / "out", "--rouge", "--out", tmp_path / "found.txt", "--extra-length", 20)
    assert min(found[name] for name in ("ROUGE-1", "ROUGE-2", "ROUGE-L")) > 90
    wanted = write_lines(tmp_path / "wanted.txt", subjects)
    half = write_lines(tmp_path / "half.txt", ["speak", "now hear me", ""])
    ran = regard("compare", half, wanted, wanted, "--rouge")
    # By hand, line by line: ROUGE-1 is 1/2, 1 and 0; ROUGE-2 is 0, 1/2 and 0; ROUGE-L is 1/2, 2/3 and 0.
    for name, value in (("ROUGE-1", "50.00"), ("ROUGE-2", "16.67"), ("ROUGE-L", "38.89")):
        assert f"{name}  A {value}  B 100.00" in ran.out, ran.err
