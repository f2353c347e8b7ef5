"""Masked cross entropy with label smoothing (Attention Is All You Need, section 5.4; Szegedy et al. 2016).

Shapes: B rows, T tokens, D model, V vocabulary.

    q(k)  = (1 - ε)·[k = label] + ε / V
    loss  = -Σ_k q(k)·log p(k),   zero where there is no label
"""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from regard.batch import IGNORED
from regard.models.interface import Criterion


def smoothed_cross_entropy(smoothing: float) -> Criterion:
    """The criterion with ε = `smoothing`; 0 gives the plain negative log-likelihood."""

    def criterion(project: Callable[[Tensor], Tensor], features_BTD: Tensor, labels_BT: Tensor) -> Tensor:
        logits_BVT = project(features_BTD).float().transpose(1, 2)
        return F.cross_entropy(logits_BVT, labels_BT, ignore_index=IGNORED, label_smoothing=smoothing, reduction="none")

    return criterion
