"""The tutorial works: its commands and its Python run in order, with a toy model in the place of the demo's."""

from __future__ import annotations

import json
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
import torch

from regard import folder, status

from .pages import DOCS, Block, blocks, run, table_rows

TUTORIAL = DOCS / "tutorial.md"
FOLDER = DOCS / "model-folder.md"

SHORT = (
    "batch.tokens=256 training.steps=4 training.validate_every=4 training.save_every=2 training.keep=2 "
    "training.average=2 search.extra_length=4"
)
TOY = f"model.encoder_layers=1 model.decoder_layers=1 model.d_model=16 model.d_ff=16 model.heads=2 {SHORT}"
# What the reader has minutes for, and a test has not. `make demo` also sets up and draws; its own tests see to that.
SMALLER = {
    r"^make demo$": f"regard train demo data.pairs=300 data.valid=10 data.test=10 {TOY} --out demo/model",
    r"^(regard train demo name=french .*)$": rf"\1 {TOY}",
    r"^(regard train demo name=recurrent .*)$": rf"\1 model.d_model=16 {SHORT}",
    r"^(regard train --resume .*)$": r"\1 training.steps=6",
    r"pairs=20_000, valid=0, test=200": "pairs=300, valid=0, test=10",
}


def smaller(text: str) -> str:
    """The same at toy size."""
    for pattern, replacement in SMALLER.items():
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text


def follow(block: Block, names: dict[str, object]) -> None:
    """Run one block; `names` are those of the reader's Python."""
    if block.language == "python":
        with redirect_stdout(StringIO()) as printed:
            exec(smaller(block.text), names)
        assert printed.getvalue() or "print" not in block.text
        return
    for line in smaller(block.text).strip().split("\n"):
        answer = run(line)
        assert answer.code == 0, f"{line}\n{answer.errors}"


def test_every_size_is_made_smaller() -> None:
    text = TUTORIAL.read_text(encoding="utf-8")
    for pattern in SMALLER:
        assert re.search(pattern, text, flags=re.MULTILINE), f"{pattern}: is no longer in the tutorial"


def test_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # One test and not five: each would have to follow the whole tutorial first.
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    with torch.random.fork_rng():
        for block in blocks(TUTORIAL, "sh", "python"):
            follow(block, names)
    it_leaves_what_it_speaks_of(tmp_path)
    going_on_goes_on(tmp_path / "french")
    the_model_folder_is_as_described(tmp_path / "french")
    the_metrics_are_as_described(tmp_path / "french")


def test_what_training_prints_has_the_form_that_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(status, "PAUSE_ELSEWHERE", 0.0)
    with torch.random.fork_rng():
        printed = run(smaller("make demo")).errors.split("\n")
    section = TUTORIAL.read_text(encoding="utf-8").partition("## Read the output")[2].partition("Early on")[0]
    shown = [line for block in re.findall(r"```text\n(.*?)```", section, re.DOTALL) for line in block.splitlines()]
    assert len(shown) > 10
    assert {form(line) for line in shown} <= {form(line) for line in printed}


def form(line: str) -> str:
    """A line of output without its figures and bars."""
    return re.sub(r"\d[\d.,:]*(e-\d+)?|█+ +", "#", line)


def it_leaves_what_it_speaks_of(place: Path) -> None:
    counts = {"lines.en": 3, "lines.de": 3, "found.fr": 10}
    assert {name: (place / name).read_text(encoding="utf-8").count("\n") for name in counts} == counts
    assert (place / "head.svg").read_text(encoding="utf-8").startswith("<svg")
    for page in ("picture.html", "french.html"):
        assert "</html>" in (place / page).read_text(encoding="utf-8")


def going_on_goes_on(model: Path) -> None:
    recipe = folder.read_recipe(model)
    assert (recipe.name, recipe.training.steps) == ("french", 6)
    assert sorted(step.name for step in (model / "checkpoints").iterdir()) == ["00000004", "00000006"]


def the_model_folder_is_as_described(model: Path) -> None:
    whole, _, checkpoint = FOLDER.read_text(encoding="utf-8").partition("## `checkpoints/`")
    for text, place in ((whole.partition("## ")[0], model), (checkpoint, model / "checkpoints/00000006")):
        # What only some runs write says which: "with `training.…`".
        described = [row[0].strip("`").rstrip("/") for row in table_rows(text) if "with `training." not in row[1]]
        assert sorted(described) == sorted(file.name for file in place.iterdir())


def the_metrics_are_as_described(model: Path) -> None:
    text = FOLDER.read_text(encoding="utf-8").partition("## `metrics.jsonl`")[2].partition("## ")[0]
    described = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[2])) for row in table_rows(text)}
    lines = (model / "metrics.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    found = {entry.pop("event"): set(entry) - {"seconds"} for entry in map(json.loads, lines)}
    assert found == described
