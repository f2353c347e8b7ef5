"""Whole training steps, recorded once for each shape of batch and played back.

A step of the base model is some 700 kernels of 40 microseconds each. A host that also prepares batches can hardly start
them that fast; played back, they are one call. Nothing in a step may then depend on the host: batch, the share of
the loss that is each label's, learning rate and noise lie in places that are filled before each step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.batch import Batch

FIRST_STEPS = 3  # of a shape, made as usual: compilers and libraries choose their kernels in them
MANY = 4  # shapes: each recording keeps the memory of a whole step

Results = tuple[Tensor, ...]
Step = Callable[[Batch, Tensor], Results]
Shape = tuple[torch.Size, torch.Size | None]


@dataclass(frozen=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    batch: Batch
    results: Results


class StepGraphs:
    """Makes steps by playing back recordings of `step(batch, share)`, which must do all its work on the GPU."""

    def __init__(self, step: Step, device: torch.device) -> None:
        self._step = step
        self._share = torch.ones((), device=device)
        self._made: dict[Shape, int] = {}
        self._recordings: dict[Shape, _Recording] = {}

    def run(self, batch: Batch, share: float) -> Results:
        """Make a step; `share` is what each label counts in the loss. The next step of this shape overwrites the
        results."""
        self._share.fill_(share)
        shape = batch.target.ids_BT.shape, None if batch.source is None else batch.source.ids_BT.shape
        self._made[shape] = self._made.get(shape, 0) + 1
        if self._made[shape] <= FIRST_STEPS:
            return self._step(batch, self._share)
        if shape not in self._recordings:
            self._recordings[shape] = self._record(batch)
        recording = self._recordings[shape]
        for place, value in zip(_tensors(recording.batch), _tensors(batch), strict=True):
            place.copy_(value)
        recording.graph.replay()
        return recording.results

    def _record(self, batch: Batch) -> _Recording:
        own = batch.map(lambda x: x.clone(memory_format=torch.contiguous_format))
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = self._step(own, self._share)
        return _Recording(graph, own, results)


def _tensors(batch: Batch) -> list[Tensor]:
    sides = [side for side in (batch.source, batch.target) if side is not None]
    found = [tensor for side in sides for tensor in (side.ids_BT, side.places.positions_BT, side.places.segments_BT)]
    return [tensor for tensor in (*found, batch.labels_BT, batch.order_BT) if tensor is not None]
