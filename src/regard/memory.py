"""A device's memory: what things take of it, and how work goes on that does not fit into it at once.

Who shares a GPU with others, or has a small one, cannot know how much fits. `Halves` finds out: work that runs out of
memory is done again, on half as many things at a time. All at once is tried again after a few batches, since others
may have left the device. Each try makes the wait for the next one twice as long, until many batches in a row have
fitted at once.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from threading import Lock
from typing import Protocol, TypeVar
from weakref import WeakSet

import torch
from torch import Tensor

from regard.errors import DataError, RegardError

T = TypeVar("T")
R = TypeVar("R")

SOON = 4  # batches in parts: then all at once is tried again
LATE = 100  # batches before a try at most, however many were too soon
ADVICE = (
    "See whether others use the device (nvidia-smi), compute with `--precision bf16`, or on the CPU, by setting "
    "CUDA_VISIBLE_DEVICES to nothing."
)
_WORDS = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "can't allocate memory")
_KEEPERS: WeakSet[Keeper] = WeakSet()
_LOCK = Lock()  # of them: each model of a server has a thread of its own


class NoRoomError(DataError):
    """Something does not fit into a device's memory, not even by itself."""

    def __init__(self, place: str, size: str, fix: str = ADVICE) -> None:
        super().__init__(f"{place}: must fit into the memory of the device, but does not, even alone ({size}). {fix}")


def ran_out(error: BaseException) -> bool:
    """Whether memory ran out; torch has an exception for it, its libraries and other engines have only words."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _WORDS)


def recording_ran_out(error: BaseException) -> bool:
    """Whether memory ran out in a recording; that it broke off may be said after why it did."""
    return ran_out(error) or (error.__context__ is not None and ran_out(error.__context__))


class Keeper(Protocol):
    """Whoever keeps memory only to be faster the next time."""

    def forget(self) -> None:
        """Let go of what is not in use; any thread may ask."""
        ...


def keeps(keeper: Keeper) -> None:
    """Let `release` know of it, for as long as it lives."""
    with _LOCK:
        _KEEPERS.add(keeper)


def release() -> None:
    """Give back what nobody uses at the moment, so that it can be had in other pieces, or by others."""
    with _LOCK:
        keepers = list(_KEEPERS)
    for keeper in keepers:
        keeper.forget()
    gc.collect()
    torch.cuda.empty_cache()  # where there is no GPU, this does nothing


def made(make: Callable[[], R], let_go: Callable[[], None] = lambda: None) -> R:
    """What `make` makes. Where there is no room for it, all that nobody uses makes room, and what `let_go` lets go of.

    The second is for whoever keeps things and cannot be asked to forget them, being at work.
    """
    try:
        return make()
    except RuntimeError as error:
        if not ran_out(error):
            raise
    let_go()
    release()
    return make()


def within_reach(device: torch.device) -> int:
    """Bytes of a GPU that this process has, or could have now; the rest is with others."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device)


def weight(value: object) -> int:
    """The bytes of all tensors in a value made of dataclasses, lists and the like, each piece of memory once."""
    pieces: dict[tuple[str, int], int] = {}
    _weigh(value, pieces)
    return sum(pieces.values())


def _weigh(value: object, pieces: dict[tuple[str, int], int]) -> None:
    if isinstance(value, Tensor):
        storage = value.untyped_storage()
        pieces[str(value.device), storage.data_ptr()] = storage.nbytes()
    elif is_dataclass(value):
        for each in fields(value):
            _weigh(getattr(value, each.name), pieces)
    elif isinstance(value, Mapping):
        for part in value.values():
            _weigh(part, pieces)
    elif isinstance(value, list | tuple):
        for part in value:
            _weigh(part, pieces)


class Halves:
    """Work that is done in as many parts as memory needs; it keeps in mind how many those are.

    Only for work that gives the same for each thing in any company, and leaves nothing behind where it fails.
    """

    def __init__(self) -> None:
        self.parts = 1
        self._fitted = 0  # batches since the number of parts changed
        self._wait = SOON  # batches until the next try

    def each(
        self,
        things: Sequence[T],
        work: Callable[[Sequence[T]], Iterable[R]],
        alone: Callable[[T], RegardError],
    ) -> list[R]:
        """One result a thing, in their order; `alone` gives what to raise for a thing that does not fit by itself."""
        found = self.in_parts(len(things), lambda part: list(work(things[part])), lambda place: alone(things[place]))
        return [result for results in found for result in results]

    def in_parts(self, count: int, work: Callable[[slice], R], alone: Callable[[int], RegardError]) -> list[R]:
        """One result a part of `count` things, in their order."""
        results: list[R] = []
        done = 0
        while done < count:
            part = slice(done, min(count, done + self._size(count)))
            try:
                results.append(work(part))
                done = part.stop
                continue
            except (RuntimeError, MemoryError) as error:
                if not ran_out(error):
                    raise
            # Outside of the handler, whose traceback holds on to what did not fit.
            release()
            if part.stop - done > 1:
                self._more(count, part.stop - done)
            elif (last := self._once_more(work, part)) is None:
                raise alone(done)
            else:
                results += last
                done = part.stop
        self._count()
        return results

    def _size(self, count: int) -> int:
        return -(-count // self.parts)

    def _more(self, count: int, failed: int) -> None:
        """Twice as many parts, or as many as it takes for them to be smaller than the one that failed."""
        while self._size(count) >= failed:
            self.parts *= 2
        self._fitted = 0

    @staticmethod
    def _once_more(work: Callable[[slice], R], part: slice) -> list[R] | None:
        """The result of what cannot be smaller, now that all is released that can be; None if it still does not fit."""
        try:
            return [work(part)]
        except (RuntimeError, MemoryError) as error:
            if not ran_out(error):
                raise
        return None

    def _count(self) -> None:
        self._fitted += 1
        if self.parts > 1 and self._fitted >= self._wait:
            self.parts, self._fitted, self._wait = 1, 0, min(2 * self._wait, LATE)
        elif self.parts == 1 and self._fitted >= LATE:  # the shortage is over, and the next one will be another
            self._wait = SOON
