"""The next batches in the background, in order, and counted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import torch

from regard.batch import IGNORED, PADDING_SEGMENT, Batch, Tokens
from regard.data.ahead import Ahead
from regard.data.batching import Batches


class Portion(NamedTuple):
    """What one process reads in one step, counted where it was made: to count on a GPU is to wait for it."""

    batch: Batch
    tokens: int
    """Tokens of both sides that are not padding."""
    slots: int
    """Places for tokens, padding included."""
    labels: int


class Prefetch(Ahead[Portion]):
    """Batches from step `first` on, on `device`, made while the device is busy with the ones before; they never end."""

    def __init__(
        self, batches: Batches, first: int, device: torch.device | str, rank: int = 0, ranks: int = 1, depth: int = 4
    ) -> None:
        self._device = torch.device(device)
        super().__init__(_portions(batches, first, rank, ranks), depth)

    def __next__(self) -> Portion:
        portion = super().__next__()
        # Only from pinned memory does a copy to the GPU run beside its work. Pinned here and not by the other thread,
        # for which the first GPU is the current one, whichever this program has chosen.
        batch = portion.batch.pinned() if self._device.type == "cuda" else portion.batch
        return portion._replace(batch=batch.to(self._device))


def _portions(batches: Batches, first: int, rank: int, ranks: int) -> Iterator[Portion]:
    for step in count(first):
        batch = batches.share(step, rank, ranks)
        sides = [side for side in (batch.source, batch.target) if side is not None]
        yield Portion(
            batch,
            tokens=sum(real_tokens(side) for side in sides),
            slots=sum(side.ids_BT.numel() for side in sides),
            labels=int((batch.labels_BT != IGNORED).sum()),
        )


def real_tokens(tokens: Tokens) -> int:
    """How many are not padding."""
    return int((tokens.places.segments_or_ones() != PADDING_SEGMENT).sum())
