"""Rows of numbers of different lengths, laid end to end: how many texts are encoded without a Python list for each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.integer[Any]]


class Ragged(NamedTuple):
    """Rows of numbers."""

    ids: Integers
    """The numbers of all rows, one row after another."""
    lengths: Integers
    """How many belong to each row."""

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Ragged:
        """From a list for each row."""
        lengths = np.fromiter(map(len, rows), np.int64, count=len(rows))
        return cls(np.fromiter(chain.from_iterable(rows), np.int64, count=int(lengths.sum())), lengths)

    @classmethod
    def joined(cls, parts: Sequence[Ragged]) -> Ragged:
        """The rows of all parts, one part after another."""
        if not parts:
            return cls.of([])
        ids, lengths = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return cls(ids, lengths)

    def lists(self) -> list[list[int]]:
        """A list for each row."""
        everything, ends = self.ids.tolist(), self.lengths.cumsum().tolist()
        return [everything[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    def starting_with(self, first: Integers) -> Ragged:
        """Each row with one number put before it."""
        begins = self.lengths.cumsum() - self.lengths
        return Ragged(np.insert(self.ids, begins, first), self.lengths + 1)

    def ending_with(self, last: int) -> Ragged:
        """Each row with the same number put behind it."""
        return Ragged(np.insert(self.ids, self.lengths.cumsum(), last), self.lengths + 1)


def ranges(begins: Integers, counts: Integers) -> NDArray[np.int64]:
    """begins[0], begins[0] + 1, … (counts[0] numbers), then begins[1], …"""
    before = counts.cumsum() - counts
    return np.arange(int(counts.sum())) + np.repeat(begins - before, counts)
