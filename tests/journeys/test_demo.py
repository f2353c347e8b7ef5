"""`regard demo`: the tour, cut short for every day, and in full when asked for."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest import mock

import pytest
import torch

from regard import demo, experiment, folder
from regard.api import load
from regard.machine import threads_of
from regard.recipe import Recipe, load_recipe
from regard.training.trainer import StepReport, Trainer
from tests.tiny import failed, regard


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

    # A second tour makes way for itself.
    again = regard("demo", "--out", out)
    assert again.code == 0, again.err
    assert f"{out / 'model'}: the model of an earlier demo makes way for a new one." in again.err


def test_it_trains_with_one_thread(short: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    train = experiment.train

    def watched(recipe: Recipe, out: Path, resume: bool) -> experiment.Outcome:
        seen.append(torch.get_num_threads())
        return train(recipe, out, resume)

    monkeypatch.setattr(demo.experiment, "train", watched)
    with threads_of(2):
        ran = regard("demo", "--out", tmp_path / "demo")
        assert (ran.code, seen, torch.get_num_threads()) == (0, [1], 2)


@pytest.fixture
def toured(short: None, tmp_path: Path) -> Path:
    """What a demo left."""
    experiment.train(demo.load_recipe("demo"), tmp_path / "demo" / "model")
    return tmp_path / "demo"


def write_notes(model: Path) -> None:
    (model / "notes.txt").write_text("mine")


def write_notes_deep_inside(model: Path) -> None:
    (model / "checkpoints" / "notes.txt").write_text("mine")


def train_further(model: Path) -> None:
    experiment.train(folder.read_recipe(model, ["training.steps=6"]), model, resume=True)


def rename_recipe(model: Path) -> None:
    recipe = model / "recipe.toml"
    recipe.write_text(recipe.read_text().replace('name = "demo"', 'name = "mine"'))


def write_into_card(model: Path) -> None:
    with (model / "card.md").open("a") as card:
        card.write("It is good at dates.")


def put_others_in_its_place(model: Path) -> None:
    shutil.rmtree(model)
    (model / "photographs").mkdir(parents=True)


def link_to_elsewhere(model: Path) -> None:
    model.symlink_to(model.rename(model.with_name("elsewhere")))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (write_notes, "holds notes.txt"),
        (write_notes_deep_inside, "holds checkpoints/notes.txt"),
        (train_further, "its settings are not the demo's"),
        (rename_recipe, "its settings are not the demo's"),
        (write_into_card, "it is not what its manifest.json describes"),
        (put_others_in_its_place, "holds photographs"),
        (link_to_elsewhere, "is a link"),
    ],
)
def test_what_is_not_a_demos_own_is_never_removed(toured: Path, change: Callable[[Path], None], why: str) -> None:
    model = toured / "model"
    change(model)
    before = {file: file.stat().st_mtime_ns for file in toured.rglob("*") if file.name != demo.LOCK}
    ran = regard("demo", "--out", toured)
    # Before anything else: nobody waits for translations to hear it.
    failed(ran, 2, f"{model}: must be new, empty or the model of an earlier demo", f"but {why}. Choose another --out")
    assert "--resume" not in ran.err
    assert {file: file.stat().st_mtime_ns for file in toured.rglob("*") if file.name != demo.LOCK} == before


def test_a_demo_at_work_is_left_alone(tmp_path: Path) -> None:
    with (tmp_path / demo.LOCK).open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        failed(regard("demo", "--out", tmp_path), 2, f"{tmp_path}: another demo is at work here. Wait for it")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("name", demo.PAGES)
def test_a_page_that_is_no_demos_is_not_written_over(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")
    failed(regard("demo", "--out", tmp_path), 2, f"{tmp_path / name}: must not be there yet, but is")
    assert (tmp_path / name).read_text() == "mine"
    # A demo that was stopped before it trained has left its page and its lock: the next one is not in its own way.
    (tmp_path / demo.LOCK).touch()
    demo._check_place(tmp_path)


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("card.md", True),
        (".card.md.writing", True),
        ("my.writing", False),
        ("checkpoints/00000040/weights.safetensors", True),
        ("checkpoints/.00000040.removing", True),
        ("checkpoints/my-best-20261116/notes.txt", False),
        ("tensorboard/events.out.tfevents.1.host", True),
        ("tensorboard/my.tfevents.txt", False),
    ],
)
def test_what_a_run_writes_is_known_by_its_exact_name(name: str, own: bool) -> None:
    assert demo._a_runs(Path(name)) == own


def test_a_file_in_the_place_of_the_tour_is_named_at_once(tmp_path: Path) -> None:
    file = tmp_path / "demo"
    file.write_text("mine")
    for out in (file, file / "inside"):
        failed(regard("demo", "--out", out), 2, f"{out}: must be a folder", "is a file. Choose another --out")
    (tmp_path / "tour").mkdir()
    (tmp_path / "tour" / "model").write_text("mine")
    failed(regard("demo", "--out", tmp_path / "tour"), 2, "tour/model: must be new", "but is a file")


@pytest.mark.parametrize("refused", ["mkdir", "touch"])
def test_where_nothing_can_be_written_the_shipped_model_is_shown_first(
    refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of whoever is root, no permission is asked.
    error = OSError(errno.EROFS, os.strerror(errno.EROFS), "a file inside")
    monkeypatch.setattr(Path, refused, mock.Mock(side_effect=error))
    ran = regard("demo", "--out", tmp_path / "tour")
    assert ran.code == 66
    assert [sentence in ran.out for sentence in demo.EVERYDAY] == [True] * len(demo.EVERYDAY)
    assert "Wo ist der Bahnhof?" in ran.out
    assert ran.err.startswith(f"regard: {tmp_path / 'tour'}: must be a folder in which the demo can write")
    assert "but is not (Read-only file system). Go to a folder of your own, or name one: " in ran.err


def test_a_stopped_tour_says_how_to_go_on_and_goes_on(
    short: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, out = Trainer.advance, tmp_path / "my demo"

    def advance(self: Trainer) -> StepReport:
        if self.step == 1:
            signal.raise_signal(signal.SIGINT)
        return real(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "advance", advance)
        ran = regard("demo", "--out", out)
    assert ran.code == 130
    assert "Stopped by SIGINT after step 2; nothing is lost." in ran.err
    (arguments,) = re.findall(r"^Go on with: \S*regard (.*)$", ran.err, re.MULTILINE)
    assert shlex.split(arguments) == ["demo", "--out", str(out)]
    again = regard(*shlex.split(arguments))
    assert again.code == 0, again.err
    assert f"{out / 'model'}: an earlier demo stopped in its training, which goes on here." in again.err
    metrics = [json.loads(line) for line in (out / "model" / folder.METRICS).read_text().splitlines()]
    assert [event["step"] for event in metrics if event["event"] == "step"] == [1, 2, 3, 4]
    load(out / "model")


def test_it_is_called_as_the_shell_can_find_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "project" / ".venv" / "bin"
    inside.mkdir(parents=True)
    (inside / "regard").touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(inside / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path / "project")
    assert demo.command() == ".venv/bin/regard"
    monkeypatch.chdir(tmp_path)
    assert demo.command() == "project/.venv/bin/regard"
    (tmp_path / "other").mkdir()
    for elsewhere in (tmp_path / "other", inside):  # in its own folder it has no path either
        monkeypatch.chdir(elsewhere)
        assert demo.command() == str(inside / "regard")
    monkeypatch.setenv("PATH", str(inside))
    assert demo.command() == "regard"
    # Another Regard that the shell finds first is not this one.
    (tmp_path / "regard").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{inside}")
    assert demo.command().endswith(".venv/bin/regard")
    (inside / "regard").unlink()
    assert demo.command() == "regard"
    (tmp_path / "regard").unlink()
    assert demo.command() == f"{inside / 'python'} -m regard"


@pytest.mark.slow
def test_the_whole_tour_learns_what_it_promises(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "regard", "demo", "--out", str(tmp_path / "demo")]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (exact,) = re.findall(r"exact match ([0-9.]+)", done.stdout)
    assert float(exact) >= 95
