"""How likely held-out text is under a model that learns: read in parts where memory needs it, and by all of a team."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.batch import IGNORED, Batch
from regard.memory import Halves, NoRoomError
from regard.models.interface import Carried, ContinuingModel, Learner, SequenceModel
from regard.training.loss import smoothed_cross_entropy, total_likelihood
from regard.training.team import Team

RESUME = "See whether others use the device (nvidia-smi), then go on with --resume."
CRITERION = smoothed_cross_entropy(0.0)


@dataclass(frozen=True)
class Validation:
    """Likelihood of held-out text under the model: nats a token, end tokens included."""

    nll: float
    tokens: int
    bytes: int = 0
    """How long the text is in UTF-8, an end of line after each sentence; 0 if nobody knows."""

    @property
    def perplexity(self) -> float:
        """exp(nats a token)."""
        return math.exp(min(self.nll, 700.0))

    @property
    def perplexity_per_byte(self) -> float | None:
        """exp(nats a byte): it does not depend on how text is cut into tokens."""
        return math.exp(min(self.nll * self.tokens / self.bytes, 700.0)) if self.bytes else None


class Validator:
    """Reads held-out text for a team; it keeps in mind in how many parts a batch fits into memory."""

    def __init__(
        self, team: Team, device: torch.device, streams: bool, precision: Callable[[], AbstractContextManager[object]]
    ) -> None:
        """`streams` says that each row goes on from that of the batch before."""
        self._team, self._device, self._streams, self._precision = team, device, streams, precision
        self._halves = Halves()

    def validate(self, model: Learner, batches: Iterable[Batch], size: int, step: int) -> Validation:
        """The mean negative log-likelihood of `batches` after a `step`, without smoothing; `size` is their bytes.

        Where memory runs out, they are read in parts: each member of a team its own, before all of them meet.
        """
        sums = torch.zeros(2, dtype=torch.float64, device=self._device)
        carried: Carried | None = {} if self._streams else None
        for number, batch in enumerate(batches):
            if number % self._team.size == self._team.rank:
                for part in self._likelihood_and_labels(model, batch, carried, step):
                    sums += part
        total, tokens = self._team.sum(sums).tolist()
        return Validation(total / max(tokens, 1), int(tokens), size)

    def _likelihood_and_labels(self, model: Learner, batch: Batch, carried: Carried | None, step: int) -> list[Tensor]:
        """The negative log-likelihood and the number of labels of each part of a batch, [2], in fp64."""
        rows, slots = len(batch.labels_BT), (batch.source or batch.target).ids_BT.shape[1]

        def read(part: slice) -> Tensor:
            # A row that goes on from its own past belongs to all of them.
            some = (batch.rows(part) if carried is None else batch).to(self._device)
            after = None if carried is None else Carried(carried)
            with self._precision():
                likelihood = negative_log_likelihood(model, some, after)
            if carried is not None and after is not None:
                carried.update(after)  # not before all of it is done: it may have to be done again
            return torch.stack([likelihood, (some.labels_BT != IGNORED).sum().double()])

        def no_room(_: int) -> NoRoomError:
            which, size = ("a row", slots) if carried is None else ("a batch of a `stream`", rows * slots)
            return NoRoomError(f"validation after step {step:,}: {which}", f"{size:,} tokens", RESUME)

        return self._halves.in_parts(rows if carried is None else 1, read, no_room)


def negative_log_likelihood(model: Learner, batch: Batch, carried: Carried | None) -> Tensor:
    """Of all labels, []; `carried` is what the rows go on from, if they do, and is brought up to date."""
    matrix = model.output_matrix() if isinstance(model, SequenceModel) else None
    if matrix is None or not isinstance(model, SequenceModel):
        return model.losses(batch, CRITERION).double().sum()
    if carried is not None and isinstance(model, ContinuingModel):
        features, after = model.read_on(batch, carried)
        carried.update(after)
    else:
        features = model.features(batch)
    return total_likelihood(features, *matrix, batch.labels_BT)
