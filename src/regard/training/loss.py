"""Masked cross entropy with label smoothing (Attention Is All You Need, section 5.4; Szegedy et al. 2016).

Shapes: B rows, T tokens, N tokens of all rows, M of a piece, D model, V vocabulary, W vocabulary rounded up.

    q(k)  = (1 - ε)·[k = label] + ε / V
    loss  = -Σ_k q(k)·log p(k),   zero where there is no label

With x the scores and p = softmax(x), the gradient is d loss / d x = p - q. `total_loss` uses that: it works through
the tokens piece by piece, turns each piece's scores into their gradient where they stand, multiplies that into the
gradients of features and matrix, and forgets it. The scores of a whole batch (25,000 tokens × 37,000 words) are never
there at once, and none are kept for the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.batch import IGNORED
from regard.machine import KERNELS
from regard.models.interface import Criterion

PIECE = {"cuda": 2**29, "cpu": 2**24}  # scores in memory at a time
CACHED = 2**18  # scores a CPU works on at a time


def smoothed_cross_entropy(smoothing: float) -> Criterion:
    """The criterion with ε = `smoothing`; 0 gives the plain negative log-likelihood."""

    def criterion(project: Callable[[Tensor], Tensor], features_BTD: Tensor, labels_BT: Tensor) -> Tensor:
        logits_NV = project(features_BTD).float().flatten(0, 1)
        losses_N = F.cross_entropy(
            logits_NV, labels_BT.flatten(), ignore_index=IGNORED, label_smoothing=smoothing, reduction="none"
        )
        return losses_N.view(labels_BT.shape)

    return criterion


def total_loss(
    features_BTD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, labels_BT: Tensor, smoothing: float
) -> Tensor:
    """The sum of all losses, [], where the scores are features · weightᵀ + bias; made to be trained on."""
    if torch.is_autocast_enabled(features_BTD.device.type):
        features_BTD = features_BTD.to(torch.get_autocast_dtype(features_BTD.device.type))
    features_ND, labels_N = features_BTD.flatten(0, 1), labels_BT.flatten()
    return _TotalLoss.apply(features_ND, weight_VD, bias_V, labels_N, smoothing)  # type: ignore[no-untyped-call]


@torch.no_grad()
def total_likelihood(features_BTD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, labels_BT: Tensor) -> Tensor:
    """The negative log-likelihood of all labels, [], in fp64; piece by piece as well, for validation."""
    features_ND, labels_N = features_BTD.flatten(0, 1), labels_BT.flatten()
    rows = max(1, PIECE["cuda" if features_ND.is_cuda else "cpu"] // len(weight_VD))
    total = features_ND.new_zeros((), dtype=torch.float64)
    for first in range(0, len(features_ND), rows):
        scores = F.linear(features_ND[first : first + rows], weight_VD, bias_V).float()
        labels = labels_N[first : first + rows]
        total += F.cross_entropy(scores, labels, ignore_index=IGNORED, reduction="none").double().sum()
    return total


class _TotalLoss(torch.autograd.Function):
    """The loss and its gradients in one go; the backward pass has only to scale them."""

    @staticmethod
    def forward(
        ctx: Any, features_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, labels_N: Tensor, smoothing: float
    ) -> Tensor:
        tokens, vocabulary = len(features_ND), len(weight_VD)
        # Rows of an odd length are read and multiplied many times slower on a GPU: there they are made even.
        width = -(-vocabulary // 64) * 64 if features_ND.is_cuda else vocabulary
        rows = max(1, PIECE["cuda" if features_ND.is_cuda else "cpu"] // vocabulary)
        losses = []
        d_features_ND = torch.empty_like(features_ND)
        # The matrix is read in the features' precision; its gradient is summed up in its own.
        d_weight_VD = torch.zeros_like(weight_VD)
        d_bias_V = None if bias_V is None else torch.zeros_like(bias_V)
        matrix_WD = F.pad(weight_VD.to(features_ND.dtype), (0, 0, 0, width - vocabulary))
        bias_W = None if bias_V is None else F.pad(bias_V.to(features_ND.dtype), (0, width - vocabulary))
        with torch.autocast(features_ND.device.type, enabled=False):
            for first in range(0, tokens, rows):
                piece = slice(first, first + rows)
                scores_MW = F.linear(features_ND[piece], matrix_WD, bias_W)
                losses.append(scores_to_gradient(scores_MW, labels_N[piece], smoothing, vocabulary))
                torch.mm(scores_MW, matrix_WD, out=d_features_ND[piece])
                d_weight_VD += (scores_MW.T @ features_ND[piece])[:vocabulary]
                if d_bias_V is not None:
                    d_bias_V += scores_MW[:, :vocabulary].sum(dim=0, dtype=torch.float32)
        kept = [d_features_ND, d_weight_VD] if d_bias_V is None else [d_features_ND, d_weight_VD, d_bias_V]
        ctx.save_for_backward(*kept)
        return torch.cat(losses).sum() if losses else features_ND.new_zeros((), dtype=torch.float32)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        d_features_ND, d_weight_VD, *d_bias = ctx.saved_tensors
        d_bias_V = d_bias[0] * gradient if d_bias else None
        return (d_features_ND * gradient).to(d_features_ND.dtype), d_weight_VD * gradient, d_bias_V, None, None


def scores_to_gradient(scores_NW: Tensor, labels_N: Tensor, smoothing: float, vocabulary: int) -> Tensor:
    """The loss of each token, [N], in fp32; `scores_NW` become d loss / d scores, in place, beyond V zeros."""
    if scores_NW.is_cuda and KERNELS:
        from regard.training.kernels import scores_to_gradient as on_gpu

        return on_gpu(scores_NW, labels_N, smoothing, vocabulary)
    # A few rows at a time, so that they stay in the processor's cache from the first pass over them to the last.
    rows = max(1, CACHED // vocabulary)
    scores_NW[:, vocabulary:] = 0
    pieces = zip(scores_NW[:, :vocabulary].split(rows), labels_N.split(rows), strict=True)
    return torch.cat([_scores_to_gradient(scores, labels, smoothing) for scores, labels in pieces])


def _scores_to_gradient(scores_MV: Tensor, labels_M: Tensor, smoothing: float) -> Tensor:
    has_label_M = labels_M != IGNORED
    labels_M1 = labels_M.clamp(min=0)[:, None]
    scores_MV -= scores_MV.amax(dim=1, keepdim=True)
    picked_M = scores_MV.gather(1, labels_M1)[:, 0].float()
    mean_M = scores_MV.mean(dim=1, dtype=torch.float32)
    scores_MV.exp_()
    sums_M = scores_MV.sum(dim=1, dtype=torch.float32)
    losses_M = sums_M.log() - (1 - smoothing) * picked_M - smoothing * mean_M
    scores_MV *= torch.where(has_label_M, 1 / sums_M, 0.0)[:, None]
    scores_MV -= torch.where(has_label_M, smoothing / scores_MV.shape[1], 0.0)[:, None]
    scores_MV.scatter_add_(1, labels_M1, torch.where(has_label_M, smoothing - 1, 0.0)[:, None].to(scores_MV.dtype))
    return torch.where(has_label_M, losses_M, 0.0)
