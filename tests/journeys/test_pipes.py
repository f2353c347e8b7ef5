"""The command line between other programs: readers that leave, languages that are not UTF-8, several processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.tiny import ENGLISH, GERMAN, write_lines

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
