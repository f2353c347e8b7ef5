"""What decides how a run learns: the settings and the corpus that a course is measured with and compared by."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from regard.data.generated import Generated
from regard.data.sources import Files, Mixture
from regard.recipe import Recipe
from regard.training.objective import ObjectiveSettings
from regard.training.optim import ENDING, unread_by

OPTIMISER = "training.optimiser"
CORPUS = "data"  # these settings count where the corpus is generated; of others, the hashes of their files do
MUST_BE_SAME = ("init", "tokenizer", "model", "batch.layout",
                *(f"training.{field.name}" for field in dataclasses.fields(ObjectiveSettings)))  # fmt: skip
MAY_BE_CAUSE = (CORPUS, "batch", OPTIMISER, "training.precision", "training.steps", "training.by_clock",
                "training.minutes", "training.parts", "training.deterministic", "training.ema")  # fmt: skip


def decisive_settings(recipe: Recipe) -> dict[str, tuple[Any, Any]]:
    """By dotted key, the values that matter to a course, and their defaults."""
    found = {key: pair for key, pair in _walk(recipe, "") if within(key, (*MUST_BE_SAME, *MAY_BE_CAUSE))}
    unused = unused_settings(recipe.training.optimiser.schedule, recipe.training.by_clock)
    generated = isinstance(recipe.data, Generated)
    # Files are known by their content, wherever they lie; and a corpus of another kind is told by that alone.
    return {
        key: pair for key, pair in found.items()
        if key not in unused and (not within(key, [CORPUS]) or (generated and key != f"{CORPUS}.kind"))
    }  # fmt: skip


def unused_settings(schedule: str, by_clock: bool) -> set[str]:
    """What decides nothing where the rate goes so: settings that it does not read, and an end that it does not mind."""
    found = {f"{OPTIMISER}.{name}" for name in unread_by(schedule)}
    if schedule not in ENDING:
        found.add("training.steps")
    if not by_clock:
        found.add("training.minutes")
    return found


def languages_of(recipe: Recipe) -> tuple[str, ...]:
    """Source and target of a corpus, where settings or the names of files tell both; else nothing."""
    data = recipe.data
    if isinstance(data, Generated):
        return data.source, data.target
    parts = data.corpora if isinstance(data, Mixture) else [data] if isinstance(data, Files) else []
    named = {part.languages for part in parts}
    return tuple(map(str, *named)) if len(named) == 1 and all(*named) else ()


def _walk(settings: Any, path: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
    for field in dataclasses.fields(settings):
        value, key = getattr(settings, field.name), f"{path}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from _walk(value, f"{key}.")
        else:
            # A kind says which defaults hold, so it has none itself.
            default = None if field.name == "kind" else field.default
            yield key, (list(value) if isinstance(value, tuple) else value, default)


def within(key: str, places: Sequence[str]) -> bool:
    """Whether a dotted key is one of these places, or below one of them."""
    return any(key == place or key.startswith(f"{place}.") for place in places)


def corpus_hashes(fingerprint: Mapping[str, Any]) -> tuple[str, ...]:
    """The SHA-256 of each file of the corpus, in order; none where it is generated."""
    return tuple(fingerprint.get("files", {}).values())
