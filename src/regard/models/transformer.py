"""The Transformer (Attention Is All You Need, section 3): encoder and decoder stacks of attention.

Shapes: B rows, S source tokens, T target tokens, D model, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from regard.batch import Batch, Places, Tokens
from regard.layers.attention import Attention
from regard.layers.block import DecoderLayer, DecoderMemory, EncoderLayer, LayerSizes, Norm
from regard.layers.embedding import Embedding
from regard.layers.mask import Mask
from regard.models.interface import SequenceModel

EVERYTHING = Mask()
THE_PAST = Mask(causal=True)


@dataclass(frozen=True)
class TransformerSettings:
    """The Transformer's sizes, named as in Table 3 of the paper; the defaults are its base model."""

    kind: Literal["transformer"] = "transformer"
    encoder_layers: int = 6
    decoder_layers: int = 6
    d_model: int = 512
    d_ff: int = 2048
    heads: int = 8
    d_k: int | None = None
    d_v: int | None = None
    dropout: float = 0.1
    norm: Norm = "post"

    def __post_init__(self) -> None:
        for name in ("encoder_layers", "decoder_layers", "d_model", "d_ff", "heads", "d_k", "d_v"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"`{name}` must be at least 1, but is {value}")
        if self.d_k is None and self.d_model % self.heads:
            raise ValueError(
                f"`d_model` must be a multiple of `heads` ({self.heads}) unless `d_k` is given, but is {self.d_model}"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"`dropout` must be at least 0 and below 1, but is {self.dropout}")

    def layer_sizes(self) -> LayerSizes:
        """The sizes of one layer; d_k = d_v = d_model / heads unless said otherwise."""
        d_k = self.d_k or self.d_model // self.heads
        d_v = self.d_v or d_k
        return LayerSizes(self.d_model, self.d_ff, self.heads, d_k, d_v, self.dropout, self.norm)


@dataclass(frozen=True)
class TransformerState:
    """What the decoder keeps: per layer its keys and values, and where all of them stand."""

    layers: tuple[DecoderMemory, ...]
    source: Places
    seen: Places

    def select(self, rows: Tensor) -> TransformerState:
        """The given rows, in the given order."""
        layers = tuple(layer.select(rows) for layer in self.layers)
        return TransformerState(layers, self.source.select(rows), self.seen.select(rows))


class Transformer(SequenceModel[TransformerState]):
    """Encoder-decoder Transformer with one embedding for source, target and softmax."""

    def __init__(self, settings: TransformerSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings, self.vocabulary = settings, vocabulary
        sizes = settings.layer_sizes()
        self.embedding = Embedding(vocabulary, settings.d_model, settings.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(sizes) for _ in range(settings.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(sizes) for _ in range(settings.decoder_layers))
        # Post-norm layers end in a norm already; pre-norm stacks need one after the last layer.
        pre = settings.norm == "pre"
        self.encoder_norm = nn.LayerNorm(settings.d_model) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(settings.d_model) if pre else nn.Identity()
        initialise(self)

    def features(self, batch: Batch) -> Tensor:
        """What the decoder computed at every target position, [B, T, D]."""
        if batch.source is None:
            raise ValueError("Transformer.features: the batch must have a source, but `source` is None")
        features_BTD, _ = self._decode(batch.target, self._encode(batch.source))
        return features_BTD

    def logits(self, features_BTD: Tensor) -> Tensor:
        """Features times the transposed embedding matrix, [B, T, V]."""
        return F.linear(features_BTD, self.embedding.weight_VD)

    def start(self, source: Tokens | None, rows: int) -> TransformerState:
        """Encode the source and make every decoder layer's keys and values of it."""
        if source is None or source.ids_BT.shape[0] != rows:
            found = "None" if source is None else f"{source.ids_BT.shape[0]} rows"
            raise ValueError(f"Transformer.start: `source` must have {rows} rows, but is {found}")
        return self._encode(source)

    def step(self, tokens_BT: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        """Scores of the token after `tokens_BT`, [B, V], and the state with them read."""
        places = Places.whole(tokens_BT, first=state.seen.positions_BT.shape[1])
        features_BTD, state = self._decode(Tokens(tokens_BT, places), state)
        return self.logits(features_BTD[:, -1]), state

    def _encode(self, source: Tokens) -> TransformerState:
        x_BSD = self.embedding(source)
        visible = EVERYTHING.visible(source.places, source.places)
        for layer in self.encoder:
            x_BSD = layer(x_BSD, visible)
        memory_BSD = self.encoder_norm(x_BSD)
        layers = tuple(layer.remember(memory_BSD) for layer in self.decoder_layers)
        nothing = Places.whole(source.ids_BT[:, :0])
        return TransformerState(layers, source.places, nothing)

    def _decode(self, tokens: Tokens, state: TransformerState) -> tuple[Tensor, TransformerState]:
        """The one decoding path: `tokens` may be all the target, a prefix, or one token a row."""
        first = state.seen.positions_BT.shape[1] == 0
        seen = tokens.places if first else state.seen.extend(tokens.places)
        visible = THE_PAST.visible(tokens.places, seen)
        source_visible = EVERYTHING.visible(tokens.places, state.source)
        x_BTD = self.embedding(tokens)
        memories = []
        for layer, memory in zip(self.decoder_layers, state.layers, strict=True):
            x_BTD, memory = layer(x_BTD, memory, visible, source_visible)
            memories.append(memory)
        return self.decoder_norm(x_BTD), TransformerState(tuple(memories), state.source, seen)

    @property
    def decoder_layers(self) -> list[DecoderLayer]:
        """The decoder's layers, typed."""
        return [layer for layer in self.decoder if isinstance(layer, DecoderLayer)]


def initialise(model: nn.Module) -> None:
    """Glorot-uniform matrices and zero biases, each of W_Q, W_K, W_V on its own."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for module in model.modules():
        if isinstance(module, Attention):
            # Keys and values share one matrix in memory; their initial spread must not depend on that.
            for part in module.key_value.weight.split([module.heads * module.d_k, module.heads * module.d_v]):
                nn.init.xavier_uniform_(part)
