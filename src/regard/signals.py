"""Signals that ask to stop: noted by whoever has something to save first, and raised where there is nothing to save.

While Python imports, Ctrl-C is not raised either, but ends the process: what is raised there may get lost.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

NUMBERS = (int(signal.SIGINT), int(signal.SIGTERM))

Handler = Callable[[int, FrameType | None], None]


class Stopped(BaseException):
    """A signal came. It is no mistake, and nothing on the way may take it for one."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def leave_imports_quietly() -> None:
    """Let Ctrl-C end the process at once while it imports, which takes seconds; elsewhere it does what it always does.

    A `KeyboardInterrupt` is not enough there: of those that come while torch is imported, some are lost in its C code.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a job in the background may ignore it
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(_number: int, frame: FrameType | None) -> NoReturn:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            begin = "\n" if os.isatty(2) else ""  # a terminal shows ^C first
            with suppress(OSError):  # nobody reads it
                os.write(2, f"{begin}regard: stopped by SIGINT before its end.\n".encode())
            os._exit(128 + signal.SIGINT)
        frame = frame.f_back
    raise KeyboardInterrupt


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise `Stopped` where SIGINT or SIGTERM finds us; training, which saves first, has its own way meanwhile."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise Stopped(signal.Signals(number).name)

    with _handled_by(stop, {}):
        yield


@contextmanager
def noted() -> Iterator[list[str]]:
    """The names of the signals that have come, instead of dying of them; a second one does what it did before."""
    received: list[str] = []
    before: dict[int, Any] = {}

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(signal.Signals(number).name)
        _put_back(before)

    with _handled_by(note, before):
        yield received


@contextmanager
def _handled_by(handler: Handler, before: dict[int, Any]) -> Iterator[None]:
    """Let `handler` have both signals; `before` is told who had them, by their numbers.

    Who started us may have had one ignored, as shells do with Ctrl-C for jobs in the background: it stays so. And one
    that was not handled from Python (None) could not be given back.
    """
    try:
        for number in NUMBERS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, handler)
    except ValueError:  # not the main thread: signals are somebody else's business there
        pass
    try:
        yield
    finally:
        _put_back(before)


def _put_back(before: dict[int, Any]) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)
