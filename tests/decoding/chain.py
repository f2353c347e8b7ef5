"""Models whose every probability is known, for tests of search and sampling.

Shapes: B rows, T tokens, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.batch import Batch, Specials, Tokens
from regard.models.interface import SequenceModel

SPECIALS = Specials(padding=0, start=1, end=2)
START, END, A, B, C = 1, 2, 3, 4, 5

Chances = dict[int, dict[int, float]]


@dataclass(frozen=True)
class Rows:
    """The state of a chain: nothing but how many rows there are."""

    count: int

    def select(self, rows: Tensor) -> Rows:
        assert int(rows.max()) < self.count
        return Rows(len(rows))


class Chain(SequenceModel[Rows]):
    """The next token's probability depends on the last token alone; `rows_read` counts the rows of each step."""

    def __init__(self, chances: Chances, vocabulary: int = 6) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        table_VV = torch.zeros(vocabulary, vocabulary)
        table_VV[:, END] = 1e-9
        for last, following in chances.items():
            table_VV[last] = torch.tensor([following.get(token, 0.0) for token in range(vocabulary)])
        self.scores_VV = table_VV.log()
        self.rows_read: list[int] = []
        self.weight = nn.Parameter(torch.zeros(()))  # a model is where its weights are

    def features(self, batch: Batch) -> Tensor:
        return batch.target.ids_BT[:, :, None].float()

    def logits(self, features_BTD: Tensor) -> Tensor:
        return self.scores_VV[features_BTD[..., 0].long()]

    def start(self, source: Tokens | None, rows: int) -> Rows:
        return Rows(rows)

    def step(self, tokens_BT: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        assert len(tokens_BT) == state.count
        self.rows_read.append(len(tokens_BT))
        return self.scores_VV[tokens_BT[:, -1]], state


@dataclass(frozen=True)
class Read:
    """The state of a story: all that was read."""

    ids_BT: Tensor

    def select(self, rows: Tensor) -> Read:
        return Read(self.ids_BT[rows])


class Story(SequenceModel[Read]):
    """A language model whose next token depends on all that stands before it, and on where; `reads` lists each step.

    With `context` it refuses to read more; with `endless` it never ends.
    """

    reads_source: ClassVar[bool] = False

    def __init__(
        self, vocabulary: int = 8, context: int | None = None, sharpness: float = 2.0, endless: bool = False
    ) -> None:
        super().__init__()
        self.endless = endless
        self.vocabulary, self.width, self.context, self.sharpness = vocabulary, 1, context, sharpness
        self.reads: list[list[list[int]]] = []
        self.weight = nn.Parameter(torch.zeros(()))

    def features(self, batch: Batch) -> Tensor:
        ids_BT = batch.target.ids_BT
        return torch.stack([self._mood(ids_BT[:, : t + 1]) for t in range(ids_BT.shape[1])], dim=1)

    def logits(self, features_BTD: Tensor) -> Tensor:
        names_V = torch.arange(1, self.vocabulary + 1).double()
        logits = (self.sharpness * (features_BTD.double() * names_V * 1.7).sin()).float()
        if self.endless:
            logits[..., END] = -torch.inf
        return logits

    def start(self, source: Tokens | None, rows: int) -> Read:
        return Read(torch.zeros(rows, 0, dtype=torch.long))

    def step(self, tokens_BT: Tensor, state: Read) -> tuple[Tensor, Read]:
        ids_BT = torch.cat([state.ids_BT, tokens_BT], dim=1)
        assert self.context is None or ids_BT.shape[1] <= self.context
        self.reads.append(tokens_BT.tolist())
        return self.logits(self._mood(ids_BT)), Read(ids_BT)

    @staticmethod
    def _mood(ids_BT: Tensor) -> Tensor:
        """A number that any change of the text changes, [B, 1]."""
        weights_T = torch.arange(1, ids_BT.shape[1] + 1).double().sqrt()
        return ((ids_BT + 1) * weights_T).sum(dim=1, keepdim=True)


def sources(*lengths: int) -> Tokens:
    return Tokens.padded([[A] * length for length in lengths], SPECIALS.padding)
