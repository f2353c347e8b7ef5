"""The Transformer (Attention Is All You Need, section 3): encoder and decoder stacks of attention.

Shapes: B rows, S source tokens, T target tokens, D model, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.batch import PADDING_SEGMENT, Batch, Places, Tokens
from regard.layers.attention import Attention
from regard.layers.block import DecoderLayer, DecoderMemory, EncoderLayer, LayerSizes, Norm
from regard.layers.branches import sentences_of
from regard.layers.embedding import Embedding
from regard.layers.experts import MixtureOfExperts, check_experts
from regard.layers.feedforward import Activation, FeedForward
from regard.layers.fixed import FixedKeyValue, Slots, fixed, step_places, written_slots
from regard.layers.mask import Mask, Visible
from regard.layers.positions import PositionKind, check_length
from regard.models.interface import SequenceModel
from regard.settings import check_words
from regard.settings.bounds import check_at_least, check_shares

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
    final_norm: bool | None = None
    """A norm after the last layer; unless given, with norm = "pre" and not with "post"."""
    norm_epsilon: float = 1e-5
    """ε of every norm."""
    qk_norm: bool = False
    """Whether the queries and keys of each head are normed before they are compared, so that scores stay bounded
    (Henry et al. 2020; here RMSNorm with learned gains, and the scale 1/√d_k as before)."""
    experts: int = 1
    """How many feed-forward networks each layer has, of which a token asks a few (Shazeer et al. 2017); 1 is plain."""
    active_experts: int = 2
    """How many of them a token asks, with `experts` of more than 1."""
    balance: float = 0.01
    """The weight of the losses that keep the experts equally busy."""

    def __post_init__(self) -> None:
        check_words(self)
        check_at_least(1, self, "d_model", "d_ff", "heads", "d_k", "d_v", "max_positions", "reach", "window")
        if self.d_k is None and self.d_model % self.heads:
            raise ValueError(
                f"`d_model` must be a multiple of `heads` ({self.heads}) unless `d_k` is given, but is {self.d_model}"
            )
        if self.positions == "rotary" and self.layer_sizes().d_k % 2:
            raise ValueError(f"`d_k` must be even for rotary positions, but is {self.layer_sizes().d_k}")
        check_shares(self, "dropout")
        if not 0 < self.norm_epsilon < 1:
            raise ValueError(f"`norm_epsilon` must be above 0 and below 1, but is {self.norm_epsilon}")
        check_experts(self.experts, self.active_experts, self.balance)

    def layer_sizes(self) -> LayerSizes:
        """The sizes of one layer."""
        d_k = self.d_k or self.d_model // self.heads
        return LayerSizes(
            d_model=self.d_model,
            d_ff=self.d_ff,
            heads=self.heads,
            d_k=d_k,
            d_v=self.d_v or d_k,
            dropout=self.dropout,
            norm=self.norm,
            activation=self.activation,
            positions=self.positions,
            reach=self.reach,
            norm_epsilon=self.norm_epsilon,
            experts=self.experts,
            active_experts=self.active_experts,
            balance=self.balance,
            qk_norm=self.qk_norm,
        )

    def embedding(self, vocabulary: int, scaled: bool = True) -> Embedding:
        """An embedding of these sizes."""
        return Embedding(vocabulary, self.d_model, self.dropout, self.positions, self.max_positions, scaled)

    @property
    def ends_in_norm(self) -> bool:
        """Whether a norm follows the last layer: post-norm layers end in one already, pre-norm stacks need one."""
        return self.norm == "pre" if self.final_norm is None else self.final_norm

    def last_norm(self) -> nn.Module:
        """What follows the last layer."""
        return nn.LayerNorm(self.d_model, self.norm_epsilon) if self.ends_in_norm else nn.Identity()

    @property
    def limit(self) -> int | None:
        """The longest sequence there are positions for; None if any length will do."""
        return self.max_positions if self.positions == "learned" else None


class Encoder(nn.Module):
    """The encoder's layers, over an embedding that may belong to somebody else, too."""

    def __init__(self, settings: StackSettings, layers: int) -> None:
        super().__init__()
        sizes = settings.layer_sizes()
        self.limit = settings.limit
        self.layers = nn.ModuleList(EncoderLayer(sizes) for _ in range(layers))
        self.norm = settings.last_norm()
        self.looks_around = Mask(window=settings.window)

    def forward(self, text: Tokens, embedding: nn.Module) -> Tensor:
        """What each token means where it stands: [B, S] ids → [B, S, D]."""
        check_length(text.ids_BT.shape[1], self.limit, text.places)
        visible = self.looks_around.visible(text.places, text.places)
        x_BSD = embedding(text)
        for layer in self.layers:
            x_BSD, _ = layer(x_BSD, visible)
        return self.norm(x_BSD)


@dataclass(frozen=True)
class TransformerSettings(StackSettings):
    """The Transformer's sizes; the defaults are the paper's base model."""

    kind: Literal["transformer"] = "transformer"
    encoder_layers: int = 6
    decoder_layers: int = 6
    tie: Tie = "all"
    """Which matrices are one: source and target embedding and output ("all", the paper's), target embedding
    and output ("target"), source and target embedding ("embeddings"), or none."""
    output_bias: bool = False
    """Whether a learned bias is added to the scores of the next token, as Marian does."""
    reads_end: bool = True
    """Whether the encoder sees the token that ends a source; in OpenNMT-py it does not."""
    zero_start: bool = False
    """Whether the last matrix of each sub-layer begins at zero, so that at first a layer adds nothing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(1, self, "encoder_layers", "decoder_layers")


@dataclass(frozen=True)
class TransformerState:
    """What the decoder keeps: per layer its keys and values, and where all of them stand.

    `seen` has a row for each text that is being written. `source` has one for each sentence: neighbouring rows that
    began as one sentence, the beams of a search, share its source.
    """

    layers: tuple[DecoderMemory, ...]
    source: Places
    seen: Places | Slots

    def select(self, rows: Tensor) -> TransformerState:
        """The given rows, in the given order."""
        if isinstance(self.seen, Slots):
            raise TypeError("TransformerState.select: a state of fixed memory is loaded into another, not selected")
        kept = sentences_of(rows, self.seen.positions_BT.shape[0], self.source.positions_BT.shape[0])
        layers = tuple(layer.select(rows, kept) for layer in self.layers)
        source = self.source if kept is None else self.source.select(kept)
        return TransformerState(layers, source, self.seen.select(rows))

    def first(self, length: int) -> TransformerState:
        """Of fixed memory, the part for the first `length` positions: a step has less to look at."""
        slots = self.slots().first(length)
        layers = tuple(DecoderMemory(layer.source, fixed(layer.past).first(slots)) for layer in self.layers)
        return TransformerState(layers, self.source, slots)

    def load(self, other: TransformerState, rows: Tensor) -> None:
        """Fill fixed memory with the given rows of another state, fixed or not."""
        self.slots().load(other.seen, rows)
        for mine, new in zip(self.layers, other.layers, strict=True):
            if new.past is not None:
                fixed(mine.past).load(new.past, rows)
            size = new.source.keys_BHKE.shape[2]
            mine.source.keys_BHKE[:, :, :size] = new.source.keys_BHKE.index_select(0, rows)
            mine.source.values_BHKE[:, :, :size] = new.source.values_BHKE.index_select(0, rows)
        segments_BS, length = self.source.segments_or_ones(), other.source.positions_BT.shape[1]
        segments_BS.fill_(PADDING_SEGMENT)
        segments_BS[:, :length] = other.source.segments_or_ones().index_select(0, rows)

    def slots(self) -> Slots:
        """Where fixed memory is written."""
        return written_slots(self.seen)


class Transformer(SequenceModel[TransformerState]):
    """Encoder-decoder Transformer; source and target share one vocabulary unless told otherwise."""

    exact_on_gpu: ClassVar[bool] = True

    def __init__(self, settings: TransformerSettings, vocabulary: int, source_vocabulary: int | None = None) -> None:
        super().__init__()
        self.settings, self.vocabulary, self.width = settings, vocabulary, settings.d_model
        self.context = settings.limit
        sizes = settings.layer_sizes()
        self.embedding = settings.embedding(vocabulary)
        if settings.tie in ("all", "embeddings"):
            _check_one_vocabulary(settings.tie, vocabulary, source_vocabulary)
            self.own_source_embedding = None
        else:
            self.own_source_embedding = settings.embedding(source_vocabulary or vocabulary)
        self.encoder = Encoder(settings, settings.encoder_layers)
        self.decoder = nn.ModuleList(DecoderLayer(sizes) for _ in range(settings.decoder_layers))
        self.decoder_norm = settings.last_norm()
        tied = settings.tie in ("all", "target")
        self.output = None if tied else nn.Linear(settings.d_model, vocabulary, bias=settings.output_bias)
        self.tied_bias_V = nn.Parameter(torch.zeros(vocabulary)) if tied and settings.output_bias else None
        self.looks_back = Mask(causal=True, window=settings.window)
        initialise(self)
        if settings.zero_start:
            _add_nothing(self)

    def features(self, batch: Batch) -> Tensor:
        """What the decoder computed at every target position, [B, T, D]."""
        # As many sources as targets: in `_decode`, fewer would pass for beams that share theirs.
        source = self.needed(batch.source, batch.target.ids_BT.shape[0])
        features_BTD, _ = self._decode(batch.target, self._encode(source))
        return features_BTD

    def logits(self, features_BTD: Tensor) -> Tensor:
        """Features times the output matrix (the transposed embedding where tied), [B, T, V]."""
        if self.output is None:
            return F.linear(features_BTD, self.embedding.weight_VD, self.tied_bias_V)
        return self.output(features_BTD)

    def output_matrix(self) -> tuple[Tensor, Tensor | None]:
        """The output matrix, [V, D], and its bias where there is one."""
        if self.output is None:
            return self.embedding.weight_VD, self.tied_bias_V
        return self.output.weight, self.output.bias

    def start(self, source: Tokens | None, rows: int) -> TransformerState:
        """Encode the source and make every decoder layer's keys and values of it."""
        return self._encode(self.needed(source, rows))

    def step(self, tokens_BT: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        """Scores of the token after `tokens_BT`, [B, V], and the state with them read."""
        self.check_step(tokens_BT)
        features_BTD, state = self._decode(Tokens(tokens_BT, step_places(state.seen, tokens_BT)), state)
        return self.logits(features_BTD[:, -1]), state

    def fixed(self, sentences: int, beams: int, capacity: int, source_length: int) -> TransformerState:
        """Memory that stays in place, for texts of up to `capacity` tokens; `TransformerState.load` fills it."""
        like = self.embedding.weight_VD
        slots = Slots.empty(sentences, beams, capacity, like.device)
        source_slots = Slots.empty(sentences, 1, source_length, like.device)
        memories = []
        for layer in self.decoder_layers:
            own, cross = layer.attention, layer.cross_attention
            source = FixedKeyValue.empty(source_slots, cross.heads, cross.d_k, cross.d_v, like)
            past = FixedKeyValue.empty(slots, own.heads, own.d_k, own.d_v, like)
            memories.append(DecoderMemory(source, past))
        nothing = slots.position_1.new_zeros(sentences, source_length)
        return TransformerState(tuple(memories), Places(nothing, nothing.clone()), slots)

    def _encode(self, source: Tokens) -> TransformerState:
        if not self.settings.reads_end:
            source = Tokens(source.ids_BT, without_ends(source.places))
        memory_BSD = self.encoder(source, self.own_source_embedding or self.embedding)
        layers = tuple(layer.remember(memory_BSD) for layer in self.decoder_layers)
        nothing = Places.whole(source.ids_BT[:, :0])
        return TransformerState(layers, source.places, nothing)

    def _decode(self, tokens: Tokens, state: TransformerState) -> tuple[Tensor, TransformerState]:
        """The one decoding path: `tokens` may be all the target, a prefix, or one token a row."""
        seen, visible = look_back(self.looks_back, tokens.places, state.seen, self.settings.limit)
        source_visible = EVERYTHING.visible(tokens.places.share(state.source), state.source)
        x_BTD = self.embedding(tokens)
        if tokens.ids_BT.shape[1] == 1:
            visible, source_visible = visible.in_numbers(x_BTD.dtype), source_visible.in_numbers(x_BTD.dtype)
        memories = []
        for layer, memory in zip(self.decoder_layers, state.layers, strict=True):
            x_BTD, memory = layer(x_BTD, memory, visible, source_visible)
            memories.append(memory)
        return self.decoder_norm(x_BTD), TransformerState(tuple(memories), state.source, seen)

    @property
    def decoder_layers(self) -> list[DecoderLayer]:
        """The decoder's layers, typed."""
        return [layer for layer in self.decoder if isinstance(layer, DecoderLayer)]


def without_ends(places: Places) -> Places:
    """The same places, but the last token of every sentence is padding: nobody sees it."""
    segments_BT = places.segments_or_ones()
    next_BT = torch.cat([segments_BT[:, 1:], torch.full_like(segments_BT[:, :1], PADDING_SEGMENT)], dim=1)
    return Places(places.positions_BT, segments_BT.masked_fill(segments_BT != next_BT, PADDING_SEGMENT))


def look_back(
    mask: Mask, new: Places, seen: Places | Slots | None, limit: int | None
) -> tuple[Places | Slots, Visible]:
    """Everything seen with the `new` places added, and what of it each new token sees."""
    if isinstance(seen, Slots):
        return seen, seen.visible(mask)
    seen = new if seen is None or seen.positions_BT.shape[1] == 0 else seen.extend(new)
    check_length(seen.positions_BT.shape[1], limit, new)
    return seen, mask.visible(new, seen)


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


def _add_nothing(model: nn.Module) -> None:
    """Zeros for the last matrix of each sub-layer: a deep stack of pre-norm layers then begins as none at all."""
    for module in model.modules():
        if isinstance(module, Attention):
            nn.init.zeros_(module.output.weight)
        elif isinstance(module, FeedForward):
            nn.init.zeros_(module.outer.weight)
        elif isinstance(module, MixtureOfExperts):
            nn.init.zeros_(module.outer_EDF)
