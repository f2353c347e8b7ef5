"""Whether the parts of a recipe fit each other, as far as can be told before its corpus is read, which takes long."""

from __future__ import annotations

import torch

from regard.data.corpus import Elsewhere, Music, Text
from regard.data.labelled import answers_of
from regard.errors import UsageError
from regard.models.bert import Bert
from regard.models.build import AnyModel, build_any
from regard.models.interface import ContinuingModel, SequenceModel
from regard.recipe import Recipe
from regard.text.labels import FIRST

ANY_SIZE = FIRST + 2  # of a vocabulary: what a model reads does not depend on it


def check_fits(recipe: Recipe) -> None:
    """Raise UsageError where its model cannot learn from such a corpus in such batches."""
    with torch.device("meta"):
        model = build_any(recipe.model, ANY_SIZE, ANY_SIZE)
    if not isinstance(recipe.data, Elsewhere):
        _check_reading(recipe, model)
    _check_layout(recipe, model)


def _check_reading(recipe: Recipe, model: AnyModel) -> None:
    """A corpus has pairs, labels, or text alone."""
    alone, labels = isinstance(recipe.data, Text | Music), answers_of(recipe.data) is not None
    if recipe.training.best_by == "bleu" and (alone or labels):
        found = "labels" if labels else "text alone"
        raise UsageError(
            "training.best_by: must be `loss` where nothing is translated, which has no BLEU, but is `bleu`, and the "
            f'corpus has {found}. Set `training.best_by = "loss"`.'
        )
    if isinstance(model, Bert) and not alone:
        raise UsageError(
            "model.kind: must fit the corpus, which has sentence pairs, but is `bert`, which reads text alone. Choose "
            "one such as `transformer`."
        )
    if isinstance(model, SequenceModel) and model.reads_source == alone:
        reads, has = ("reads a source", "text alone") if model.reads_source else ("reads no source", "sentence pairs")
        other = (
            "a language model such as `gpt`"
            if model.reads_source
            else 'one such as `transformer`, or text with `data.kind = "text"`'
        )
        raise UsageError(
            f"model.kind: must fit the corpus, which has {has}, but is `{recipe.model.kind}`, which {reads}. "
            f"Choose {other}."
        )


def _check_layout(recipe: Recipe, model: AnyModel) -> None:
    """Some models, and rewards, need one sentence a row."""
    layout, reward = recipe.batch.layout, recipe.training.reward
    if layout in ("packed", "blocks") and not model.packs_sentences:
        other = ", or `stream` for running text" if isinstance(model, ContinuingModel) else ""
        raise UsageError(
            f"batch.layout: must be `buckets` for a `{recipe.model.kind}` model, which needs one sentence a row, "
            f"but is `{layout}`. Choose `buckets`{other}."
        )
    # A model that does not translate gets no reward in any layout, and is told so by the objective.
    if reward and isinstance(model, SequenceModel) and model.reads_source and layout != "buckets":
        raise UsageError(
            f"batch.layout: must be `buckets` with `training.reward` ({reward:g}), which needs one "
            f"sentence a row, but is `{layout}`. Choose `buckets`, or set `training.reward = 0`."
        )
