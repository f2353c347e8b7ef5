"""WaveNet as a language model (van den Oord et al. 2016, WaveNet: A Generative Model for Raw Audio, section 2).

Shapes: B rows, T tokens, C channels, D skip channels, V vocabulary.

    z = tanh(W_f * x) ⊙ σ(W_g * x)          the gated activation unit (2.3); * is a causal, dilated convolution

    tokens → embedding → causal conv → block → block → … → block          (2.1, 2.4, Figure 4)
                                         │       │           │
                                         └───────┴── skip ───┴─ + → ReLU → 1×1 → ReLU → 1×1 → softmax

    block:   x ──┬──────────────────────────────┐
                 └ gated conv → z ──┬── 1×1 ──── + → x of the next block
                                    └── 1×1 → skip

The paper reads samples of sound, this model tokens of text; nothing else differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from regard.batch import Places, Tokens
from regard.layers.convolution import CausalConvolution, Past, check_kernel, receptive_field, select_pasts
from regard.layers.dropout import Dropout
from regard.models.convolutional import ConvolutionalModel, initialise
from regard.settings import check_words
from regard.settings.bounds import check_at_least, check_shares


@dataclass(frozen=True)
class WaveNetSettings:
    """WaveNet's sizes. Dilations are the paper's; the kernel follows from the receptive field that it prints, 1,024.

    It does not print the widths of its layers.
    """

    kind: Literal["wavenet"] = "wavenet"
    channels: int = 256
    skip_channels: int = 256
    kernel: int = 2
    dilations: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    repeats: int = 3
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_words(self)
        check_at_least(1, self, "channels", "skip_channels", "repeats")
        if not self.dilations or min(self.dilations) < 1:
            raise ValueError(f"`dilations` must be numbers of at least 1, but are {list(self.dilations)}")
        check_kernel("kernel", self.kernel, centred=False)
        check_shares(self, "dropout")

    @property
    def receptive_field(self) -> int:
        """How many tokens, the newest included, decide what comes next."""
        return receptive_field((self.kernel, dilation) for dilation in (1, *self.dilations * self.repeats))


@dataclass(frozen=True)
class WaveNetState:
    """What each convolution keeps of its inputs, and how many tokens were read."""

    pasts: tuple[Past, ...]
    seen: int = 0

    def select(self, rows: Tensor) -> WaveNetState:
        """The given rows, in the given order."""
        return WaveNetState(select_pasts(self.pasts, rows), self.seen)


class WaveNetBlock(nn.Module):
    """One gated convolution, the road around it, and its contribution to the output."""

    def __init__(self, settings: WaveNetSettings, dilation: int, last: bool) -> None:
        super().__init__()
        channels = settings.channels
        # One convolution makes both halves, W_f's and W_g's.
        self.convolution = CausalConvolution(channels, 2 * channels, settings.kernel, dilation)
        self.dropout = Dropout(settings.dropout)
        self.skip = nn.Linear(channels, settings.skip_channels)
        # Nobody reads the road after the last block.
        self.residual = None if last else nn.Linear(channels, channels)

    def forward(self, x_BTC: Tensor, places: Places, past: Past) -> tuple[Tensor, Tensor, Tensor]:
        """x for the next block, the skip connection [B, T, D], and the past with these tokens added."""
        both, past = self.convolution(x_BTC, places, past)
        filter_BTC, gate_BTC = both.chunk(2, dim=-1)
        z_BTC = self.dropout(filter_BTC.tanh() * gate_BTC.sigmoid())
        if self.residual is not None:
            x_BTC = x_BTC + self.residual(z_BTC)
        return x_BTC, self.skip(z_BTC), past


class WaveNet(ConvolutionalModel[WaveNetState]):
    """A language model of gated causal dilated convolutions."""

    reads_source: ClassVar[bool] = False

    def __init__(self, settings: WaveNetSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings, self.vocabulary, self.width = settings, vocabulary, settings.skip_channels
        dilations = settings.dilations * settings.repeats
        self.embedding = nn.Embedding(vocabulary, settings.channels)
        self.entry = CausalConvolution(settings.channels, settings.channels, settings.kernel)
        blocks = [
            WaveNetBlock(settings, dilation, last=number == len(dilations))
            for number, dilation in enumerate(dilations, start=1)
        ]
        self.blocks = nn.ModuleList(blocks)
        self.mixer = nn.Linear(settings.skip_channels, settings.skip_channels)
        self.output = nn.Linear(settings.skip_channels, vocabulary)
        initialise(self, [block.skip for block in blocks])

    def start(self, source: Tokens | None, rows: int) -> WaveNetState:
        """Nothing is read yet, in any number of rows."""
        self.refuse(source)
        return WaveNetState((None,) * (1 + len(self.blocks)))

    def decode(self, tokens: Tokens, state: WaveNetState) -> tuple[Tensor, WaveNetState]:
        """The features [B, T, D] of `tokens`, and the state with them read."""
        pasts: list[Past] = []
        x_BTC, past = self.entry(self.embedding(tokens.ids_BT), tokens.places, state.pasts[0])
        pasts.append(past)
        skips = []
        for block, past in zip(self.blocks, state.pasts[1:], strict=True):
            x_BTC, skip_BTD, past = block(x_BTC, tokens.places, past)
            skips.append(skip_BTD)
            pasts.append(past)
        features_BTD = self.mixer(reduce(torch.add, skips).relu()).relu()
        return features_BTD, WaveNetState(tuple(pasts), state.seen + tokens.ids_BT.shape[1])
