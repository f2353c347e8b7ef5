"""ByteNet (Kalchbrenner et al. 2016, Neural Machine Translation in Linear Time, section 3).

Shapes: B rows, S source tokens, U columns the source unfolds to, T target tokens, C = d channels, D = 2d channels,
V vocabulary.

The decoder is stacked on the encoder, column on column; there is no attention. Target position t reads what
the encoder made at column t (dynamic unfolding, 3.2):

    decoder   y_1  y_2  y_3  y_4  y_5  y_6 …     causal, dilated
               │    │    │    │    │    ↑
    encoder   z_1  z_2  z_3  z_4  z_5   0  …     not causal, dilated; |t̂| = a·|s| + b columns, zeros beyond
               │    │    │    │    │
    source    s_1  s_2  s_3  s_4  blank

    block, with ReLUs (3.6), on a stream of 2d channels:

    x ──┬──────────────────────────────────────────────────────────────────────────────────┐
        └ norm → ReLU → 1×1 (2d→d) → norm → ReLU → conv (d→d) → norm → ReLU → 1×1 (d→2d) ── + →
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.batch import PADDING_SEGMENT, Places, Tokens
from regard.layers.convolution import (
    CausalConvolution,
    CentredConvolution,
    Past,
    check_kernel,
    receptive_field,
    select_pasts,
)
from regard.layers.dropout import Dropout
from regard.models.convolutional import ConvolutionalModel, initialise
from regard.settings import check_words
from regard.settings.bounds import check_at_least, check_shares

Length = TypeVar("Length", int, Tensor)


@dataclass(frozen=True)
class ByteNetSettings:
    """ByteNet's sizes; the defaults are those of the paper's English-German model, which reads characters.

    `channels` is the paper's d: the convolutions have d channels, the stream between blocks 2d. Encoder and
    decoder each go through `dilations` as often as `repeats` says: 6 · 5 = 30 blocks. `stretch` and
    `extra_columns` are a and b of |t̂| = a·|s| + b, rounded up; a counts in hundredths.
    """

    kind: Literal["bytenet"] = "bytenet"
    channels: int = 800
    encoder_kernel: int = 3
    decoder_kernel: int = 3
    dilations: tuple[int, ...] = (1, 2, 4, 8, 16)
    repeats: int = 6
    stretch: float = 1.2
    extra_columns: int = 0
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_words(self)
        check_at_least(1, self, "channels", "repeats")
        if not self.dilations or min(self.dilations) < 1:
            raise ValueError(f"`dilations` must be numbers of at least 1, but are {list(self.dilations)}")
        check_kernel("encoder_kernel", self.encoder_kernel, centred=True)
        check_kernel("decoder_kernel", self.decoder_kernel, centred=False)
        if not 1 <= self.stretch <= 100:
            raise ValueError(
                f"`stretch` must be at least 1, or the source would be cut, and at most 100, but is {self.stretch}"
            )
        check_at_least(0, self, "extra_columns")
        check_shares(self, "dropout")

    @property
    def encoder_receptive_field(self) -> int:
        """How many source tokens, half of them on each side, decide one column of the encoder."""
        return receptive_field((self.encoder_kernel, dilation) for dilation in self.dilations * self.repeats)

    @property
    def decoder_receptive_field(self) -> int:
        """How many target tokens, the newest included, decide what comes next."""
        return receptive_field((self.decoder_kernel, dilation) for dilation in self.dilations * self.repeats)


@dataclass(frozen=True)
class ByteNetState:
    """The encoder's columns, what each decoder block keeps of its inputs, and how many tokens were read."""

    columns_BUD: Tensor
    pasts: tuple[Past, ...]
    seen: int = 0

    def select(self, rows: Tensor) -> ByteNetState:
        """The given rows, in the given order."""
        return ByteNetState(self.columns_BUD.index_select(0, rows), select_pasts(self.pasts, rows), self.seen)


class _Block(nn.Module):
    """The parts of a residual block, before and after its convolution."""

    def __init__(self, channels: int, dropout: float) -> None:
        super().__init__()
        self.narrow = nn.Sequential(nn.LayerNorm(2 * channels), nn.ReLU(), nn.Linear(2 * channels, channels))
        self.middle = nn.Sequential(nn.LayerNorm(channels), nn.ReLU())
        self.after = nn.Sequential(nn.LayerNorm(channels), nn.ReLU())
        self.widen = nn.Linear(channels, 2 * channels)
        self.dropout = Dropout(dropout)

    def _enter(self, x_BTD: Tensor) -> Tensor:
        return self.middle(self.narrow(x_BTD))

    def _leave(self, x_BTD: Tensor, y_BTC: Tensor) -> Tensor:
        return x_BTD + self.dropout(self.widen(self.after(y_BTC)))


class EncoderBlock(_Block):
    """A residual block that looks to both sides."""

    def __init__(self, settings: ByteNetSettings, dilation: int) -> None:
        super().__init__(settings.channels, settings.dropout)
        self.convolution = CentredConvolution(settings.channels, settings.channels, settings.encoder_kernel, dilation)

    def forward(self, x_BUD: Tensor, places: Places) -> Tensor:
        """[B, U, D] → [B, U, D]."""
        return self._leave(x_BUD, self.convolution(self._enter(x_BUD), places))


class DecoderBlock(_Block):
    """A residual block that looks back only."""

    def __init__(self, settings: ByteNetSettings, dilation: int) -> None:
        super().__init__(settings.channels, settings.dropout)
        self.convolution = CausalConvolution(settings.channels, settings.channels, settings.decoder_kernel, dilation)

    def forward(self, x_BTD: Tensor, places: Places, past: Past) -> tuple[Tensor, Tensor]:
        """[B, T, D] → [B, T, D], and the past with these tokens added."""
        y_BTC, past = self.convolution(self._enter(x_BTD), places, past)
        return self._leave(x_BTD, y_BTC), past


class ByteNet(ConvolutionalModel[ByteNetState]):
    """Encoder-decoder of dilated convolutions, the decoder unfolded over the encoder's columns.

    One embedding serves source and target. A row must be one sentence: the columns of two would have to be
    stretched apart.
    """

    packs_sentences = False

    def __init__(self, settings: ByteNetSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings, self.vocabulary, self.width = settings, vocabulary, 2 * settings.channels
        stream, dilations = self.width, settings.dilations * settings.repeats
        self.embedding = nn.Embedding(vocabulary, stream)
        self.blank_D = nn.Parameter(torch.randn(stream))
        self.source_dropout, self.target_dropout = Dropout(settings.dropout), Dropout(settings.dropout)
        encoder = [EncoderBlock(settings, dilation) for dilation in dilations]
        self.encoder = nn.ModuleList(encoder)
        # Thirty blocks add to the stream; the norm brings a column back to the size of an embedding.
        self.encoder_norm = nn.LayerNorm(stream)
        decoder = [DecoderBlock(settings, dilation) for dilation in dilations]
        self.decoder = nn.ModuleList(decoder)
        self.mixer = nn.Sequential(nn.LayerNorm(stream), nn.ReLU(), nn.Linear(stream, stream), nn.ReLU())
        self.output = nn.Linear(stream, vocabulary)
        initialise(self, [block.widen for block in encoder], [block.widen for block in decoder])

    def start(self, source: Tokens | None, rows: int) -> ByteNetState:
        """Encode the source into |t̂| columns, zeros where a shorter row has none."""
        source = self.needed(source, rows)
        source.places.check_one_sentence("ByteNet, source")
        x_BUD, places = self._stretch(source)
        x_BUD = self.source_dropout(x_BUD)
        for block in self.encoder:
            x_BUD = block(x_BUD, places)
        columns_BUD = self.encoder_norm(x_BUD)
        if places.segments_BT is not None:
            columns_BUD = columns_BUD * (places.segments_BT != PADDING_SEGMENT)[:, :, None]
        return ByteNetState(columns_BUD, (None,) * len(self.decoder))

    def _stretch(self, source: Tokens) -> tuple[Tensor, Places]:
        """The embedded source, each sentence followed by blanks up to a·|s| + b, and the places of it all."""
        tokens = source.ids_BT.shape[1]
        missing = _unfolded(tokens, self.settings) - tokens
        x_BUD = F.pad(self.embedding(source.ids_BT), (0, 0, 0, missing))
        places = Places.whole(x_BUD[:, :, 0])
        real_BS = source.places.segments_or_ones() != PADDING_SEGMENT
        lengths_B1 = real_BS.sum(dim=1, keepdim=True)
        x_BUD = torch.where((places.positions_BT < lengths_B1)[:, :, None], x_BUD, self.blank_D)
        if source.places.segments_BT is None:
            return x_BUD, places
        inside_BU = places.positions_BT < _unfolded(lengths_B1, self.settings)
        return x_BUD, Places(places.positions_BT, inside_BU.long())

    def decode(self, tokens: Tokens, state: ByteNetState) -> tuple[Tensor, ByteNetState]:
        """The features [B, T, D] of `tokens`, and the state with them read."""
        tokens.places.check_one_sentence("ByteNet, target")
        first, last = state.seen, state.seen + tokens.ids_BT.shape[1]
        columns_BTD = state.columns_BUD[:, first:last]
        columns_BTD = F.pad(columns_BTD, (0, 0, 0, last - first - columns_BTD.shape[1]))
        x_BTD = self.target_dropout(self.embedding(tokens.ids_BT)) + columns_BTD
        pasts = []
        for block, past in zip(self.decoder, state.pasts, strict=True):
            x_BTD, past = block(x_BTD, tokens.places, past)
            pasts.append(past)
        return self.mixer(x_BTD), ByteNetState(state.columns_BUD, tuple(pasts), last)


def _unfolded(length: Length, settings: ByteNetSettings) -> Length:
    """|t̂| = a·|s| + b, rounded up, in whole numbers: a width and the lengths inside it must round alike."""
    return (length * round(100 * settings.stretch) + 99) // 100 + settings.extra_columns
