"""The command line between other programs: readers that leave, languages that are not UTF-8, several processes."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from regard import settings
from tests.tiny import ENGLISH, GERMAN, word_recipe, write_lines

REGARD = [sys.executable, "-m", "regard"]


def test_a_reader_that_leaves_ends_it_quietly(words_model: Path, tmp_path: Path) -> None:
    # More than a pipe holds, so that the writer notices: as in `regard translate … | head -1`.
    text = write_lines(tmp_path / "text.en", ENGLISH * 2_000)
    writer = subprocess.Popen(
        [*REGARD, "translate", str(words_model), str(text), "--beam", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # What a terminal believes to be its language is no reason to fail, or to write anything but UTF-8.
        env={**os.environ, "PYTHONIOENCODING": "ascii", "OMP_NUM_THREADS": "1"},
    )
    assert writer.stdout is not None
    assert writer.stderr is not None
    lines = [writer.stdout.readline().decode("utf-8") for _ in range(13)]
    writer.stdout.close()
    complaints = writer.stderr.read().decode()
    writer.stderr.close()
    assert lines == [f"{word}\n" for word in GERMAN]
    assert writer.wait(timeout=60) == 141
    assert "Error" not in complaints
    assert "cannot be read" not in complaints


def test_a_short_answer_to_nobody_is_no_complaint() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*REGARD, "--version"], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert done.returncode == 141
    assert done.stderr == b""


def test_several_processes_write_one_file_in_order(words_model: Path, tmp_path: Path) -> None:
    # More than a window, so that the second process has something to do.
    text, out = write_lines(tmp_path / "text.en", ENGLISH * 160), tmp_path / "text.de"
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    # What torchrun sets.
    meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    line = [*REGARD, "translate", str(words_model), str(text), "--beam", "1", "--out", str(out)]
    ranks = [
        subprocess.Popen(line, env={**os.environ, **meeting, "RANK": str(rank), "LOCAL_RANK": str(rank)}, stderr=-1)
        for rank in range(2)
    ]
    complaints = [process.communicate(timeout=120)[1] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], complaints
    assert out.read_text(encoding="utf-8").split("\n") == [*GERMAN * 160, ""]
    assert sorted(file.name for file in tmp_path.iterdir()) == [".text.de.done", "text.de", "text.en"]


def test_a_run_goes_on_when_nobody_looks_at_it_any_more(tmp_path: Path) -> None:
    recipe = tmp_path / "words.toml"
    recipe.write_text(settings.to_toml(word_recipe(tmp_path)), encoding="utf-8")
    out = tmp_path / "model"
    run = subprocess.Popen(
        [*REGARD, "train", str(recipe), "--out", str(out), "training.steps=20", "training.validate_every=10"],
        stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert run.stderr is not None
    assert run.stderr.readline()
    run.stderr.close()
    assert run.wait(timeout=120) == 0
    assert (out / "manifest.json").is_file()


def closing(streams: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """What `regard ARGUMENTS` does where some of its streams were closed before it began."""
    line = shlex.join([*REGARD, *map(str, arguments)])
    return subprocess.run(["sh", "-c", f"{line} {streams}"], input="one\n", capture_output=True, text=True, check=False)


def test_whoever_closes_stderr_wants_to_be_told_nothing() -> None:
    done = closing("2>&-", "inspect", "tiny", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)


@pytest.mark.parametrize("command", ["--version", "--help", "inspect tiny"])
def test_a_result_that_can_go_nowhere_is_a_failure(command: str) -> None:
    done = closing(">&-", *command.split())
    assert done.returncode == 66
    assert done.stderr.startswith("regard: stdout: must be open for what is printed, but is closed. Send it to a file ")
    assert done.stderr.count("\n") == 1
    done = closing(">&- 2>&-", *command.split())
    assert (done.returncode, done.stderr) == (66, "")


LONG = {
    "evaluate": ("evaluate", "{model}", "{text}", "{text}", "--out", "{out}"),
    "compare": ("compare", "{out}", "{out}", "{out}"),
    "export": ("export", "{model}", "{out}", "--to", "regard"),
    "import": ("import", "{model}", "{out}"),
    "check": ("reproduce", "five-minutes", "--check", "{model}"),
}


@pytest.mark.parametrize("command", LONG)
def test_work_whose_result_nobody_would_see_is_not_begun(command: str, words_model: Path, tmp_path: Path) -> None:
    text, out = words_model.parent / "words.en", tmp_path / "out"
    line = [part.format(model=words_model, text=text, out=out) for part in LONG[command]]
    done = closing(">&-", *line)
    assert (done.returncode, done.stderr.count("\n")) == (66, 1)
    assert done.stderr.startswith("regard: stdout: must be open for what is printed, but is closed. Send it to a file ")
    read, write = os.pipe()
    os.close(read)
    gone = subprocess.run([*REGARD, *line], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (gone.returncode, gone.stderr) == (141, b"")
    assert not any(tmp_path.iterdir())


def test_who_writes_a_file_needs_no_standard_output(words_model: Path, tmp_path: Path) -> None:
    done = closing(">&-", "translate", words_model, "--out", tmp_path / "text.de")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "text.de").read_text(encoding="utf-8") == "eins\n"


def test_a_standard_input_that_was_closed_is_named(words_model: Path, tmp_path: Path) -> None:
    done = closing("<&-", "translate", words_model, "--out", tmp_path / "text.de")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("regard: stdin: must be open to be read from, but is closed. ")
    assert not any(tmp_path.iterdir())
