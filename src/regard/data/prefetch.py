"""The next batches in the background, in order."""

from __future__ import annotations

from itertools import count

import torch

from regard.batch import Batch
from regard.data.ahead import Ahead
from regard.data.batching import Batches

__all__ = ["Ahead", "Prefetch"]


class Prefetch(Ahead[Batch]):
    """Batches from step `first` on, on `device`, made while the device is busy with the ones before."""

    def __init__(
        self, batches: Batches, first: int, device: torch.device | str, rank: int = 0, ranks: int = 1, depth: int = 4
    ) -> None:
        self._device = torch.device(device)
        super().__init__((batches.share(step, rank, ranks) for step in count(first)), depth)

    def __next__(self) -> Batch:
        batch = super().__next__()
        # Only from pinned memory does a copy to the GPU run beside its work. Pinned here and not by the other thread,
        # for which the first GPU is the current one, whichever this program has chosen.
        return (batch.pinned() if self._device.type == "cuda" else batch).to(self._device)
