"""Tokens to vectors (Attention Is All You Need, section 3.4).

Shapes: B rows, T tokens, D model, V vocabulary.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from regard.batch import Tokens
from regard.layers.dropout import Dropout, TokenCut
from regard.layers.positions import LearnedPositions, PositionKind, SinusoidalPositions, unknown_positions


class Embedding(nn.Module):
    """Dropout(E[ids]·√d_model + positions): what enters the first layer.

    The matrix `weight_VD` may be shared by encoder, decoder and the output projection, as the paper does.
    Positions that work inside attention (rotary, relative, alibi, relative-waves) add nothing here.
    """

    def __init__(
        self,
        vocabulary: int,
        d_model: int,
        dropout: float,
        positions: PositionKind = "sinusoidal",
        max_positions: int = 1024,
        scaled: bool = True,
    ) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, d_model)
        self.positions: nn.Module | None = None
        if positions == "sinusoidal":
            self.positions = SinusoidalPositions(d_model)
        elif positions == "learned":
            self.positions = LearnedPositions(max_positions, d_model)
        elif positions not in ("rotary", "relative", "alibi", "relative-waves"):
            raise unknown_positions(positions)
        self.cut = TokenCut()
        self.dropout = Dropout(dropout)
        # Scaled up again by √d_model on the way in, and used as it is on the way out to the softmax.
        nn.init.normal_(self.table.weight, std=d_model**-0.5)
        self.scale = math.sqrt(d_model) if scaled else 1.0

    @property
    def weight_VD(self) -> Tensor:
        """The embedding matrix."""
        return self.table.weight

    def forward(self, tokens: Tokens) -> Tensor:
        """[B, T] ids → [B, T, D]."""
        x_BTD = self.cut(self.table(tokens.ids_BT) * self.scale)
        if self.positions is not None:
            x_BTD = x_BTD + self.positions(tokens.places.positions_BT).to(x_BTD.dtype)
        device = x_BTD.device.type
        # `meta` has shapes and no numbers; torch refuses to be asked about their precision.
        if device != "meta" and torch.is_autocast_enabled(device):
            x_BTD = x_BTD.to(torch.get_autocast_dtype(device))  # the residual stream keeps this precision
        return self.dropout(x_BTD)
