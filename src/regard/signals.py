"""Signals that ask to stop: noted by whoever has something to save first, and raised where there is nothing to save."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

NUMBERS = (int(signal.SIGINT), int(signal.SIGTERM))

Handler = Callable[[int, FrameType | None], None]


class Stopped(BaseException):
    """A signal came. It is no mistake, and nothing on the way may take it for one."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


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
    """Let `handler` have both signals; `before` is told who had them, by their numbers."""
    try:
        for number in NUMBERS:
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
