"""What is read in windows is answered as soon as the input pauses, and is the same however it comes in."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import windows
from regard.cli.reading import opened
from regard.data.formats import line_lists
from regard.data.streams import more_of
from tests.tiny import ENGLISH, GERMAN

REGARD = [sys.executable, "-m", "regard"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@given(st.lists(st.lists(st.text("ab"), max_size=9), max_size=9), st.integers(1, 5), st.lists(st.booleans()))
def test_windows_hold_all_lines_in_order(lists: list[list[str]], size: int, pauses: list[bool]) -> None:
    pausing = iter(pauses)
    found = list(windows.windows(lists, lambda _: not next(pausing, False), size))
    lines = [line for some in lists for line in some]
    assert [line for window in found for line in window] == lines
    assert all(0 < len(window) <= size for window in found)
    if not any(pauses):
        assert all(len(window) == size for window in found[:-1])


def test_a_pause_ends_a_window_and_patience_does_not_begin_again_with_every_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[float]()

    def more(seconds: float) -> bool:
        asked.append(seconds)
        return len(asked) % 3 != 0

    now = iter(range(1_000))
    monkeypatch.setattr(windows, "PATIENCE", 2.5)
    monkeypatch.setattr("regard.windows.time", SimpleNamespace(monotonic=lambda: next(now)))
    assert list(windows.windows([["a"], ["b"], [], ["c"]], more)) == [["a", "b"], ["c"]]
    assert asked == [1.5, 0.5, 0.0, 1.5]


@pytest.fixture
def pipe() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    read, write = os.pipe()
    with os.fdopen(read, "rb") as reader, os.fdopen(write, "wb", buffering=0) as writer:
        yield reader, cast(BinaryIO, writer)


def test_a_line_that_is_not_whole_keeps_none_waiting(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    reader, writer = pipe
    found = windows.windows(line_lists(reader, "pipe"), more_of(reader))
    for written, expected in (
        (b"one\ntwo\nthr", ["one", "two"]),
        (b"ee\n", ["three"]),
        ("é\n".encode() + b"\xc3", ["é"]),
    ):
        writer.write(written)
        assert next(found) == expected
    writer.write(b"\xa9")
    writer.write(b"x")  # no line ends in it
    threading.Timer(0.2, writer.write, [b"\nlast"]).start()
    assert next(found) == ["éx"]
    writer.close()
    assert list(found) == [["last"]]


def test_what_comes_without_a_pause_shares_the_work(
    pipe: tuple[BinaryIO, BinaryIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "PATIENCE", 60.0)  # the machine may be busy
    reader, writer = pipe
    lines = [str(number) for number in range(50_000)]  # more than a pipe holds

    def write() -> None:
        with writer:
            writer.write("".join(f"{line}\n" for line in lines).encode())

    thread = threading.Thread(target=write)
    thread.start()
    found = list(windows.windows(line_lists(reader, "pipe"), more_of(reader), 10_000))
    thread.join()
    assert [len(window) for window in found] == [10_000] * 5
    assert [line for window in found for line in window] == lines


def test_a_stream_that_is_no_file_is_read_to_its_end() -> None:
    stream = BytesIO(b"a\nb\nc\n")
    assert more_of(stream)(0.0)
    assert list(windows.windows(line_lists(stream, "memory"), more_of(stream), 2)) == [["a", "b"], ["c"]]


def test_a_named_pipe_is_answered_like_stdin_but_full_windows_wait(tmp_path: Path) -> None:
    for full, expected in ((False, [["a"], ["b"]]), (True, [["a", "b"]])):
        place = tmp_path / f"pipe-{full}"
        os.mkfifo(place)

        def write(place: Path = place) -> None:
            with place.open("wb", buffering=0) as stream:
                stream.write(b"a\n")
                time.sleep(10 * windows.PATIENCE)
                stream.write(b"b\n")

        thread = threading.Thread(target=write)
        thread.start()
        with opened(str(place), full=full) as (found, size):
            assert (list(found), size) == (expected, None)
        thread.join()


def test_a_program_that_asks_line_by_line_is_answered_line_by_line(words_model: Path) -> None:
    asked = subprocess.Popen(
        [*REGARD, "translate", str(words_model)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT,
    )  # fmt: skip
    assert asked.stdin is not None
    assert asked.stdout is not None
    for word, expected in zip(ENGLISH, GERMAN, strict=True):
        asked.stdin.write(f"{word}\n".encode())
        asked.stdin.flush()
        assert asked.stdout.readline().decode() == f"{expected}\n"  # would wait for ever
    rest, complaints = asked.communicate(timeout=60)
    assert (asked.returncode, rest, complaints) == (0, b"", b"")


def test_whoever_is_to_type_is_told_how_and_answered_line_by_line(words_model: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*REGARD, "translate", str(words_model)],
        stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT,
    ) as typed:  # fmt: skip
        os.close(theirs)
        assert typed.stdout is not None
        assert typed.stderr is not None
        assert typed.stderr.readline() == b"Type a line and press Enter; Ctrl-D ends.\n"
        for word, expected in zip(ENGLISH[:2], GERMAN, strict=False):
            os.write(ours, f"{word}\n".encode())
            assert typed.stdout.readline().decode() == f"{expected}\n"
        os.write(ours, b"\x04")
        assert typed.stdout.read() == b""
    os.close(ours)
    assert typed.returncode == 0
