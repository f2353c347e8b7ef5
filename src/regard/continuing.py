"""What a run that goes on must have in common with its beginning: it is a function of its recipe."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from regard import folder
from regard.errors import UsageError
from regard.recipe import Recipe
from regard.training import checkpoint
from regard.training.objective import ObjectiveSettings

FIXED = ("seed", "init", "data", "tokenizer", "model", "batch")
FIXED_TRAINING = (*(field.name for field in fields(ObjectiveSettings)), "ema", "by_clock", "optimiser")


def check_same_run(recipe: Recipe, out: Path) -> None:
    """Raise where the run in a folder would go on with what decides otherwise, or to a step it is beyond."""
    before = folder.read_recipe(out)
    changed = [name for name in FIXED if getattr(recipe, name) != getattr(before, name)]
    for name in FIXED_TRAINING:
        if getattr(recipe.training, name) != getattr(before.training, name):
            changed.append(f"training.{name}")
    if changed:
        raise UsageError(
            f"{out}: a run must go on with the settings it began with, but {', '.join(changed)} changed. Leave them as "
            f"they are in {out / folder.RECIPE}, or train anew into another folder."
        )
    reached = [int(place.name) for place in checkpoint.found(out / folder.CHECKPOINTS)]
    if reached and recipe.training.steps < reached[-1]:
        raise UsageError(
            f"{out}: training.steps must be at least {reached[-1]:,}, the step this run has reached, but is "
            f"{recipe.training.steps:,}. Ask for more."
        )
