"""From a recipe and its corpus to all that trains: the model, its batches, its optimiser, checked to fit together."""

from __future__ import annotations

import os
from typing import Any

import torch

from regard.batch import Specials, Tokens
from regard.data.batching import Batches
from regard.data.dataset import Dataset
from regard.data.hiding import Lesson, Masking, Ordering
from regard.decoding.sampling import SamplingSettings, sample
from regard.errors import UsageError
from regard.initial import Beginning
from regard.machine import choose_device
from regard.models.bert import Bert
from regard.models.build import AnyModel, build_any
from regard.models.interface import ContinuingModel, SequenceModel
from regard.models.xlnet import XLNet
from regard.recipe import Recipe
from regard.training.reward import Draw, Rewards
from regard.training.team import Team, own_device
from regard.training.trainer import Trainer


def new_trainer(recipe: Recipe, data: Dataset, team: Team, begins: Beginning | None = None) -> Trainer:
    """The model of a recipe and all that trains it, before the first step."""
    if recipe.training.deterministic:
        # What NVIDIA's library wants to be told before it starts, or it may choose another order of sums each time.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.manual_seed(recipe.seed)
    device = own_device(choose_device(recipe.device))
    model = build_any(recipe.model, data.tokenizer.size, data.tokenizer.source.size).to(device)
    if isinstance(model, Bert) and data.train.source is not None:
        raise UsageError(
            "model.kind: must fit the corpus, which has sentence pairs, but is `bert`, which reads text alone. Choose "
            "one such as `transformer`."
        )
    if isinstance(model, SequenceModel) and model.reads_source != (data.train.source is not None):
        reads, has = ("reads a source", "text alone") if model.reads_source else ("reads no source", "sentence pairs")
        other = "a language model such as `gpt`" if model.reads_source else "one such as `transformer`"
        raise UsageError(
            f"model.kind: must fit the corpus, which has {has}, but is `{recipe.model.kind}`, which {reads}. "
            f"Choose {other}."
        )
    if recipe.batch.layout in ("packed", "blocks") and not model.packs_sentences:
        other = ", or `stream` for running text" if isinstance(model, ContinuingModel) else ""
        raise UsageError(
            f"batch.layout: must be `buckets` for a `{recipe.model.kind}` model, which needs one sentence a row, "
            f"but is `{recipe.batch.layout}`. Choose `buckets`{other}."
        )
    _check_lengths(recipe, data, model)
    if begins is not None:
        # What a body takes over has no output yet: that stays as it was drawn.
        model.load_state_dict({**model.state_dict(), **begins.weights})
    batches = Batches(data.train, data.tokenizer.specials, recipe.batch, recipe.seed, _lesson(model, data))
    # A model that does not translate gets no reward in any layout, and is told so by the objective.
    translates = isinstance(model, SequenceModel) and model.reads_source
    if recipe.training.reward and translates and recipe.batch.layout != "buckets":
        raise UsageError(
            f"batch.layout: must be `buckets` with `training.reward` ({recipe.training.reward:g}), which needs one "
            f"sentence a row, but is `{recipe.batch.layout}`. Choose `buckets`, or set `training.reward = 0`."
        )
    rewards = Rewards(_draw(data.tokenizer.specials), data.tokenizer.specials) if recipe.training.reward else None
    return Trainer(model, batches, recipe.training, recipe.seed, team, rewards)


def _draw(specials: Specials) -> Draw:
    """Draws from a model as it is; training itself knows no such thing."""

    def draw(model: SequenceModel[Any], source: Tokens, most: int, seed: int) -> list[tuple[int, ...]]:
        rows = source.ids_BT.shape[0]
        seeds, settings = range(seed, seed + rows), SamplingSettings(max_tokens=most)
        found = sample(model, [()] * rows, specials, settings, seeds, source=source)
        return [(*each.tokens, specials.end) if each.finish_reason == "end" else each.tokens for each in found]

    return draw


def _lesson(model: AnyModel, data: Dataset) -> Lesson | None:
    """What of a batch is hidden from a model that learns to find it."""
    match model:
        case Bert():
            return Masking(model.settings.masked, model.mask, model.vocabulary, data.tokenizer.specials.padding)
        case XLNet():
            return Ordering(model.settings.predicted)
    return None


def _check_lengths(recipe: Recipe, data: Dataset, model: AnyModel) -> None:
    """A model that has learned so many positions cannot read a longer text, and a GPU would not say which it was."""
    context, sides = model.context, 2 if isinstance(model, SequenceModel) and model.joins_source else 1
    if context is None:
        return
    if recipe.batch.layout in ("blocks", "stream"):
        longest, what, fix = recipe.batch.row, "`batch.row`", "Lower `batch.row`"
    else:
        found = [
            side for split in (data.train, data.valid) for side in (split.source, split.target) if side is not None
        ]
        longest, what = max(int(side.lengths.max()) for side in found), "the longest sentence"
        fix = "Drop long sentences by `data.filters.max_words`"
    if longest > context:
        other = 'choose positions that have no limit, such as `model.positions = "sinusoidal"`'
        if recipe.init is not None:
            other = f"begin with a model that has more of them, or `rotary` ones: those of {recipe.init} were learned"
        raise UsageError(
            f"model.max_positions: must be at least {sides * longest:,}, {'twice ' if sides == 2 else ''}the tokens of "
            f"{what}, but is {sides * context:,}. {fix}, or {other}."
        )
