"""Where a line is too many, in two files that should have equally many: by the form of lines alone."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

NEIGHBOURHOOD = 500


def first_suspicious_line(sources: list[str], targets: list[str]) -> int:
    """Where the longer side most likely has a line too many, counted from 1.

    The length of lines, which is quick to compare, finds the neighbourhood; there a closer look is taken.
    """
    longer, shorter = (sources, targets) if len(sources) > len(targets) else (targets, sources)
    extra = len(longer) - len(shorter)
    about = _best_break(longer, shorter, lambda line: (len(line),))
    low, high = max(0, about - NEIGHBOURHOOD), about + NEIGHBOURHOOD
    return low + _best_break(longer[low : high + extra], shorter[low:high], _traits) + 1


def _best_break(longer: list[str], shorter: list[str], traits: Callable[[str], tuple[int, ...]]) -> int:
    """How many lines match before the longer side has a line too many.

    If d lines were inserted at one place k, then lines before k match as they are and lines after k match when
    shifted by d. Translations have similar traits, so the best k is the one with the smallest misfit.
    """
    extra, lines = len(longer) - len(shorter), len(shorter)
    if not lines:
        return 0
    long, short = (np.log1p([traits(line) for line in side]) for side in (longer, shorter))
    usual = np.median(long[:lines] - short, axis=0)
    straight = np.abs(long[:lines] - short - usual).sum(axis=1)
    shifted = np.abs(long[extra:] - short - usual).sum(axis=1)
    misfit = np.concatenate([[0.0], straight.cumsum()]) + np.concatenate([shifted[::-1].cumsum()[::-1], [0.0]])
    return int(misfit.argmin())


def _traits(line: str) -> tuple[int, ...]:
    """What a translation has about as much of: characters, words, digits, marks and capitals."""
    digits, marks = len(re.findall(r"\d", line)), len(re.findall(r"[^\w\s]", line))
    return len(line), line.count(" "), digits, marks, sum(map(str.isupper, line))
