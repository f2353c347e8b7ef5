"""The parts and the costs of a model, without its weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from regard import folder, shipped
from regard.data.labelled import expected_labels
from regard.errors import UsageError
from regard.exploring.inside import inspection
from regard.models.build import build_any
from regard.recipe import LABELLING, load_recipe, presets
from regard.text.labels import FIRST
from regard.text.tokenizer import Tokenizer
from regard.viewing.inspection import Inspection


def inspect(
    name: str, overrides: Sequence[str] = (), vocabulary: int | None = None, length: int | None = None
) -> Inspection:
    """The parts and the costs of a model folder, a recipe file or a preset; no weights are loaded or made.

    `vocabulary` takes the place of the model's own, `length` is the tokens of a row (unless given, a usual length).
    """
    for option, value in (("vocabulary", vocabulary), ("length", length)):
        if value is not None and value < 1:
            raise UsageError(f"inspect: `{option}` must be at least 1, but is {value}. Give a larger one.")
    # `regard demo` leaves a folder `demo` that is no model: a preset's name means the preset then.
    place, is_limit = shipped.resolve(name), False
    if (place / folder.RECIPE).is_file() or (place.is_dir() and name not in presets()):
        recipe = folder.read_recipe(place, overrides)
        tokenizer = Tokenizer.load(place / folder.TOKENIZER)
        source_vocabulary = vocabulary or tokenizer.source.size
        # Of a model that gives labels, `vocabulary` is that of the texts.
        vocabulary = tokenizer.size if recipe.model.kind in LABELLING else vocabulary or tokenizer.size
    else:
        recipe = load_recipe(name, overrides)
        is_limit = vocabulary is None and recipe.tokenizer.kind == "characters"
        vocabulary = source_vocabulary = vocabulary or recipe.tokenizer.vocabulary
        if recipe.model.kind in LABELLING:
            vocabulary = FIRST + expected_labels(recipe.data)
    with torch.device("meta"):
        model = build_any(recipe.model, vocabulary, source_vocabulary)
    return replace(inspection(model, recipe, length), vocabulary_is_limit=is_limit)
