"""Items that another thread makes while this one is busy, in order."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from queue import Empty, Queue
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """An iterator that another thread is ahead of by at most `depth` items.

    Order and content are those of `items`. What it raises is raised here, in its place. Close it, or use it in a `with`
    block: the thread then stops after the item it is at.
    """

    def __init__(self, items: Iterable[T], depth: int) -> None:
        self._ready: Queue[tuple[T] | BaseException] = Queue(depth)
        self._stop = threading.Event()
        self._over = False
        self._thread = threading.Thread(target=_run, args=(iter(items), self._ready, self._stop), daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._over:
            raise StopIteration
        found = self._ready.get()
        if isinstance(found, BaseException):
            self.close()
            raise found
        return found[0]

    def __enter__(self) -> Ahead[T]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop the thread and wait for it."""
        self._over = True
        self._stop.set()
        # It may be waiting for room. Once it gets some it sees the sign, and puts nothing more.
        while True:
            try:
                self._ready.get_nowait()
            except Empty:
                break
        self._thread.join()


def _run(items: Iterator[T], ready: Queue[tuple[T] | BaseException], stop: threading.Event) -> None:
    """The other thread's work."""
    last: BaseException = StopIteration()
    try:
        for item in items:
            if stop.is_set():
                return
            ready.put((item,))
    except BaseException as error:  # whatever it is, it belongs to the one who waits for the item
        last = error
    if not stop.is_set():
        ready.put(last)
