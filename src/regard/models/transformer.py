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
from regard.layers.feedforward import Activation
from regard.layers.mask import Mask
from regard.layers.positions import PositionKind, check_length
from regard.models.interface import SequenceModel

Tie = Literal["all", "target", "embeddings", "none"]
EVERYTHING = Mask()


@dataclass(frozen=True)
class StackSettings:
    """What stacks of attention layers have in common, named as in Table 3 of the paper."""

    kind: str
    d_model: int = 512
    d_ff: int = 2048
    heads: int = 8
    d_k: int | None = None
    """Size of one head's queries and keys; d_model / heads unless given."""
    d_v: int | None = None
    """Size of one head's values; d_k unless given."""
    dropout: float = 0.1
    norm: Norm = "post"
    activation: Activation = "relu"
    positions: PositionKind = "sinusoidal"
    max_positions: int = 1024
    """How many positions are learned, with positions = "learned"."""
    reach: int = 128
    """Up to which distance positions = "relative" tells distances apart."""
    window: int | None = None
    """Restricted self-attention (section 4): a token sees only those nearer than this."""

    def __post_init__(self) -> None:
        for name in ("d_model", "d_ff", "heads", "d_k", "d_v", "max_positions", "reach", "window"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"`{name}` must be at least 1, but is {value}")
        if self.d_k is None and self.d_model % self.heads:
            raise ValueError(
                f"`d_model` must be a multiple of `heads` ({self.heads}) unless `d_k` is given, but is {self.d_model}"
            )
        if self.positions == "rotary" and self.layer_sizes().d_k % 2:
            raise ValueError(f"`d_k` must be even for rotary positions, but is {self.layer_sizes().d_k}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"`dropout` must be at least 0 and below 1, but is {self.dropout}")

    def layer_sizes(self) -> LayerSizes:
        """The sizes of one layer."""
        d_k = self.d_k or self.d_model // self.heads
        return LayerSizes(
            self.d_model,
            self.d_ff,
            self.heads,
            d_k,
            self.d_v or d_k,
            self.dropout,
            self.norm,
            self.activation,
            self.positions,
            self.reach,
        )

    def embedding(self, vocabulary: int, scaled: bool = True) -> Embedding:
        """An embedding of these sizes."""
        return Embedding(vocabulary, self.d_model, self.dropout, self.positions, self.max_positions, scaled)

    @property
    def limit(self) -> int | None:
        """The longest sequence there are positions for; None if any length will do."""
        return self.max_positions if self.positions == "learned" else None


@dataclass(frozen=True)
class TransformerSettings(StackSettings):
    """The Transformer's sizes; the defaults are the paper's base model."""

    kind: Literal["transformer"] = "transformer"
    encoder_layers: int = 6
    decoder_layers: int = 6
    tie: Tie = "all"
    """Which matrices are one: source and target embedding and output ("all", the paper's), target embedding
    and output ("target"), source and target embedding ("embeddings"), or none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("encoder_layers", "decoder_layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, but is {getattr(self, name)}")


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
    """Encoder-decoder Transformer; source and target share one vocabulary unless told otherwise."""

    def __init__(self, settings: TransformerSettings, vocabulary: int, source_vocabulary: int | None = None) -> None:
        super().__init__()
        self.settings, self.vocabulary, self.width = settings, vocabulary, settings.d_model
        sizes = settings.layer_sizes()
        self.embedding = settings.embedding(vocabulary)
        if settings.tie in ("all", "embeddings"):
            _check_one_vocabulary(settings.tie, vocabulary, source_vocabulary)
            self.own_source_embedding = None
        else:
            self.own_source_embedding = settings.embedding(source_vocabulary or vocabulary)
        self.encoder = nn.ModuleList(EncoderLayer(sizes) for _ in range(settings.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(sizes) for _ in range(settings.decoder_layers))
        # Post-norm layers end in a norm already; pre-norm stacks need one after the last layer.
        pre = settings.norm == "pre"
        self.encoder_norm = nn.LayerNorm(settings.d_model) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(settings.d_model) if pre else nn.Identity()
        tied = settings.tie in ("all", "target")
        self.output = None if tied else nn.Linear(settings.d_model, vocabulary, bias=False)
        self.looks_back = Mask(causal=True, window=settings.window)
        self.looks_around = Mask(window=settings.window)
        initialise(self)

    def features(self, batch: Batch) -> Tensor:
        """What the decoder computed at every target position, [B, T, D]."""
        if batch.source is None:
            raise ValueError("Transformer.features: the batch must have a source, but `source` is None")
        features_BTD, _ = self._decode(batch.target, self._encode(batch.source))
        return features_BTD

    def logits(self, features_BTD: Tensor) -> Tensor:
        """Features times the output matrix (the transposed embedding where tied), [B, T, V]."""
        return F.linear(features_BTD, self.embedding.weight_VD) if self.output is None else self.output(features_BTD)

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
        check_length(source.ids_BT.shape[1], self.settings.limit)
        x_BSD = (self.own_source_embedding or self.embedding)(source)
        visible = self.looks_around.visible(source.places, source.places)
        for layer in self.encoder:
            x_BSD, _ = layer(x_BSD, visible)
        memory_BSD = self.encoder_norm(x_BSD)
        layers = tuple(layer.remember(memory_BSD) for layer in self.decoder_layers)
        nothing = Places.whole(source.ids_BT[:, :0])
        return TransformerState(layers, source.places, nothing)

    def _decode(self, tokens: Tokens, state: TransformerState) -> tuple[Tensor, TransformerState]:
        """The one decoding path: `tokens` may be all the target, a prefix, or one token a row."""
        first = state.seen.positions_BT.shape[1] == 0
        seen = tokens.places if first else state.seen.extend(tokens.places)
        check_length(seen.positions_BT.shape[1], self.settings.limit)
        visible = self.looks_back.visible(tokens.places, seen)
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


def _check_one_vocabulary(tie: Tie, vocabulary: int, source_vocabulary: int | None) -> None:
    if source_vocabulary not in (None, vocabulary):
        raise ValueError(
            f'`tie` = "{tie}" makes one embedding of source and target, so both must share a vocabulary, but they '
            f'have {source_vocabulary} and {vocabulary} tokens; use tie = "target" or "none"'
        )


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
