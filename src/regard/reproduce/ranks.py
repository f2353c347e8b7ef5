"""Whether two lists of figures put the same things in the same order."""

from __future__ import annotations

import math
from collections.abc import Sequence


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rank correlation: 1 is the same order, -1 the reverse; equal values share the mean of their ranks.

    None where there is no order to speak of: fewer than two values, or all of a side equal.
    """
    a, b = ranks(first), ranks(second)
    if len(a) != len(b):
        raise ValueError(f"there must be as many of one as of the other, but there are {len(a)} and {len(b)}")
    middle = (len(a) + 1) / 2
    spread = math.sqrt(sum((x - middle) ** 2 for x in a) * sum((y - middle) ** 2 for y in b))
    return sum((x - middle) * (y - middle) for x, y in zip(a, b, strict=True)) / spread if spread else None


def ranks(values: Sequence[float]) -> list[float]:
    """The place of each value in order, from 1; equal ones share the mean of their places."""
    return [sum(other < value for other in values) + (sum(other == value for other in values) + 1) / 2
            for value in values]  # fmt: skip
