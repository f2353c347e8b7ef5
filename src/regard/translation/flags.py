"""What looks odd about a translation, found without knowing either language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

LOOP = 4  # as often as this in a row, and it is a loop
LONGEST_LOOP = 32  # tokens of what is said again and again
COPY = 0.8  # the share of letters in threes that a copy has in common with its source


def repeats(tokens: Sequence[int]) -> int:
    """The most often that something of up to `LONGEST_LOOP` tokens stands in a row: 3 in "a b a b a b c"."""
    most = min(1, len(tokens))
    for period in range(1, min(LONGEST_LOOP, len(tokens) // 2) + 1):
        same = 0
        for place in range(period, len(tokens)):
            same = same + 1 if tokens[place] == tokens[place - period] else 0
            most = max(most, same // period + 1)
    return most


def is_loop(source: Sequence[int], target: Sequence[int]) -> bool:
    """Whether the target says something `LOOP` times in a row, and more often than the source says anything."""
    if max(Counter(target).values(), default=0) < LOOP:
        return False  # most texts: what is said four times has a token that is there four times
    often = repeats(target)
    return often >= LOOP and often > repeats(source)


def is_copy(source: str, target: str) -> bool:
    """Whether the target is its source, or nearly so; letters count, numbers are the same in many languages."""
    source, target = " ".join(source.casefold().split()), " ".join(target.casefold().split())
    if not any(map(str.isalpha, source)):
        return False
    if source == target:
        return True
    ours, theirs = _threes(source), _threes(target)
    both = ours.total() + theirs.total()
    return both > 0 and 2 * (ours & theirs).total() / both >= COPY


def _threes(text: str) -> Counter[str]:
    return Counter(text[place : place + 3] for place in range(len(text) - 2))
