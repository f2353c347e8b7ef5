"""BPE-dropout by several processes: the same tokens in the same order, whatever happens to the processes."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.data.generated import Pair
from regard.errors import DataError
from regard.text import cutters
from regard.text.cutters import Columns, Work, cut_in_order, free_cores
from regard.text.dropout import MergeDropout
from regard.text.tokenizer import Tokenizer, TokenizerSettings

DRAW = random.Random(5)
WORDS = ["".join(DRAW.choice("abcde") for _ in range(DRAW.randint(1, 9))) for _ in range(80)]
LINES = [" ".join(DRAW.choices(WORDS, k=6)) for _ in range(240)]
CHUNKS = [[LINES[first : first + 20], LINES[first + 20 : first + 40], ["de"] * 20] for first in range(0, 240, 40)]
SHARED = Tokenizer.learn(LINES, TokenizerSettings(vocabulary=200))
OWN = Tokenizer.learn_pair(
    [Pair(one, two) for one, two in zip(LINES[:120], LINES[120:], strict=True)],
    TokenizerSettings(vocabulary=60, shared=False),
)


def three(tokenizer: Tokenizer) -> list[MergeDropout]:
    return [tokenizer.with_dropout(0.2, 1, number) for number in range(3)]


def plain(cuts: list[MergeDropout]) -> list[list[list[list[list[int]]]]]:
    """For each chunk and each cut the tokens of each side, as one after another gives them."""
    return [[[cut.source.encode_all(chunk[0]), cut.encode_all(chunk[1])] for cut in cuts] for chunk in CHUNKS]


def found(cuts: list[MergeDropout], processes: int) -> list[list[list[list[list[int]]]]]:
    cut = list(cut_in_order(iter(CHUNKS), cuts, processes))
    assert [chunk for chunk, _ in cut] == CHUNKS
    return [[[side.lists() for side in sides] for sides in rows] for _, rows in cut]


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are started after the first chunk."""
    monkeypatch.setattr(cutters, "ALONE", 1)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The processes that were started."""
    seen: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def note(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
        seen.append(start(*arguments, **options))  # type: ignore[call-overload]
        return seen[-1]

    monkeypatch.setattr(subprocess, "Popen", note)
    return seen


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("tokenizer", [SHARED, OWN], ids=["shared", "own"])
def test_processes_cut_what_one_alone_cuts(
    tokenizer: Tokenizer, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    cuts, here, do = three(tokenizer), list[Columns](), Work.do
    monkeypatch.setattr(Work, "do", lambda work, columns: here.append(columns) or do(work, columns))
    assert found(cuts, processes=2) == plain(cuts)
    assert here == [CHUNKS[0][:2]]
    assert len(started) == 2
    assert all(process.poll() is not None for process in started)


@pytest.mark.usefixtures("soon")
def test_texts_of_one_side(started: list[subprocess.Popen[bytes]]) -> None:
    cuts = three(SHARED)
    rows = [rows for _, rows in cut_in_order([[LINES[:10]], [LINES[10:20]]], cuts, 2)]
    assert [[sides[0].lists() for sides in one] for one in rows] == [
        [cut.encode_all(LINES[first : first + 10]) for cut in cuts] for first in (0, 10)
    ]
    assert len(started) == 2


def test_few_chunks_or_one_core_start_none(started: list[subprocess.Popen[bytes]]) -> None:
    cuts = three(SHARED)
    assert len(list(cut_in_order(CHUNKS[:4], cuts, 2))) == 4
    assert found(cuts, processes=1) == plain(cuts)
    assert list(cut_in_order([], cuts, 2)) == []
    assert not started


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("program", ["/bin/false", "/no/such/python"])
def test_without_processes_it_is_cut_here(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They end at once, or cannot be started."""
    monkeypatch.setattr(sys, "executable", program)
    cuts = three(SHARED)
    assert found(cuts, processes=2) == plain(cuts)


@pytest.mark.usefixtures("soon")
def test_one_that_is_ended_is_replaced_by_this_process(started: list[subprocess.Popen[bytes]]) -> None:
    cuts, rows = three(SHARED), []
    for _, row in cut_in_order(CHUNKS, cuts, 2):
        rows.append([[side.lists() for side in sides] for sides in row])
        for process in started:
            process.kill()
    assert rows == plain(cuts)


@pytest.mark.usefixtures("soon")
def test_a_fault_in_the_text_is_told_here() -> None:
    chunks = [[["fine"], ["fine"]], [["fine", "so\udcff"], ["fine", "fine"]]]
    with pytest.raises(DataError, match="text 2: must be Unicode"):
        list(cut_in_order(chunks, three(SHARED), 2))


@pytest.mark.usefixtures("soon")
def test_whoever_stops_halfway_leaves_no_process(started: list[subprocess.Popen[bytes]]) -> None:
    def endless() -> Iterator[list[list[str]]]:
        while True:
            yield CHUNKS[0]

    cut = cut_in_order(endless(), three(SHARED), 2)
    for _ in range(4):
        next(cut)
    cut.close()
    assert len(started) == 2
    assert all(process.poll() is not None for process in started)


KILLED = """
import os, subprocess
from regard.text import cutters
from regard.text.tokenizer import Tokenizer, TokenizerSettings

def told(*arguments, start=subprocess.Popen, **options):
    process = start(*arguments, **options)
    print(process.pid, flush=True)
    return process

subprocess.Popen, cutters.ALONE = told, 1
cuts = [Tokenizer.learn(["a b"], TokenizerSettings(vocabulary=8)).with_dropout(0.1, 1)]
cut = cutters.cut_in_order(iter([[["a"]]] * 99), cuts, 2)
next(cut), next(cut)
os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks Linux which processes run")
def test_they_end_with_whoever_started_them() -> None:
    """Even if it was killed, and could tell them nothing."""
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=120, check=False)
    numbers = done.stdout.split()
    assert len(numbers) == 2, done.stderr
    until = time.monotonic() + 30
    while time.monotonic() < until and any(map(_runs, numbers)):
        time.sleep(0.05)
    assert not any(map(_runs, numbers))


def _runs(number: str) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_they_hold_no_torch() -> None:
    program = f"import {cutters.__name__}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_cores_of_a_machine_are_shared_by_a_team(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert free_cores() == 8
    for members, cores in (("4", 2), ("16", 1), ("", 8)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", members)
        assert free_cores() == cores
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(200)))
    assert free_cores() == cutters.MOST
