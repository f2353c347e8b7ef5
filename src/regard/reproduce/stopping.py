"""Signals that ask to stop, where there is nothing to be saved first: whatever is being done ends at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


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

    before: dict[int, Any] = {}
    try:
        for number in (int(signal.SIGINT), int(signal.SIGTERM)):
            before[number] = signal.signal(number, stop)
    except ValueError:  # not the main thread: signals are somebody else's business there
        pass
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
