"""Minimum Bayes risk (Kumar and Byrne 2004; for neural models Eikema and Aziz 2020): the text most like all others.

    best = argmax_h Σ_r P(r) · utility(h, r)

Candidates h and references r are usually the same list: samples, or an n-best list. The utility is any measure of
likeness, such as chrF between two texts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from regard.errors import UsageError

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True)
class Choice:
    """Which candidate is best, and the expected utility of each."""

    best: int
    utilities: tuple[float, ...]


def minimum_bayes_risk(
    candidates: Sequence[T],
    utility: Callable[[T, T], float],
    log_probabilities: Sequence[float] | None = None,
) -> Choice:
    """The candidate with the highest expected utility; the earliest of those that tie.

    `utility(candidate, reference)` is high where the two are alike. With `log_probabilities` a reference counts by its
    share of their probability, as for an n-best list; without them all count alike, as for samples, where a likely text
    is there several times.
    """
    if not candidates:
        raise UsageError("minimum Bayes risk: there must be at least one candidate, but there is none; draw some")
    if log_probabilities is None:
        log_probabilities = [0.0] * len(candidates)
    if len(log_probabilities) != len(candidates):
        raise UsageError(
            f"minimum Bayes risk: `log_probabilities` must have one number a candidate ({len(candidates)}), "
            f"but has {len(log_probabilities)}"
        )
    highest = max(log_probabilities)
    shares: dict[T, float] = {}
    for candidate, log_probability in zip(candidates, log_probabilities, strict=True):
        # Utilities are costly: a text that was drawn twice is one reference of twice the weight.
        shares[candidate] = shares.get(candidate, 0.0) + math.exp(log_probability - highest)
    total = sum(shares.values())
    expected = {
        candidate: sum(share * utility(candidate, reference) for reference, share in shares.items()) / total
        for candidate in shares
    }
    utilities = tuple(expected[candidate] for candidate in candidates)
    return Choice(max(range(len(candidates)), key=utilities.__getitem__), utilities)
