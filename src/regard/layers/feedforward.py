"""The position-wise feed-forward network (Attention Is All You Need, section 3.3).

Shapes: B rows, T tokens, D model, F feed-forward.

    relu, gelu, swish   FFN(x) = act(x·W_1 + b_1)·W_2 + b_2
    relu2               the same with act(x) = max(0, x)²                            (So et al. 2021)
    swiglu              FFN(x) = (silu(x·W_g + b_g) ⊙ (x·W_1 + b_1))·W_2 + b_2       (Shazeer 2020)
"""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

Activation = Literal["relu", "relu2", "gelu", "gelu-tanh", "swish", "swiglu"]


class FeedForward(nn.Module):
    """Two linear maps with a non-linearity between, applied to every position alike."""

    def __init__(self, d_model: int, d_ff: int, activation: Activation = "relu") -> None:
        super().__init__()
        self.activation = activation
        self.inner = nn.Linear(d_model, 2 * d_ff if activation == "swiglu" else d_ff)
        self.outer = nn.Linear(d_ff, d_model)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """[B, T, D] → [B, T, D]."""
        return self.outer(activate(self.inner(x_BTD), self.activation))


def activate(x_BTF: Tensor, activation: Activation) -> Tensor:
    """The non-linearity; `swiglu` multiplies the two halves of the last dimension and so halves it."""
    match activation:
        case "relu":
            return F.relu(x_BTF)
        case "relu2":
            return F.relu(x_BTF).square()
        case "gelu":
            return F.gelu(x_BTF)
        case "gelu-tanh":
            return F.gelu(x_BTF, approximate="tanh")
        case "swish":
            return F.silu(x_BTF)
        case "swiglu":
            gate, value = x_BTF.chunk(2, dim=-1)
            return F.silu(gate) * value
