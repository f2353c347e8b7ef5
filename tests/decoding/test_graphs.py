"""Recordings on a GPU: `regard.decoding.graphs`."""

from __future__ import annotations

from collections.abc import Hashable

import pytest
import torch

from regard.decoding.graphs import GraphPool, Recorded


class _Adds:
    """Adds to a number on the device, with more memory on the way than it keeps."""

    def __init__(self, device: torch.device, pool: GraphPool) -> None:
        self.number = torch.zeros(1, device=device)
        self.recorded = Recorded(self._add, device, pool)

    def _add(self, key: Hashable) -> None:
        assert isinstance(key, int)
        self.number += torch.full((1024, 1024), float(key), device=self.number.device).mean()


def _check(device: torch.device) -> None:
    pool = GraphPool()
    for _ in range(3):  # each time the recordings before it are gone
        adds = _Adds(device, pool)
        for key in (1, 1, 1, 2, 2, 2):
            adds.recorded(key)
        assert adds.number.item() == 9.0
        del adds


def test_without_a_gpu_the_work_is_simply_done() -> None:
    _check(torch.device("cpu"))


@pytest.mark.gpu
def test_a_pool_whose_recordings_are_all_gone_is_recorded_into_again() -> None:
    _check(torch.device("cuda"))
