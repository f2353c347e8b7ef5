"""Work that is recorded once and replayed: on a GPU a decoding step is hundreds of kernels, each launched by Python.

Launching them takes longer than running them. A CUDA graph launches them all at once. It repeats the same kernels on
the same memory, so what is recorded must neither make memory that others keep nor look at values on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any
from weakref import WeakMethod, WeakSet

import torch

from regard.memory import recording_ran_out, release


class GraphPool:
    """The memory that recordings share. When none of them is left the next one begins a new piece.

    Torch does not let anyone record into a piece whose recordings are all gone.
    """

    def __init__(self) -> None:
        self._graphs: WeakSet[torch.cuda.CUDAGraph] = WeakSet()
        self._name: Any = None  # how torch names the piece

    def name(self) -> Any:
        """The piece of memory to record into."""
        if not self._graphs:
            self._name = torch.cuda.graph_pool_handle()
        return self._name

    def keep(self, graph: torch.cuda.CUDAGraph) -> None:
        """Take note of a recording: while there is one, the piece is used again."""
        self._graphs.add(graph)


class Recorded:
    """A method of a key that works in place, recorded on its second call with a key, and replayed from then on.

    On devices without graphs it is simply called. The first call with a key is a usual one too: libraries set
    themselves up in it, and a key that never comes again is not worth a recording. Recordings of one `pool` share the
    memory of what they compute on the way, so they must not run at the same time. Where there is no room for one,
    the work is done as usual from then on.

    Whoever has the method has this, which does not hold on to its owner: the two would keep each other, and gigabytes
    with them, until Python's collector comes by.
    """

    def __init__(self, method: Callable[[Hashable], None], device: torch.device, pool: GraphPool) -> None:
        self._method, self._device, self._pool = WeakMethod(method), device, pool
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph | None] = {}
        self._records = device.type == "cuda"

    def __call__(self, key: Hashable) -> None:
        """Do the work."""
        graph = self._graphs.get(key)
        if graph is None and self._records and key in self._graphs:
            graph = self._record(key)
        self._graphs[key] = graph
        if graph is None:
            self._work(key)
        else:
            graph.replay()

    def _work(self, key: Hashable) -> None:
        method = self._method()
        assert method is not None  # whoever calls this has its owner
        method(key)

    def _record(self, key: Hashable) -> torch.cuda.CUDAGraph | None:
        """A recording of the work, which is not done by it; None where there is no room for one."""
        graph = torch.cuda.CUDAGraph()
        recording = torch.cuda.graph(graph, pool=self._pool.name(), capture_error_mode="thread_local")
        try:
            with torch.cuda.device(self._device), recording:
                self._work(key)
            self._pool.keep(graph)
            return graph
        except RuntimeError as error:
            if not recording_ran_out(error):
                raise
        self._records = False
        del graph, recording
        release()
        return None


class LateNumber:
    """A number on the device that the host looks at one round late, so that neither waits for the other.

    Good for numbers that only fall, such as how many sentences are not done: late is then merely late.
    """

    def __init__(self, device: torch.device) -> None:
        self._gpu = device.type == "cuda"
        self._seen = torch.zeros(2, dtype=torch.long, pin_memory=self._gpu)
        self._events = [torch.cuda.Event(), torch.cuda.Event()] if self._gpu else []
        self._round = 0

    def look(self, number_1: torch.Tensor, first: int) -> int:
        """The number as it was in the round before; `first` in the first round."""
        place = self._round % 2
        self._round += 1
        if not self._gpu:
            return int(number_1)
        self._seen[place : place + 1].copy_(number_1, non_blocking=True)
        self._events[place].record()
        if self._round == 1:
            return first
        self._events[1 - place].synchronize()
        return int(self._seen[1 - place])


def batch_size(rows: int) -> int:
    """The next of 1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 384, 512, …: few sizes, so that recordings are used again."""
    size = 1
    while size < rows:
        size *= 2
    return size * 3 // 4 if size >= 256 and rows <= size * 3 // 4 else size


def next_size(length: int, step: int) -> int:
    """The next multiple of `step`; beyond four of them of twice as large a step, and so on."""
    while length > 4 * step:
        step *= 2
    return -(-length // step) * step
