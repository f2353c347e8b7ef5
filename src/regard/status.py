"""One status line on a terminal, plain lines elsewhere; always on stderr, so that results stay alone on stdout."""

from __future__ import annotations

import os
import sys
import time
import unicodedata
from collections.abc import Callable
from typing import TextIO

PAUSE_ON_TERMINAL = 0.1
PAUSE_ELSEWHERE = 10.0
CLEAR = "\r\x1b[2K"
WIDTH_ELSEWHERE = 120  # columns of what is not a terminal, or does not say


class StatusLine:
    """A line that is rewritten in place on a terminal, or repeated now and then in a log file."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._next = time.monotonic() + (PAUSE_ON_TERMINAL if self._terminal else PAUSE_ELSEWHERE)
        self._line = ""

    @property
    def width(self) -> int:
        """How many columns a line may have; a window may change its size at any time."""
        if self._terminal:
            try:
                return os.get_terminal_size(self._stream.fileno()).columns or WIDTH_ELSEWHERE
            except (OSError, ValueError):
                pass
        return WIDTH_ELSEWHERE

    def show(self, line: Callable[[], str], now: bool = False) -> None:
        """Show `line()` if enough time has passed, or `now`."""
        if not now and time.monotonic() < self._next:
            return
        self._next = time.monotonic() + (PAUSE_ON_TERMINAL if self._terminal else PAUSE_ELSEWHERE)
        self._line = line()
        if self._terminal:
            # A line that wraps cannot be rewritten in place; the last column is left to the cursor.
            self._line = cut(self._line, self.width - 1)
            self._write(CLEAR + self._line)
        else:
            self._write(f"{self._line}\n")

    def say(self, line: str) -> None:
        """Print a line that stays, above the status line."""
        self._write(f"{CLEAR}{line}\n{self._line}" if self._terminal else f"{line}\n")

    def clear(self) -> None:
        """Take the status away: what others print on this terminal begins a line of its own."""
        if self._terminal and self._line:
            self._write(CLEAR)
            self._line = ""

    def close(self) -> None:
        """Leave the last status where it is and go on below it."""
        if self._terminal and self._line:
            self._write("\n")
            self._line = ""

    def _write(self, text: str) -> None:
        """Show it, if anybody is there to see: hours of work must not end because a window or `| head` was closed."""
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            # What comes after it, from others too, goes nowhere; or Python would complain at its end.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


def clock(seconds: float) -> str:
    """A duration as 1:02:03 or 2:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def cut(text: str, columns: int) -> str:
    """As much of a text as has room in so many columns of a terminal, with … where something is missing."""
    # Chinese characters take two columns, combining accents none.
    widths = [0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
              for char in text]  # fmt: skip
    if sum(widths) <= columns:
        return text
    room, kept = columns - 1, 0
    while kept < len(text) and widths[kept] <= room:
        room -= widths[kept]
        kept += 1
    return text[:kept] + "…" if columns > 0 else ""
