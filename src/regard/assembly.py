"""From a recipe and its corpus to all that trains: the model, its batches, its optimiser."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from regard.batch import Specials, Tokens
from regard.data.batching import Batches
from regard.data.corpus import Files, Mixture, Music
from regard.data.dataset import Dataset
from regard.data.hiding import Lesson, Masking, Ordering
from regard.data.store import Side, TokenStore
from regard.decoding.sampling import SamplingSettings, sample
from regard.errors import UsageError
from regard.initial import Beginning
from regard.machine import choose_device
from regard.models.bert import Bert
from regard.models.build import AnyModel, build_any
from regard.models.interface import Learner, SequenceModel
from regard.models.transformer_xl import TransformerXL
from regard.models.xlnet import XLNet
from regard.recipe import Recipe
from regard.training.checkpoint import own_random, seed_random
from regard.training.reward import Draw, Rewards
from regard.training.team import Team, own_device
from regard.training.trainer import Trainer

SHOWN = 24  # tokens of a text that is too long


def new_trainer(recipe: Recipe, data: Dataset, team: Team, begins: Beginning | None = None) -> Trainer:
    """The model of a recipe and all that trains it, before the first step."""
    if recipe.training.deterministic:
        # What NVIDIA's library wants to be told before it starts, or it may choose another order of sums each time.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    device = own_device(choose_device(recipe.device))
    with own_random(device):
        seed_random(recipe.seed, device)
        return _drawn_trainer(recipe, data, team, begins, device)


def _drawn_trainer(
    recipe: Recipe, data: Dataset, team: Team, begins: Beginning | None, device: torch.device
) -> Trainer:
    """The same, drawn from torch's generators as they are."""
    model = build_any(recipe.model, data.tokenizer.size, data.tokenizer.source.size).to(device)
    _check_lengths(recipe, data, model)
    if begins is not None:
        # What a body takes over has no output yet: that stays as it was drawn.
        model.load_state_dict({**model.state_dict(), **begins.weights})
    batches = Batches(data.train, data.tokenizer.specials, recipe.batch, recipe.seed, _lesson(model, data))
    rewards = Rewards(_draw(data.tokenizer.specials), data.tokenizer.specials) if recipe.training.reward else None
    return Trainer(model, batches, recipe.training, recipe.seed, team, rewards)


def torn_apart(recipe: Recipe, data: Dataset, model: Learner) -> str | None:
    """What to say where the rows of a batch tear a text apart that the model could read on."""
    layout = recipe.batch.layout
    if isinstance(model, TransformerXL) and layout != "stream":
        return (
            f"batch.layout: should be `stream` for a `transformer-xl`, whose memory of {model.settings.memory:,} "
            f"tokens goes on from row to row, but is `{layout}`: each row begins anew, and it learns without the "
            'rows before. Choose `batch.layout = "stream"`.'
        )
    runs_on = data.train.source is None and data.train.labels is None
    if runs_on and layout == "buckets" and model.packs_sentences:
        return (
            "the text is read line by line, each as if nothing came before it. For running text choose "
            '`batch.layout = "blocks"`, with `batch.row` tokens a row.'
        )
    return None


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
    stores = {} if recipe.batch.window else _stores(recipe, data, model)
    longest = recipe.batch.window or max(int(side.lengths.max()) for side in _sides(stores).values())
    if longest <= context:
        return
    what, fix = ("`batch.row`", "Lower `batch.row`") if recipe.batch.window else _longest(recipe, data, stores, context)
    other = 'choose positions that have no limit, such as `model.positions = "sinusoidal"`'
    if recipe.init is not None:
        other = f"begin with a model that has more of them, or `rotary` ones: those of {recipe.init} were learned"
    raise UsageError(
        f"model.max_positions: must be at least {times * longest:,}, {'twice ' if times == 2 else ''}the tokens of "
        f"{what}, but is {times * context:,}. {fix}. Or {other}."
    )


def _stores(recipe: Recipe, data: Dataset, model: AnyModel) -> dict[str, TokenStore]:
    """All texts that a model reads whole, by split."""
    stores = {"train": data.train, "valid": data.valid}
    # Music is tested in excerpts where a piece is too long, and a BERT on nothing at all.
    tested = not isinstance(recipe.data, Music) and not isinstance(model, Bert)
    return stores if not tested or (test := data.test()) is None else {**stores, "test": test}


def _sides(stores: Mapping[str, TokenStore]) -> dict[tuple[str, str], Side]:
    """The same by split and side."""
    return {
        (split, name): side
        for split, store in stores.items()
        for name, side in (("source", store.source), ("target", store.target))
        if side is not None
    }


def _longest(recipe: Recipe, data: Dataset, stores: Mapping[str, TokenStore], context: int) -> tuple[str, str]:
    """Which text is the longest, and what helps where it is longer than the model can read."""
    (split, name), side = max(_sides(stores).items(), key=lambda entry: int(entry[1].lengths.max()))
    number = int(side.lengths.argmax())
    # Texts with labels are kept as targets.
    reader = data.tokenizer.source if name == "source" or data.train.labels is not None else data.tokenizer
    unit, whose = ("text", "") if data.train.source is None else ("pair", f"the {name} of ")
    files = {other: data.corpus.other_files(other) for other in stores}
    purpose = {"train": "train", "valid": "validate", "test": "test"}[split]
    place = f"{unit} {number + 1:,} of {_in_words(files[split])}" if files[split] else f"a {unit} to {purpose} on"
    begins = json.dumps(" ".join(reader.decode(side[number][:SHOWN]).split()), ensure_ascii=False)
    what = f"the longest text ({whose}{place}, which begins with {begins})"
    return what, _shortening(recipe, stores, context, files)


def _in_words(files: Sequence[Path]) -> str:
    names = [file.name for file in files]
    return " + ".join(names) if len(names) <= 2 else f"{names[0]} and the {len(names) - 1:,} files after it"


def _shortening(
    recipe: Recipe, stores: Mapping[str, TokenStore], context: int, files: Mapping[str, tuple[Path, ...]]
) -> str:
    """How to be rid of texts that are too long; no filter touches those of files to validate or test on."""
    # What is held out came through the filters, as training did.
    places: dict[tuple[Path, ...], list[TokenStore]] = {
        (): [store for split, store in stores.items() if not files[split]],
        **{files[split]: [store] for split, store in stores.items() if files[split]},
    }
    found = {
        place: f"{long:,} of {sum(map(len, some)):,}"
        for place, some in places.items()
        if (long := sum(_too_long(store, context) for store in some))
    }
    fixes = []
    if (read := found.pop((), None)) is not None:
        filters = {Files: "`data.filters`", Mixture: "the `filters` of its corpora"}.get(type(recipe.data))
        drop = f"drop long pairs ({read}) by a lower `max_words` or `max_characters` in {filters}"
        fixes.append(f"cut long texts ({read}) into several" if filters is None else drop)
    if found:
        others = " and ".join(f"{_in_words(place)} ({count})" for place, count in found.items())
        fixes.append(f"shorten what is too long in {others}, or take it out: no filter touches it")
    fix = ", and ".join(fixes)
    return fix[:1].upper() + fix[1:]


def _too_long(store: TokenStore, context: int) -> int:
    """How many examples have a side of more tokens than the model can read."""
    long = store.target.lengths > context
    return int((long if store.source is None else long | (store.source.lengths > context)).sum())
