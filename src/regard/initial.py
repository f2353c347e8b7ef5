"""What a run begins with that begins with another model: its weights and its vocabulary, if they fit."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard import folder, shipped
from regard.errors import UsageError
from regard.models.bert import Bert, BertSettings
from regard.models.labelling import ClassifierSettings, TaggerSettings
from regard.models.transformer import StackSettings
from regard.recipe import CUTS, LABELLING, SAME_WEIGHTS, WEIGHTLESS, Recipe
from regard.settings.tree import text_of
from regard.text.tokenizer import Tokenizer

TAKEN_OVER = "a model that goes on reads text as it did before"
LEARNED = "its weights were learned so"
REASONS = {
    "vocabulary": "each token has its own weights, and others would mean other tokens",
    "max_positions": "so many positions were learned, and there are no others",
}
EMBEDDING = "body.embedding.table.weight"


@dataclass(frozen=True)
class Beginning:
    """What is taken over from a model folder."""

    place: Path
    tokenizer: Tokenizer
    weights: dict[str, Tensor]
    """All of the model's, or those of its body."""


def beginning_of(recipe: Recipe) -> Beginning | None:
    """What the recipe's `init` names, after proving that it fits; None where a run begins from nothing."""
    if recipe.init is None:
        return None
    place = shipped.resolve(recipe.init)
    before = folder.load_folder(place, torch.device("cpu"))
    problems = [*_other_vocabulary(recipe, before.recipe), *_other_model(recipe, before.recipe)]
    if problems:
        raise UsageError(
            f"init: the recipe must fit the weights in {place}, but does not:\n  "
            + "\n  ".join(problems)
            + f"\nLeave these settings out: with `init` they are those of {place / folder.RECIPE}."
        )
    weights = before.network.state_dict()
    if isinstance(before.network, Bert) and recipe.model.kind in LABELLING:
        weights = {name: weight for name, weight in weights.items() if name.startswith("body.")}
        weights[EMBEDDING] = weights[EMBEDDING][: before.network.vocabulary]  # without the mask, which no text has
    return Beginning(place, before.tokenizer, weights)


def _other_vocabulary(recipe: Recipe, before: Recipe) -> list[str]:
    """What is asked of a vocabulary that is there already."""
    asked, there = recipe.tokenizer, before.tokenizer
    if type(asked) is not type(there):
        return [f"tokenizer.kind must be `{there.kind}`, but is `{asked.kind}`: {TAKEN_OVER}"]
    return _differences("tokenizer", asked, there, CUTS, TAKEN_OVER)


def _other_model(recipe: Recipe, before: Recipe) -> list[str]:
    """What is asked of a model that is there already."""
    asked, there, free = recipe.model, before.model, ["kind", *WEIGHTLESS]
    if isinstance(there, BertSettings) and isinstance(asked, ClassifierSettings | TaggerSettings):
        return _differences("model.body", asked.body, there, free, LEARNED)
    if type(asked) is not type(there) and not {asked.kind, there.kind} <= SAME_WEIGHTS:
        return [f"model.kind must be `{there.kind}`, but is `{asked.kind}`: other models have other weights"]
    if isinstance(there, StackSettings):
        # Settings of positions that the model does not have.
        free += ["max_positions"] if there.positions != "learned" else []
        free += ["reach"] if there.positions != "relative" else []
    return _differences("model", asked, there, free, LEARNED)


def _differences(table: str, asked: Any, there: Any, free: Collection[str], reason: str) -> list[str]:
    """A sentence for each setting of which another value is asked for than there is."""
    names = [field.name for field in fields(there) if field.name not in free and hasattr(asked, field.name)]
    return [
        f"{table}.{name} must be {text_of(getattr(there, name))}, but is {text_of(getattr(asked, name))}: "
        f"{REASONS.get(name, reason)}"
        for name in names
        if getattr(asked, name) != getattr(there, name)
    ]
