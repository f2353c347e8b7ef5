"""Telling a model where a token stands (Attention Is All You Need, section 3.5).

Shapes: B rows, T tokens, D model.

    PE(pos, 2i)     = sin(pos / 10000^(2i / d_model))
    PE(pos, 2i + 1) = cos(pos / 10000^(2i / d_model))
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class SinusoidalPositions(nn.Module):
    """The paper's fixed waves. They have no length limit: they are computed, not looked up."""

    frequencies_D: Tensor

    def __init__(self, d_model: int) -> None:
        super().__init__()
        even = torch.arange(0, d_model, 2, dtype=torch.float64)
        frequencies = torch.exp(-math.log(10_000.0) * even / d_model).float()
        self.register_buffer("frequencies_D", frequencies, persistent=False)
        self.d_model = d_model

    def forward(self, positions_BT: Tensor) -> Tensor:
        """The waves at `positions_BT`: [B, T, D], sines at even and cosines at odd places."""
        angles_BTD = positions_BT[..., None].float() * self.frequencies_D
        waves_BTD = torch.stack([angles_BTD.sin(), angles_BTD.cos()], dim=-1).flatten(-2)
        return waves_BTD[..., : self.d_model]
