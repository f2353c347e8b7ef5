"""From a recipe and its corpus to all that trains: the model, its batches, its optimiser, checked to fit together."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from regard.batch import Specials, Tokens
from regard.data.batching import Batches
from regard.data.corpus import Files, Mixture, open_corpus
from regard.data.dataset import Dataset
from regard.data.hiding import Lesson, Masking, Ordering
from regard.data.store import Side, TokenStore
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

SHOWN = 24  # tokens of a text that is too long


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
    context, times = model.context, 2 if isinstance(model, SequenceModel) and model.joins_source else 1
    if context is None:
        return
    in_rows = recipe.batch.layout in ("blocks", "stream")
    sides = {} if in_rows else _sides(data)
    longest = recipe.batch.row if in_rows else max(int(side.lengths.max()) for side in sides.values())
    if longest <= context:
        return
    what, fix = ("`batch.row`", "Lower `batch.row`") if in_rows else _longest(recipe, data, sides, context)
    other = 'choose positions that have no limit, such as `model.positions = "sinusoidal"`'
    if recipe.init is not None:
        other = f"begin with a model that has more of them, or `rotary` ones: those of {recipe.init} were learned"
    raise UsageError(
        f"model.max_positions: must be at least {times * longest:,}, {'twice ' if times == 2 else ''}the tokens of "
        f"{what}, but is {times * context:,}. {fix}. Or {other}."
    )


def _sides(data: Dataset) -> dict[tuple[str, str], Side]:
    """All that a model reads, by split and side."""
    return {
        (split, name): side
        for split, store in (("train", data.train), ("valid", data.valid))
        for name, side in (("source", store.source), ("target", store.target))
        if side is not None
    }


def _longest(recipe: Recipe, data: Dataset, sides: Mapping[tuple[str, str], Side], context: int) -> tuple[str, str]:
    """Which text is the longest, and what helps where it is longer than the model can read."""
    (split, name), side = max(sides.items(), key=lambda entry: int(entry[1].lengths.max()))
    number = int(side.lengths.argmax())
    # Texts with labels are kept as targets.
    reader = data.tokenizer.source if name == "source" or data.train.labels is not None else data.tokenizer
    unit, whose = ("text", "") if data.train.source is None else ("pair", f"the {name} of ")
    files = [file.name for file in open_corpus(recipe.data).other_files("valid")]
    valid = " + ".join(files) if len(files) <= 2 else f"{files[0]} and the {len(files) - 1:,} files after it"
    place = (
        f"a {unit} to train on" if split == "train" else f"{unit} {number + 1:,} of {valid or 'those to validate on'}"
    )
    begins = json.dumps(" ".join(reader.decode(side[number][:SHOWN]).split()), ensure_ascii=False)
    what = f"the longest text ({whose}{place}, which begins with {begins})"
    return what, _shortening(recipe, data, context, valid)


def _shortening(recipe: Recipe, data: Dataset, context: int, valid: str) -> str:
    """How to be rid of texts that are too long; no filter touches those of files to validate on."""
    stores = {"train": data.train, "valid": data.valid}
    sizes = {split: np.array([_too_long(store, context), len(store)]) for split, store in stores.items()}
    if not valid:
        # What is held out came through the filters, as training did.
        sizes = {"train": sizes["train"] + sizes["valid"]}
    counts = {split: f"{long:,} of {size:,}" for split, (long, size) in sizes.items() if long}
    fixes = []
    if "train" in counts:
        filters = {Files: "`data.filters`", Mixture: "the `filters` of its corpora"}.get(type(recipe.data))
        drop = f"Drop long pairs ({counts['train']}) by a lower `max_words` or `max_characters` in {filters}"
        fixes.append(f"Cut long texts ({counts['train']}) into several" if filters is None else drop)
    if "valid" in counts:
        fixes.append(f"shorten what is too long in {valid} ({counts['valid']}), or take it out: no filter touches it")
    fix = ", and ".join(fixes)
    return fix[:1].upper() + fix[1:]


def _too_long(store: TokenStore, context: int) -> int:
    """How many examples have a side of more tokens than the model can read."""
    long = store.target.lengths > context
    return int((long if store.source is None else long | (store.source.lengths > context)).sum())
