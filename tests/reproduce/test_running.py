"""A study is run row by row, goes on where it was broken off, and never does anything twice."""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard import experiment, folder
from regard.data.corpus import open_corpus
from regard.errors import DataError, MissingError, UsageError
from regard.evaluation.catalogue import Scoring
from regard.files import MANIFEST
from regard.reproduce import running
from regard.reproduce.judging import by_length
from regard.reproduce.ladder import LADDER_MULTI30K
from regard.reproduce.outcome import RESULT, read_outcome
from regard.reproduce.rendering import render
from regard.reproduce.running import run
from regard.reproduce.study import Asked, Row
from regard.reproduce.table2 import TABLE2
from regard.reproduce.table3 import TABLE3
from regard.settings.tree import text_of
from regard.training import checkpoint
from regard.training.report import Ending
from regard.viewing.training_curves import read_metrics
from tests.reproduce.toys import run_toys, toy
from tests.tiny import regard as command
from tests.tiny import write_lines

ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
ROW = {row.name: row for row in LADDER_MULTI30K.rows}


@pytest.fixture(autouse=True)
def own_random_numbers() -> Iterator[None]:
    with torch.random.fork_rng():
        yield


@pytest.fixture
def uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what takes the longest at toy size."""
    monkeypatch.setattr(running, "training_flops", lambda *_: 1.0)


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


@pytest.mark.slow
@pytest.mark.parametrize("row", [row for row in TABLE2.rows if not row.members], ids=lambda row: row.name)
def test_every_row_of_table_2_at_toy_size(row: Row, tmp_path: Path) -> None:
    run_toys(TABLE2, [row], tmp_path)
    assert read_outcome(tmp_path / row.name) is not None


@pytest.mark.usefixtures("uncounted")
def test_models_that_write_as_one_wait_for_each_other_and_are_measured_as_regard_evaluate_does(tmp_path: Path) -> None:
    first, second, both = TABLE2.chosen("convs2s,convs2s-2,convs2s-ensemble")
    said: list[str] = []
    run_toys(TABLE2, [first], tmp_path)
    ran = run(TABLE2, [both], tmp_path, toy(TABLE2, both), said.append)
    assert (ran.done, ran.elsewhere, ran.waiting) == ([], [], {"convs2s-ensemble": ["convs2s-2"]})
    assert said == ["convs2s-ensemble: waits for convs2s-2"]
    with (tmp_path / ".convs2s-2.lock").open("ab") as lock:  # another process is at work on it
        fcntl.flock(lock, fcntl.LOCK_EX)
        ran = run(TABLE2, [both], tmp_path, toy(TABLE2, both), said.append)
    assert (ran.done, ran.elsewhere, ran.waiting) == ([], ["convs2s-ensemble"], {})
    assert run_toys(TABLE2, [second, both], tmp_path)[1].done == ["convs2s-ensemble"]
    found, each = read_outcome(tmp_path / both.name), [read_outcome(tmp_path / name) for name in both.members]
    assert found is not None
    assert found.tokens == sum(member.tokens for member in each if member is not None)
    assert found.parameters == sum(member.parameters for member in each if member is not None)
    models = [regard.load(tmp_path / name) for name in both.members]
    pairs = open_corpus(folder.read_recipe(tmp_path / first.name).data).test()
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    report = models[0].together(models[1:]).evaluate(sources, references, Scoring(language="de"))
    scores = {score.name: score.value for score in report.scores}
    assert found.test.bleu == pytest.approx(scores["BLEU"])
    assert found.test.perplexity == pytest.approx(scores["perplexity per token"], rel=1e-5)
    assert run_toys(TABLE2, [both], tmp_path)[0].done == ["convs2s-ensemble"]  # and nothing is done again
    table = render(TABLE2, tmp_path)
    assert [(each.measure, each.among, each.rows) for each in table.correlations()] == [("test BLEU", "these rows", 2)]
    assert "| `convs2s-ensemble` | ConvS2S, two as one |" in table.to_markdown()
    assert "| 26.36 |" in table.to_markdown()
    assert "7.7e+19" in table.to_markdown()


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
    steps = [event for event in events if event["event"] == "step"]
    assert found.tokens == sum(event["tokens"] for event in steps)
    speeds = sorted(event["tokens"] / event["took"] for event in steps)
    assert speeds[0] < found.speed < speeds[-1]
    assert len(steps) <= 60  # so each is a point
    assert [loss for _, loss in found.learning] == [round(event["loss"], 4) for event in steps]
    assert found.learning[-1][0] == round((found.tokens - steps[-1]["tokens"] / 2) / 1e6, 3)
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


@pytest.mark.parametrize("lost", [folder.METRICS, folder.WEIGHTS, folder.DATA, MANIFEST])
def test_a_trained_row_that_lost_a_file_says_what_to_do(lost: str, done: Path, tmp_path: Path) -> None:
    row, place = ROW["transformer"], tmp_path / "transformer"
    shutil.copytree(done / row.name, place)
    (place / lost).unlink()
    assert run_toys(LADDER_MULTI30K, [row], tmp_path)[0].done == [row.name]  # its figures are there
    (place / RESULT).unlink()
    said = f"{place / lost}: the figures of a row are measured with this file, but it is not there. Put it back; or"
    with pytest.raises(MissingError, match=re.escape(said)):
        run_toys(LADDER_MULTI30K, [row], tmp_path)
    assert (place / folder.RECIPE).is_file()  # and nothing else of it is lost


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


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_while_the_corpus_is_read_ends_it_with_the_usual_sentence(
    name: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        signal.raise_signal(signal.Signals[name])

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(running, "read_dataset", interrupted)
    asked = toy(LADDER_MULTI30K, ROW["rnn"]).overrides
    ran = command("reproduce", "ladder-multi30k", *asked, "--rows", "rnn", "--out", tmp_path)
    assert ran.code == code
    assert ran.err.startswith("corpus: reading it")
    assert ran.err.endswith(f"Stopped by {name}; the same command goes on.\n")
    assert ran.out == "ladder-multi30k: nothing is done yet.\n"
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.usefixtures("uncounted")
def test_a_signal_while_a_row_is_measured_leaves_it_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = ROW["transformer"]
    with monkeypatch.context() as patched:
        patched.setattr(running, "measure", lambda *_: signal.raise_signal(signal.SIGTERM))
        (ran,) = run_toys(LADDER_MULTI30K, [row], tmp_path)
    assert (ran.done, ran.signal) == ([], "SIGTERM")
    monkeypatch.setattr(experiment, "train", lambda *_: pytest.fail("it was trained again"))
    (ran,) = run_toys(LADDER_MULTI30K, [row], tmp_path)
    assert (ran.done, ran.signal) == ([row.name], None)


def test_who_waits_for_another_process_that_reads_the_corpus_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waited(lock: Any, how: int) -> None:
        if not how & fcntl.LOCK_NB and Path(lock.name).name == ".corpus.lock":
            signal.raise_signal(signal.SIGINT)
        real(lock, how)

    said: list[str] = []
    with (tmp_path / ".corpus.lock").open("ab") as held:
        real = fcntl.flock
        real(held, fcntl.LOCK_EX)
        monkeypatch.setattr(fcntl, "flock", waited)
        ran = run(LADDER_MULTI30K, [ROW["rnn"]], tmp_path, toy(LADDER_MULTI30K, ROW["rnn"]), said.append)
    assert said == ["corpus: another process is reading it, and this one waits for that"]
    assert ran.signal == "SIGINT"


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
    said = "a row must go on with the settings it began with, but `seed` is 2, not 1; `training.steps` is 5, not 4"
    with pytest.raises(UsageError, match=f"transformer: {said}"):
        run(LADDER_MULTI30K, [row], done, toy(LADDER_MULTI30K, row, 5, "seed=2"), lambda _: None)
    with pytest.raises(UsageError, match=r"but `data.pairs` is 61, not 60\. Ask"):
        run(LADDER_MULTI30K, [row], done, toy(LADDER_MULTI30K, row, 4, "data.pairs=61"), lambda _: None)
    (tmp_path / row.name).mkdir()
    (tmp_path / row.name / "thesis.txt").touch()
    with pytest.raises(UsageError, match=r"holds thesis.txt and no recipe.toml. Choose another --out"):
        run_toys(LADDER_MULTI30K, [row], tmp_path)
    assert (tmp_path / row.name / "thesis.txt").exists()


def test_a_damaged_result_is_named(done: Path, tmp_path: Path) -> None:
    whole = json.loads((done / "transformer" / RESULT).read_bytes())
    test = whole["test"]
    strange = [
        *(None, 3, "x", [], {"row": "base"}),
        {**whole, "test": {**test, "bleu": "x"}},
        {**whole, "test": {**test, "signatures": {}}},
        {**whole, "test": None},
        {**whole, "lengths": [3]},
        {**whole, "changes": "seed=2"},
        {**whole, "seconds": None},
    ]
    for plain in strange:
        (tmp_path / RESULT).write_text(json.dumps(plain))
        with pytest.raises(DataError, match=r"must be what `regard reproduce` wrote, but is not \(.+\)\. Remove it"):
            read_outcome(tmp_path)
    (tmp_path / RESULT).write_text('{"row": ')
    with pytest.raises(DataError, match="must be what `regard reproduce` wrote"):
        read_outcome(tmp_path)
    (tmp_path / RESULT).write_text(json.dumps(whole))
    assert read_outcome(tmp_path) == read_outcome(done / "transformer")
    assert read_outcome(tmp_path / "nowhere") is None


def test_figures_that_were_changed_after_they_were_written_are_refused(done: Path, tmp_path: Path) -> None:
    whole = json.loads((done / "transformer" / RESULT).read_bytes())
    better = {**whole, "test": {**whole["test"], "bleu": 99.0}}
    (tmp_path / RESULT).write_text(json.dumps(better))
    said = rf"sealed with, {whole['seal'][:12]}…, but have [0-9a-f]{{12}}…: they were changed .* Put back"
    with pytest.raises(DataError, match=said):
        read_outcome(tmp_path)
    for strange in ("x", 3, "", "ä"):
        (tmp_path / RESULT).write_text(json.dumps({**whole, "seal": strange}))
        with pytest.raises(DataError, match="they were changed after it was written"):
            read_outcome(tmp_path)
    for unsealed in ({**whole, "seal": None}, {name: value for name, value in whole.items() if name != "seal"}):
        (tmp_path / RESULT).write_text(json.dumps(unsealed))
        with pytest.raises(DataError, match=r"must have a `seal`, .* but has none\. Put back .* measured again"):
            read_outcome(tmp_path)
    # Laid out otherwise it says the same.
    (tmp_path / RESULT).write_text(json.dumps(dict(reversed(whole.items()))))
    assert read_outcome(tmp_path) == read_outcome(done / "transformer")


def test_figures_that_nobody_can_have_measured_are_refused(done: Path, tmp_path: Path) -> None:
    whole = json.loads((done / "transformer" / RESULT).read_bytes())
    for change, said in (
        ({"test": {**whole["test"], "bleu": math.nan}}, "test: .*`bleu` must be a finite number, but is nan"),
        ({"dev": {**whole["dev"], "perplexity": math.inf}}, "dev: .*`perplexity` must be a finite number, but is inf"),
        ({"dev": {**whole["dev"], "chrf": 100.5}}, "dev: .*`chrf` must be between 0 and 100, but is 100.5"),
        ({"seconds": -math.inf}, "`seconds` must be a finite number, but is -inf"),
        ({"lengths": [{"lines": 1, "words": math.nan, "bleu": 1.0}]}, "lengths.0: .*`words` must be a finite number"),
    ):
        (tmp_path / RESULT).write_text(json.dumps({**whole, **change}))
        with pytest.raises(DataError, match=said):
            read_outcome(tmp_path)


@pytest.mark.usefixtures("uncounted")
def test_a_row_that_was_broken_off_goes_on_where_the_corpora_lie_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trained half with the corpus in one place, the other half in a second, and measured in a third."""
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    row, out, place = ROW["transformer"], tmp_path / "out", tmp_path / "out/transformer"
    write_corpus(first)
    save, saved = checkpoint.save, []

    def dying(*arguments: Any, **more: Any) -> Path:
        saved.append(save(*arguments, **more))
        if len(saved) == 2:
            raise KeyboardInterrupt
        return saved[-1]

    def go_on(corpus: Path) -> None:
        run(LADDER_MULTI30K, [row], out, in_files(row, corpus), lambda _: None)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", dying)
        with pytest.raises(KeyboardInterrupt):
            go_on(first)
    first.rename(second)
    write_corpus(tmp_path / "other", "zwei")
    with pytest.raises(
        UsageError, match=r"but `data.source` is .*other.*, not .*first.*their content must be the same"
    ):
        go_on(tmp_path / "other")
    with monkeypatch.context() as patch:
        patch.setattr(running, "measure", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            go_on(second)
    starts = [event["step"] for event in read_metrics(place / folder.METRICS) if event["event"] == "start"]
    assert starts[0] == 0 < starts[1]
    second.rename(third)
    go_on(third)
    found = read_outcome(place)
    assert found is not None
    assert found.test.lines == 20
    go_on(third)  # done is done


def write_corpus(place: Path, word: str = "eins") -> None:
    place.mkdir()
    for name, count in (("train", 60), ("val", 6), ("test", 20)):
        write_lines(place / f"{name}.en", [f"one {number} {name}" for number in range(count)])
        write_lines(place / f"{name}.de", [f"{word} {number} {name}" for number in range(count)])


def in_files(row: Row, place: Path) -> Asked:
    """The toy settings of a row, with a corpus of files in a folder."""
    asked = toy(LADDER_MULTI30K, row)
    files = {
        f"{split}{side}": str(place / f"{stem}.{language}")
        for split, stem in (("", "train"), ("valid_", "val"), ("test_", "test"))
        for side, language in (("source", "en"), ("target", "de"))
    }
    data = ", ".join(f"{key} = {text_of(file)}" for key, file in files.items())
    others = [each for each in asked.overrides if not each.startswith("data=")]
    return Asked(None, asked.steps, (f"data={{kind = 'files', {data}}}", *others))


def test_a_corpus_without_a_test_set_is_named_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment, "train", lambda *_: pytest.fail("trained first"))
    row = ROW["transformer"]
    with pytest.raises(DataError, match="needs pairs for its test set, but there are none"):
        run(LADDER_MULTI30K, [row], tmp_path / "out", toy(LADDER_MULTI30K, row, 1, "data.test=0"), lambda _: None)
    with pytest.raises(UsageError, match="needs at least 1 example to validate on"):
        run(LADDER_MULTI30K, [row], tmp_path / "out", toy(LADDER_MULTI30K, row, 1, "data.valid=0"), lambda _: None)


def test_checkpoints_that_a_killed_process_left_in_a_done_row_are_removed(done: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(done, tmp_path / "out"))
    (out / "transformer" / folder.CHECKPOINTS / "00000004").mkdir(parents=True)
    with (out / ".transformer.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run_toys(LADDER_MULTI30K, [ROW["transformer"]], out)
        assert (out / "transformer" / folder.CHECKPOINTS).exists()  # another process has it
    run_toys(LADDER_MULTI30K, [ROW["transformer"]], out)
    assert not (out / "transformer" / folder.CHECKPOINTS).exists()


def test_a_file_where_a_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "transformer").touch()
    with pytest.raises(UsageError, match=r"file: must be a folder, but is a file\. Choose another --out"):
        run_toys(LADDER_MULTI30K, [ROW["transformer"]], tmp_path / "file")
    with pytest.raises(UsageError, match=r"transformer: must be a folder, but is a file"):
        run_toys(LADDER_MULTI30K, [ROW["transformer"]], tmp_path)
    ran = command("reproduce", "table3", "--render", "--out", tmp_path / "file")
    assert (ran.code, "must be a folder, but is a file" in ran.err) == (2, True)


def test_another_studys_row_is_not_taken_for_done(done: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(done, tmp_path / "out"))
    found = read_outcome(out / "transformer")
    assert found is not None
    replace(found, study="ladder-europarl").write(out / "transformer")
    with pytest.raises(DataError, match="must be of `transformer` of ladder-multi30k, but is of `transformer` of ladd"):
        run_toys(LADDER_MULTI30K, [ROW["transformer"]], out)


def test_every_machine_that_a_row_was_trained_on_is_named() -> None:
    starts = [{"torch": "2.11", "machine": name} for name in ("one H200", "2 cores", "one H200")]
    assert running._in_turn(starts, "machine") == "one H200, then 2 cores"
    assert running._in_turn(starts, "torch") == "2.11"


def test_the_speed_of_a_row_is_that_of_the_report_in_the_middle() -> None:
    """Neither one that waited for the compiler counts, nor one that was lucky."""
    steps = [{"tokens": 600, "took": took} for took in (60.0, 2.0, 1.0, 3.0, 2.0)]
    assert running._speed(steps) == 300
    assert running._speed([]) == 0


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
    # The table of some rows is printed alone: that of all must not be lost.
    written = {file.name: file.read_bytes() for file in done.glob("ladder-multi30k*")}
    assert len(written) == 4
    some = command("reproduce", "ladder-multi30k", "--render", "--rows", "rnn,transformer", "--out", done, "--json")
    assert (list(json.loads(some.out)["rows"]), json.loads(some.out)["missing"]) == (["transformer"], ["rnn"])
    none = command("reproduce", "ladder-multi30k", "--render", "--rows", "rnn", "--out", done)
    assert (none.code, none.out) == (66, "")
    assert f"{done}: must hold the figures of a row to print, but rnn is not done." in none.err
    one = command("reproduce", "ladder-multi30k", "--render", "--rows", "transformer", "--out", done)
    assert "| `transformer` |" in one.out
    assert ".svg" not in one.out
    assert one.err == ""
    assert {file.name: file.read_bytes() for file in done.glob("ladder-multi30k*")} == written
    wrong = command("reproduce", "ladder-multi30k", "--render", "--rows", "huge", "--out", done)
    assert (wrong.code, "`huge` is not one" in wrong.err) == (2, True)
    for place in (tmp_path / "nowhere", tmp_path):
        missing = command("reproduce", "ladder-multi30k", "--render", "--out", place)
        assert (missing.code, "must be the folder of ladder-multi30k, but there is no row" in missing.err) == (66, True)
    assert list(tmp_path.iterdir()) == []
    other = command("reproduce", "ladder-europarl", "--render", "--out", done)
    assert other.code == 65


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["--rows", "base"], "the list of all there is takes --json alone, but was given --rows"),
        (
            ["multi30k", "--steps", "0", "--rows", "x", "foo=bar"],
            "a published model, takes --json alone, but was given KEY=",
        ),
        (["--check", "x"], "which one is not said. Write its name before --check x"),
        (["multi30k", "--data", "x"], "--data is for a check of multi30k. Add --check FOLDER"),
        (["table1", "--rows", "base"], "table1 takes --out, --lengths, --width, --json, but was given --rows"),
        (["table3", "--lengths", "1,2,3"], "but was given --lengths"),
        (["table3", "--width", "8"], "but was given --width"),
        (
            ["table3", "--render", "--steps", "3"],
            "--render, which trains nothing, takes --render, --out, --rows, --json",
        ),
        (["multi30k", "--check", "x", "--steps", "3"], "a check takes --check, --data, --json, but was given --steps"),
        (["multi30k", "--check", "x", "--rows", "x"], "but was given --rows"),
    ],
)
def test_options_that_would_do_nothing_are_refused(line: list[str], said: str) -> None:
    ran = command("reproduce", *line)
    assert ran.code == 2
    assert said in ran.err


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


def test_a_missing_model_ends_the_command_with_what_to_type(tmp_path: Path) -> None:
    ran = command("reproduce", "table2", "--rows", "gnmt-ensemble", "--out", tmp_path, "data.kind=generated")
    assert ran.code == 1
    assert "Missing: gnmt-ensemble, which needs gnmt and gnmt-2 first." in ran.err
    assert "with --rows gnmt,gnmt-2,gnmt-ensemble goes on." in ran.err
    assert ran.out == "table2: nothing is done yet.\n"
    assert "The table is in" not in ran.err
    assert not list(tmp_path.glob("table2*"))
