"""Several models that write as one.

Shapes: B rows, T tokens, D features of all models side by side, V vocabulary.

    log           log P(y_t) = mean_m log P_m(y_t) + constant       a token must please every model
    probability   log P(y_t) = log mean_m P_m(y_t)                  it is enough to please one

An ensemble is a `SequenceModel`: search, sampling and scoring use it like any other. Its members need one target
vocabulary and nothing else in common.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from regard.batch import Batch, Tokens
from regard.errors import UsageError
from regard.models.interface import SequenceModel, State

Average = Literal["log", "probability"]


@dataclass(frozen=True)
class Sources(Tokens):
    """The same sentences as each model of an ensemble reads them, row by row; itself, it is what the first one reads.

    A model without a source is given None.
    """

    each: tuple[Tokens | None, ...] = ()

    @classmethod
    def of(cls, each: Sequence[Tokens | None]) -> Sources:
        """One source a model."""
        first = next((source for source in each if source is not None), None)
        if first is None:
            raise UsageError("ensemble: at least one model must have a source, but none has; give None instead")
        return cls(first.ids_BT, first.places, tuple(each))

    def to(self, device: torch.device) -> Sources:
        """The same sources on another device."""
        return Sources.of([None if source is None else source.to(device) for source in self.each])


def select_rows(source: Tokens, rows: Tensor) -> Tokens:
    """The given rows of a source, or of the sources of an ensemble."""
    if isinstance(source, Sources):
        return Sources.of([None if each is None else select_rows(each, rows) for each in source.each])
    return Tokens(source.ids_BT.index_select(0, rows), source.places.select(rows))


@dataclass(frozen=True)
class EnsembleState:
    """The state of each model."""

    each: tuple[State, ...]

    def select(self, rows: Tensor) -> EnsembleState:
        """The given rows, in the given order."""
        return EnsembleState(tuple(state.select(rows) for state in self.each))


class Ensemble(SequenceModel[EnsembleState]):
    """Models over one target vocabulary, whose predictions are averaged."""

    def __init__(self, models: Sequence[SequenceModel[Any]], average: Average = "log") -> None:
        super().__init__()
        if not models:
            raise UsageError("ensemble: there must be at least one model, but there is none; name some")
        if average not in get_args(Average):
            raise UsageError(f"ensemble: average must be one of {', '.join(get_args(Average))}, but is `{average}`")
        sizes = [model.vocabulary for model in models]
        if len(set(sizes)) > 1:
            raise UsageError(
                f"ensemble: all models must share a target vocabulary, but they have {sizes} tokens; "
                "choose models that were trained with one tokenizer"
            )
        self.models, self.average = nn.ModuleList(models), average
        self.vocabulary, self.width = sizes[0], sum(model.width for model in models)
        self.packs_sentences = all(model.packs_sentences for model in models)
        self.context = min((model.context for model in models if model.context is not None), default=None)
        self.reads_source = any(model.reads_source for model in models)  # type: ignore[misc]

    @property
    def members(self) -> list[SequenceModel[Any]]:
        """The models, typed."""
        return [model for model in self.models if isinstance(model, SequenceModel)]

    def features(self, batch: Batch) -> Tensor:
        """The features of all models side by side, [B, T, D]."""
        sources = self._sources(batch.source)
        pairs = zip(self.members, sources, strict=True)
        return torch.cat([model.features(replace(batch, source=source)).float() for model, source in pairs], dim=-1)

    def logits(self, features_BTD: Tensor) -> Tensor:
        """The averaged log-probabilities, [B, T, V]."""
        parts = features_BTD.split([model.width for model in self.members], dim=-1)
        return self._averaged(
            # The members may compute in different precisions; side by side their features have the highest.
            [model.logits(part.to(_kind(model))) for model, part in zip(self.members, parts, strict=True)]
        )

    def start(self, source: Tokens | None, rows: int) -> EnsembleState:
        """Each model reads its source."""
        sources = self._sources(source)
        return EnsembleState(tuple(model.start(each, rows) for model, each in zip(self.members, sources, strict=True)))

    def step(self, tokens_BT: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState]:
        """The averaged log-probabilities of the token after `tokens_BT`, [B, V], and all states with them read."""
        logits, states = zip(
            *(model.step(tokens_BT, each) for model, each in zip(self.members, state.each, strict=True)), strict=True
        )
        return self._averaged(logits), EnsembleState(states)

    def _averaged(self, logits: Sequence[Tensor]) -> Tensor:
        log_probabilities = torch.stack([each.float().log_softmax(dim=-1) for each in logits])
        if self.average == "log":
            # A geometric mean does not sum to one by itself.
            return log_probabilities.mean(dim=0).log_softmax(dim=-1)
        return log_probabilities.logsumexp(dim=0) - math.log(len(logits))

    def _sources(self, source: Tokens | None) -> tuple[Tokens | None, ...]:
        if not isinstance(source, Sources):
            return tuple(source if model.reads_source else None for model in self.members)
        if len(source.each) != len(self.members):
            raise UsageError(
                f"ensemble: there must be one source a model ({len(self.members)}), but there are {len(source.each)}; "
                "give None to a model that reads none"
            )
        return source.each


def _kind(model: nn.Module) -> torch.dtype:
    return next((weight.dtype for weight in model.parameters()), torch.float)
