"""The one kernel torch has not: scores to their gradient in place, each read twice and written once.

Shapes: N tokens, V vocabulary, W vocabulary rounded up to a length that is quick to read.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.batch import IGNORED


@triton.jit
def _row(scores, labels, losses, width, vocabulary, smoothing, ignored: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """One token: the largest score and the sum of exponentials on the way there, the gradient on the way back."""
    row = tl.program_id(0).to(tl.int64)
    scores += row * width
    label = tl.load(labels + row)
    places = tl.arange(0, block)
    if label == ignored:
        for first in range(0, width, block):
            tl.store(scores + first + places, 0.0, mask=first + places < width)
        tl.store(losses + row, 0.0)
    else:
        top = -float("inf")
        total = 0.0
        plain = 0.0
        for first in range(0, vocabulary, block):
            # A mask that ends at an odd place makes every load a narrow one: read on, and forget the rest.
            inside = first + places < vocabulary
            x = tl.load(scores + first + places, mask=first + places < width, other=0.0).to(tl.float32)
            x = tl.where(inside, x, -float("inf"))
            highest = tl.maximum(top, tl.max(x))
            total = total * tl.exp(top - highest) + tl.sum(tl.exp(x - highest))
            plain += tl.sum(tl.where(inside, x, 0.0))
            top = highest
        normaliser = top + tl.log(total)
        picked = tl.load(scores + label).to(tl.float32)
        loss = normaliser - (1 - smoothing) * picked - smoothing * plain / vocabulary
        tl.store(losses + row, loss)
        for first in range(0, width, block):
            inside = first + places < vocabulary
            x = tl.load(scores + first + places, mask=first + places < width, other=0.0).to(tl.float32)
            gradient = tl.exp(x - normaliser) - smoothing / vocabulary
            gradient = tl.where(first + places == label, gradient - (1 - smoothing), gradient)
            gradient = tl.where(inside, gradient, 0.0)
            tl.store(scores + first + places, gradient, mask=first + places < width)


def scores_to_gradient(scores_NW: Tensor, labels_N: Tensor, smoothing: float, vocabulary: int) -> Tensor:
    """The loss of each token, [N], in fp32; `scores_NW` become d loss / d scores, in place, beyond V zeros."""
    tokens, width = scores_NW.shape
    losses_N = torch.empty(tokens, dtype=torch.float32, device=scores_NW.device)
    block = min(8_192, triton.next_power_of_2(width))
    _row[(tokens,)](scores_NW, labels_N, losses_N, width, vocabulary, smoothing, IGNORED, block, num_warps=8)
    return losses_N
