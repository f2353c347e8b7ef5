"""Training runs: what they leave behind, and that stopping, damage and second thoughts lose nothing."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import re
import shutil
import signal
import sys
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file

from regard import experiment, folder, resumption
from regard.api import load
from regard.errors import DataError, MissingError, UsageError
from regard.examination import Examination, Examiner
from regard.files import MANIFEST
from regard.machine import threads_of
from regard.models.gpt import GPTSettings
from regard.models.recurrent import RecurrentSettings
from regard.recipe import Recipe, build_recipe
from regard.settings.tree import text_of
from regard.status import CLEAR
from regard.training import checkpoint
from regard.training.adapters import EVENTS
from regard.training.log import TrainingLog
from regard.training.saving import Saver
from regard.training.team import Team
from regard.training.trainer import Trainer
from regard.viewing.training_curves import CURVES
from tests.tiny import generated_recipe, word_recipe

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

    def advance(self: Trainer) -> None:
        if self.step + 1 == step:
            signal.raise_signal(number)
        real(self)

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
    names |= {folder.CHECKPOINTS, CURVES, EVENTS}
    assert {file.name for file in unbroken.iterdir()} == names
    assert steps(unbroken) == [10, 20, 30]
    assert folder.read_recipe(unbroken) == RECIPE
    assert len(load(unbroken).translate(["one", "two"])) == 2


def test_metrics_tell_the_whole_story(unbroken: Path) -> None:
    events = metrics(unbroken)
    made = [event for event in events if event["event"] == "step"]
    assert [event["step"] for event in made] == list(range(1, 31))
    keys = {"event", "step", "steps", "loss", "learning_rate", "gradient_norm", "tokens", "took", "seconds"}
    assert all(set(event) == keys | {"skipped", "padding", "progress"} for event in made)
    assert events[0]["event"] == "start"
    validations = [event for event in events if event["event"] == "validation"]
    assert [event["step"] for event in validations] == [15, 30]
    assert set(validations[0]) == {"event", "step", "nll", "perplexity", "perplexity_per_byte", "seconds"}
    average, end = events[-2:]
    assert (average["event"], average["step"], average["of"]) == ("average", 30, "average of the last 2 checkpoints")
    assert (end["event"], end["reason"], end["sentence"]) == ("end", "done", "All 30 steps done.")
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


@pytest.mark.parametrize("step", [14, 27])
def test_a_stopped_run_goes_on_to_the_same_model_to_the_bit(
    unbroken: Path, out: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        signal_at(patch, step, signal.SIGINT)
        outcome = experiment.train(RECIPE, out)
    assert (outcome.step, outcome.signal) == (step, "SIGINT")
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


def test_who_trains_alone_stops_at_once_however_seldom_it_reports(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signal_at(monkeypatch, 3)
    assert experiment.train(generated_recipe(["training.report_every=10"]), out).step == 3


def test_a_checkpoint_made_by_a_signal_pushes_none_out_of_the_average(unbroken: Path, out: Path) -> None:
    tight = replace(RECIPE, training=replace(RECIPE.training, keep=2))
    with pytest.MonkeyPatch.context() as patch:
        signal_at(patch, 27)
        experiment.train(tight, out)
    assert steps(out) == [10, 20, 27]
    experiment.train(tight, out, resume=True)
    assert same_weights(unbroken, out)


def test_a_signal_during_the_last_step_comes_too_late(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signal_at(monkeypatch, 2)
    outcome = experiment.train(generated_recipe(["training.steps=2"]), out)
    assert (outcome.signal, outcome.unfinished) == ("SIGTERM", False)  # who called it is to stop all the same
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
    for place in checkpoint.found(out / folder.CHECKPOINTS):
        damage(place)
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
    objective = ("training.label_smoothing=0.2", "training.reward=4.0", "training.samples=9")
    for override in ("seed=9", "data.pairs=90", "batch.tokens=99", *objective):
        with pytest.raises(UsageError, match=r"settings it began with, but .* changed"):
            experiment.train(generated_recipe([override]), out, resume=True)
    with pytest.raises(UsageError, match=r"training\.steps must be at least 12"):
        experiment.train(replace(RECIPE, training=replace(RECIPE.training, steps=11)), out, resume=True)
    experiment.train(folder.read_recipe(out), out, resume=True)
    assert same_weights(unbroken, out)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("when", ["average", "write"])
def test_a_signal_after_the_last_step_is_told_once_the_model_is_written(
    unbroken: Path, out: Path, monkeypatch: pytest.MonkeyPatch, when: str, number: signal.Signals
) -> None:
    owner, name = {"average": (checkpoint, "averaged"), "write": (folder, "write_end")}[when]
    real = getattr(owner, name)

    def interrupted(*arguments: Any) -> Any:
        signal.raise_signal(number)
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        outcome = experiment.train(RECIPE, out)
    assert (outcome.ending.reason, outcome.signal, outcome.unfinished) == ("done", number.name, False)
    assert same_weights(unbroken, out)
    load(out)


def test_all_steps_are_said_to_be_done_once_the_model_is_there(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real, said = folder.write_end, []

    def write_end(*arguments: Any) -> None:
        said.append(capsys.readouterr().err)
        real(*arguments)

    monkeypatch.setattr(folder, "write_end", write_end)
    experiment.train(generated_recipe(["training.steps=2"]), out)
    assert ["steps done" in text for text in (*said, capsys.readouterr().err)] == [False, True]


def test_what_reading_showed_does_not_stay_on_the_screen(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr("regard.status.PAUSE_ON_TERMINAL", 0.0)
    monkeypatch.setattr("sys.stderr", screen)
    experiment.train(generated_recipe(["training.steps=1"]), out)
    rows = [row.rpartition(CLEAR)[2] for row in screen.getvalue().split("\n")]
    assert "encoded " in screen.getvalue()
    assert [row for row in rows if row.startswith(("encoded", "learned", "counted"))] == []


def test_a_finished_model_can_be_trained_further(unbroken: Path, out: Path) -> None:
    shutil.copytree(unbroken, out)
    longer = replace(RECIPE, training=replace(RECIPE.training, steps=33))
    assert experiment.train(longer, out, resume=True).step == 33
    assert load(out).recipe.training.steps == 33
    assert steps(out) == [10, 20, 30, 33]  # the newest three, and what an unbroken run would average
    assert not same_weights(unbroken, out)


def test_a_run_goes_on_with_the_corpus_it_had(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = word_recipe(tmp_path, ["training.steps=4", "training.save_every=2"])
    with monkeypatch.context() as patch:
        signal_at(patch, 2)
        assert experiment.train(recipe, out).signal == "SIGTERM"
    about = json.loads((out / folder.DATA).read_text())["fingerprint"]
    assert {Path(file).name for file in about["files"]} == {"words.en", "words.de"}
    assert about["examples"] == 13
    words = {name: (tmp_path / name).read_bytes() for name in ("words.en", "words.de")}
    for name, whole in words.items():
        (tmp_path / name).write_bytes(whole.replace(b"n", b"m", 1))
        with pytest.raises(DataError, match=rf"the corpus it began with, but .*{name} has changed\. Restore it"):
            experiment.train(recipe, out, resume=True)
        (tmp_path / name).write_bytes(whole)
    assert experiment.train(recipe, out, resume=True).step == 4
    assert json.loads((out / folder.DATA).read_text())["fingerprint"] == about


def test_a_run_without_a_fingerprint_goes_on_and_a_broken_report_is_named(unbroken: Path, out: Path) -> None:
    shutil.copytree(unbroken, out)
    (out / folder.DATA).write_text("{}")
    assert experiment.train(RECIPE, out, resume=True).step == 30
    for broken in ("[", "[]"):
        (out / folder.DATA).write_text(broken)
        with pytest.raises(DataError, match=r"data\.json: must be what Regard wrote"):
            experiment.train(RECIPE, out, resume=True)


def test_text_read_line_by_line_is_told(out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {number}\n" for number in range(60)))
    text = f"data={{kind='text', text={text_of(str(tmp_path / 'a.txt'))}}}"
    settings = [text, "model={kind='gpt', layers=1, d_model=16, d_ff=16, heads=2}", "tokenizer.vocabulary=60"]
    for layout, told in (("buckets", True), ("blocks", False)):
        batch = f"batch={{tokens=64, row=16, layout='{layout}'}}"
        experiment.train(build_recipe({}, [*settings, batch, "training.steps=1"], "text"), out / layout)
        assert ("warning: the text is read line by line" in capsys.readouterr().err) == told


def test_a_setting_that_the_schedule_does_not_read_is_told(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    course = replace(RECIPE.training.optimiser, schedule="paper", rate=0.03)
    experiment.train(replace(RECIPE, training=replace(RECIPE.training, steps=1, optimiser=course)), out)
    told = 'note: `training.optimiser.rate` is 0.03, which changes nothing: the schedule "paper" goes by `factor`.'
    assert told in capsys.readouterr().err


def test_to_resume_a_finished_run_changes_nothing_that_matters(unbroken: Path, out: Path) -> None:
    shutil.copytree(unbroken, out)
    assert experiment.train(RECIPE, out, resume=True).step == 30
    assert same_weights(unbroken, out)
    load(out)


def test_nothing_to_resume_is_said(unbroken: Path, out: Path) -> None:
    with pytest.raises(MissingError, match=r"recipe\.toml"):
        experiment.train(RECIPE, out, resume=True)
    shutil.copytree(unbroken, out)
    shutil.rmtree(out / folder.CHECKPOINTS)
    with pytest.raises(MissingError, match="there must be a checkpoint to resume from"):
        experiment.train(RECIPE, out, resume=True)
    load(out)  # a finished model is left as it is


def test_a_run_that_failed_before_its_first_checkpoint_begins_anew(
    unbroken: Path, out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Saver, "save", mock.Mock(side_effect=RuntimeError("the sky fell")))
        with pytest.raises(RuntimeError, match="the sky fell"):
            experiment.train(RECIPE, out)
    assert steps(out) == []
    with pytest.raises(UsageError, match=r"must be new or empty, but is in use\. .* go on with --resume"):
        experiment.train(RECIPE, out)
    with pytest.raises(UsageError, match="a run must go on with the settings it began with, but seed changed"):
        experiment.train(generated_recipe(["seed=2"]), out, resume=True)
    experiment.train(RECIPE, out, resume=True)
    assert f"there is no checkpoint in {out} to go on from, so the run begins anew" in capsys.readouterr().err
    assert same_weights(unbroken, out)


def test_a_package_that_is_missing_is_said_before_the_corpus_is_read(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment, "read_dataset", mock.Mock(side_effect=AssertionError))
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UsageError, match=r"log\.wandb: the package `wandb` must be installed"):
        experiment.train(generated_recipe(["log.wandb=talks"]), out)
    assert not out.exists()


def test_a_team_that_cannot_begin_leaves_no_vocabulary_behind(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Team()
    pair.size = 2
    monkeypatch.setattr(experiment, "join", lambda device: pair)
    with pytest.raises(UsageError, match="`buckets`"):
        experiment.train(generated_recipe(["training.reward=1", "batch.layout=packed"]), out)
    assert not out.exists()


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("data.valid=0", "data.valid: a run needs at least 1 example to validate on, but has 0"),
        ("seed=-1", "`seed` must be from 0 to 2^63 - 1, but is -1"),
        (f"seed={2**64}", "`seed` must be from 0 to 2^63 - 1"),
    ],
)
def test_what_cannot_be_trained_is_said_before_anything_is_written(override: str, words: str, out: Path) -> None:
    with pytest.raises(UsageError) as caught:
        experiment.train(generated_recipe([override]), out)
    assert words in str(caught.value)
    assert not out.exists()


def test_a_run_that_stops_to_improve_stops_and_says_so(out: Path) -> None:
    # A rate of next to nothing: the first validation stays the best.
    hopeless = ["training.steps=400", "training.validate_every=5", "training.patience=2"]
    recipe = generated_recipe([*hopeless, 'training.optimiser={schedule="constant", rate=1e-30, warmup=0}'])
    outcome = experiment.train(recipe, out)
    assert (outcome.step, outcome.signal) == (15, None)
    assert "2 validations in a row had no better loss than the" in outcome.ending.sentence
    assert load(out).translate(["one"]) != []


def test_the_best_checkpoints_stay_and_can_be_averaged(out: Path) -> None:
    settings = ["training.keep=1", "training.keep_best=2", "training.average=2", 'training.average_of="best"']
    settings.append('training.optimiser={schedule="constant", rate=0.1, warmup=0}')  # so much noise that a mean helps
    experiment.train(generated_recipe([*settings, "training.validate_every=6", "training.save_every=30"]), out)
    validations = sorted((event["nll"], event["step"]) for event in metrics(out) if event["event"] == "validation")
    best = {step for _, step in validations[:2]}
    assert set(steps(out)) == best | {30}
    mean = checkpoint.averaged([out / folder.CHECKPOINTS / f"{step:08d}" for step in best])
    weights = load_file(out / folder.WEIGHTS)
    assert all(torch.equal(mean[name], value) for name, value in weights.items())


def test_an_average_that_is_worse_than_the_best_checkpoint_is_not_taken(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checkpoints that are far apart: here the others have been turned around."""
    averaged = checkpoint.averaged

    def spoilt(places: Sequence[Path]) -> dict[str, torch.Tensor]:
        mean = averaged(places)
        return mean if len(places) == 1 else {name: -value for name, value in mean.items()}

    monkeypatch.setattr(checkpoint, "averaged", spoilt)
    settings = ["training.keep=1", "training.keep_best=2", "training.average=2", 'training.average_of="best"']
    experiment.train(generated_recipe([*settings, "training.validate_every=6", "training.save_every=30"]), out)
    validations = [(event["nll"], event["step"]) for event in metrics(out) if event["event"] == "validation"]
    best = averaged([out / folder.CHECKPOINTS / f"{min(validations)[1]:08d}"])
    weights = load_file(out / folder.WEIGHTS)
    assert all(torch.equal(best[name], value) for name, value in weights.items())
    (event,) = (event for event in metrics(out) if event["event"] == "average")
    assert event["of"] == "the best checkpoint"
    assert event["nll"] == pytest.approx(min(validations)[0], rel=1e-4)
    assert "worse than the best alone, so that is taken" in capsys.readouterr().err


def test_a_mean_that_is_worse_than_the_last_step_is_told_with_what_to_do(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    averaged, settings = checkpoint.averaged, ["training.steps=4", "training.validate_every=2", "training.save_every=2"]
    said = f"note: the last step alone is better: .* regard train --resume --out {out}.* training.average=1\n"
    experiment.train(generated_recipe([*settings, "training.average=1"]), out.with_name("one"))
    assert "is better" not in capsys.readouterr().err
    monkeypatch.setattr(checkpoint, "averaged", lambda some: {name: -value for name, value in averaged(some).items()})
    experiment.train(generated_recipe([*settings, "training.average=2"]), out)
    assert re.search(said, capsys.readouterr().err)


def test_a_warm_up_longer_than_the_run_is_told(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for warmup, told in ((5, True), (4, False)):
        settings = ["training.steps=4", f"training.optimiser.warmup={warmup}"]
        experiment.train(generated_recipe(settings), out.with_name(str(warmup)))
        assert (
            f"warning: the warm-up of {warmup} steps is longer than the run of 4" in capsys.readouterr().err
        ) == told


@pytest.mark.parametrize("threads", [1, 2])
def test_a_run_whose_threads_wait_for_each_other_is_told_how_to_go_on(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], threads: int
) -> None:
    monkeypatch.setattr(experiment.Pace, "fell_behind", lambda _, report: report.step == 2)
    with threads_of(threads):
        experiment.train(generated_recipe(["training.steps=3"]), out)
    told = re.findall(
        r"note: 0 tokens a second.* 2 threads of a run wait .* regard train --resume --out (\S+)",
        capsys.readouterr().err,
    )
    assert told == ([] if threads == 1 else [str(out)])


def test_bleu_can_choose_the_best(out: Path) -> None:
    settings = ["training.bleu_lines=4", 'training.best_by="bleu"', "training.steps=4", "training.validate_every=2"]
    experiment.train(generated_recipe(settings), out)
    assert [event["bleu"] >= 0 for event in metrics(out) if event["event"] == "validation"] == [True, True]


def test_bleu_cannot_choose_where_nothing_is_translated(tmp_path: Path, out: Path) -> None:
    recipe = text_recipe(tmp_path, '{kind="gpt", layers=1, d_model=16, d_ff=16, heads=2}', "blocks")
    course = replace(recipe.training, best_by="bleu", bleu_lines=4)
    with pytest.raises(UsageError, match=r"training\.best_by: must be `loss` .* is `bleu`, and the corpus has text"):
        experiment.train(replace(recipe, training=course), out)
    assert not out.exists()


def test_a_moving_average_becomes_the_model(out: Path) -> None:
    experiment.train(generated_recipe(["training.ema=0.5", "training.steps=3"]), out)
    snapshot, _ = checkpoint.newest(out / folder.CHECKPOINTS)
    weights = load_file(out / folder.WEIGHTS)
    assert all(torch.equal(weights[name], value) for name, value in snapshot.moving.items())
    assert not torch.equal(weights["embedding.table.weight"], snapshot.weights["embedding.table.weight"])


def test_a_run_ends_in_time_with_a_model(out: Path) -> None:
    outcome = experiment.train(generated_recipe(["training.steps=1000000", "training.minutes=0.01"]), out)
    assert outcome.ending.reason == "time"
    assert outcome.step < 1_000_000
    assert load(out).translate(["one"]) != []


def spoil(monkeypatch: pytest.MonkeyPatch, cursors: Container[int]) -> None:
    """Let the gradients of these batches be no numbers."""
    real = Trainer._gradients

    def gradients(self: Trainer, portion: Any) -> tuple[torch.Tensor, torch.Tensor]:
        loss, norm = real(self, portion)
        return loss, norm * math.nan if self.cursor in cursors else norm

    monkeypatch.setattr(Trainer, "_gradients", gradients)


def test_a_bad_batch_is_passed_over(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, {3, 12, 13})
    assert experiment.train(RECIPE, out).ending.reason == "done"
    made = [event for event in metrics(out) if event["event"] == "step"]
    assert [event["step"] for event in made if event["skipped"]] == [4, 13, 14]


def test_three_bad_batches_in_a_row_bring_back_the_last_checkpoint(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(monkeypatch, {12, 13, 14})
    assert experiment.train(RECIPE, out).ending.reason == "done"
    assert (
        "up to step 15 had gradients that are no numbers. Back to the checkpoint of step 10" in capsys.readouterr().err
    )
    snapshot, _ = checkpoint.newest(out / folder.CHECKPOINTS)
    assert (snapshot.step, snapshot.cursor) == (30, 35)


def test_a_run_that_diverges_again_and_again_gives_up(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, range(4, 10_000))
    with pytest.raises(DataError, match=r"Gave up at step 3: gradients were infinite or NaN again after .* 3 times"):
        experiment.train(RECIPE, out)
    assert steps(out) == [0]


def test_a_run_that_saves_often_gives_up_as_soon(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, range(4, 10_000))
    with pytest.raises(DataError, match="Gave up at step"):
        experiment.train(generated_recipe(["training.save_every=2"]), out)


def test_a_run_that_recovers_each_time_does_not_give_up(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(monkeypatch, {first + number for first in (2, 12, 22, 32) for number in range(3)})
    assert experiment.train(generated_recipe(["training.save_every=4"]), out).ending.reason == "done"
    assert capsys.readouterr().err.count("Back to the checkpoint of step") == 4


def text_recipe(place: Path, model: str, layout: str) -> Recipe:
    text = place / "text.txt"
    text.write_text("the cat sat on the mat.\nthe dog sat on the log.\n" * 60)
    settings = [
        f'data={{kind="text", text={text_of(str(text))}}}', f"model={model}", "tokenizer.vocabulary=60",
        f'batch={{layout="{layout}", tokens=128, row=32}}', "training.optimiser.warmup=10",
        "training={steps=30, validate_every=5, save_every=10, keep=3, average=2}",
    ]  # fmt: skip
    return build_recipe({}, settings, "text")


@pytest.mark.parametrize(
    ("model", "layout"),
    [
        ('{kind="gpt", layers=1, d_model=16, d_ff=32, heads=2, max_positions=64}', "blocks"),
        ('{kind="gpt", layers=1, d_model=16, d_ff=32, heads=2, max_positions=64}', "packed"),
        ('{kind="recurrent-lm", d_model=16}', "buckets"),
    ],
)
def test_a_language_model_learns_from_plain_text(tmp_path: Path, out: Path, model: str, layout: str) -> None:
    experiment.train(text_recipe(tmp_path, model, layout), out)
    found = [event for event in metrics(out) if event["event"] == "validation"]
    assert found[-1]["nll"] < found[0]["nll"]
    assert 1 < found[-1]["perplexity_per_byte"] < found[-1]["perplexity"]


def test_a_model_that_does_not_fit_its_corpus_is_refused(tmp_path: Path, out: Path) -> None:
    with pytest.raises(
        UsageError, match=r"which has text alone, but is `transformer`, which reads a source\. Choose a"
    ):
        experiment.train(replace(text_recipe(tmp_path, "{}", "packed"), model=RECIPE.model), out)
    with pytest.raises(UsageError, match=r"which has sentence pairs, but is `gpt`, which reads no source\. Choose one"):
        experiment.train(replace(RECIPE, model=GPTSettings(layers=1, d_model=16, d_ff=32, heads=2)), out)
    assert not out.exists()


def test_it_is_refused_before_its_corpus_is_read(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "read_dataset", lambda *_, **__: pytest.fail("read"))
    for model, words in (
        (GPTSettings(layers=1, d_model=16, d_ff=32, heads=2), "which reads no source"),
        (RecurrentSettings(d_model=16), "needs one sentence a row, but is `packed`"),
    ):
        with pytest.raises(UsageError, match=words):
            experiment.train(replace(RECIPE, model=model, batch=replace(RECIPE.batch, layout="packed")), out)


def test_going_on_is_proved_on_a_short_stretch(unbroken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {file: file.read_bytes() for file in unbroken.rglob("*") if file.is_file()}
    found = resumption.verify_resume(unbroken)
    assert (found.step, found.steps, found.different) == (30, 4, [])
    assert "steps 31 to 34, with a stop in the middle and without: the same to the bit" in str(found)
    assert {file: file.read_bytes() for file in unbroken.rglob("*") if file.is_file()} == before
    # A run that forgets Adam's moments must not pass.
    monkeypatch.setattr(checkpoint, "restore_optimiser", lambda *_: None)
    assert resumption.verify_resume(unbroken).different != []


def test_texts_longer_than_the_positions_are_refused_before_training(tmp_path: Path, out: Path) -> None:
    learned = 'model={positions="learned", max_positions=5}'
    with pytest.raises(UsageError, match=r"model\.max_positions: must be at least \d+, the tokens of the longest"):
        experiment.train(generated_recipe([learned]), out)
    gpt = '{kind="gpt", layers=1, d_model=16, d_ff=32, heads=2, max_positions=16}'
    with pytest.raises(UsageError, match=r"must be at least 32, the tokens of `batch.row`, but is 16\. Lower"):
        experiment.train(text_recipe(tmp_path, gpt, "blocks"), out)
    assert not out.exists()


def test_a_damaged_checkpoint_in_the_middle_is_left_out_of_the_average(
    unbroken: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(unbroken, out)
    (out / MANIFEST).unlink()
    damage(out / folder.CHECKPOINTS / "00000020")
    assert experiment.train(RECIPE, out, resume=True).ending.reason == "done"
    said = capsys.readouterr().err
    assert "00000020" in said
    assert "It is left out." in said
    mean = checkpoint.averaged([out / folder.CHECKPOINTS / name for name in ("00000010", "00000030")])
    assert all(torch.equal(mean[name], value) for name, value in load_file(out / folder.WEIGHTS).items())


def test_a_run_that_had_stopped_to_improve_does_not_go_on(out: Path) -> None:
    hopeless = ["training.steps=400", "training.validate_every=5", "training.patience=2"]
    recipe = generated_recipe([*hopeless, 'training.optimiser={schedule="constant", rate=1e-30, warmup=0}'])
    first = experiment.train(recipe, out)
    again = experiment.train(recipe, out, resume=True)
    assert (again.step, again.ending.reason) == (first.step, "no improvement")


def test_the_scores_of_the_card_are_those_of_the_final_model(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ["training.bleu_lines=4", "training.steps=4", "training.validate_every=2", "training.ema=0.9"]
    judged: list[torch.Tensor] = []
    real = Examiner.examine

    def examine(self: Examiner) -> Examination:
        judged.append(next(self.trainer.model.parameters()).detach().clone())
        return real(self)

    monkeypatch.setattr(Examiner, "examine", examine)
    experiment.train(generated_recipe(settings), out)
    weights = load_file(out / folder.WEIGHTS)
    assert torch.equal(judged[-1], weights["embedding.table.weight"])
    assert not torch.equal(judged[-2], judged[-1])
    assert "BLEU (greedy, 4 lines)" in (out / folder.CARD).read_text(encoding="utf-8")


@pytest.mark.parametrize("time", [1, 2, 3])  # at step 15, which is no step to save at, at the last, and at the end
def test_a_run_that_ends_in_an_examination_loses_nothing(
    unbroken: Path, out: Path, monkeypatch: pytest.MonkeyPatch, time: int
) -> None:
    plain, times = Examiner.examine, []

    def examine(self: Examiner) -> Examination:
        times.append(self.trainer.step)
        if len(times) == time:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(self)

    with monkeypatch.context() as patch:
        patch.setattr(Examiner, "examine", examine)
        with pytest.raises(torch.OutOfMemoryError):
            experiment.train(RECIPE, out)
    assert steps(out)[-1] == times[-1], "what was learned after the last checkpoint is lost"
    made = [event["step"] for event in metrics(out) if event["event"] == "step"]
    assert experiment.train(RECIPE, out, resume=True).signal is None
    assert same_weights(unbroken, out)
    events = metrics(out)
    again = [event["step"] for event in events if event["event"] == "step"]
    assert again == list(range(1, 31))
    assert again[: len(made)] == made
    wanted = {event["step"]: event["nll"] for event in metrics(unbroken) if event["event"] == "validation"}
    assert {event["step"]: event["nll"] for event in events if event["event"] == "validation"} == wanted


def test_a_last_validation_that_is_made_again_counts_once(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = generated_recipe(["training={keep_best=2, average=2, average_of='best'}"])
    plain, times = Examiner.examine, []

    def examine(self: Examiner) -> Examination:
        times.append(self.trainer.step)
        if len(times) == 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(self)

    monkeypatch.setattr(Examiner, "examine", examine)
    with pytest.raises(torch.OutOfMemoryError):
        experiment.train(recipe, out)
    experiment.train(recipe, out, resume=True)
    averages = [event["of"] for event in metrics(out) if event["event"] == "average"]
    whole = out.parent / "whole"
    experiment.train(recipe, whole)
    assert averages == [event["of"] for event in metrics(whole) if event["event"] == "average"]
    assert same_weights(whole, out)


def test_a_full_disk_says_which_checkpoint_is_whole(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: TrainingLog, report: Any, aside: str, time_left: float) -> None:
        if report.step == 12:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "metrics.jsonl")

    monkeypatch.setattr(TrainingLog, "step", full)
    with pytest.raises(MissingError, match=r"metrics\.jsonl: the disk must have room.*step 10 is whole: make room"):
        experiment.train(RECIPE, out)
