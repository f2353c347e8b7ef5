"""A recipe for those who bring none: one that suits the corpus and the machine, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any

from regard.counts import so_many
from regard.data.glance import CorpusSize
from regard.machine import Machine
from regard.planning import FILLED, Plan, counted, plan
from regard.recipe import Recipe, load_recipe
from regard.settings.tree import text_of

CPU_HOURS = 4.0  # a recipe chosen for a CPU ends within these
FEWEST_STEPS = 1_000  # however slow the CPU is
TYPED = "command line"  # the place of a mistake where nobody named a recipe


@dataclass(frozen=True)
class Choice:
    """A recipe chosen for a corpus and a machine: a preset, what is changed in it, and why."""

    recipe: Recipe
    preset: str | None
    """None where a model goes on with its own recipe."""
    changes: tuple[str, ...]
    """What was chosen, and then what was asked for."""
    reasons: tuple[str, ...]
    plan: Plan

    def to_text(self, arguments: Sequence[str]) -> str:
        """The reasons, the plan, and the command that says the same; `arguments` are those for the corpus."""
        lines = ["No recipe was given, so here is one:", *(f"  {reason}" for reason in self.reasons)]
        named = [] if self.preset is None else [self.preset]
        command = " ".join(["regard train", *named, *map(quote, self.changes), *arguments])
        return "\n".join([*lines, self.plan.to_text(), f"The same, said in full: {command}"])


@dataclass(frozen=True)
class _Candidate:
    """A preset, the epochs it is worth training for, and the steps these must come to at least and at most."""

    preset: str
    epochs: int
    fewest: int
    most: int


TINY, SMALL = _Candidate("tiny", 120, 3_000, 10_000), _Candidate("small", 40, 5_000, 30_000)
MEDIUM, BASE = _Candidate("medium", 40, 10_000, 60_000), _Candidate("base", 20, 50_000, 100_000)


@dataclass(frozen=True)
class _Further:
    """How a model goes on: the bounds of its batches and steps, its epochs, and a rate for Adam."""

    fewest_tokens: int = 1_024
    most_tokens: int = 4_096
    steps_an_epoch: int = 20
    epochs: int = 20
    fewest: int = 200
    most: int = 5_000
    rate: float = 2e-4


FURTHER = _Further()


def choose(size: CorpusSize | None, machine: Machine, data: Sequence[str], overrides: Sequence[str] = ()) -> Choice:
    """A recipe for a corpus of this size; `data` and `overrides` are settings that stand, `overrides` above all."""
    if size is None:
        recipe = load_recipe("small", [*data, *overrides], place=TYPED)
        reason = "`small`: the corpus comes through a pipe, so that its size is not known"
        return Choice(recipe, "small", tuple(overrides), (reason,), plan(recipe, machine, None))
    for candidate in _candidates(size, machine):
        changes, reasons = _changes(candidate, size)
        settings = load_recipe(candidate.preset, [*data, *changes, *overrides], place=TYPED)
        suited = _steps(candidate, counted(settings, size))
        # Who asks for a number of steps gets them, and a rate that goes by them.
        asked_for = [*data, f"training.steps={suited}", *overrides]
        steps = load_recipe(candidate.preset, asked_for, place=TYPED).training.steps
        recipe = load_recipe(candidate.preset, [*data, *changes, *_schedule(candidate, steps), *overrides], place=TYPED)
        found = plan(recipe, machine, size)
        too_long = machine.device == "cpu" and found.seconds > 3600 * CPU_HOURS
        if not too_long:
            break
    why = f"{found.epochs}; training stops earlier when validation stops improving"
    asked = steps != suited
    if too_long and not asked:
        hours = found.seconds / 3600
        fewer = max(FEWEST_STEPS, _rounded(steps * CPU_HOURS / hours))
        why = f"{steps:,} would take {hours:.0f} hours on this CPU; more steps, or a GPU, would make a better model"
        recipe = load_recipe(candidate.preset, [*data, *changes, *_schedule(candidate, fewer), *overrides], place=TYPED)
        found = replace(found, steps=fewer, seconds=found.seconds * fewer / steps)
        steps = fewer
    reasons += [] if asked else [f"training.steps={steps}: {why}"]
    return _choice(recipe, candidate.preset, [*changes, *_schedule(candidate, steps)], overrides, reasons, found)


def choose_further(
    recipe: str, size: CorpusSize | None, machine: Machine, overrides: Sequence[str], sides: Mapping[str, str] | None
) -> Choice:
    """A course for a model that goes on with its own `recipe`, a file, which once made it from nothing.

    Smaller batches, fewer steps, and Adam at a low rate, so that it learns the new text without losing the old.
    """
    before = load_recipe(recipe, overrides, sides)
    size = None if size is None else counted(before, size)
    tokens = FURTHER.most_tokens if size is None else size.tokens / FURTHER.steps_an_epoch
    tokens = min(before.batch.tokens, max(FURTHER.fewest_tokens, before.batch.row, _rounded(tokens, 256)))
    epoch = 0.0 if size is None else size.tokens / (FILLED * tokens)
    suited = min(FURTHER.most, max(FURTHER.fewest, _rounded(FURTHER.epochs * epoch, 50)))
    steps = load_recipe(recipe, [f"training.steps={suited}", *overrides], sides).training.steps
    every = max(10, _rounded(steps / 20, 10))
    chosen = [
        f"batch.tokens={tokens}",
        f"training.steps={steps}", f"training.validate_every={every}", f"training.save_every={every}",
        "training.patience=5", "training.keep_best=3", "training.average=3", 'training.average_of="best"',
        "training.by_clock=false", 'training.optimiser.kind="adam"', 'training.optimiser.schedule="linear"',
        f"training.optimiser.rate={text_of(FURTHER.rate)}", f"training.optimiser.warmup={steps // 10}",
    ]  # fmt: skip
    found = load_recipe(recipe, [*chosen, *overrides], sides)
    planned = plan(found, machine, size)
    reasons = [
        f"that of `{before.init}`, but for how it goes on from there",
        f"batch.tokens={tokens}: small batches, since there is less to read",
        *([f"training.steps={steps}: {planned.epochs}; training stops earlier when validation stops improving"]
          if steps == suited else []),
        f"training.optimiser.rate={text_of(FURTHER.rate)}: low, so that what it knows is not lost",
    ]  # fmt: skip
    return _choice(found, None, chosen, overrides, reasons, planned)


def _choice(
    recipe: Recipe, preset: str | None, chosen: Sequence[str], overrides: Sequence[str], reasons: Sequence[str],
    found: Plan,
) -> Choice:  # fmt: skip
    """What was chosen, where nothing that was asked for took its place, and the reasons for that."""
    stands = [change for change in chosen if change not in overrides and _holds(recipe, change)]
    reasons = [reasons[0], *(reason for reason in reasons[1:] if reason.partition(":")[0] in stands)]
    return Choice(recipe, preset, (*stands, *overrides), tuple(reasons), found)


def _holds(recipe: Recipe, change: str) -> bool:
    """Whether nothing that was asked for took a chosen setting's place."""
    key, _, value = change.partition("=")
    found: Any = recipe
    for part in key.split("."):
        found = getattr(found, part, None)
    return text_of(found) == value


def _candidates(size: CorpusSize, machine: Machine) -> list[_Candidate]:
    """What suits the corpus, then what to fall back on where that takes too long."""
    if size.pairs < 50_000:
        return [TINY]
    if machine.device == "cpu":
        return [SMALL, TINY]
    return [MEDIUM] if size.pairs < 1_000_000 else [BASE]


_WHY = {
    "tiny": "so few pairs are learned by heart by larger models",
    "small": "this is as much as a CPU trains in some hours",
    "medium": "more than a tiny model can hold, less than a base model needs",
    "base": "the paper's base model, for corpora of a million pairs and more",
}


def _changes(candidate: _Candidate, size: CorpusSize) -> tuple[list[str], list[str]]:
    """What to change in the preset's vocabulary and model, and why."""
    preset = candidate.preset
    vocabulary = {"medium": 16_000 if size.pairs >= 300_000 else 10_000, "base": 32_000}.get(
        preset, min(8_000, max(1_000, _rounded(size.pairs / 5, 1_000)))
    )
    changes = [f"tokenizer.vocabulary={vocabulary}"]
    reasons = [
        f"`{preset}`: {so_many(size.pairs, 'pair')}; {_WHY[preset]}",
        f"tokenizer.vocabulary={vocabulary}: so that most tokens occur often enough to be learned",
    ]
    if preset == "small" and size.pairs < 300_000:
        changes.append("model.dropout=0.3")
        reasons.append("model.dropout=0.3: against learning by heart")
    return changes, reasons


def _steps(candidate: _Candidate, size: CorpusSize) -> int:
    """The steps of as many epochs as the preset is worth, within its bounds."""
    tokens = FILLED * load_recipe(candidate.preset).batch.tokens
    return min(candidate.most, max(candidate.fewest, _rounded(candidate.epochs * size.tokens / tokens)))


def _schedule(candidate: _Candidate, steps: int) -> list[str]:
    """Some forty validations and as many checkpoints; ten validations without a better one end the run.

    The newest checkpoints are then all from after the best one, so the model is the mean of the best instead.
    """
    every = max(50, _rounded(steps / 40, 50))
    warmup = min(load_recipe(candidate.preset).training.optimiser.warmup, max(1, steps // 5))
    return [
        f"training.steps={steps}", f"training.validate_every={every}", f"training.save_every={every}",
        "training.patience=10", "training.keep_best=5", 'training.average_of="best"',
        f"training.optimiser.warmup={warmup}",
    ]  # fmt: skip


def _rounded(value: float, to: int = 100) -> int:
    return max(1, round(value / to)) * to
