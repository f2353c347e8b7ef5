"""BERT: an encoder that sees both sides, trained to say which tokens were hidden (Devlin et al. 2018).

Shapes: B rows, T tokens, D model, V vocabulary.

    x = body(text with some tokens hidden)
    p(token t) = softmax(E·LayerNorm(gelu(W·x_t + b)) + c)         E: the embedding, section 3.1 and the authors' code

What hides a token is a token of the model's own, behind those of the vocabulary: text cannot contain it. The authors'
second task, whether two sentences follow each other, is left out; Liu et al. 2019 found that it does not help.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.batch import Batch, Tokens
from regard.errors import UsageError
from regard.layers.feedforward import Activation
from regard.layers.norm import LayerNorm
from regard.layers.positions import PositionKind
from regard.models.encoder import TransformerBody, TransformerBodySettings
from regard.models.interface import Criterion, FillsGaps, Learner
from regard.models.transformer import initialise


@dataclass(frozen=True)
class BertSettings(TransformerBodySettings):
    """Sizes and objective; the defaults are those of BERT-Base."""

    kind: Literal["bert"] = "bert"  # type: ignore[assignment]
    layers: int = 12
    d_model: int = 768
    d_ff: int = 3072
    heads: int = 12
    activation: Activation = "gelu"
    positions: PositionKind = "learned"
    max_positions: int = 512
    norm_epsilon: float = 1e-12
    embedding_norm: bool = True
    masked: float = 0.15
    """Which part of the tokens of a row is to be guessed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.masked < 1:
            raise ValueError(f"`masked` must be above 0 and below 1, but is {self.masked}")


class Bert(Learner, FillsGaps):
    """A body that reads a text with gaps, and an output that says what stands in them.

    A training batch has the text with some tokens hidden as its `target`, no `source`, and in `labels_BT` those tokens,
    where they stand.
    """

    def __init__(self, settings: BertSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings, self.vocabulary, self.width = settings, vocabulary, settings.d_model
        self.context = settings.limit
        """How many tokens it can read, the end among them; None if any number will do."""
        self.body = TransformerBody(settings, vocabulary + 1)
        self.transform = nn.Linear(self.width, self.width)
        self.norm = LayerNorm(self.width, settings.norm_epsilon)
        self.output_bias_V = nn.Parameter(torch.zeros(vocabulary))
        initialise(self)

    @property
    def mask(self) -> int:
        """The token that hides others."""
        return self.vocabulary

    def features(self, text: Tokens) -> Tensor:
        """What the output projection reads at every token, [B, T, D]."""
        return self.norm(F.gelu(self.transform(self.body(text))))

    def logits(self, features_BTD: Tensor) -> Tensor:
        """Features times the transposed embedding, plus a bias, [B, T, V]; the mask is no answer."""
        return F.linear(features_BTD, self.body.embedding.weight_VD[: self.vocabulary], self.output_bias_V)

    def forward(self, text: Tokens) -> Tensor:
        """The scores of what may stand at every token of a text, [B, T, V]."""
        return self.logits(self.features(text))

    def losses(self, batch: Batch, criterion: Criterion) -> Tensor:
        """The training loss of every token that has a label, [B, T]."""
        if batch.source is not None:
            raise UsageError(
                f"Bert: reads one text, the batch's `target`, but a `source` of {list(batch.source.ids_BT.shape)} is "
                "there, too; put the text in `target` and None in `source`"
            )
        return criterion(self.logits, self.features(batch.target), batch.labels_BT)

    def in_gaps(self, text: Tokens, gaps_BT: Tensor, start: int) -> Tensor:
        """The scores of each token of `text` that stands in a gap, [B, T, V]; no `start` stands before a text here."""
        return self(Tokens(torch.where(gaps_BT, self.mask, text.ids_BT), text.places))
