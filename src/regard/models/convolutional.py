"""What the convolutional models have in common: one path for whole targets and for steps, and how weights begin.

Shapes: B rows, T target tokens, D model, V vocabulary.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol, Self, TypeVar

from torch import Tensor, nn

from regard.batch import Batch, Places, Tokens
from regard.models.interface import SequenceModel


class CountedState(Protocol):
    """A state that knows how many tokens were read."""

    @property
    def seen(self) -> int:
        """The tokens of a row that were read, and so the position of the next."""
        ...

    def select(self, rows: Tensor) -> Self:
        """The given rows, in the given order."""
        ...


CountedStateT = TypeVar("CountedStateT", bound=CountedState)


class ConvolutionalModel(SequenceModel[CountedStateT]):
    """A model that writes `decode`; training and decoding both go through it."""

    output: nn.Linear

    @abstractmethod
    def decode(self, tokens: Tokens, state: CountedStateT) -> tuple[Tensor, CountedStateT]:
        """The features [B, T, D] of `tokens`, and the state with them read.

        `tokens` may be all the target, a prefix, or one token a row.
        """

    def features(self, batch: Batch) -> Tensor:
        """What the output projection reads at every target position, [B, T, D]."""
        features_BTD, _ = self.decode(batch.target, self.start(batch.source, batch.target.ids_BT.shape[0]))
        return features_BTD

    def logits(self, features_BTD: Tensor) -> Tensor:
        """The output projection, [B, T, V]."""
        return self.output(features_BTD)

    def output_matrix(self) -> tuple[Tensor, Tensor | None]:
        """The output matrix, [V, D], and its bias, [V]."""
        return self.output.weight, self.output.bias

    def step(self, tokens_BT: Tensor, state: CountedStateT) -> tuple[Tensor, CountedStateT]:
        """Scores of the token after `tokens_BT`, [B, V], and the state with them read."""
        self.check_step(tokens_BT)
        features_BTD, state = self.decode(Tokens(tokens_BT, Places.whole(tokens_BT, state.seen)), state)
        return self.logits(features_BTD[:, -1]), state


def initialise(model: nn.Module, *sums: list[nn.Linear]) -> None:
    """Embeddings from N(0, 1), Glorot-uniform matrices, zero biases.

    Where the outputs of many matrices are added up, each starts smaller by the root of their number: so the sum of
    a deep stack begins no larger than that of a shallow one.
    """
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight)
        elif isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
    for summed in sums:
        for linear in summed:
            linear.weight.detach().div_(len(summed) ** 0.5)
