"""The training loop's one step, and how to stop and go on exactly.

A run is a function of (settings, data, seed): the order of batches comes from the step number, the rate from
the schedule, dropout from a generator whose state is part of the checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.batch import IGNORED, Batch
from regard.data.batching import Batches
from regard.errors import DataError, UsageError
from regard.models.interface import Learner
from regard.training import checkpoint
from regard.training.checkpoint import Snapshot
from regard.training.loss import smoothed_cross_entropy
from regard.training.optim import OptimiserSettings, adam


@dataclass(frozen=True)
class TrainingSettings:
    """How long to train and what to keep; the defaults are the paper's base model's."""

    steps: int = 100_000
    label_smoothing: float = 0.1
    validate_every: int = 1_000
    save_every: int = 1_000
    keep: int = 5
    average: int = 5
    optimiser: OptimiserSettings = OptimiserSettings()

    def __post_init__(self) -> None:
        for name in ("steps", "validate_every", "save_every", "keep", "average"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, but is {getattr(self, name)}")
        if self.average > self.keep:
            raise ValueError(f"`average` must be at most `keep` ({self.keep}), but is {self.average}")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"`label_smoothing` must be at least 0 and below 1, but is {self.label_smoothing}")


@dataclass(frozen=True)
class StepReport:
    """What one step did: the mean loss a token, the rate, and how many source and target tokens it read."""

    step: int
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens: int


@dataclass(frozen=True)
class Validation:
    """Likelihood of held-out text under the model: nats a token, end tokens included."""

    nll: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """exp(nats a token)."""
        return math.exp(min(self.nll, 700.0))


class Trainer:
    """A model, its optimiser and its batches, and the step they have reached."""

    def __init__(self, model: Learner, batches: Batches, settings: TrainingSettings) -> None:
        self.model, self.batches, self.settings = model, batches, settings
        self.optimiser = adam(model, settings.optimiser)
        self.step = 0
        self.device = next(model.parameters()).device
        self._criterion = smoothed_cross_entropy(settings.label_smoothing)
        self._likelihood = smoothed_cross_entropy(0.0)

    def advance(self) -> StepReport:
        """Read one batch and change the weights once."""
        batch = self.batches[self.step].to(self.device)
        rate = self.settings.optimiser.learning_rate(self.step + 1, self.model.width)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.model.train()
        loss = self.model.losses(batch, self._criterion).sum() / (batch.labels_BT != IGNORED).sum()
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        clip = self.settings.optimiser.clip
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), math.inf if clip is None else clip)
        value, length = loss.item(), norm.item()
        # A finite loss can have an infinite gradient: stop before it ruins the weights and they are saved.
        if not math.isfinite(value + length):
            raise DataError(
                f"step {self.step + 1}: the loss and its gradient must be finite, but are {value} and {length}. Lower "
                "`training.optimiser.factor`, raise `training.optimiser.warmup`, or set `training.optimiser.clip`."
            )
        self.optimiser.step()
        self.step += 1
        return StepReport(self.step, value, rate, length, _real_tokens(batch))

    @torch.inference_mode()
    def validate(self, batches: Iterable[Batch]) -> Validation:
        """The model's mean negative log-likelihood on `batches`, without smoothing or dropout."""
        self.model.eval()
        total, tokens = 0.0, 0
        for batch in batches:
            batch = batch.to(self.device)
            total += self.model.losses(batch, self._likelihood).double().sum().item()
            tokens += int((batch.labels_BT != IGNORED).sum())
        return Validation(total / max(tokens, 1), tokens)

    def snapshot(self) -> Snapshot:
        """Everything needed to go on from here."""
        return Snapshot(
            self.step,
            checkpoint.weights_of(self.model),
            checkpoint.optimiser_state(self.model, self.optimiser),
            checkpoint.random_state(),
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to (or on from) a snapshot."""
        try:
            self.model.load_state_dict(snapshot.weights)
        except RuntimeError as error:
            raise UsageError(
                f"checkpoint of step {snapshot.step:,}: its weights must fit the model of the recipe, but do not. "
                f"Leave the model's settings as they were. {error}"
            ) from error
        checkpoint.restore_optimiser(self.model, self.optimiser, snapshot.optimiser)
        checkpoint.restore_random(snapshot.random)
        self.step = snapshot.step


def _real_tokens(batch: Batch) -> int:
    def count(segments_BT: Tensor) -> int:
        return int((segments_BT != 0).sum())

    source = 0 if batch.source is None else count(batch.source.places.segments_or_ones())
    return source + count(batch.target.places.segments_or_ones())
