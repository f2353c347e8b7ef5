"""ConvS2S (Gehring et al. 2017, Convolutional Sequence to Sequence Learning, section 3).

Shapes: B rows, S source tokens, T target tokens, C channels of a layer, E embedding, V vocabulary; attention as
in `regard.layers.attention` with H = 1 head.

    e = w + p          word embedding plus learned position embedding (3.1); g likewise on the target side
    v([A B]) = A ⊙ σ(B)                                               gated linear unit (3.2)
    h^l_i = v(W^l [h^{l-1}_{i-k/2} … h^{l-1}_{i+k/2}] + b^l) + h^{l-1}_i        residual layer (3.2)

and in every decoder layer its own attention to the source (multi-step attention, 3.3):

    d_i = W_d·h_i + b_d + g_i        a_ij = softmax_j(d_i · z_j)        c_i = Σ_j a_ij·(z_j + e_j)

where z is the encoder's output; c_i is added to h_i. So that nothing grows with depth or length (3.4), a sum
of two is multiplied by √½, c_i by m·√(1/m) = √m for m source tokens, and the gradient that the encoder
receives is divided by the number of decoder layers attending to it.

    decoder layer:   h ──┬─────────────────────────────────────────────────────────────┐
                         └ dropout → causal conv → GLU ──┬────────────────────────── + ── + → h
                                                         └ + g → attend to z → √m·c ─┘
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from regard.batch import Places, Tokens
from regard.layers.attention import KeyValue, Watcher, attention_weights, fused_attention
from regard.layers.convolution import (
    HALVED,
    CausalConvolution,
    GatedLayer,
    Past,
    check_kernel,
    receptive_field,
    road_around,
    select_pasts,
)
from regard.layers.dropout import Dropout
from regard.layers.mask import Mask, Visible
from regard.models.convolutional import ConvolutionalModel
from regard.settings import check_words
from regard.settings.bounds import check_at_least, check_shares

EVERYTHING = Mask()

Stack = tuple[tuple[int, int, int], ...]
"""Layers in runs: (how many, channels, kernel width), bottom first."""


@dataclass(frozen=True)
class ConvS2SSettings:
    """ConvS2S's sizes; the default layers are those of the paper's English-German model.

    The paper's others: English-Romanian ((20, 512, 3),), and English-French
    ((5, 512, 3), (4, 768, 3), (3, 1024, 3), (1, 2048, 1), (1, 4096, 1)), each on both sides.
    Positions from `max_positions` on share the last position's embedding: order near a token is the
    convolutions' business, and a long sentence should come out worse, not not at all.
    """

    kind: Literal["convs2s"] = "convs2s"
    encoder: Stack = ((10, 512, 3), (3, 768, 3), (2, 2048, 1))
    decoder: Stack = ((10, 512, 3), (3, 768, 3), (2, 2048, 1))
    embedding: int = 512
    max_positions: int = 1024
    tied: bool = False
    """One matrix for source, target and output, instead of the paper's three."""
    dropout: float = 0.2

    def __post_init__(self) -> None:
        check_words(self)
        for name, stack in (("encoder", self.encoder), ("decoder", self.decoder)):
            if not stack:
                raise ValueError(f"`{name}` must have at least one run of layers, but has none")
            for layers, channels, kernel in stack:
                if layers < 1 or channels < 1:
                    raise ValueError(
                        f"`{name}` must be runs of (layers, channels, kernel), each at least 1, "
                        f"but has {(layers, channels, kernel)}"
                    )
                check_kernel(f"{name}'s kernel", kernel, centred=name == "encoder")
        check_at_least(1, self, "embedding", "max_positions")
        check_shares(self, "dropout")

    @property
    def encoder_receptive_field(self) -> int:
        """How many source tokens, half of them on each side, decide one encoder output."""
        return receptive_field((kernel, 1) for _, kernel in _unrolled(self.encoder))

    @property
    def decoder_receptive_field(self) -> int:
        """How many target tokens, the newest included, decide what comes next."""
        return receptive_field((kernel, 1) for _, kernel in _unrolled(self.decoder))


def _unrolled(stack: Stack) -> list[tuple[int, int]]:
    """(channels, kernel) of each layer."""
    return [(channels, kernel) for layers, channels, kernel in stack for _ in range(layers)]


@dataclass(frozen=True)
class ConvS2SState:
    """The encoder's keys z and values z + e, what each decoder layer keeps of its inputs, and the tokens read."""

    memory: KeyValue
    source: Places
    pasts: tuple[Past, ...]
    seen: int = 0

    def select(self, rows: Tensor) -> ConvS2SState:
        """The given rows, in the given order."""
        pasts = select_pasts(self.pasts, rows)
        return ConvS2SState(self.memory.select(rows), self.source.select(rows), pasts, self.seen)


class PositionedEmbedding(nn.Module):
    """Dropout(word + position): the paper's e and g (3.1)."""

    def __init__(self, words: nn.Embedding, settings: ConvS2SSettings) -> None:
        super().__init__()
        self.words = words
        self.positions = nn.Embedding(settings.max_positions, settings.embedding)
        self.dropout = Dropout(settings.dropout)

    def forward(self, tokens: Tokens) -> Tensor:
        """[B, T] ids → [B, T, E]."""
        positions_BT = tokens.places.positions_BT.clamp(max=self.positions.num_embeddings - 1)
        return self.dropout(self.words(tokens.ids_BT) + self.positions(positions_BT))


class MultiStepAttention(nn.Module):
    """One decoder layer's attention to the source. Set `watcher` to receive its weights, [B, 1, T, S]."""

    def __init__(self, channels: int, embedding: int) -> None:
        super().__init__()
        self.query = nn.Linear(channels, embedding)
        self.output = nn.Linear(embedding, channels)
        self.watcher: Watcher | None = None

    def forward(self, h_BTC: Tensor, g_BTE: Tensor, memory: KeyValue, visible: Visible) -> Tensor:
        """√½·(h + c), [B, T, C]."""
        # The paper's d · z is not divided by √E, as attention is elsewhere: that is made up for here.
        query_BHTE = ((self.query(h_BTC) + g_BTE) * (HALVED * math.sqrt(g_BTE.shape[-1])))[:, None]
        if self.watcher is not None:
            weights_BHTS = attention_weights(query_BHTE, memory.keys_BHKE, visible)
            self.watcher(weights_BHTS)
            context_BHTE = weights_BHTS @ memory.values_BHKE
        else:
            context_BHTE = fused_attention(query_BHTE, memory, visible)
        context_BTE = context_BHTE[:, 0] * _root_of_seen(memory, visible, h_BTC)
        return (h_BTC + self.output(context_BTE)) * HALVED


def _root_of_seen(memory: KeyValue, visible: Visible, like: Tensor) -> Tensor | float:
    """√m, m the source tokens that each query sees: padding must not count."""
    if visible.allowed_BQK is None:
        return math.sqrt(memory.keys_BHKE.shape[2])
    return visible.allowed_BQK.sum(dim=-1, keepdim=True).sqrt().to(like.dtype)


class DecoderLayer(nn.Module):
    """A gated convolution that looks back only, attention to the source, and the road around both."""

    def __init__(self, channels_in: int, channels: int, kernel: int, settings: ConvS2SSettings) -> None:
        super().__init__()
        self.convolution = CausalConvolution(channels_in, 2 * channels, kernel)
        self.cross_attention = MultiStepAttention(channels, settings.embedding)
        self.around = road_around(channels_in, channels)
        self.dropout = Dropout(settings.dropout)

    def forward(
        self, x_BTC: Tensor, g_BTE: Tensor, places: Places, past: Past, memory: KeyValue, visible: Visible
    ) -> tuple[Tensor, Tensor]:
        """[B, T, C] → [B, T, C of this layer], and the past with these tokens added."""
        y_BTC, past = self.convolution(self.dropout(x_BTC), places, past)
        y_BTC = self.cross_attention(F.glu(y_BTC, dim=-1), g_BTE, memory, visible)
        return (self.around(x_BTC) + y_BTC) * HALVED, past


class ConvS2S(ConvolutionalModel[ConvS2SState]):
    """Encoder-decoder of gated convolutions with attention in every decoder layer."""

    def __init__(self, settings: ConvS2SSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings, self.vocabulary, self.width = settings, vocabulary, settings.embedding
        embedding, tied = settings.embedding, settings.tied
        encoder, decoder = _unrolled(settings.encoder), _unrolled(settings.decoder)
        words = nn.Embedding(vocabulary, embedding)
        self.source = PositionedEmbedding(words, settings)
        self.target = PositionedEmbedding(words if tied else nn.Embedding(vocabulary, embedding), settings)
        self.encoder_entry = nn.Linear(embedding, encoder[0][0])
        self.encoder = nn.ModuleList(
            GatedLayer(before, channels, kernel, settings.dropout)
            for before, (channels, kernel) in zip(_inputs(encoder), encoder, strict=True)
        )
        self.encoder_exit = nn.Linear(encoder[-1][0], embedding)
        self.decoder_entry = nn.Linear(embedding, decoder[0][0])
        self.decoder = nn.ModuleList(
            DecoderLayer(before, channels, kernel, settings)
            for before, (channels, kernel) in zip(_inputs(decoder), decoder, strict=True)
        )
        self.decoder_exit = nn.Linear(decoder[-1][0], embedding)
        self.dropout = Dropout(settings.dropout)
        self.output = nn.Linear(embedding, vocabulary)
        if tied:
            self.output.weight = words.weight
        _initialise(self)

    def start(self, source: Tokens | None, rows: int) -> ConvS2SState:
        """Encode the source into what every decoder layer attends to."""
        source = self.needed(source, rows)
        e_BSE = self.source(source)
        x_BSC = self.encoder_entry(e_BSE)
        for layer in self.encoder:
            x_BSC = layer(x_BSC, source.places)
        z_BSE = _scale_gradient(self.encoder_exit(x_BSC), 1 / len(self.decoder))
        memory = KeyValue(z_BSE[:, None], ((z_BSE + e_BSE) * HALVED)[:, None])
        return ConvS2SState(memory, source.places, (None,) * len(self.decoder))

    def decode(self, tokens: Tokens, state: ConvS2SState) -> tuple[Tensor, ConvS2SState]:
        """The features [B, T, E] of `tokens`, and the state with them read."""
        visible = EVERYTHING.visible(tokens.places, state.source)
        g_BTE = self.target(tokens)
        x_BTC = self.decoder_entry(g_BTE)
        pasts = []
        for layer, past in zip(self.decoder, state.pasts, strict=True):
            x_BTC, past = layer(x_BTC, g_BTE, tokens.places, past, state.memory, visible)
            pasts.append(past)
        seen = state.seen + tokens.ids_BT.shape[1]
        features_BTE = self.dropout(self.decoder_exit(x_BTC))
        return features_BTE, ConvS2SState(state.memory, state.source, tuple(pasts), seen)


def _inputs(layers: list[tuple[int, int]]) -> list[int]:
    """How many channels each layer reads: those of the one below, the first its own."""
    return [layers[0][0], *(channels for channels, _ in layers[:-1])]


def _scale_gradient(x: Tensor, factor: float) -> Tensor:
    """`x` to the bit, with its gradient multiplied by `factor`."""
    still = x.detach()
    return still + (x - still) * factor


def _initialise(model: ConvS2S) -> None:
    """The paper's variances (3.5), so that every layer starts by keeping its input's.

    n inputs, each kept by dropout with probability q: N(0, √(4q/n)) before a gate, which lets a quarter of the
    variance through, N(0, √(q/n)) elsewhere, and N(0, 0.1) for embeddings.
    """
    kept = 1 - model.settings.dropout
    # These read what dropout has thinned out; all other linear maps read whole vectors.
    thinned = {model.encoder_entry, model.decoder_entry, model.output}
    for module in model.modules():
        if isinstance(module, nn.Linear):
            share = kept if module in thinned else 1.0
            nn.init.normal_(module.weight, std=math.sqrt(share / module.in_features))
            nn.init.zeros_(module.bias)
    for module in model.modules():
        if isinstance(module, GatedLayer | DecoderLayer):
            taps = module.convolution.taps
            nn.init.normal_(taps.weight, std=math.sqrt(4 * kept / taps.in_features))
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.1)
