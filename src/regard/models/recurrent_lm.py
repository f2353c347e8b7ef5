"""A recurrent language model (Mikolov et al. 2010; with dropout as Zaremba et al. 2014).

Shapes: B rows, T tokens, D model, V vocabulary.

    s_t = stack(s_(t-1), Dropout(E[x_t])),   p(x_(t+1)) = softmax(W·Dropout(s_t) + b)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.batch import Batch, Tokens
from regard.layers.recurrent import Cell, Hidden, Links, RecurrentStack, StackSizes, initialise, row_lengths
from regard.models.interface import Carried, ContinuingModel
from regard.settings import check_words
from regard.settings.bounds import check_at_least, check_positive, check_shares


@dataclass(frozen=True)
class RecurrentLMSettings:
    """A recurrent language model; the defaults are the medium LSTM of Zaremba et al. 2014, section 4.1."""

    kind: Literal["recurrent-lm"] = "recurrent-lm"
    cell: Cell = "lstm"
    layers: int = 2
    d_model: int = 650
    dropout: float = 0.5
    """On the embeddings, between the layers and on the output; never from one token to the next."""
    links: Links = "plain"
    tied: bool = False
    """Use the embedding matrix as the output matrix (Press and Wolf 2017)."""
    spread: float | None = None
    """Draw every first weight evenly from -spread to spread, biases too, as Zaremba et al. do (0.05 for the medium
    model); unless given, each kind of matrix is drawn in the way that suits it."""

    def __post_init__(self) -> None:
        check_words(self)
        check_at_least(1, self, "layers", "d_model")
        check_shares(self, "dropout")
        check_positive(self, "spread")


@dataclass(frozen=True)
class RecurrentLMState:
    """The state of every layer, lowest first."""

    hidden: tuple[Hidden, ...]

    def select(self, rows: Tensor) -> RecurrentLMState:
        """The given rows, in the given order."""
        return RecurrentLMState(tuple(layer.select(rows) for layer in self.hidden))


class RecurrentLM(ContinuingModel[RecurrentLMState]):
    """Recurrent layers over an embedding, and a softmax over what comes next; a row starts from zero or is read on."""

    reads_source: ClassVar[bool] = False
    packs_sentences = False

    def __init__(self, settings: RecurrentLMSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings, self.vocabulary, self.width = settings, vocabulary, settings.d_model
        d_model = settings.d_model
        self.embedding = nn.Embedding(vocabulary, d_model)
        self.stack = RecurrentStack(
            StackSizes(settings.cell, settings.layers, d_model, d_model, settings.dropout, settings.links)
        )
        self.dropout = nn.Dropout(settings.dropout)
        self.output = None if settings.tied else nn.Linear(d_model, vocabulary, bias=False)
        self.output_bias_V = nn.Parameter(torch.zeros(vocabulary))
        initialise(self)
        if settings.spread is not None:
            for weight in self.parameters():
                nn.init.uniform_(weight, -settings.spread, settings.spread)

    def features(self, batch: Batch) -> Tensor:
        """What the top layer gives at every position, [B, T, D]."""
        row_lengths(batch.target.places, "RecurrentLM, target")
        rows = batch.target.ids_BT.shape[0]
        features_BTD, _ = self._read(batch.target.ids_BT, self.start(batch.source, rows))
        return features_BTD

    def read_on(self, batch: Batch, before: Carried) -> tuple[Tensor, Carried]:
        """The features of rows whose layers go on from the states `before`, [B, T, D], and the states after them."""
        row_lengths(batch.target.places, "RecurrentLM, target")
        self.refuse(batch.source)
        hidden = self.stack.zero(batch.target.ids_BT.shape[0])
        if before:
            hidden = tuple(
                Hidden(before[f"{layer}.output"], before.get(f"{layer}.cell")) for layer in range(len(hidden))
            )
        features_BTD, state = self._read(batch.target.ids_BT, RecurrentLMState(hidden))
        after = {}
        for layer, kept in enumerate(state.hidden):
            after[f"{layer}.output"] = kept.output_BD.detach()
            if kept.cell_BD is not None:
                after[f"{layer}.cell"] = kept.cell_BD.detach()
        return features_BTD, after

    def logits(self, features_BTD: Tensor) -> Tensor:
        """The output projection, [B, T, V]."""
        return F.linear(features_BTD, *self.output_matrix())

    def output_matrix(self) -> tuple[Tensor, Tensor | None]:
        """The output matrix, [V, D], the embedding's where the settings tie them; and its bias, [V]."""
        return (self.embedding.weight if self.output is None else self.output.weight), self.output_bias_V

    def start(self, source: Tokens | None, rows: int) -> RecurrentLMState:
        """The state before the first token: zeros."""
        self.refuse(source)
        return RecurrentLMState(self.stack.zero(rows))

    def step(self, tokens_BT: Tensor, state: RecurrentLMState) -> tuple[Tensor, RecurrentLMState]:
        """Scores of the token after `tokens_BT`, [B, V], and the state with them read."""
        self.check_step(tokens_BT)
        features_BTD, state = self._read(tokens_BT, state)
        return self.logits(features_BTD[:, -1]), state

    def _read(self, tokens_BT: Tensor, state: RecurrentLMState) -> tuple[Tensor, RecurrentLMState]:
        """The one path: `tokens_BT` may be a whole row, a prefix, or one token a row."""
        outputs_BTD, hidden = self.stack(self.embedding(tokens_BT), state.hidden)
        return self.dropout(outputs_BTD), RecurrentLMState(hidden)
