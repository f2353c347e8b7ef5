"""Decoder-only Transformers: GPT-2 (Radford et al. 2019) and its kin.

Shapes: B rows, T tokens, D model, V vocabulary.

The same layers as the encoder's, under a causal mask. With pre-norm, GELU and learned positions it is GPT-2; with
post-norm, ReLU and sinusoids it is the Transformer-Decoder (Liu et al. 2018).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from regard.batch import Batch, Places, Tokens
from regard.layers.attention import KeyValue
from regard.layers.block import EncoderLayer, Norm
from regard.layers.feedforward import Activation
from regard.layers.fixed import FixedKeyValue, Slots, fixed, step_places, written_slots
from regard.layers.mask import Mask, Visible
from regard.layers.positions import LearnedPositions, PositionKind
from regard.models.interface import SequenceModel, StateT
from regard.models.transformer import StackSettings, initialise, look_back
from regard.settings.bounds import check_at_least

SPREAD = 0.02  # GPT-2's standard deviation of initial weights


@dataclass(frozen=True)
class GPTSettings(StackSettings):
    """A decoder-only model's sizes; the defaults are GPT-2's smallest, 124 million parameters."""

    kind: Literal["gpt"] = "gpt"
    layers: int = 12
    d_model: int = 768
    d_ff: int = 3072
    heads: int = 12
    norm: Norm = "pre"
    activation: Activation = "gelu-tanh"
    positions: PositionKind = "learned"
    tied: bool = True
    """Whether the output matrix is the transposed embedding."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(1, self, "layers")


@dataclass(frozen=True)
class GPTState:
    """The keys and values of every layer so far, and where they stand."""

    layers: tuple[KeyValue, ...]
    seen: Places | Slots

    @classmethod
    def beginning(cls, like: Tensor, rows: int) -> GPTState:
        """Nothing read yet, where `like` is."""
        return cls((), Places.whole(like.new_zeros(rows, 0)))

    def select(self, rows: Tensor) -> GPTState:
        """The given rows, in the given order."""
        if isinstance(self.seen, Slots):
            raise TypeError("GPTState.select: a state of fixed memory is loaded into another, not selected")
        return GPTState(tuple(layer.select(rows) for layer in self.layers), self.seen.select(rows))

    def first(self, length: int) -> GPTState:
        """Of fixed memory, the part for the first `length` positions: a step has less to look at."""
        slots = self.slots().first(length)
        return GPTState(tuple(fixed(layer).first(slots) for layer in self.layers), slots)

    def load(self, other: GPTState, rows: Tensor) -> None:
        """Fill fixed memory with the given rows of another state, fixed or not."""
        self.slots().load(other.seen, rows)
        # Before the first step a state has no layers yet, and nothing to take over.
        for mine, new in zip(self.layers, other.layers, strict=bool(other.layers)):
            fixed(mine).load(new, rows)

    def slots(self) -> Slots:
        """Where fixed memory is written."""
        return written_slots(self.seen)


class CausalTransformer(SequenceModel[StateT]):
    """Layers of attention in which every token sees those before it: what all decoder-only models share."""

    exact_on_gpu: ClassVar[bool] = True

    def __init__(self, settings: GPTSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings, self.vocabulary, self.width = settings, vocabulary, settings.d_model
        self.context = settings.limit
        sizes = settings.layer_sizes()
        # GPT-2 adds embeddings and positions as they are; the paper and Transformer-XL scale, and have fixed waves.
        self.embedding = settings.embedding(vocabulary, scaled=settings.positions in ("sinusoidal", "relative-waves"))
        self.layers = nn.ModuleList(EncoderLayer(sizes) for _ in range(settings.layers))
        self.norm = settings.last_norm()
        self.output = None if settings.tied else nn.Linear(settings.d_model, vocabulary, bias=False)
        self.looks_back = Mask(causal=True, window=settings.window)
        self._initialise()

    def logits(self, features_BTD: Tensor) -> Tensor:
        """Features times the output matrix (the transposed embedding where tied), [B, T, V]."""
        return F.linear(features_BTD, self.embedding.weight_VD) if self.output is None else self.output(features_BTD)

    def output_matrix(self) -> tuple[Tensor, Tensor | None]:
        """The output matrix, [V, D]; it has no bias."""
        return (self.embedding.weight_VD if self.output is None else self.output.weight), None

    def _read_whole(self, tokens: Tokens) -> Tensor:
        """What the last layer computed of texts that are read from their beginning on, [B, T, D]."""
        return self._read(tokens, self._from_the_beginning(tokens))[0]

    def _keep(self, tokens: Tokens) -> tuple[KeyValue, ...]:
        """What each layer keeps of such texts, where nobody asks what comes next: the last computes nothing more."""
        visible, last = self._from_the_beginning(tokens), self.layers[-1]
        assert isinstance(last, EncoderLayer)
        x_BTD, kept = _through(self.layers[:-1], self.embedding(tokens), visible)
        return *kept, last.keep(x_BTD, visible)

    def _from_the_beginning(self, tokens: Tokens) -> Visible:
        return look_back(self.looks_back, tokens.places, None, self.settings.limit)[1]

    def _read(
        self, tokens: Tokens, visible: Visible, past: Sequence[KeyValue] = ()
    ) -> tuple[Tensor, tuple[KeyValue, ...]]:
        """The one path: `tokens` may be a whole text, a prompt, or one token a row; `past` is what each layer kept.

        Gives what the last layer computed, [B, T, D], and what each layer keeps now.
        """
        x_BTD, kept = _through(self.layers, self.embedding(tokens), visible, past)
        return self.norm(x_BTD), kept

    def _initialise(self) -> None:
        """Post-norm as the Transformer; pre-norm as GPT-2: N(0, 0.02), residual outputs / √(2·layers)."""
        if self.settings.norm == "post":
            initialise(self)
            return
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                into_residual = name.endswith((".attention.output", ".feedforward.outer"))
                spread = SPREAD / math.sqrt(2 * self.settings.layers) if into_residual else SPREAD
                nn.init.normal_(module.weight, std=spread)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.embedding.weight_VD, std=SPREAD)
        if isinstance(self.embedding.positions, LearnedPositions):
            nn.init.normal_(self.embedding.positions.table.weight, std=SPREAD)


def _through(
    layers: nn.ModuleList, x_BTD: Tensor, visible: Visible, past: Sequence[KeyValue] = ()
) -> tuple[Tensor, tuple[KeyValue, ...]]:
    """What the last of these layers computed, [B, T, D], and what each of them keeps."""
    visible = visible.in_numbers(x_BTD.dtype) if x_BTD.shape[1] == 1 else visible
    kept = []
    for layer, kept_so_far in zip(layers, past or (None,) * len(layers), strict=True):
        x_BTD, kv = layer(x_BTD, visible, kept_so_far)
        kept.append(kv)
    return x_BTD, tuple(kept)


class GPT(CausalTransformer[GPTState]):
    """A language model: the next token from those before it."""

    reads_source: ClassVar[bool] = False

    def features(self, batch: Batch) -> Tensor:
        """What the last layer computed at every position, [B, T, D]."""
        self.refuse(batch.source)
        return self._read_whole(batch.target)

    def start(self, source: Tokens | None, rows: int) -> GPTState:
        """Nothing read yet; a language model has no source."""
        self.refuse(source)
        return GPTState.beginning(self.embedding.weight_VD, rows)

    def step(self, tokens_BT: Tensor, state: GPTState) -> tuple[Tensor, GPTState]:
        """Scores of the token after `tokens_BT`, [B, V], and the state with them read."""
        self.check_step(tokens_BT)
        features_BTD, state = self._decode(Tokens(tokens_BT, step_places(state.seen, tokens_BT)), state)
        return self.logits(features_BTD[:, -1]), state

    def fixed(self, sentences: int, beams: int, capacity: int, source_length: int = 0) -> GPTState:
        """Memory that stays in place, for texts of up to `capacity` tokens; `GPTState.load` fills it."""
        like = self.embedding.weight_VD
        slots = Slots.empty(sentences, beams, capacity, like.device)
        attentions = [layer.attention for layer in self.layers if isinstance(layer, EncoderLayer)]
        layers = (FixedKeyValue.empty(slots, each.heads, each.d_k, each.d_v, like) for each in attentions)
        return GPTState(tuple(layers), slots)

    def _decode(self, tokens: Tokens, state: GPTState) -> tuple[Tensor, GPTState]:
        seen, visible = look_back(self.looks_back, tokens.places, state.seen, self.settings.limit)
        features_BTD, layers = self._read(tokens, visible, state.layers)
        return features_BTD, GPTState(layers, seen)
