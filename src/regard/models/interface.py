"""The waist of the hourglass: what every model offers to search, training and pictures.

Shapes: B rows, S source tokens, T target tokens, D model, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from torch import Tensor, nn

from regard.batch import Batch, Tokens
from regard.counts import so_many
from regard.errors import UsageError


class State(Protocol):
    """Everything a model keeps between two decoding steps, as a value: steps make a new one.

    Memory that stays in place is the exception: see `regard.layers.fixed`.
    """

    def select(self, rows: Tensor) -> Self:
        """The given rows, in the given order; search keeps, copies and drops rows with this."""
        ...


StateT = TypeVar("StateT", bound=State)

Criterion = Callable[[Callable[[Tensor], Tensor], Tensor, Tensor], Tensor]
"""(output projection, features_BTD, labels_BT) → the loss of every token, losses_BT. Given the projection
instead of its result, a criterion may work through a large vocabulary piece by piece."""


class Learner(nn.Module, ABC):
    """What training asks of a model, whatever it is trained for."""

    width: int
    """The size of one feature vector, D."""
    exact_on_gpu: ClassVar[bool] = False
    """Whether torch has an exactly repeatable version of all that a GPU does in a training step of this model."""
    packs_sentences: bool = True
    """Whether a row may hold several sentences; recurrent state, for one, would leak from one into the next."""
    context: int | None = None
    """How many tokens it can read, of a target with the start among them; None if any number will do."""
    answers_once: ClassVar[bool] = False
    """Whether a row has one answer, that of its whole text; otherwise each of its tokens has one."""

    @abstractmethod
    def losses(self, batch: Batch, criterion: Criterion) -> Tensor:
        """The training loss of every answer, [B, T]."""


class SequenceModel(Learner, Generic[StateT]):
    """A model that gives the next token's scores, all positions at once or step by step.

    Training calls `losses`, which asks for `features` and `logits`. Decoding calls `start` once and `step` for each
    token. A model writes one private decoding path that `features` and `step` share, so that they cannot drift apart;
    `tests/contracts` holds it to that.
    """

    vocabulary: int
    """How many tokens there are."""
    reads_source: ClassVar[bool] = True
    """Whether it reads a source before it writes; a language model does not."""
    joins_source: ClassVar[bool] = False
    """Whether source and target become one sequence inside, and its attention is over both."""

    @abstractmethod
    def features(self, batch: Batch) -> Tensor:
        """What the output projection reads, [B, T, D]: a fused loss takes it from here."""

    @abstractmethod
    def logits(self, features_BTD: Tensor) -> Tensor:
        """The output projection: features → unnormalised scores, [B, T, V]."""

    def output_matrix(self) -> tuple[Tensor, Tensor | None] | None:
        """weight_VD and bias_V (None: no bias) where `logits` is features · weightᵀ + bias, so that a loss over a
        large vocabulary need not hold all scores at once; None where it is more than that."""
        return None

    @abstractmethod
    def start(self, source: Tokens | None, rows: int) -> StateT:
        """Read the source once. A model without a source is given None and the number of rows."""

    @abstractmethod
    def step(self, tokens_BT: Tensor, state: StateT) -> tuple[Tensor, StateT]:
        """Read one more token a row, or a whole prefix; give the scores of what comes next, [B, V]."""

    def forward(self, batch: Batch) -> Tensor:
        """The scores at every target position at once, [B, T, V]."""
        return self.logits(self.features(batch))

    def losses(self, batch: Batch, criterion: Criterion) -> Tensor:
        """The training loss of every token, [B, T]; a model that learns by more than its scores overrides it."""
        return criterion(self.logits, self.features(batch), batch.labels_BT)

    def needed(self, source: Tokens | None, rows: int) -> Tokens:
        """The source of a model that reads one, if it has a row for each target; for `features` and `start`."""
        if source is None or source.ids_BT.shape[0] != rows:
            found = "None" if source is None else so_many(source.ids_BT.shape[0], "row")
            raise UsageError(
                f"{type(self).__name__}: the source must have {so_many(rows, 'row')}, but is {found}; "
                "give one sentence for each target, or choose a language model"
            )
        return source

    def refuse(self, source: Tokens | None) -> None:
        """Refuse a source, in a language model; for `features` and `start`."""
        if source is not None:
            raise UsageError(
                f"{type(self).__name__}: a language model reads no source, but was given one of "
                f"{so_many(source.ids_BT.shape[0], 'row')}; put it in front of the target, or choose a model that "
                "translates"
            )

    def check_step(self, tokens_BT: Tensor) -> None:
        """Refuse a step that reads nothing, since nothing comes after it; for `step`."""
        if tokens_BT.shape[1] == 0:
            raise UsageError(
                f"{type(self).__name__}.step: needs at least one token a row, but was given {list(tokens_BT.shape)}; "
                "begin with the start token"
            )


class FillsGaps(ABC):
    """A model that can tell from both of its sides what stands in a gap."""

    @abstractmethod
    def in_gaps(self, text: Tokens, gaps_BT: Tensor, start: int) -> Tensor:
        """The scores of the tokens that may stand at each place of `text`, [B, T, V]; they mean something in gaps.

        `gaps_BT` is true where a token is hidden, whatever `text` has there. A text ends with its end token; `start`
        is for models that begin one with it. Gaps know nothing of each other.
        """


Carried = dict[str, Tensor]
"""What a model keeps of the rows it has read, [B, …] each, by name; empty before the first."""


class ContinuingModel(SequenceModel[StateT]):
    """A language model that can read on and on: what it keeps of a text does not grow with it."""

    @abstractmethod
    def read_on(self, batch: Batch, before: Carried) -> tuple[Tensor, Carried]:
        """The features of rows that go on from those read `before`, [B, T, D], and what to go on from after them.

        No gradient flows from one call into the one before (truncated backpropagation through time).
        """
