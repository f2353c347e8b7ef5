"""A network on a device with little memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch


def tight(patch: pytest.MonkeyPatch, network: Any, most: int) -> list[int]:
    """Let a network read no more than so many rows at a time; gives the numbers of rows that it was asked to read."""
    tried: list[int] = []

    def refuse(rows: int) -> None:
        tried.append(rows)
        if rows > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    features, start, forward = (getattr(network, name, None) for name in ("features", "start", "forward"))

    def limited_features(batch: Any) -> Any:
        refuse(len(batch.labels_BT))
        return features(batch)  # type: ignore[misc]

    def limited_start(source: Any, rows: int) -> Any:
        refuse(rows)
        return start(source, rows)  # type: ignore[misc]

    def limited_forward(read: Any) -> Any:
        if hasattr(read, "ids_BT"):
            refuse(len(read.ids_BT))
        return forward(read)  # type: ignore[misc]

    patch.setattr(network, "forward", limited_forward)
    if features is not None and start is not None:
        patch.setattr(network, "features", limited_features)
        patch.setattr(network, "start", limited_start)
    return tried
