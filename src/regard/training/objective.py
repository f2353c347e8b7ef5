"""What training makes small: the likelihood of the labels, and, if asked for, how much two readings disagree.

    R-Drop   (Liang et al. 2021)    ½·[CE(p) + CE(q)] + α/2 · ½·[KL(p‖q) + KL(q‖p)]
    SimCut   (Gao et al. 2022)      CE(p) + α·KL(p‖q)

p and q are the model's two answers to one batch: for R-Drop under two draws of dropout, for SimCut q is the answer
where whole tokens were cut from what the model reads. R-Drop is here half of its authors' sum, so that losses can be
compared with those of a run without it; their α is this α.

`regard.training.reward` adds the expected GLEU of what the model itself writes.

To that is added what a model's experts (`regard.layers.experts`), if it has any, say of how unevenly they are asked.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.batch import IGNORED, Batch
from regard.errors import UsageError
from regard.layers.block import DecoderLayer, EncoderLayer
from regard.layers.dropout import TokenCut
from regard.layers.experts import MixtureOfExperts
from regard.models.interface import Carried, ContinuingModel, Learner, SequenceModel
from regard.settings.bounds import check_shares, check_weights
from regard.training.loss import smoothed_cross_entropy, total_loss
from regard.training.reward import Rewards


@dataclass(frozen=True)
class ObjectiveSettings:
    """What is made small (a part of the training settings); the defaults are the paper's."""

    label_smoothing: float = 0.1
    r_drop: float = 0.0
    """The weight α of R-Drop; its authors use 5 for translation, 0 is without."""
    simcut: float = 0.0
    """The weight α of SimCut; its authors use 3, 0 is without."""
    simcut_rate: float = 0.05
    """The chance of each token to be cut."""
    reward: float = 0.0
    """The weight of the expected GLEU of what the model itself writes; GNMT's authors use 4, 0 is without."""
    samples: int = 15
    """How many translations of each sentence are drawn for it."""

    def __post_init__(self) -> None:
        check_shares(self, "label_smoothing")
        check_weights(self, "r_drop", "simcut", "reward")
        if not 0 < self.simcut_rate < 1:
            raise ValueError(f"`simcut_rate` must be between 0 and 1, but is {self.simcut_rate}")
        if self.r_drop and self.simcut:
            raise ValueError(f"`r_drop` ({self.r_drop}) and `simcut` ({self.simcut}) must not both be on")
        if self.samples < 2:
            raise ValueError(f"`samples` must be at least 2, to be compared with each other, but is {self.samples}")

    @property
    def readings(self) -> int:
        """How often each row of a batch is read."""
        return 2 if self.r_drop or self.simcut else 1


class Objective(nn.Module):
    """A model and what it is trained to make small: a batch → the sum of its losses, [].

    Rows whose lengths (source, target) are among `compiled` are read by compiled code, made of the whole model or
    `by_layer`.
    """

    def __init__(
        self,
        model: Learner,
        settings: ObjectiveSettings,
        compiled: Collection[tuple[int, int]] = (),
        streams: bool = False,
        rewards: Rewards | None = None,
        by_layer: bool = False,
    ) -> None:
        super().__init__()
        self.model, self.settings = model, settings
        self.carried: Carried | None = {} if streams else None
        """What each row of a batch goes on from, where rows go on from those of the batch before."""
        if streams:
            _check_reads_on(model, settings)
        self._criterion, self._plain = smoothed_cross_entropy(settings.label_smoothing), smoothed_cross_entropy(0.0)
        self._cuts = [module for module in model.modules() if isinstance(module, TokenCut)]
        if settings.simcut and not self._cuts:
            raise UsageError(
                f"training.simcut: must be 0 for a `{_kind(model)}`, which has no token embeddings that can be cut, as "
                f"a `transformer` and a `gpt` have, but is {settings.simcut:g}. Set `training.simcut = 0`."
            )
        self._rewards = rewards
        if settings.reward and (rewards is None or not isinstance(model, SequenceModel) or not model.reads_source):
            raise UsageError(
                f"training.reward: must be 0 for a `{_kind(model)}`, since what is judged are translations, but is "
                f"{settings.reward:g}. Set `training.reward = 0`, or train a model that translates, on sentence pairs."
            )
        self._experts = [module for module in model.modules() if isinstance(module, MixtureOfExperts)]
        self._features = None
        if isinstance(model, SequenceModel) and type(model).losses is SequenceModel.losses:
            self._features = _compiled(model, compiled, by_layer) if compiled else model.features

    def forward(self, batch: Batch) -> Tensor:
        """The sum over all labels, []; divide by how many there are."""
        rewarded = self._rewarded(batch) if self.settings.reward else 0
        loss = self._of_labels(batch) + rewarded
        # Every label bears the same share, so that the parts of a batch weigh as much as they have labels.
        labels = (batch.labels_BT != IGNORED).sum() if self._experts else 0
        for experts in self._experts:
            loss = loss + labels * experts.take_imbalance()
        return loss

    def _rewarded(self, batch: Batch) -> Tensor:
        """Nothing, with the gradient of the expected reward."""
        assert self._rewards is not None
        assert isinstance(self.model, SequenceModel)
        drawn, better_R = self._rewards.drawn(self.model, batch, self.settings.samples)
        losses_RT = self.model.losses(drawn, self._plain)
        worse = self.settings.reward / (self.settings.samples - 1) * (better_R[:, None] * losses_RT).sum()
        return worse - worse.detach()

    def _of_labels(self, batch: Batch) -> Tensor:
        if self.settings.readings == 2:
            return self._two_readings(batch)
        if self.carried is not None and isinstance(self.model, ContinuingModel):
            features, self.carried = self.model.read_on(batch, self.carried)
            return self._criterion(self.model.logits, features, batch.labels_BT).sum()
        matrix = self.model.output_matrix() if isinstance(self.model, SequenceModel) else None
        if self._features is None or matrix is None:
            return self.model.losses(batch, self._criterion).sum()
        return total_loss(self._features(batch), *matrix, batch.labels_BT, self.settings.label_smoothing)

    def _two_readings(self, batch: Batch) -> Tensor:
        """Both readings in one go: every row twice, one below the other."""
        if self._features is None or not isinstance(self.model, SequenceModel):
            raise UsageError(
                f"training.r_drop: R-Drop and SimCut need a model trained by likelihood alone, but a "
                f"{type(self.model).__name__} is not. Set them to 0."
            )
        with self._cutting():
            scores = self.model.logits(self._features(twice(batch))).float()
        # Tokens without a label are weighed by 0, not left out: how many there are, a recorded step may not ask.
        labelled_BT = batch.labels_BT != IGNORED
        p_BTV, q_BTV = (half.log_softmax(-1) for half in (scores[0::2], scores[1::2]))
        if self.settings.simcut:
            apart = _divergence(p_BTV, q_BTV, labelled_BT)
            return self._cross_entropy(scores[0::2], batch) + self.settings.simcut * apart
        apart = (_divergence(p_BTV, q_BTV, labelled_BT) + _divergence(q_BTV, p_BTV, labelled_BT)) / 2
        return (self._cross_entropy(scores, twice(batch)) + self.settings.r_drop * apart) / 2

    def _cross_entropy(self, scores: Tensor, batch: Batch) -> Tensor:
        return self._criterion(lambda scores: scores, scores, batch.labels_BT).sum()

    @contextmanager
    def _cutting(self) -> Iterator[None]:
        for cut in self._cuts:
            cut.p = self.settings.simcut_rate if self.settings.simcut else 0.0
        try:
            yield
        finally:
            for cut in self._cuts:
                cut.p = 0.0


def _compiled(
    model: SequenceModel[Any], lengths: Collection[tuple[int, int]], by_layer: bool
) -> Callable[[Batch], Tensor]:
    """`model.features`, compiled for rows of these lengths: up to half a minute each, which others are not worth."""
    layers = [layer for layer in model.modules() if by_layer and isinstance(layer, (EncoderLayer, DecoderLayer))]
    compiled = _by_layer(model, layers) if layers else torch.compile(model.features, dynamic=False)

    def features(batch: Batch) -> Tensor:
        found = (0 if batch.source is None else batch.source.ids_BT.shape[1], batch.target.ids_BT.shape[1])
        return compiled(batch) if found in lengths else model.features(batch)

    return features


def _by_layer(model: SequenceModel[Any], layers: Sequence[nn.Module]) -> Callable[[Batch], Tensor]:
    """`model.features` with compiled layers: code for one serves all of its kind, so that a stack of six is compiled in
    a sixth of the time."""
    forwards = [torch.compile(layer.forward, dynamic=False) for layer in layers]

    def features(batch: Batch) -> Tensor:
        for layer, forward in zip(layers, forwards, strict=True):
            layer.__dict__["forward"] = forward
        try:
            with warnings.catch_warnings():
                # torch's compiler asks what flows into a layer for its gradient, and warns of that itself.
                warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor")
                return model.features(batch)
        finally:
            for layer in layers:
                del layer.__dict__["forward"]

    return features


def _divergence(p_BTV: Tensor, q_BTV: Tensor, counted_BT: Tensor) -> Tensor:
    """Σ KL(p‖q) over the tokens that count, from log-probabilities; gradients flow into both."""
    each_BT = F.kl_div(q_BTV, p_BTV, reduction="none", log_target=True).sum(dim=-1)
    return (each_BT * counted_BT).sum()


def twice(batch: Batch) -> Batch:
    """Every row twice, one below the other: row r of any part of a batch is rows 2·r and 2·r + 1."""
    return batch.map(lambda x: x.repeat_interleave(2, dim=0))


def _check_reads_on(model: Learner, settings: ObjectiveSettings) -> None:
    """Rows that go on from those before are for models that can, and each is read once."""
    if not isinstance(model, ContinuingModel):
        raise UsageError(
            f"batch.layout: must not be `stream` for a `{_kind(model)}`, which begins anew with each row; only a "
            "`recurrent-lm` or a `transformer-xl` goes on from batch to batch. Choose `blocks`."
        )
    for name, value in (("r_drop", settings.r_drop), ("simcut", settings.simcut)):
        if value:
            raise UsageError(
                f"training.{name}: must be 0 where `batch.layout` is `stream`, since rows that go on can be read only "
                f"once, but is {value:g}. Set `training.{name} = 0`, or choose `blocks`."
            )


def _kind(model: Learner) -> str:
    """What a recipe calls a model."""
    found: str = getattr(getattr(model, "settings", None), "kind", type(model).__name__)
    return found
