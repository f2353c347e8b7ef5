"""What benchmarks keep, and what they run: an evaluation is found again by its arguments, a run by its name."""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from benchmarks import labels, music, proof, runs
from benchmarks.runs import Bench, Job, Stopped, options, results, run_asked
from regard.bands.band import band_of_recipe
from regard.recipe import load_recipe
from regard.reproduce.studies import STUDIES


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The commands that were run; each evaluation tells how many there were."""
    commands: list[tuple[str, ...]] = []

    def regard(bench: Bench, *arguments: str) -> str:
        commands.append(arguments)
        if "--confusion" in arguments:
            Path(arguments[arguments.index("--confusion") + 1]).write_text("<svg/>")
        scores = [{"name": "accuracy", "value": float(len(commands))}]
        return json.dumps({"answers": 7, "scores": scores})

    monkeypatch.setattr(Bench, "regard", regard)
    return commands


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    for name in ("work", "out", "data"):
        (tmp_path / name).mkdir()
    return Bench(tmp_path / "work", tmp_path / "out", tmp_path / "data", math.inf)


def test_an_evaluation_is_found_again_by_its_arguments(bench: Bench, asked: list[tuple[str, ...]]) -> None:
    one, other = bench.work / "one", bench.work / "other"
    one.mkdir()
    other.mkdir()
    for folder, arguments, found in [
        (one, (), 1.0),
        (one, ("--beam", "4"), 2.0),
        (one, ("--beam", "4", "--lowercase"), 3.0),
        (one, ("--beam 4",), 4.0),  # one argument is not two
        (one, ("/data/valid.txt",), 5.0),
        (one, ("/data/test.txt",), 6.0),
        (other, (), 7.0),
    ] * 2:
        assert bench.evaluate(folder, *arguments) == {"accuracy": found}
    assert len(asked) == 7
    assert asked[1] == ("evaluate", str(one), "--beam", "4", "--json")


def test_what_is_kept_says_of_what_it_is(bench: Bench, asked: list[tuple[str, ...]]) -> None:
    assert bench.report(bench.work, "--beam", "4")["answers"] == 7
    (kept,) = bench.work.glob("evaluated-*.json")
    assert json.loads(kept.read_text())["arguments"] == ["--beam", "4"]


def test_what_a_run_says_of_itself_is_read_as_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss that was no number, a break of lines inside a text, a run that went back, and a line cut short."""
    events: list[dict[str, object]] = [
        {"event": "start", "step": 0, "command": "train \u2028"},
        {"event": "step", "step": 10, "took": 30.0, "tokens": 600},
        {"event": "validation", "step": 10, "nll": None},
        {"event": "step", "step": 20, "took": 30.0, "tokens": 600},
        {"event": "validation", "step": 20, "nll": 1.0},  # left behind: the run goes back to step 10
        {"event": "step", "step": 15, "took": 15.0, "tokens": 300},
        {"event": "validation", "step": 15, "nll": 2.0},
        {"event": "step", "step": 18, "took": 15.0, "tokens": 300},
        {"event": "validation", "step": 18, "nll": 3.0},
    ]
    lines = [json.dumps(event, ensure_ascii=False) for event in events]
    (tmp_path / "metrics.jsonl").write_text("\n".join([*lines, '{"event": "end", "st']))
    save_file({"w": torch.zeros(2, 3)}, tmp_path / "model.safetensors")
    assert runs.facts(tmp_path) == {
        "parameters": 6, "steps": 18, "minutes": 1.5, "tokens_per_second": 20, "best_loss": 2.0, "loss": 3.0
    }  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines[:3]))
    assert (runs.facts(tmp_path)["best_loss"], runs.facts(tmp_path)["loss"]) == (None, None)
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    word = {"name": "nats per word, test", "value": 0.5, "signature": "words:7"}
    said = {"scores": [word], "files": [{"role": "test", "lines": 2}], "parameters": 6}
    monkeypatch.setattr(music, "_asked", lambda *_: said)
    assert music.measure(tmp_path) == [music.Row(tmp_path.name, "test", 2, 7, 0.5, None, 6, steps=18)]


def test_scales_of_8_bit_weights_are_no_parameters(tmp_path: Path) -> None:
    matrix = {"w": torch.ones(2, 3, dtype=torch.int8), "w.scale": torch.ones(2), "b": torch.zeros(2)}
    save_file(matrix, tmp_path / "model.safetensors")
    assert runs.parameters(tmp_path) == 8


def test_labels_are_measured_on_the_test_set(
    bench: Bench, asked: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bench, "train", lambda bench, *_: bench.work)
    monkeypatch.setattr(Bench, "note", lambda *_: None)
    labels.measure(bench, "classify-language")
    assert (bench.out / "classify-language-confusion.svg").read_text() == "<svg/>"
    assert json.loads((bench.out / "classify-language.json").read_text())["answers"] == 7
    row = labels.table(bench.out, {"classify-language": "done"}).split("\n")[-1]
    assert [cell for cell in row.split("|") if cell.strip()] == [" `classify-language` ", " 7 ", " 1.00 ", " done "]


def test_a_run_is_found_again_by_its_own_settings_alone(bench: Bench, asked: list[tuple[str, ...]]) -> None:
    bench.train("mine", "tiny", "seed=1")
    (bench.work / "mine").mkdir()
    (bench.work / "mine" / "manifest.json").touch()
    bench.train("mine", "tiny", "seed=1")
    assert len(asked) == 1
    trial = replace(bench, settings=("training.steps=3",))
    with pytest.raises(
        RuntimeError, match=r"must go on with the settings it began with, but training\.steps=3 differs"
    ):
        trial.train("mine", "tiny", "seed=1")


def test_trials_have_a_place_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    places: list[Path] = []
    job = Job("a", 1.0, lambda bench: places.extend([bench.work, bench.out]))
    for more in ((), ("--set", "seed=2")):
        asked = options("some", None, minutes=1.0).parse_args(["--cpu", "--data", str(tmp_path), *more])
        run_asked(asked, [job], lambda *_: "", spare=0)
    names = ("some", "some-results", "some-trial", "some-trial-results")
    assert places == [(tmp_path / "runs" / name).resolve() for name in names]


@pytest.mark.parametrize(
    ("option", "said"), [("--data", "must be the folder of all corpora"), ("--out", "cannot be made")]
)
def test_a_place_that_will_not_do_is_refused_before_anything_runs(
    option: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job("a", 1.0, lambda _: pytest.fail("it ran"))
    (tmp_path / "file").touch()
    places = {"--data": str(tmp_path), "--out": str(tmp_path / "out"), "--work": str(tmp_path / "work")}
    words = [word for each in (places | {option: str(tmp_path / "file")}).items() for word in each]
    with pytest.raises(SystemExit) as ended:
        run_asked(options("some", None, 1.0).parse_args(["--cpu", *words]), [job], lambda *_: "", spare=0)
    assert ended.value.code == 66
    assert said in capsys.readouterr().err


def test_the_proof_names_every_row_of_every_study_once() -> None:
    names = [job.name for job in proof.jobs()]
    assert len(set(names)) == len(names)
    assert {f"{study.name}-{row.name}" for study in STUDIES.values() for row in study.rows} < set(names)


@pytest.mark.parametrize("name", proof.TRIES)
def test_tries_of_the_proof_are_short_courses_of_one_recipe_that_differ_from_the_plain_one(name: str) -> None:
    plain, tried = (load_recipe("five-minutes", [*proof.SHORT, *proof.TRIES[each]]) for each in ("plain", name))
    assert not tried.training.by_clock
    assert tried.training.steps * tried.batch.tokens == plain.training.steps * plain.batch.tokens
    assert (tried == plain) == (name == "plain")


@pytest.mark.parametrize("recipe", proof.USUAL)
def test_usual_courses_of_the_proof_are_of_seeds_of_a_recipe_on_its_corpus(
    recipe: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[tuple[str, ...]] = []
    monkeypatch.setattr(Bench, "train", lambda _bench, *words: trained.append(words) or bench.work)
    monkeypatch.setattr(Bench, "note", lambda *_: None)
    monkeypatch.setattr(Bench, "regard", lambda *_: "")
    (bench.work / "tang.txt").touch()
    mine = [job for job in proof.jobs() if job.name.startswith(f"usual-{recipe}")]
    course = next(job for job in mine if job.needs)
    for job in mine:
        if job is not course:
            job.run(bench)
    assert course.needs == tuple(words[0] for words in trained)
    assert [words[1] for words in trained] == [recipe] * 3
    recipes = [load_recipe(recipe, words[2:]) for words in trained]
    assert [each.seed for each in recipes] == [1, 2, 3]
    assert all(str(bench.data) in word or str(bench.work) in word for words in trained for word in words[2:-1])
    assert band_of_recipe(recipe) is not None


def test_runs_are_chosen_by_patterns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran: list[str] = []
    jobs = [Job(name, 1.0, lambda _bench, name=name: ran.append(name)) for name in ("a-1", "a-2", "b-1", "c-1")]

    def run(only: str) -> None:
        asked = options("some", None, minutes=1.0).parse_args(
            [
                "--cpu",
                "--data",
                str(tmp_path),
                "--only",
                only,
                "--work",
                str(tmp_path / "work"),
                "--out",
                str(tmp_path / "out"),
            ]
        )
        run_asked(asked, jobs, lambda _out, endings: f"ran {', '.join(endings)}", spare=0)

    run("c-1,a-*")
    assert ran == ["a-1", "a-2", "c-1"]  # in their own order
    assert capsys.readouterr().out.endswith("ran a-1, a-2, c-1\n")
    with pytest.raises(SystemExit, match=r"no such runs: d-\*; see --list"):
        run("a-1,d-*")


def test_a_run_that_failed_is_told_by_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [
        Job("good", 1.0, lambda _bench: None),
        Job("bad", 1.0, lambda _bench: print(1 / 0)),
        Job("late", 1.0, lambda _bench: None, ("bad",)),
    ]
    with pytest.raises(SystemExit) as ended:
        run_asked(nothing_to_do(tmp_path, "--cpu"), jobs, lambda _out, endings: ", ".join(endings.values()), spare=0)
    assert ended.value.code == 1
    said = capsys.readouterr()
    assert said.out == "done, failed: division by zero, left out: what it needs is not there\n"
    assert "bad: failed: division by zero after 0.0 minutes" in said.err


def test_runs_are_listed_in_words() -> None:
    code = """
from benchmarks.runs import Job, options, run_asked
jobs = [Job("a", 0.2, None, minutes=1), Job("b", 1.0, None, minutes=7.5), Job("c", 0.0, None, ("a", "b"))] * 9_000
run_asked(options("some", None, minutes=1.0).parse_args(["--list"]), jobs, None, spare=0)
"""
    root = Path(__file__).parent.parent
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as listing:
        assert listing.stdout is not None
        assert listing.stderr is not None
        lines = [" ".join(listing.stdout.readline().split()) for _ in range(3)]
        listing.stdout.close()
        assert listing.stderr.read() == ""
    assert lines == [
        "a about 1 minute, 20 % of the GPU",
        "b about 7.5 minutes, 100 % of the GPU",
        "c 0 % of the GPU, after a, b",
    ]
    assert listing.returncode == -signal.SIGPIPE


def test_what_was_found_twice_is_told_once(bench: Bench) -> None:
    for value in (1.0, 2.0):
        bench.result("job", "BLEU", value)
    bench.result("job", "chrF", 3.0)
    assert [(row["what"], row["value"]) for row in results(bench.out)] == [("BLEU", 2.0), ("chrF", 3.0)]


def nothing_to_do(tmp_path: Path, *arguments: str) -> argparse.Namespace:
    places = ["--data", str(tmp_path), "--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")]
    return options("some", None, minutes=1.0).parse_args([*places, *arguments])


def test_without_a_gpu_nothing_runs_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    jobs = [Job("job", 1.0, lambda _bench: ran.append("job"))]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match=r"need a GPU, but torch finds no CUDA device; .* --cpu"):
        run_asked(nothing_to_do(tmp_path), jobs, lambda *_: "", spare=0)
    assert not ran
    assert not (tmp_path / "work").exists()
    run_asked(nothing_to_do(tmp_path, "--cpu"), jobs, lambda *_: "", spare=0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    run_asked(nothing_to_do(tmp_path), jobs, lambda *_: "", spare=0)
    assert ran == ["job", "job"]


# In place of the project's commands: it tells who it is, and what it does when it is asked to stop.
COMMAND = """
import os, signal, sys, time
from pathlib import Path

place, name, how = Path(__file__).parent, *sys.argv[1:]

def save(number, frame):
    (place / f"{name}.saved").touch()
    if how != "stubborn":
        sys.exit(128 + number)

signal.signal(signal.SIGTERM, save)
signal.signal(signal.SIGINT, save)
(place / f"{name}.new").write_text(str(os.getpid()))
(place / f"{name}.new").rename(place / f"{name}.pid")
time.sleep(60)
"""
BENCHMARK = """
import os, sys
from benchmarks.runs import Job, options, run_asked

place, how = sys.argv[1:]
os.environ["PYTHONPATH"] = place
jobs = [Job(name, 0.5, lambda bench, name=name: bench.regard(name, how)) for name in ("one", "two", "late")]
places = ["--data", place, "--work", place + "/work", "--out", place + "/out"]
asked = options("some", None, minutes=1.0).parse_args(["--cpu", *places])
run_asked(asked, jobs, lambda _out, endings: "\\n".join(map(": ".join, sorted(endings.items()))), spare=0)
"""


def pretend(tmp_path: Path) -> Path:
    """Put the command there; its process writes beside the file that is given back."""
    (tmp_path / "regard").mkdir()
    (place := tmp_path / "regard" / "__main__.py").write_text(COMMAND)
    place.with_name("__init__.py").touch()
    return place


def eventually(files: list[Path]) -> None:
    end = time.monotonic() + 30
    while not all(file.is_file() for file in files):
        assert time.monotonic() < end, f"{files} are not there"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("how", "signals"),
    [
        ("willing", [signal.SIGTERM]),
        ("willing", [signal.SIGINT]),
        ("willing", [signal.SIGHUP]),
        ("stubborn", [signal.SIGTERM, signal.SIGTERM]),
    ],
)
def test_a_signal_stops_the_commands_that_run_and_a_second_ends_them(
    tmp_path: Path, how: str, signals: list[signal.Signals]
) -> None:
    place = pretend(tmp_path)
    root = Path(__file__).parent.parent
    benchmark = subprocess.Popen([sys.executable, "-c", BENCHMARK, str(tmp_path), how], cwd=root, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)  # fmt: skip
    names = ("one", "two")
    try:
        eventually([place.with_name(f"{name}.pid") for name in names])
        for number in signals:
            benchmark.send_signal(number)
            eventually([place.with_name(f"{name}.saved") for name in names])
        said, warned = benchmark.communicate(timeout=30)
    finally:
        benchmark.kill()
        benchmark.communicate()
    for name in names:
        with pytest.raises(ProcessLookupError):
            os.kill(int(place.with_name(f"{name}.pid").read_text()), 0)
    assert benchmark.returncode == 128 + signals[0]
    why = f"stopped: {signals[0].name} came"
    assert said.endswith(f"late: {why}\none: {why}\ntwo: {why}\n")
    assert warned.startswith(f"{signals[0].name}: the commands that run are asked to stop, and waited for")
    assert not place.with_name("late.pid").exists()


@pytest.mark.parametrize("how", ["willing", "stubborn"])
def test_when_the_time_is_up_a_command_is_asked_to_stop_and_ended_if_it_does_not(
    bench: Bench, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = pretend(tmp_path)
    monkeypatch.setattr(runs, "PATIENCE", 0.5)
    bench.environment["PYTHONPATH"] = str(tmp_path)
    bench.deadline = time.monotonic() + 3
    with pytest.raises(Stopped, match="the time was up"):
        bench.regard("one", how)
    assert place.with_name("one.saved").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(place.with_name("one.pid").read_text()), 0)
    with pytest.raises(Stopped, match="the time was up"):
        bench.regard("two", how)
    assert not place.with_name("two.pid").exists()
