"""The position-wise feed-forward network (Attention Is All You Need, section 3.3).

Shapes: B rows, T tokens, D model, F feed-forward.

    FFN(x) = max(0, x·W_1 + b_1)·W_2 + b_2
"""

from __future__ import annotations

from torch import Tensor, nn


class FeedForward(nn.Module):
    """Two linear maps with a ReLU between, applied to every position alike."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """[B, T, D] → [B, T, D]."""
        return self.outer(self.inner(x_BTD).relu())
