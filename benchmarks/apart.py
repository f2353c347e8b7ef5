"""Each competitor in a process of its own.

Two libraries in one process get into each other's way: once CTranslate2 had worked, torch in the same process stayed
slower, at rest or not. So each is made and works by itself, and waits, asleep, while it is another's turn.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
REST = 0.25  # seconds: the threads of whoever worked last spin for a while, at the next one's cost


class Apart(Generic[P, T]):
    """A function that `make(*arguments)` gives, living in another process; both must be known to pickle by name."""

    def __init__(self, make: Callable[..., Callable[P, T]], *arguments: object) -> None:
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self._process = context.Process(target=_work, args=(there, make, arguments), daemon=True)
        self._process.start()
        there.close()
        self._ready = False

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> tuple[float, float, T]:
        """What the function gives, and before that the seconds it took: by the clock, and of the processor."""
        if not self._ready:  # the first word is that it stands
            self._hear()
            self._ready = True
        time.sleep(REST)
        return self._hear((arguments, named))  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join()

    def _hear(self, asked: object = None) -> Any:
        try:
            if asked is not None:
                self._here.send(asked)
            return self._here.recv()
        except (BrokenPipeError, EOFError):
            raise RuntimeError("a competitor's process ended; its message stands above") from None


def _work(pipe: Connection, make: Callable[..., Callable[..., object]], arguments: tuple[object, ...]) -> None:
    function = make(*arguments)
    pipe.send(None)
    while True:
        given, named = pipe.recv()
        begin, worked = time.perf_counter(), time.process_time()
        found = function(*given, **named)
        pipe.send((time.perf_counter() - begin, time.process_time() - worked, found))
