"""Convolutions over time: each position reads itself and a few neighbours at fixed distances.

Shapes: B rows, T tokens, P past tokens kept, C channels in, D channels out.

    y_t = b + Σ_j W_j · x_{t + o_j},      W = [W_1 … W_k],  k the kernel's width, r its dilation

    causal    o = -(k-1)·r, …, -r, 0                  (WaveNet, ByteNet's decoder, ConvS2S's decoder)
    centred   o = -(k-1)/2·r, …, 0, …, (k-1)/2·r      (the encoders: the whole source may be seen)

The k taps of a position are laid side by side and multiplied by one matrix [D, k·C], which is how ConvS2S
writes it (section 3.2). A tap that falls outside the sentence reads zeros: before its start, after its end,
in padding, or in another sentence of the same row.

Stacked layers see far when the dilation grows; `python -m regard.layers.convolution` draws how far.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.batch import Places
from regard.layers.dropout import Dropout

HALVED = math.sqrt(0.5)  # the sum of two gets back the spread of one

Past = Tensor | None
"""The last (k-1)·r inputs of a causal convolution, [B, P, C]; None before the first step."""


def receptive_field(layers: Iterable[tuple[int, int]]) -> int:
    """How many tokens one output of a stack depends on: 1 + Σ (k-1)·r over its layers' (k, r)."""
    return 1 + sum((kernel - 1) * dilation for kernel, dilation in layers)


def select_pasts(pasts: Sequence[Past], rows: Tensor) -> tuple[Past, ...]:
    """The given rows of what each layer keeps, in the given order."""
    return tuple(None if past is None else past.index_select(0, rows) for past in pasts)


class Convolution(nn.Module):
    """What both kinds share: a width, a dilation, and one matrix for all taps, the earliest tap first."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int, dilation: int = 1) -> None:
        super().__init__()
        self.kernel, self.dilation = kernel, dilation
        self.taps = nn.Linear(kernel * channels_in, channels_out)

    def _tap(self, known: Tensor, place: int, length: int) -> Tensor:
        """What tap number `place` reads for each of `length` outputs; `known` begins where the first tap does."""
        return known[:, place * self.dilation :][:, :length]


class CausalConvolution(Convolution):
    """A convolution that reads no later token, all positions at once or step by step."""

    def forward(self, x_BTC: Tensor, places: Places, past_BPC: Past = None) -> tuple[Tensor, Tensor]:
        """[B, T, C] → [B, T, D], and the inputs that the next step will need."""
        rows, length, channels = x_BTC.shape
        if past_BPC is None:
            past_BPC = x_BTC.new_zeros(rows, (self.kernel - 1) * self.dilation, channels)
        known = torch.cat([past_BPC, x_BTC], dim=1)
        taps = [self._tap(known, place, length) for place in range(self.kernel)]
        if places.segments_BT is not None:
            for place, tap_BTC in enumerate(taps[:-1]):
                # A token's position in its sentence says how far back that sentence reaches.
                back = (self.kernel - 1 - place) * self.dilation
                taps[place] = tap_BTC * (places.positions_BT >= back)[:, :, None]
        return self.taps(torch.cat(taps, dim=-1)), known[:, length:]


class CentredConvolution(Convolution):
    """A convolution that looks equally far to both sides; its width is odd."""

    def forward(self, x_BTC: Tensor, places: Places) -> Tensor:
        """[B, T, C] → [B, T, D]."""
        reach = (self.kernel - 1) // 2 * self.dilation
        known = F.pad(x_BTC, (0, 0, reach, reach))
        taps = [self._tap(known, place, x_BTC.shape[1]) for place in range(self.kernel)]
        if places.segments_BT is not None:
            segments = F.pad(places.segments_BT, (reach, reach))
            for place, tap_BTC in enumerate(taps):
                same_BT = self._tap(segments, place, x_BTC.shape[1]) == places.segments_BT
                taps[place] = tap_BTC * same_BT[:, :, None]
        return self.taps(torch.cat(taps, dim=-1))


class GatedLayer(nn.Module):
    """A gated convolution that looks to both sides, and the road around it: the encoder layer of ConvS2S (3.2).

    y = √½·(v(W * Dropout(x)) + x),   v([A B]) = A ⊙ σ(B)
    """

    def __init__(self, channels_in: int, channels: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.convolution = CentredConvolution(channels_in, 2 * channels, kernel)
        self.around = road_around(channels_in, channels)
        self.dropout = Dropout(dropout)

    def forward(self, x_BTC: Tensor, places: Places) -> Tensor:
        """[B, T, C] → [B, T, D]."""
        y_BTD = F.glu(self.convolution(self.dropout(x_BTC), places), dim=-1)
        return (self.around(x_BTC) + y_BTD) * HALVED


def road_around(channels_in: int, channels: int) -> nn.Module:
    """The road around a layer: as it is, or through a linear map where the width changes."""
    return nn.Identity() if channels_in == channels else nn.Linear(channels_in, channels)


def check_kernel(name: str, kernel: int, centred: bool) -> None:
    """Raise ValueError unless `kernel` is a width such a convolution can have."""
    if kernel < 1 or (centred and kernel % 2 == 0):
        rule = "odd, to have a middle, and at least 1" if centred else "at least 1"
        raise ValueError(f"`{name}` must be {rule}, but is {kernel}")


def _draw(title: str, kernel: int, dilations: Sequence[int], causal: bool) -> None:
    """Mark, layer by layer from the output down, the positions that the marked one above reads."""
    field = receptive_field((kernel, dilation) for dilation in dilations)
    middle = field - 1 if causal else field // 2
    print(f"\n{title}: {field} tokens")
    read = {middle}
    for dilation in [*reversed(dilations), None]:
        dots = "".join("●" if place in read else "·" for place in range(field))
        print(f"  {dots}  {'tokens' if dilation is None else f'dilation {dilation}'}")
        if dilation is not None:
            back = (kernel - 1 if causal else (kernel - 1) // 2) * dilation
            read = {place - back + tap * dilation for place in read for tap in range(kernel)}


if __name__ == "__main__":
    print("The top line is one output; each line below is what the line above it reads.")
    _draw("causal, width 2, dilations doubling (WaveNet)", 2, [1, 2, 4, 8], causal=True)
    _draw("causal, width 2, no dilation", 2, [1, 1, 1, 1], causal=True)
    _draw("centred, width 3, dilations doubling (ByteNet's encoder)", 3, [1, 2, 4], causal=False)
    _draw("centred, width 3, no dilation (ConvS2S's encoder)", 3, [1, 1, 1], causal=False)
