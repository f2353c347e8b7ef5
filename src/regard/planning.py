"""What a run will take, before it takes it: its memory, its speed and its time.

    seconds a step = (tokens · FLOPs a token / processes + the optimiser's FLOPs) / (share · FLOP/s of a matrix product)

FLOPs and memory are counted by `regard.viewing.costs`, and a product of the model's own size is timed on this machine.
Of the optimisers only Muon has products of its own, and every process makes all of them.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch

from regard.counts import so_many
from regard.data.glance import CorpusSize, alphabet, subword_bytes
from regard.data.labelled import expected_labels
from regard.fitting import check_fits
from regard.machine import Machine, matmul_speed
from regard.models.build import build_any
from regard.models.interface import Learner, SequenceModel
from regard.recipe import LABELLING, Recipe
from regard.status import clock
from regard.text.labels import FIRST
from regard.text.learning import MERGING, SPECIALS
from regard.training.optim import state_bytes, step_flops
from regard.viewing.costs import SENTENCE, count_training, spent

# Of the speed of products alone, as training reaches it: on the H200 half with the compiled base model, on cores of a
# server 0.2 to 0.5 with small ones. So times are right within a factor of two; what training shows is measured.
SHARE = {"cpu": 0.3, "cuda": 0.5}
BYTES_ALONE = 256 + len(SPECIALS)  # tokens of a vocabulary in which nothing is merged
FILLED = 0.95  # the share of a packed batch that is not padding


@dataclass(frozen=True)
class Holding:
    """Bytes that one process holds, if the model is trained in this `way`."""

    way: str
    weights: int
    gradients: int
    moments: int
    gathered: int
    """Weights of layers at work, fetched from the others; with FSDP."""
    activations: int
    most: int
    """At once: at no moment is all of the above alive."""


@dataclass(frozen=True)
class Plan:
    """What a run of a recipe takes on `world` such devices. Speed, time and tokens are estimates."""

    name: str
    machine: Machine
    world: int
    parameters: int
    vocabulary: int
    vocabulary_from: Literal["recipe", "corpus", "limit"]
    """Who says so: the recipe, the characters of the corpus, or only the most that the recipe allows."""
    corpus: CorpusSize | None
    batch_tokens: int
    """A side."""
    rows: int
    length: int
    steps: int
    steps_per_epoch: int | None
    flops_per_token: int
    """Forward and backward, for each target token."""
    optimiser_flops: int
    """Of Muon, for each step and process; 0 for the others."""
    matmul_flops: float
    tokens_per_second: float
    """Of both sides, padding not counted, by all devices."""
    seconds: float
    """Of all steps, without validation."""
    minutes: float | None
    """After which the run stops, if the steps take longer."""
    holdings: tuple[Holding, ...]

    @property
    def rows_each(self) -> int:
        """Rows of a batch that one process reads."""
        return -(-self.rows // self.world)

    @property
    def steps_in_time(self) -> int:
        """About how many steps are made before the time is up."""
        limit = math.inf if self.minutes is None else 60 * self.minutes
        return round(self.steps * min(1.0, limit / self.seconds))

    @property
    def epochs(self) -> str:
        """How often the corpus is read in all steps, in words; none where its size is not known."""
        if self.steps_per_epoch is None:
            return ""
        number, steps = _few(self.steps / self.steps_per_epoch), self.steps_per_epoch
        return f"about {number} epoch{'s' * (number != '1.0')} of {so_many(steps, 'step')}"

    def to_json(self) -> dict[str, Any]:
        """Plain values; memory in bytes."""
        return {**asdict(self), "rows_each": self.rows_each}

    def to_text(self) -> str:
        """About a dozen lines for a terminal."""
        devices = f"{self.world} × " if self.world > 1 else ""
        known = {
            "recipe": f", {self.vocabulary:,} tokens of vocabulary",
            "corpus": f", {self.vocabulary:,} tokens of vocabulary: the characters of the corpus",
            "limit": f" if the vocabulary has {self.vocabulary:,} tokens, as many as tokenizer.vocabulary allows; of "
            "characters there are mostly fewer",
        }[self.vocabulary_from]
        lines = [
            f"plan: {self.name} on {devices}{self.machine}",
            f"  model    {self.parameters:,} parameters{known}",
        ]
        if self.corpus is not None:
            lines.append(f"  corpus   {so_many(self.corpus.pairs, 'line')}, about {self.corpus.tokens:,} target tokens")
        epochs = f", {self.epochs}" if self.epochs else ""
        used = SHARE[self.machine.device] * self.matmul_flops
        muon = f" and {_short(self.optimiser_flops)}FLOP a step for Muon" if self.optimiser_flops else ""
        share = f", of which each process reads {self.rows_each:,}" if self.world > 1 else ""
        lines += [
            f"  batches  {self.batch_tokens:,} tokens a side: {so_many(self.rows, 'row')} of {self.length}{share}",
            f"  steps    {self.steps:,}{epochs}",
            f"  speed    about {self.tokens_per_second:,.0f} tokens/s: {_short(self.flops_per_token)}FLOP a target "
            f"token{muon}, {_short(used)}FLOP/s of the {_short(self.matmul_flops)}FLOP/s measured",
            f"  time     about {_time(self.seconds)}, give or take a factor of two; validation not counted",
        ]  # fmt: skip
        if self.minutes is not None and self.steps_in_time < self.steps:
            time = _time(60 * self.minutes)
            lines.append(
                f"           training.minutes stops it after {time}, about {so_many(self.steps_in_time, 'step')}"
            )
        if self.world > 1:
            lines.append("           if the processes' talk hides behind their work; more if it does not")
        return "\n".join([*lines, *_memory_table(self)])


def plan(recipe: Recipe, machine: Machine, size: CorpusSize | None, world: int = 1) -> Plan:
    """Count and measure what `recipe` takes on `world` devices like those of `machine`."""
    check_fits(recipe)
    vocabulary, who, size = _vocabulary(recipe, size)
    answers = FIRST + expected_labels(recipe.data) if recipe.model.kind in LABELLING else vocabulary
    with torch.device("meta"):
        model = build_any(recipe.model, answers, vocabulary)
    length = _row_length(recipe, size)
    length = min(length, model.context or length)  # a packed row may be longer than any sentence in it
    moments, own = (part(model, recipe.training.optimiser) for part in (state_bytes, step_flops))
    read = recipe.training.readings * recipe.batch.tokens  # R-Drop and SimCut read each row twice, side by side
    alone = count_training(model, length, read, moments)
    speed = matmul_speed(machine, min(recipe.batch.tokens, 8_192), model.width, _inner(recipe, model))
    seconds = (read * alone.flops_token / world + own) / (SHARE[machine.device] * speed)
    sides = 2 if isinstance(model, SequenceModel) and model.reads_source else 1
    holdings = [Holding("1 process", alone.weights, alone.weights, alone.moments, 0, alone.activations, alone.most)]
    if world > 1:
        share = count_training(model, length, max(length, read // world), moments)
        ddp = replace(holdings[0], way=f"DDP × {world}", activations=share.activations, most=share.most)
        holdings += [ddp, _sharded(ddp, _largest_layer(model), world)]
    return Plan(
        name=recipe.name, machine=machine, world=world, parameters=sum(w.numel() for w in model.parameters()),
        vocabulary=vocabulary, vocabulary_from=who, corpus=size, batch_tokens=recipe.batch.tokens,
        rows=alone.rows // recipe.training.readings, length=length, steps=recipe.training.steps,
        steps_per_epoch=None if size is None else max(1, round(size.tokens / (FILLED * recipe.batch.tokens))),
        flops_per_token=alone.flops_token, optimiser_flops=own, matmul_flops=speed,
        tokens_per_second=sides * FILLED * recipe.batch.tokens / seconds, seconds=recipe.training.steps * seconds,
        minutes=recipe.training.minutes, holdings=tuple(holdings),
    )  # fmt: skip


def training_flops(
    recipe: Recipe, vocabulary: int, tokens: int, steps: int, source_vocabulary: int | None = None
) -> float:
    """What a run took that read so many tokens, of both sides where there are two, in `steps`.

    The two vocabularies are as `build_any` takes them. Lines and pairs count as sentences of 25 tokens.
    """
    with torch.device("meta"):
        model = build_any(recipe.model, vocabulary, source_vocabulary)
    return spent(
        model, recipe.batch.window or SENTENCE, recipe.training.readings * tokens, steps, recipe.training.optimiser
    )


def _vocabulary(
    recipe: Recipe, size: CorpusSize | None
) -> tuple[int, Literal["recipe", "corpus", "limit"], CorpusSize | None]:
    """How many tokens there are, who says so, and the corpus with the bytes that one of them takes."""
    tokenizer = recipe.tokenizer
    if tokenizer.kind == "bytes" and tokenizer.vocabulary == BYTES_ALONE and size is not None:
        return tokenizer.vocabulary, "recipe", replace(size, bytes_a_token=1.0)
    if tokenizer.kind in MERGING and size is not None:
        size = replace(size, bytes_a_token=subword_bytes(tokenizer.vocabulary))
    if tokenizer.kind != "characters":
        return tokenizer.vocabulary, "recipe", size
    found = None if size is None else alphabet(recipe.data, tokenizer.composes)
    if size is None or found is None:
        return tokenizer.vocabulary, "limit", size
    vocabulary = min(tokenizer.vocabulary, len(found.characters) + len(SPECIALS))
    return vocabulary, "corpus", replace(size, bytes_a_token=found.bytes_each)


def counted(recipe: Recipe, size: CorpusSize) -> CorpusSize:
    """The corpus in tokens of the recipe's vocabulary."""
    return _vocabulary(recipe, size)[2] or size


def _row_length(recipe: Recipe, size: CorpusSize | None) -> int:
    if recipe.batch.layout != "buckets":
        return recipe.batch.row
    return SENTENCE if size is None or not size.pairs else max(1, round(size.tokens / size.pairs))


def _inner(recipe: Recipe, model: Learner) -> int:
    """The wide side of the model's largest products."""
    found: int = getattr(recipe.model, "d_ff", 4 * model.width)
    return found


def _largest_layer(model: Learner) -> int:
    """The bytes of the largest piece that FSDP gathers at a time: a layer of a stack, or an embedding."""
    pieces: dict[str, int] = {}
    for name, weight in model.named_parameters():
        parts = name.split(".")
        ends = next((place for place, part in enumerate(parts) if part.isdigit()), 0)
        pieces[".".join(parts[: ends + 1])] = pieces.get(".".join(parts[: ends + 1]), 0) + weight.nbytes
    return max(pieces.values())


def _sharded(ddp: Holding, layer: int, world: int) -> Holding:
    """FSDP: weights, gradients and moments are divided; a layer at work and the next one are whole."""
    weights, gradients, moments = (-(-part // world) for part in (ddp.weights, ddp.gradients, ddp.moments))
    alive = max(ddp.most - ddp.weights - ddp.moments - ddp.gradients, ddp.activations)
    most = weights + moments + gradients + 2 * layer + alive
    return Holding(f"FSDP × {world}", weights, gradients, moments, 2 * layer, ddp.activations, most)


def _memory_table(plan: Plan) -> list[str]:
    columns = ("weights", "gradients", "moments", "gathered", "activations", "most")
    names = ("weights", "gradients", "optimiser", "gathered", "activations", "most at once")
    lines = ["  memory of a process, in float32" + "".join(f"{name:>14}" for name in names)]
    for holding in plan.holdings:
        sizes = [getattr(holding, column) for column in columns]
        cells = "".join(f"{f'{_short(size)}B' if size else '–':>14}" for size in sizes)
        lines.append(f"    {holding.way:<29}{cells}")
    if plan.world > 1:
        each = -(-plan.parameters // plan.world)
        lines.append(f"  with DDP every process holds all {plan.parameters:,} parameters, with FSDP {each:,} of them")
    if plan.holdings[-1].most > plan.machine.memory:
        lines.append(
            f"  warning: {_short(plan.holdings[-1].most)}B is more than the {_short(plan.machine.memory)}B there are. "
            "Training will read batches in parts; a larger `training.parts` says so from the start."
        )
    return lines


def _few(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _time(seconds: float) -> str:
    days = seconds / 86_400
    return f"{days:,.0f} days" if days >= 3 else clock(seconds)


def _short(value: float) -> str:
    """Three digits and a prefix: 82542592 → '82.5 M'."""
    power = 0 if value < 1 else min(5, int(math.log10(value) + 1e-9) // 3)
    amount = value / 1000**power
    return f"{amount:.{max(0, 2 - int(math.log10(max(amount, 1))))}f} {['', 'k', 'M', 'G', 'T', 'P'][power]}"
