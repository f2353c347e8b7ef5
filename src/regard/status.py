"""One status line on a terminal, plain lines elsewhere; always on stderr, so that results stay alone on stdout."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

PAUSE_ON_TERMINAL = 0.1
PAUSE_ELSEWHERE = 10.0
CLEAR = "\r\x1b[2K"


class StatusLine:
    """A line that is rewritten in place on a terminal, or repeated now and then in a log file."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._next = time.monotonic() + (PAUSE_ON_TERMINAL if self._terminal else PAUSE_ELSEWHERE)
        self._line = ""

    def show(self, line: Callable[[], str], now: bool = False) -> None:
        """Show `line()` if enough time has passed, or `now`."""
        if not now and time.monotonic() < self._next:
            return
        self._next = time.monotonic() + (PAUSE_ON_TERMINAL if self._terminal else PAUSE_ELSEWHERE)
        self._line = line()
        if self._terminal:
            self._stream.write(CLEAR + self._line)
            self._stream.flush()
        else:
            print(self._line, file=self._stream, flush=True)

    def say(self, line: str) -> None:
        """Print a line that stays, above the status line."""
        if self._terminal:
            print(CLEAR + line, file=self._stream)
            self._stream.write(self._line)
            self._stream.flush()
        else:
            print(line, file=self._stream, flush=True)

    def close(self) -> None:
        """Leave the last status where it is and go on below it."""
        if self._terminal and self._line:
            print(file=self._stream)
            self._line = ""


def clock(seconds: float) -> str:
    """A duration as 1:02:03 or 2:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
