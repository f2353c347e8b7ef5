"""Encoders: a text → a vector for each of its tokens, which knows what stands around it.

Shapes: B rows, T tokens, D model.

A Transformer's encoder, recurrent layers, or convolutions: what is built on them (`regard.models.labelling`) cannot
tell which.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor, nn

from regard.batch import Tokens
from regard.layers import recurrent
from regard.layers.convolution import GatedLayer, check_kernel, receptive_field
from regard.layers.dropout import Dropout
from regard.layers.embedding import Embedding
from regard.layers.norm import LayerNorm
from regard.layers.recurrent import Cell, Links, RecurrentEncoder, StackSizes, row_lengths
from regard.models import transformer
from regard.models.transformer import StackSettings
from regard.settings import check_words
from regard.settings.bounds import check_at_least, check_shares

# ---- settings


@dataclass(frozen=True)
class TransformerBodySettings(StackSettings):
    """The encoder of a Transformer; the defaults are the paper's base model's."""

    kind: Literal["transformer"] = "transformer"
    layers: int = 6
    embedding_norm: bool = False
    """A norm on what enters the first layer, made of embeddings as they are, not scaled up by √d_model: BERT's way."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(1, self, "layers")


@dataclass(frozen=True)
class RecurrentBodySettings:
    """Recurrent layers over an embedding, in one direction or both."""

    kind: Literal["recurrent"] = "recurrent"
    cell: Cell = "lstm"
    layers: int = 2
    d_model: int = 512
    d_embedding: int | None = None
    """The size of a token's vector; d_model unless said otherwise."""
    bidirectional: bool = True
    """Read in both directions, each with d_model / 2 units; otherwise a token knows only what stands before it."""
    links: Links = "plain"
    dropout: float = 0.2

    def __post_init__(self) -> None:
        check_words(self)
        check_at_least(1, self, "layers", "d_model", "d_embedding")
        check_shares(self, "dropout")
        if self.bidirectional and self.d_model % 2:
            raise ValueError(f"`d_model` must be even where `bidirectional` is set, but is {self.d_model}")

    def sizes(self) -> StackSizes:
        """The sizes of the stack."""
        d_input = self.d_embedding or self.d_model
        return StackSizes(
            self.cell, self.layers, d_input, self.d_model, self.dropout, self.links, bidirectional=self.bidirectional
        )


@dataclass(frozen=True)
class ConvolutionBodySettings:
    """Gated convolutions that look to both sides, as in the encoder of ConvS2S."""

    kind: Literal["convolution"] = "convolution"
    layers: int = 6
    d_model: int = 512
    kernel: int = 5
    dropout: float = 0.2

    def __post_init__(self) -> None:
        check_words(self)
        check_at_least(1, self, "layers", "d_model")
        check_kernel("kernel", self.kernel, centred=True)
        check_shares(self, "dropout")

    @property
    def receptive_field(self) -> int:
        """How many tokens, half of them on each side, decide one vector."""
        return receptive_field([(self.kernel, 1)] * self.layers)


BodySettings = TransformerBodySettings | RecurrentBodySettings | ConvolutionBodySettings


# ---- bodies


class Body(nn.Module, ABC):
    """Tokens to vectors: what each token means where it stands."""

    width: int
    """The size of one vector, D."""
    packs_sentences: ClassVar[bool] = True
    """Whether a row may hold several sentences."""

    @abstractmethod
    def forward(self, text: Tokens) -> Tensor:
        """[B, T] ids → [B, T, D]. What stands at padding means nothing."""


class NormedEmbedding(Embedding):
    """Dropout(LayerNorm(E[ids] + positions)), as in BERT."""

    def __init__(self, settings: TransformerBodySettings, vocabulary: int) -> None:
        super().__init__(vocabulary, settings.d_model, 0.0, settings.positions, settings.max_positions, scaled=False)
        self.norm = LayerNorm(settings.d_model, settings.norm_epsilon)
        self.last_dropout = Dropout(settings.dropout)

    def forward(self, tokens: Tokens) -> Tensor:
        """[B, T] ids → [B, T, D]."""
        return self.last_dropout(self.norm(super().forward(tokens)))


class TransformerBody(Body):
    """Embedding and encoder layers. Each token sees every other, or those within the window."""

    def __init__(self, settings: TransformerBodySettings, vocabulary: int) -> None:
        super().__init__()
        self.width = settings.d_model
        self.embedding: Embedding = settings.embedding(vocabulary)
        if settings.embedding_norm:
            self.embedding = NormedEmbedding(settings, vocabulary)
        self.encoder = transformer.Encoder(settings, settings.layers)
        transformer.initialise(self)

    def forward(self, text: Tokens) -> Tensor:
        """[B, T] ids → [B, T, D]."""
        return self.encoder(text, self.embedding)


class RecurrentBody(Body):
    """Embedding and recurrent layers; a row must be one text, since state would leak into the next."""

    packs_sentences: ClassVar[bool] = False

    def __init__(self, settings: RecurrentBodySettings, vocabulary: int) -> None:
        super().__init__()
        self.width = settings.d_model
        self.embedding = nn.Embedding(vocabulary, settings.d_embedding or settings.d_model)
        self.encoder = RecurrentEncoder(settings.sizes(), keep_cells=False)
        recurrent.initialise(self)

    def forward(self, text: Tokens) -> Tensor:
        """[B, T] ids → [B, T, D]."""
        states_BTD, _ = self.encoder(self.embedding(text.ids_BT), row_lengths(text.places, "body recurrent"))
        return states_BTD


class ConvolutionBody(Body):
    """Embedding and gated convolutions. No positions are added: near a token, the convolutions know the order."""

    def __init__(self, settings: ConvolutionBodySettings, vocabulary: int) -> None:
        super().__init__()
        self.width = d_model = settings.d_model
        self.embedding = nn.Embedding(vocabulary, d_model)
        self.layers = nn.ModuleList(
            GatedLayer(d_model, d_model, settings.kernel, settings.dropout) for _ in range(settings.layers)
        )
        # The spread of ConvS2S, section 3.5: small vectors go through a layer with their variance kept.
        nn.init.normal_(self.embedding.weight, std=0.1)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=math.sqrt(4 * (1 - settings.dropout) / module.in_features))
                nn.init.zeros_(module.bias)

    def forward(self, text: Tokens) -> Tensor:
        """[B, T] ids → [B, T, D]."""
        x_BTD = self.embedding(text.ids_BT)
        for layer in self.layers:
            x_BTD = layer(x_BTD, text.places)
        return x_BTD


def build_body(settings: BodySettings, vocabulary: int) -> Body:
    """A freshly initialised body over `vocabulary` tokens."""
    match settings:
        case TransformerBodySettings():
            return TransformerBody(settings, vocabulary)
        case RecurrentBodySettings():
            return RecurrentBody(settings, vocabulary)
        case ConvolutionBodySettings():
            return ConvolutionBody(settings, vocabulary)
