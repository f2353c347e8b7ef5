"""ROUGE (Lin 2004): how many words, pairs of words, and words in order a summary shares with its reference.

    P = shared / of the summary,   R = shared / of the reference,   F = 2·P·R / (P + R)

ROUGE-1 counts words, ROUGE-2 pairs of neighbours, ROUGE-L the longest row of words that both hold in the same order.
Words are letters and digits, in small letters, and are not stemmed. Of several references the one that fits best counts
(Cachola et al. 2020); the figure is the mean over lines, in percent.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from regard.counts import agreeing
from regard.evaluation.metrics import Lines, Tally, mean_of

WORD = re.compile(r"[^\W_]+")
SIGNATURE = "mean F1 of {}|small letters|no stems|best reference"

Words = Sequence[str]


def tallies(lines: Lines) -> list[Tally]:
    """ROUGE-1, ROUGE-2 and ROUGE-L."""
    written = [words(text) for text in lines.hypotheses]
    wanted = [[words(text) for text in lines.beside(line)] for line in range(len(lines))]
    measures: dict[str, Callable[[Words, Words], float]] = {
        "ROUGE-1": lambda a, b: n_grams(a, b, 1),
        "ROUGE-2": lambda a, b: n_grams(a, b, 2),
        "ROUGE-L": in_order,
    }
    return [
        mean_of(
            name,
            SIGNATURE.format(f"{len(lines)} {agreeing(len(lines), 'line')}"),
            np.array([max(f(a, b) for b in each) for a, each in zip(written, wanted, strict=True)]),
        )
        for name, f in measures.items()
    ]


def words(text: str) -> list[str]:
    """What is compared."""
    return WORD.findall(text.lower())


def n_grams(written: Words, wanted: Words, size: int) -> float:
    """F of the n-grams that both hold, each as often as both do."""
    one, other = (Counter(zip(*(side[first:] for first in range(size)), strict=False)) for side in (written, wanted))
    return _f((one & other).total(), one.total(), other.total())


def in_order(written: Words, wanted: Words) -> float:
    """F of the longest common subsequence."""
    longest = [0] * (len(wanted) + 1)  # of what was read of `written` so far, and the first words of `wanted`
    for word in written:
        before = 0
        for place, other in enumerate(wanted, start=1):
            above = longest[place]
            longest[place] = before + 1 if word == other else max(above, longest[place - 1])
            before = above
    return _f(longest[-1], len(written), len(wanted))


def _f(shared: int, written: int, wanted: int) -> float:
    return 2 * shared / (written + wanted) if shared else 0.0
