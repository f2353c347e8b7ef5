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

from regard.batch import Batch, Places, Tokens
from regard.errors import UsageError
from regard.layers.convolution import CausalConvolution, Past, check_kernel, receptive_field, select_pasts
from regard.models.interface import SequenceModel


@dataclass(frozen=True)
class WaveNetSettings:
    """WaveNet's sizes. Kernel and dilations are the paper's; it does not print the widths of its layers."""

    kind: Literal["wavenet"] = "wavenet"
    channels: int = 256
    skip_channels: int = 256
    kernel: int = 2
    dilations: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    repeats: int = 3
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("channels", "skip_channels", "repeats"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, but is {getattr(self, name)}")
        if not self.dilations or min(self.dilations) < 1:
            raise ValueError(f"`dilations` must be numbers of at least 1, but are {list(self.dilations)}")
        check_kernel("kernel", self.kernel, centred=False)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"`dropout` must be at least 0 and below 1, but is {self.dropout}")

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
        self.dropout = nn.Dropout(settings.dropout)
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


class WaveNet(SequenceModel[WaveNetState]):
    """A language model of gated causal dilated convolutions."""

    reads_source: ClassVar[bool] = False

    def __init__(self, settings: WaveNetSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings, self.vocabulary, self.width = settings, vocabulary, settings.skip_channels
        dilations = settings.dilations * settings.repeats
        self.embedding = nn.Embedding(vocabulary, settings.channels)
        self.entry = CausalConvolution(settings.channels, settings.channels, settings.kernel)
        self.blocks = nn.ModuleList(
            WaveNetBlock(settings, dilation, last=number == len(dilations))
            for number, dilation in enumerate(dilations, start=1)
        )
        self.mixer = nn.Linear(settings.skip_channels, settings.skip_channels)
        self.output = nn.Linear(settings.skip_channels, vocabulary)
        _initialise(self)

    def features(self, batch: Batch) -> Tensor:
        """What the output projection reads at every position, [B, T, D]."""
        features_BTD, _ = self._read(batch.target, self.start(batch.source, batch.target.ids_BT.shape[0]))
        return features_BTD

    def logits(self, features_BTD: Tensor) -> Tensor:
        """The last 1×1 convolution, [B, T, V]."""
        return self.output(features_BTD)

    def start(self, source: Tokens | None, rows: int) -> WaveNetState:
        """Nothing is read yet, in any number of rows."""
        if source is not None:
            raise UsageError(
                "model wavenet: a language model reads no source, but one was given; "
                'train it on text alone, or choose a model that translates, such as kind = "bytenet"'
            )
        return WaveNetState((None,) * (1 + len(self.blocks)))

    def step(self, tokens_BT: Tensor, state: WaveNetState) -> tuple[Tensor, WaveNetState]:
        """Scores of the token after `tokens_BT`, [B, V], and the state with them read."""
        features_BTD, state = self._read(Tokens(tokens_BT, Places.whole(tokens_BT, state.seen)), state)
        return self.logits(features_BTD[:, -1]), state

    def _read(self, tokens: Tokens, state: WaveNetState) -> tuple[Tensor, WaveNetState]:
        """The one path: `tokens` may be whole rows, a prefix, or one token a row."""
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


def _initialise(model: WaveNet) -> None:
    """Glorot-uniform matrices and zero biases; the skips start smaller, because all of them are summed."""
    nn.init.normal_(model.embedding.weight)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
    with torch.no_grad():
        for block in model.blocks:
            if isinstance(block, WaveNetBlock):
                block.skip.weight.div_(len(model.blocks) ** 0.5)
