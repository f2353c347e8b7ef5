"""The status line: rewritten in place on a terminal, plain lines elsewhere, never on stdout."""

from __future__ import annotations

import io
import os
import sys
import unicodedata
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.cli import main
from regard.status import CLEAR, PAUSE_ELSEWHERE, PAUSE_ON_TERMINAL, WIDTH_ELSEWHERE, StatusLine, clock, cut
from tests.tiny import ENGLISH, GERMAN, regard, write_lines


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock, to be turned by hand."""
    now = [100.0]
    # This module's clock alone: with everybody's, a server in a thread of this process would sleep for hours.
    monkeypatch.setattr("regard.status.time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_elsewhere_a_line_now_and_then_without_control_codes(time: list[float]) -> None:
    stream = io.StringIO()
    line = StatusLine(stream)
    line.show(lambda: "too early")
    time[0] += PAUSE_ELSEWHERE
    line.show(lambda: "first")
    line.show(lambda: "again too early")
    line.say("a line that stays")
    line.show(lambda: "asked for", now=True)
    line.close()
    assert stream.getvalue() == "first\na line that stays\nasked for\n"


def test_on_a_terminal_the_line_is_rewritten_and_what_is_said_stays_above(time: list[float]) -> None:
    stream = Terminal()
    line = StatusLine(stream)
    time[0] += PAUSE_ON_TERMINAL
    line.show(lambda: "1 of 2")
    line.say("half")
    line.show(lambda: "2 of 2", now=True)
    line.close()
    line.close()
    assert stream.getvalue() == f"{CLEAR}1 of 2{CLEAR}half\n1 of 2{CLEAR}2 of 2\n"


def test_a_line_that_is_not_shown_is_not_even_made(time: list[float]) -> None:
    def expensive() -> str:
        raise AssertionError("made for nothing")

    StatusLine(io.StringIO()).show(expensive)


def test_closing_a_line_that_never_was_prints_nothing(time: list[float]) -> None:
    stream = Terminal()
    StatusLine(stream).close()
    assert stream.getvalue() == ""


def test_the_default_is_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    StatusLine().say("hello")
    out, err = capsys.readouterr()
    assert (out, err) == ("", "hello\n")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (0.4, "0:00"), (59.6, "1:00"), (61, "1:01"), (3599.7, "1:00:00"), (3723, "1:02:03")],
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_a_status_never_wraps_and_follows_the_window(monkeypatch: pytest.MonkeyPatch, time: list[float]) -> None:
    class Window(Terminal):
        def fileno(self) -> int:
            return 2

    columns = [12]
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((columns[0], 24)))
    stream = Window()
    line = StatusLine(stream)
    line.show(lambda: "0123456789abcdef", now=True)
    columns[0] = 40
    line.show(lambda: "0123456789abcdef", now=True)
    assert stream.getvalue() == f"{CLEAR}0123456789…{CLEAR}0123456789abcdef"
    assert line.width == 40


def test_what_is_no_terminal_is_not_cut(time: list[float]) -> None:
    stream = io.StringIO()
    line = StatusLine(stream)
    line.show(lambda: "x" * 500, now=True)
    assert stream.getvalue() == "x" * 500 + "\n"
    assert line.width == StatusLine(Terminal()).width == WIDTH_ELSEWHERE


@given(st.text(max_size=30), st.integers(0, 20))
def test_a_cut_text_fits_and_begins_like_the_whole(text: str, columns: int) -> None:
    def width(part: str) -> int:
        wide = [2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in part]
        return sum(wide) - sum(wide[place] for place, char in enumerate(part) if unicodedata.combining(char))

    found = cut(text, columns)
    assert width(found) <= columns
    if width(text) <= columns:
        assert found == text
    else:
        assert text.startswith(found.removesuffix("…"))


def test_wide_characters_count_twice() -> None:
    assert cut("日本語日本語", 7) == "日本語…"
    assert cut("日本語日本語", 6) == "日本…"


def test_a_reader_who_leaves_does_not_end_the_work() -> None:
    read, write = os.pipe()
    stream = os.fdopen(write, "w")
    line = StatusLine(stream)
    line.say("somebody reads this")
    assert os.read(read, 100) == b"somebody reads this\n"
    os.close(read)
    line.say("nobody")
    line.show(lambda: "nobody", now=True)
    print("what others write goes nowhere, too", file=stream, flush=True)
    line.close()
    stream.close()  # nothing is left in it to complain about


def test_a_status_that_is_cleared_leaves_the_line_to_others() -> None:
    stream = Terminal()
    status = StatusLine(stream)
    status.clear()
    status.show(lambda: "half", now=True)
    status.clear()
    status.close()
    assert stream.getvalue() == f"{CLEAR}half{CLEAR}"


class Screen(io.TextIOWrapper):
    """A terminal that shows results and progress alike."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("command", ["translate", "score", "align"])
def test_results_between_two_looks_at_the_progress_begin_lines_of_their_own(
    command: str, words_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for window in ("windows.WINDOW", "cli.scoring.SCORED_AT_A_TIME", "cli.scoring.ALIGNED_AT_A_TIME"):
        monkeypatch.setattr(f"regard.{window}", 2)
    monkeypatch.setattr("regard.status.PAUSE_ON_TERMINAL", 0.0)
    files = [write_lines(tmp_path / "a.en", ENGLISH[:6])]
    files += [write_lines(tmp_path / "a.de", GERMAN[:6])] * (command != "translate")
    expected = regard(command, words_model, *files).out
    screen = Screen(io.BytesIO(), encoding="utf-8", write_through=True)
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, screen)
    monkeypatch.setattr(sys, "argv", ["regard", command, str(words_model), *map(str, files)])
    with suppress(SystemExit):
        main()
    assert isinstance(screen.buffer, io.BytesIO)
    shown = screen.buffer.getvalue().decode()
    left = [line.rpartition(CLEAR)[2] for line in shown.split("\n")]  # what is to be seen of each line at the end
    beside = ("Aligned by attention", "6 lines  ")
    assert [line for line in left if line and not line.startswith(beside)] == expected.splitlines()
    assert shown.count("lines/s") >= 3
