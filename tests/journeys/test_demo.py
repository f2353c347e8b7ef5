"""`regard demo`: the tour, cut short for every day, and in full when asked for."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

from regard import demo
from regard.api import load
from regard.recipe import Recipe, load_recipe
from regard.training.trainer import StepReport, Trainer
from tests.tiny import regard


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The demo's own recipe with a few steps on a small corpus."""

    def load_short(name: str, overrides: Sequence[str] = ()) -> Recipe:
        cut = ["data.pairs=200", "data.valid=5", "data.test=6", "training.steps=4", "batch.tokens=512"]
        tiny = ["model.d_model=32", "model.d_ff=32", "search.extra_length=5", "search.beam=1"]
        return load_recipe(name, [*overrides, *cut, *tiny])

    monkeypatch.setattr(demo, "load_recipe", load_short)
    with torch.random.fork_rng():
        yield


def test_the_tour_trains_scores_translates_and_draws(short: None, tmp_path: Path) -> None:
    out = tmp_path / "demo"
    ran = regard("demo", "--out", out)
    assert ran.code == 0, ran.err
    for words in ("On 6 lines it has never seen", "exact match", "BLEU", "chrF", "For example:", "Next:"):
        assert words in ran.out
    page = out / "attention.html"
    assert page.resolve().as_uri() in ran.out
    assert demo.LOOKED_AT in page.read_text(encoding="utf-8")
    assert re.search(r"\(\d+ s in all\)", ran.err)
    assert len(load(out / "model").translate(["one"])) == 1
    # What it suggests next must work as it is printed.
    (suggested,) = re.findall(r"^  \S*regard inspect (.*)$", ran.out, re.MULTILINE)
    assert regard("inspect", suggested).code == 0

    # A second tour makes way for itself, and for nothing else.
    assert regard("demo", "--out", out).code == 0
    recipe = out / "model" / "recipe.toml"
    recipe.write_text(recipe.read_text().replace('name = "demo"', 'name = "mine"'))
    again = regard("demo", "--out", out)
    assert again.code == 2
    assert f"{out / 'model'}: must be new or empty, but is in use" in again.err
    assert recipe.is_file()


def test_a_stopped_tour_says_how_to_begin_again_and_that_works(
    short: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Trainer.advance

    def advance(self: Trainer) -> StepReport:
        signal.raise_signal(signal.SIGINT)
        return real(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "advance", advance)
        ran = regard("demo", "--out", tmp_path / "demo")
    assert ran.code == 130
    assert "Stopped by SIGINT. To begin again: regard demo" in ran.err
    again = regard("demo", "--out", tmp_path / "demo")
    assert again.code == 0, again.err
    load(tmp_path / "demo" / "model")


@pytest.mark.slow
def test_the_whole_tour_learns_what_it_promises(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "regard", "demo", "--out", str(tmp_path / "demo")]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (exact,) = re.findall(r"exact match ([0-9.]+)", done.stdout)
    assert float(exact) >= 95
