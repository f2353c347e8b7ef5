"""The encoder of Deep-Att: two columns of recurrent layers that turn around from layer to layer (Zhou et al. 2016, 3).

Shapes: B rows, S source tokens, X size of a layer's input, D model.

    third layer    →      ←
    second layer   ←      →         each column knows both sides of a word from the second layer on,
    first layer    →      ←         and reads each of them through every other layer
                 column  column

Side by side, the columns are as wide as the model: each has d_model / 2 units.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from regard.layers.recurrent import Hidden, RecurrentLayer, StackSizes, links_of, reverse_rows


class Column(nn.Module):
    """Layers one above the other, every other one from right to left; with `turned` those with even numbers are."""

    def __init__(self, sizes: StackSizes, keep_cells: bool, turned: bool) -> None:
        super().__init__()
        self.keep_cells, self.turned = keep_cells, turned
        self.layers = nn.ModuleList(RecurrentLayer(sizes.cell, x, sizes.d_model) for x in sizes.d_inputs())
        self.links = links_of(sizes)
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, x_BSX: Tensor, lengths_B: Tensor | None) -> tuple[Tensor, list[Hidden]]:
        """The top layer's states, [B, S, D], and the state of every layer after the last token that it reads."""
        ends: list[Hidden] = []
        x_BSX = reverse_rows(x_BSX, lengths_B) if self.turned else x_BSX
        for layer, link in zip(self.layers, self.links, strict=True):
            if ends:  # each layer reads against the one below
                x_BSX = reverse_rows(x_BSX, lengths_B)
            x_BSX = self.dropout(x_BSX)
            assert isinstance(layer, RecurrentLayer)
            y_BSX, end = layer.read(x_BSX, lengths_B, self.keep_cells)
            x_BSX = link(x_BSX, y_BSX)
            ends.append(end)
        backwards = self.turned == (len(ends) % 2 == 1)
        return reverse_rows(x_BSX, lengths_B) if backwards else x_BSX, ends


class InterleavedEncoder(nn.Module):
    """Two columns, which begin in opposite directions and meet only above their last layers."""

    def __init__(self, sizes: StackSizes, keep_cells: bool) -> None:
        super().__init__()
        half = replace(sizes, d_model=sizes.d_model // 2)
        self.columns = nn.ModuleList(Column(half, keep_cells, turned) for turned in (False, True))

    def forward(
        self, x_BSX: Tensor, lengths_B: Tensor | None, real_BS: Tensor | None = None
    ) -> tuple[Tensor, tuple[Hidden, ...]]:
        """Both columns' states side by side, [B, S, D], and the state of every layer at the end of its reading.

        `real_BS` is for experts, and there are none here.
        """
        (left_BSX, left), (right_BSX, right) = (column(x_BSX, lengths_B) for column in self.columns)
        ends = tuple(one.beside(other) for one, other in zip(left, right, strict=True))
        return torch.cat([left_BSX, right_BSX], dim=-1), ends
