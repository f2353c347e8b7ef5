"""The layer types that Table 1 of Attention Is All You Need compares, made of Regard's layers.

Shapes: B rows, T tokens, D model, H heads, E head size, N blocks, K keys.

Each type says two things: what the whole layer computes, and what it computes at once, in one *operation* that does
not wait for another. For most types that is the same; a recurrent layer needs an operation for each token.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from regard.batch import Places
from regard.layers.attention import Attention, KeyValue
from regard.layers.convolution import CausalConvolution
from regard.layers.mask import Mask
from regard.layers.recurrent import Hidden, RecurrentLayer

HEADS = 8
KERNEL = 3  # the paper's k
NEIGHBOURHOOD = 33  # the paper's r: a token, and as many on each side of it as REACH
REACH = (NEIGHBOURHOOD - 1) // 2


class LayerType(nn.Module, ABC):
    """One row of the table, with what the paper says of it."""

    name: ClassVar[str]
    complexity: ClassVar[str]
    sequential: ClassVar[str] = "O(1)"
    path: ClassVar[str]
    power: ClassVar[int] = 1
    """The exponent of n in the complexity."""

    @abstractmethod
    def forward(self, x_BTD: Tensor) -> Tensor:
        """The whole layer, [B, T, D] → [B, T, D]."""

    def operation(self, x_BTD: Tensor, _states_BTD: Tensor) -> Tensor:
        """What the layer computes at once, from its input and from what the operation before gave."""
        return self(x_BTD)


class SelfAttention(LayerType):
    """Every token attends to all; with a `window`, a mask takes the far ones away."""

    name, complexity, path, power = "self-attention", "O(n²·d)", "O(1)", 2

    def __init__(self, width: int, _height: int = 0, window: int | None = None) -> None:
        super().__init__()
        self.attention, self.mask = _attention(width), Mask(window=window)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """[B, T, D] → [B, T, D]."""
        places = Places.whole(x_BTD[:, :, 0])
        return self.attention(x_BTD, self.attention.keys_values(x_BTD), self.mask.visible(places, places))


class Recurrent(LayerType):
    """h_t = tanh(W·x_t + U·h_(t-1) + b), the simplest cell."""

    name, complexity, sequential, path = "recurrent", "O(n·d²)", "O(n)", "O(n)"

    def __init__(self, width: int, _height: int = 0) -> None:
        super().__init__()
        self.layer = RecurrentLayer("rnn", width, width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """[B, T, D] → [B, T, D], token by token."""
        states_BTD, _ = self.layer(x_BTD, self.layer.zero(x_BTD.shape[0]))
        return states_BTD

    def operation(self, x_BTD: Tensor, states_BTD: Tensor) -> Tensor:
        """One step at every place: the state of each token from its input and from the state to its left."""
        left_BTD = F.pad(states_BTD, (0, 0, 1, -1))
        after, _ = self.layer(x_BTD.flatten(0, 1)[:, None], Hidden(left_BTD.flatten(0, 1)))
        return after[:, 0].view_as(x_BTD)


class Convolutional(LayerType):
    """Each token reads itself and those just before it."""

    name, complexity, path = "convolutional, contiguous", "O(k·n·d²)", "O(n/k)"

    def __init__(self, width: int, _height: int = 0, dilation: int = 1) -> None:
        super().__init__()
        self.convolution = CausalConvolution(width, width, KERNEL, dilation)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """[B, T, D] → [B, T, D]."""
        y_BTD, _ = self.convolution(x_BTD, Places.whole(x_BTD[:, :, 0]))
        return y_BTD


class DilatedConvolutional(Convolutional):
    """The same with gaps that grow from layer to layer: 1, k, k², …"""

    name, path = "convolutional, dilated", "O(log_k n)"

    def __init__(self, width: int, height: int = 0) -> None:
        super().__init__(width, dilation=KERNEL**height)


class Restricted(LayerType):
    """Every token attends to its neighbourhood, computed block by block: what is far away is never looked at.

    A block of REACH queries needs the keys of its own block and of the blocks to its left and right. Blocks are
    rows to the attention, and positions tell the mask who is near.
    """

    name, complexity, path = "self-attention (restricted)", "O(r·n·d)", "O(n/r)"

    def __init__(self, width: int, _height: int = 0) -> None:
        super().__init__()
        self.attention = _attention(width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """[B, T, D] → [B, T, D]."""
        rows, length, width = x_BTD.shape
        missing = -length % REACH
        kv = self.attention.keys_values(x_BTD)
        near = KeyValue(_neighbours(kv.keys_BHKE, missing), _neighbours(kv.values_BHKE, missing))
        queries = F.pad(x_BTD, (0, 0, 0, missing)).view(-1, REACH, width)
        visible = Mask(window=REACH + 1).visible(*_block_places(x_BTD, missing))
        return self.attention(queries, near, visible).view(rows, -1, width)[:, :length]


class Masked(SelfAttention):
    """Restricted by a mask alone, as a model with a `window` runs it: all scores are computed, most are hidden."""

    name = "restricted by a mask"

    def __init__(self, width: int, _height: int = 0) -> None:
        super().__init__(width, window=REACH + 1)


def _attention(width: int) -> Attention:
    return Attention(width, HEADS, width // HEADS, width // HEADS)


def _neighbours(kept_BHTE: Tensor, missing: int) -> Tensor:
    """For each block what stands in it and in the blocks beside it, [B·N, H, 3·REACH, E]."""
    padded = F.pad(kept_BHTE, (0, 0, REACH, REACH + missing))
    windows_BHNEK = padded.unfold(2, 3 * REACH, REACH)
    return windows_BHNEK.permute(0, 2, 1, 4, 3).flatten(0, 1)


def _block_places(x_BTD: Tensor, missing: int) -> tuple[Places, Places]:
    """Where the queries and the keys of each block stand; places before the start and after the end are padding."""
    whole = Places.whole(x_BTD[:, :, 0])
    positions_BT = F.pad(whole.positions_BT, (REACH, REACH + missing), value=-1)
    segments_BT = F.pad(whole.segments_or_ones(), (REACH, REACH + missing))
    keys = [each.unfold(1, 3 * REACH, REACH).flatten(0, 1) for each in (positions_BT, segments_BT)]
    queries = [each[:, REACH : 2 * REACH] for each in keys]
    return Places(queries[0], queries[1]), Places(keys[0], keys[1])


TABLE: tuple[type[LayerType], ...] = (SelfAttention, Recurrent, Convolutional, DilatedConvolutional, Restricted)
TIMED: tuple[type[LayerType], ...] = (SelfAttention, Recurrent, Convolutional, Restricted, Masked)
