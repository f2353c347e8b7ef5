"""A study is run row by row, goes on where it was broken off, and never does anything twice."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard import experiment, folder
from regard.data.corpus import open_corpus
from regard.errors import DataError, UsageError
from regard.evaluation.catalogue import Scoring
from regard.files import MANIFEST
from regard.reproduce import running
from regard.reproduce.judging import by_length
from regard.reproduce.ladder import LADDER_MULTI30K
from regard.reproduce.outcome import RESULT, read_outcome
from regard.reproduce.running import run
from regard.reproduce.study import Row
from regard.reproduce.table3 import TABLE3
from regard.training import checkpoint
from regard.training.report import Ending
from tests.reproduce.toys import run_toys, toy
from tests.tiny import regard as command

ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
ROW = {row.name: row for row in LADDER_MULTI30K.rows}


@pytest.fixture(autouse=True)
def own_random_numbers() -> Iterator[None]:
    with torch.random.fork_rng():
        yield


@pytest.fixture
def uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what takes the longest at toy size."""
    monkeypatch.setattr(running, "flops_a_token", lambda *_: 1)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of which one row is done. Do not write into it."""
    out = tmp_path_factory.mktemp("study")
    with torch.random.fork_rng():
        run_toys(LADDER_MULTI30K, [ROW["transformer"]], out)
    return out


RUNGS = [
    # One of each kind at once; to count the operations of recurrent ones takes seconds.
    pytest.param(row, marks=[] if row.name in ("bytenet", "convs2s", "transformer") else pytest.mark.slow, id=row.name)
    for row in LADDER_MULTI30K.rows
]


@pytest.mark.parametrize("row", RUNGS)
def test_every_rung_of_the_ladder_at_toy_size(row: Row, tmp_path: Path) -> None:
    (ran,) = run_toys(LADDER_MULTI30K, [row], tmp_path, steps=2)
    found = read_outcome(tmp_path / row.name)
    assert ran.done == [row.name]
    assert found is not None
    assert (found.steps, found.test.lines, found.dev.lines) == (2, 40, 6)
    assert found.flops > found.tokens / 2 * 6 * 16 * 150  # the output matrix alone
    assert found.dev.perplexity is not None
    assert min(found.seconds, found.speed, found.decoding_seconds) > 0
    assert found.lengths


@pytest.mark.slow
@pytest.mark.parametrize("row", TABLE3.rows, ids=lambda row: row.name)
def test_every_row_of_table_3_at_toy_size(row: Row, tmp_path: Path) -> None:
    run_toys(TABLE3, [row], tmp_path)
    assert read_outcome(tmp_path / row.name) is not None


def test_a_row_has_what_regard_evaluate_says_and_what_its_log_adds_up_to(done: Path) -> None:
    place = done / "transformer"
    found = read_outcome(place)
    assert found is not None
    model, pairs = regard.load(place), open_corpus(folder.read_recipe(place).data).test()
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    report = model.evaluate(sources, references, Scoring(lowercase=True, language="de"))
    scores = {score.name: score for score in report.scores}
    assert found.test.bleu == pytest.approx(scores["BLEU"].value)
    assert found.test.perplexity == pytest.approx(scores["perplexity per token"].value, rel=1e-5)
    assert found.test.signatures["BLEU"] == scores["BLEU"].signature
    events = [json.loads(line) for line in (place / folder.METRICS).read_text().splitlines()]
    assert found.tokens == sum(event["tokens"] for event in events if event["event"] == "step")
    assert found.parameters == sum(
        weight.numel() for weight in folder.load_folder(place, torch.device("cpu")).model.parameters()
    )
    assert not (place / folder.CHECKPOINTS).exists()


def test_what_is_done_is_not_done_again(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "train", lambda *_: pytest.fail("trained again"))
    monkeypatch.setattr(running, "measure", lambda *_: pytest.fail("measured again"))
    assert run_toys(LADDER_MULTI30K, [ROW["transformer"]], done)[0].done == ["transformer"]


@pytest.mark.usefixtures("uncounted")
def test_a_row_that_dies_in_training_goes_on_and_ends_as_if_nothing_had_happened(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, saved = checkpoint.save, []

    def dying(*arguments: Any, **more: Any) -> Path:
        saved.append(save(*arguments, **more))
        if len(saved) == 2:
            raise KeyboardInterrupt  # as hard as a signal that nobody catches
        return saved[-1]

    place = tmp_path / "transformer"
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", dying)
        with pytest.raises(KeyboardInterrupt):
            run_toys(LADDER_MULTI30K, [ROW["transformer"]], tmp_path)
    assert not (place / MANIFEST).exists()
    assert len(checkpoint.found(place / folder.CHECKPOINTS)) > 0
    run_toys(LADDER_MULTI30K, [ROW["transformer"]], tmp_path)
    assert (place / folder.WEIGHTS).read_bytes() == (done / "transformer" / folder.WEIGHTS).read_bytes()


@pytest.mark.usefixtures("uncounted")
def test_a_row_that_dies_while_it_is_measured_is_only_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = ROW["transformer"]
    with monkeypatch.context() as patch:
        patch.setattr(running, "measure", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run_toys(LADDER_MULTI30K, [row], tmp_path, steps=1)
    assert (tmp_path / row.name / MANIFEST).is_file()
    assert read_outcome(tmp_path / row.name) is None
    monkeypatch.setattr(experiment, "train", lambda *_: pytest.fail("trained again"))
    run_toys(LADDER_MULTI30K, [row], tmp_path, steps=1)
    assert read_outcome(tmp_path / row.name) is not None


@pytest.mark.usefixtures("uncounted")
def test_a_row_that_died_before_its_first_checkpoint_begins_anew(tmp_path: Path) -> None:
    row = ROW["transformer"]
    (tmp_path / row.name / folder.CHECKPOINTS).mkdir(parents=True)
    (tmp_path / row.name / ".recipe.toml.writing").write_text("half of")
    run_toys(LADDER_MULTI30K, [row], tmp_path, steps=1)
    assert read_outcome(tmp_path / row.name) is not None


def test_a_signal_ends_it_and_the_rest_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = experiment.Outcome(Ending.signal(1, "SIGTERM"), "SIGTERM", None)
    monkeypatch.setattr(experiment, "train", lambda *_: stopped)
    rows = [ROW["transformer"], ROW["windowed"]]
    ran = run(LADDER_MULTI30K, rows, tmp_path, toy(LADDER_MULTI30K, rows[0]), lambda _: None)
    assert (ran.done, ran.signal) == ([], "SIGTERM")


@pytest.mark.usefixtures("uncounted")
def test_a_row_that_another_process_works_on_is_left_to_it(done: Path, tmp_path: Path) -> None:
    said: list[str] = []
    with (tmp_path / ".windowed.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rows = [ROW["windowed"], ROW["transformer"]]
        ran = run(LADDER_MULTI30K, rows, tmp_path, toy(LADDER_MULTI30K, rows[0], 1), said.append)
    assert (ran.done, ran.elsewhere) == (["transformer"], ["windowed"])
    assert said[0] == "windowed: another process is at work on it"
    found, alone = read_outcome(tmp_path / "transformer"), read_outcome(done / "transformer")
    assert found is not None
    assert alone is not None
    assert (found.beside, alone.beside) == (1, 0)


def test_other_settings_are_refused_before_anything_is_trained(done: Path, tmp_path: Path) -> None:
    row = ROW["transformer"]
    with pytest.raises(UsageError, match="transformer: a row must go on with the settings it began with, but seed, "):
        run(LADDER_MULTI30K, [row], done, toy(LADDER_MULTI30K, row, 5, "seed=2"), lambda _: None)
    with pytest.raises(UsageError, match="but data changed"):
        run(LADDER_MULTI30K, [row], done, toy(LADDER_MULTI30K, row, 4, "data.pairs=61"), lambda _: None)
    (tmp_path / row.name).mkdir()
    (tmp_path / row.name / "thesis.txt").touch()
    with pytest.raises(UsageError, match=r"holds thesis.txt and no recipe.toml. Choose another --out"):
        run_toys(LADDER_MULTI30K, [row], tmp_path)
    assert (tmp_path / row.name / "thesis.txt").exists()


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    (tmp_path / RESULT).write_text('{"row": "base"}')
    with pytest.raises(DataError, match="must be what `regard reproduce` wrote"):
        read_outcome(tmp_path)
    assert read_outcome(tmp_path / "nowhere") is None


def test_bleu_by_length_is_that_of_the_lines_of_that_length() -> None:
    short, long = ["one two"] * 20, ["one two three four five six"] * 20
    found = by_length([*short, *long, *["x"] * 19], ["a b c d"] * 20 + ["e f g h"] * 20 + ["x"] * 19,
                      ["a b c d"] * 40 + ["x"] * 19, (1, 2), lowercase=False)  # fmt: skip
    assert [(each.lines, each.words) for each in found] == [(20, 2.0), (20, 6.0)]
    assert found[0].bleu == pytest.approx(100)
    assert found[1].bleu < 10


def test_the_command_renders_what_is_there(done: Path, tmp_path: Path) -> None:
    ran = command("reproduce", "ladder-multi30k", "--render", "--out", done)
    assert ran.code == 0, ran.err
    assert "| `transformer` | Transformer, post-norm |" in ran.out
    assert "Not done: rnn, additive" in ran.out
    assert (done / "ladder-multi30k.md").read_text() == ran.out
    missing = command("reproduce", "ladder-multi30k", "--render", "--out", tmp_path / "nowhere")
    assert missing.code == 66


@pytest.mark.usefixtures("uncounted")
def test_the_command_trains(tmp_path: Path) -> None:
    asked = toy(LADDER_MULTI30K, ROW["windowed"])
    line = ("reproduce", "ladder-multi30k", *asked.overrides, "--rows", "windowed", "--steps", 1, "--out", tmp_path)
    ran = command(*line, "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert list(found["rows"]) == ["windowed"]
    assert found["rows"]["windowed"]["steps"] == 1
    again = command(*line)
    assert "trained" not in again.err
    assert again.code == 0


@pytest.mark.slow
def test_a_killed_study_goes_on_with_the_same_command_beside_another_process(tmp_path: Path) -> None:
    """`kill -9` in the middle of a row; then two processes share the rows that are left, and every row is done once."""
    overrides = toy(LADDER_MULTI30K, ROW["transformer"], 1, "training={save_every = 5, validate_every = 300}").overrides
    line = [sys.executable, "-m", "regard", "reproduce", "ladder-multi30k", *overrides]
    line += ["--rows", "transformer,windowed", "--steps", "300", "--out", str(tmp_path)]
    with subprocess.Popen(line, env=ONE_THREAD, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
        wait_for(tmp_path / "transformer" / folder.CHECKPOINTS / "00000005")
        first.kill()
    assert read_outcome(tmp_path / "transformer") is None
    both = [subprocess.Popen(line, env=ONE_THREAD, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    said = [process.communicate(timeout=300)[1].decode() for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    starts = (tmp_path / "transformer" / folder.METRICS).read_text().count('"event": "start"')
    assert starts == 2  # the one that was killed, and one that went on
    assert (tmp_path / "windowed" / folder.METRICS).read_text().count('"event": "start"') == 1
    for row in ("transformer", "windowed"):
        found = read_outcome(tmp_path / row)
        assert found is not None
        assert found.steps == 300
        assert sum(f"{row}: dev BLEU" in each for each in said) == 1


def wait_for(place: Path) -> None:
    end = time.monotonic() + 200
    while not place.exists():
        assert time.monotonic() < end, f"{place} never came"
        time.sleep(0.02)
