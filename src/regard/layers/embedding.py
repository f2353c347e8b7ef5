"""Tokens to vectors (Attention Is All You Need, section 3.4).

Shapes: B rows, T tokens, D model, V vocabulary.
"""

from __future__ import annotations

import math

from torch import Tensor, nn

from regard.batch import Tokens
from regard.layers.positions import SinusoidalPositions


class Embedding(nn.Module):
    """Dropout(E[ids]·√d_model + positions): what enters the first layer.

    The matrix `weight_VD` may be shared by encoder, decoder and the output projection, as the paper does.
    """

    def __init__(self, vocabulary: int, d_model: int, dropout: float) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, d_model)
        self.positions = SinusoidalPositions(d_model)
        self.dropout = nn.Dropout(dropout)
        # Scaled up again by √d_model on the way in, and used as it is on the way out to the softmax.
        nn.init.normal_(self.table.weight, std=d_model**-0.5)
        self.scale = math.sqrt(d_model)

    @property
    def weight_VD(self) -> Tensor:
        """The embedding matrix."""
        return self.table.weight

    def forward(self, tokens: Tokens) -> Tensor:
        """[B, T] ids → [B, T, D]."""
        x_BTD = self.table(tokens.ids_BT) * self.scale
        return self.dropout(x_BTD + self.positions(tokens.places.positions_BT))
