"""The status line: rewritten in place on a terminal, plain lines elsewhere, never on stdout."""

from __future__ import annotations

import io

import pytest

from regard.status import CLEAR, PAUSE_ELSEWHERE, PAUSE_ON_TERMINAL, StatusLine, clock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock, to be turned by hand."""
    now = [100.0]
    monkeypatch.setattr("regard.status.time.monotonic", lambda: now[0])
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
