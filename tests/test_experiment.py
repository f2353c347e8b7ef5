"""Training runs: what they leave behind, and that stopping, damage and second thoughts lose nothing."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from regard import experiment, folder
from regard.api import load
from regard.errors import DataError, MissingError, UsageError
from regard.files import MANIFEST
from regard.training import checkpoint
from regard.training.trainer import StepReport, Trainer
from tests.tiny import generated_recipe

RECIPE = generated_recipe()


@pytest.fixture(autouse=True)
def own_randomness() -> Iterator[None]:
    with torch.random.fork_rng():
        yield


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of a run that was never stopped."""
    place = tmp_path_factory.mktemp("unbroken") / "model"
    experiment.train(RECIPE, place)
    return place


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "model"


def signal_at(monkeypatch: pytest.MonkeyPatch, step: int, number: signal.Signals = signal.SIGTERM) -> None:
    """Let a signal arrive while this step is being made."""
    real = Trainer.advance

    def advance(self: Trainer) -> StepReport:
        if self.step + 1 == step:
            signal.raise_signal(number)
        return real(self)

    monkeypatch.setattr(Trainer, "advance", advance)


def stopped_at(step: int, place: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        signal_at(patch, step)
        assert experiment.train(RECIPE, place).signal == "SIGTERM"


def metrics(place: Path) -> list[dict[str, Any]]:
    text = (place / folder.METRICS).read_text(encoding="utf-8")
    assert text.endswith("\n")
    return [json.loads(line) for line in text.split("\n")[:-1]]


def same_weights(one: Path, other: Path) -> bool:
    return (one / folder.WEIGHTS).read_bytes() == (other / folder.WEIGHTS).read_bytes()


def steps(place: Path) -> list[int]:
    return [int(found.name) for found in checkpoint.found(place / folder.CHECKPOINTS)]


def test_a_run_leaves_a_whole_folder(unbroken: Path) -> None:
    names = {folder.RECIPE, folder.TOKENIZER, folder.WEIGHTS, folder.CARD, folder.METRICS, folder.DATA, MANIFEST}
    assert {file.name for file in unbroken.iterdir()} == names | {folder.CHECKPOINTS}
    assert steps(unbroken) == [10, 20, 30]
    assert folder.read_recipe(unbroken) == RECIPE
    assert len(load(unbroken).translate(["one", "two"])) == 2


def test_metrics_tell_the_whole_story(unbroken: Path) -> None:
    events = metrics(unbroken)
    made = [event for event in events if event["event"] == "step"]
    assert [event["step"] for event in made] == list(range(1, 31))
    keys = {"event", "step", "loss", "learning_rate", "gradient_norm", "tokens", "seconds"}
    assert all(set(event) == keys for event in made)
    validations = [event for event in events if event["event"] == "validation"]
    assert [event["step"] for event in validations] == [15, 30]
    assert set(validations[0]) == {"event", "step", "nll", "perplexity", "seconds"}
    assert events[-1]["event"] == "average"
    assert (events[-1]["step"], events[-1]["checkpoints"]) == (30, 2)
    assert made[-1]["loss"] < made[0]["loss"]


def test_the_model_is_the_average_of_the_newest_checkpoints(unbroken: Path) -> None:
    places = checkpoint.found(unbroken / folder.CHECKPOINTS)[-2:]
    mean = checkpoint.averaged(places)
    weights = load_file(unbroken / folder.WEIGHTS)
    assert all(torch.equal(mean[name], value) for name, value in weights.items())


def test_the_same_recipe_gives_the_same_model_and_another_seed_another(tmp_path: Path) -> None:
    short = generated_recipe(["training.steps=2"])
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        experiment.train(replace(short, seed=seed), tmp_path / name)
    assert same_weights(tmp_path / "one", tmp_path / "again")
    assert not same_weights(tmp_path / "one", tmp_path / "other")


def test_a_stopped_run_goes_on_to_the_same_model_to_the_bit(
    unbroken: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        signal_at(patch, 14, signal.SIGINT)
        outcome = experiment.train(RECIPE, out)
    assert (outcome.step, outcome.signal) == (14, "SIGINT")
    assert signal.getsignal(signal.SIGINT) == before
    with pytest.raises(DataError, match="its training did not end"):
        load(out)
    torch.manual_seed(12345)  # the checkpoint brings its own
    outcome = experiment.train(RECIPE, out, resume=True)
    assert (outcome.step, outcome.signal) == (30, None)
    assert [event["step"] for event in metrics(out) if event["event"] == "step"] == list(range(1, 31))
    # The last checkpoints, 20 and 30, are the same ones, and so is their average.
    assert same_weights(unbroken, out)
    for name in ("model", "optimiser", "random"):
        file = f"{folder.CHECKPOINTS}/00000030/{name}.safetensors"
        assert (unbroken / file).read_bytes() == (out / file).read_bytes()


def test_a_signal_during_the_last_step_comes_too_late(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signal_at(monkeypatch, 2)
    assert experiment.train(generated_recipe(["training.steps=2"]), out).signal is None
    load(out)


def test_a_folder_in_use_is_refused_and_left_alone(unbroken: Path, tmp_path: Path) -> None:
    before = {file: file.read_bytes() for file in unbroken.rglob("*") if file.is_file()}
    with pytest.raises(UsageError, match=r"must be new or empty, but is in use\. Choose another --out, or go on with"):
        experiment.train(RECIPE, unbroken)
    assert {file: file.read_bytes() for file in unbroken.rglob("*") if file.is_file()} == before
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="file: must be new or empty"):
        experiment.train(RECIPE, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def damage(place: Path) -> None:
    file = place / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])


def test_a_damaged_newest_checkpoint_is_reported_set_aside_and_not_averaged(
    unbroken: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped_at(24, out)
    assert steps(out) == [10, 20, 24]
    damage(out / folder.CHECKPOINTS / "00000024")
    capsys.readouterr()
    # With three to average, the damaged one would be among them.
    experiment.train(replace(RECIPE, training=replace(RECIPE.training, average=3)), out, resume=True)
    said = capsys.readouterr().err
    assert "warning: " in said
    assert "00000024/model.safetensors: must be" in said
    assert "Using the checkpoint before it." in said
    assert steps(out) == [10, 20, 30]
    assert (out / folder.CHECKPOINTS / "damaged-00000024").is_dir()
    last = f"{folder.CHECKPOINTS}/00000030/model.safetensors"
    assert (unbroken / last).read_bytes() == (out / last).read_bytes()


def test_when_all_checkpoints_are_damaged_nothing_is_touched(out: Path) -> None:
    stopped_at(4, out)
    damage(out / folder.CHECKPOINTS / "00000004")
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    with pytest.raises(DataError, match="no checkpoint here is whole"):
        experiment.train(RECIPE, out, resume=True)
    assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before


def test_a_resume_that_cannot_be_leaves_the_folder_so_that_a_right_one_works(unbroken: Path, out: Path) -> None:
    stopped_at(12, out)
    other_model = generated_recipe(["model.d_model=32"])
    other_tokenizer = generated_recipe(["tokenizer.vocabulary=210"])
    with pytest.raises(UsageError, match="settings it began with, but model changed"):
        experiment.train(other_model, out, resume=True)
    with pytest.raises(UsageError, match="settings it began with, but tokenizer changed"):
        experiment.train(other_tokenizer, out, resume=True)
    for override in ("seed=9", "data.pairs=90", "batch.tokens=99", "training.label_smoothing=0.2"):
        with pytest.raises(UsageError, match=r"settings it began with, but .* changed"):
            experiment.train(generated_recipe([override]), out, resume=True)
    with pytest.raises(UsageError, match=r"training\.steps must be at least 12"):
        experiment.train(replace(RECIPE, training=replace(RECIPE.training, steps=11)), out, resume=True)
    experiment.train(folder.read_recipe(out), out, resume=True)
    assert same_weights(unbroken, out)


def test_a_finished_model_can_be_trained_further(unbroken: Path, out: Path) -> None:
    shutil.copytree(unbroken, out)
    longer = replace(RECIPE, training=replace(RECIPE.training, steps=33))
    assert experiment.train(longer, out, resume=True).step == 33
    assert load(out).recipe.training.steps == 33
    assert steps(out) == [20, 30, 33]
    assert not same_weights(unbroken, out)


def test_to_resume_a_finished_run_changes_nothing_that_matters(unbroken: Path, out: Path) -> None:
    shutil.copytree(unbroken, out)
    assert experiment.train(RECIPE, out, resume=True).step == 30
    assert same_weights(unbroken, out)
    load(out)


def test_nothing_to_resume_is_said(out: Path) -> None:
    with pytest.raises(MissingError, match=r"recipe\.toml"):
        experiment.train(RECIPE, out, resume=True)
    stopped_at(2, out)
    shutil.rmtree(out / folder.CHECKPOINTS)
    with pytest.raises(MissingError, match="there must be a checkpoint to resume from"):
        experiment.train(RECIPE, out, resume=True)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("data.valid=0", "data.valid: a run needs at least 1 pair to validate on, but has 0"),
        ("seed=-1", "`seed` must be from 0 to 2^63 - 1, but is -1"),
        (f"seed={2**64}", "`seed` must be from 0 to 2^63 - 1"),
    ],
)
def test_what_cannot_be_trained_is_said_before_anything_is_written(override: str, words: str, out: Path) -> None:
    with pytest.raises(UsageError) as caught:
        experiment.train(generated_recipe([override]), out)
    assert words in str(caught.value)
    assert not out.exists()


def test_devices_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert experiment.choose_device("auto") == experiment.choose_device("cpu") == torch.device("cpu")
    with pytest.raises(UsageError, match="device: must be one this machine has, but is `cuda` and none is visible"):
        experiment.choose_device("cuda")
    with pytest.raises(UsageError, match="device: must be `auto`, `cpu` or `cuda`, but is `gpu`"):
        experiment.choose_device("gpu")
