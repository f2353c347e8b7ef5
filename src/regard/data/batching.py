"""Examples to batches, in an order that is a pure function of (seed, step).

Sentences of similar length share a batch, so little is padded. Which lengths share a batch never changes;
which sentences do, and the order of batches, is drawn anew for each epoch. Because every epoch has the same
number of batches, batch number `step` is found without replaying the ones before it: a resumed run reads
exactly what an unbroken one would have read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from regard.batch import IGNORED, Batch, Specials, Tokens

Example = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True)
class BatchSettings:
    """How large a batch is. The paper's has about 25,000 source and 25,000 target tokens."""

    tokens: int = 25_000
    multiple: int = 8

    def __post_init__(self) -> None:
        for name in ("tokens", "multiple"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, but is {getattr(self, name)}")


class Batches:
    """All batches of all epochs; `batches[step]` is one of them, for any step."""

    def __init__(self, examples: Sequence[Example], specials: Specials, settings: BatchSettings, seed: int) -> None:
        self._examples, self._specials, self._seed = examples, specials, seed
        self._buckets = _buckets(examples, settings)
        self.per_epoch = sum(-(-len(members) // rows) for members, rows in self._buckets)
        self._plan = lru_cache(maxsize=2)(self._plan_of_epoch)

    def __getitem__(self, step: int) -> Batch:
        epoch, place = divmod(step, self.per_epoch)
        return collate([self._examples[number] for number in self._plan(epoch)[place]], self._specials)

    def _plan_of_epoch(self, epoch: int) -> list[list[int]]:
        """The example numbers of each batch of an epoch."""
        random = np.random.default_rng([self._seed, epoch])
        plan = []
        for members, rows in self._buckets:
            order = random.permutation(members).tolist()
            plan += [order[first : first + rows] for first in range(0, len(order), rows)]
        return [plan[place] for place in random.permutation(len(plan))]


def _buckets(examples: Sequence[Example], settings: BatchSettings) -> list[tuple[list[int], int]]:
    """Example numbers by rounded length of the longer side, each with the rows a batch of it may have."""
    by_length: dict[int, list[int]] = {}
    for number, (source, target) in enumerate(examples):
        longer = max(len(source), len(target)) + 1
        by_length.setdefault(-(-longer // settings.multiple), []).append(number)
    return [
        (members, max(1, settings.tokens // (blocks * settings.multiple)))
        for blocks, members in sorted(by_length.items())
    ]


def collate(examples: Sequence[Example], specials: Specials) -> Batch:
    """One sentence a row. The decoder reads <start> y and must answer y <end>."""
    source = Tokens.padded([[*source, specials.end] for source, _ in examples], specials.padding)
    target = Tokens.padded([[specials.start, *target] for _, target in examples], specials.padding)
    answers = Tokens.padded([[*target, specials.end] for _, target in examples], specials.padding)
    labels_BT = torch.where(answers.places.segments_or_ones() == 0, IGNORED, answers.ids_BT)
    return Batch(source, target, labels_BT)
