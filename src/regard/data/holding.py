"""Which pairs are held out for validation, where a corpus brings none.

Of those that are kept two in a hundred, but about 20 of a small corpus and at most about 1,000. Of a tiny one, of less
than 200, no more than a tenth, but at least one sentence. A corpus is a stream: how large it is, and so how much is
held out, is known at its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from regard.data.filters import Keys, Mask
from regard.data.generated import Pair

HELD_OUT_SHARE = 0.02
HELD_OUT_LABELLED = 0.1  # figures of each label need more than a loss does
HELD_OUT_MOST = 1_000
HELD_OUT_SMALL = 20  # pairs of a small corpus
HELD_OUT_SHARE_TINY = 0.1
TINY = 200  # pairs, of which both make the same


class HoldOut(Protocol):
    """Keeps some pairs back from a stream whose end is not known."""

    def pass_on(self, pairs: Sequence[Pair], keys: Keys) -> Iterator[Pair]:
        """The pairs that can go on to training, given some more and the keys of their sources."""
        ...

    def finish(self) -> tuple[list[Pair], list[Pair]]:
        """At the end: the pairs that go on to training after all, and those held out."""
        ...

    def holds(self, keys: Keys) -> Mask:
        """At the end: whether pairs with such sources are held out."""
        ...


class HeldBySource:
    """Holds out pairs by a hash of their source: all with one source stand on one side, however the corpus grows.

    A hash below a border decides, and thus chance how many there are. Of a tiny corpus they are counted.
    """

    def __init__(self, share: float = HELD_OUT_SHARE) -> None:
        self._share, self._seen, self._border = share, 0, float(2**32)
        self._held: list[tuple[int, Pair]] = []

    def pass_on(self, pairs: Sequence[Pair], keys: Keys) -> Iterator[Pair]:
        """Those above the border, which only ever sinks, and those held so far that it has passed."""
        self._seen += len(pairs)
        self._held += zip((keys >> np.uint64(32)).tolist(), pairs, strict=True)
        return iter(() if self._seen < TINY else self._pass(held_out_share(self._seen, self._share) * 2**32))

    def _pass(self, border: float) -> list[Pair]:
        """Those of the held that are not below the border; they are held no more."""
        passed = [pair for number, pair in self._held if number >= border]
        self._held = [entry for entry in self._held if entry[0] < border]
        self._border = border
        return passed

    def finish(self) -> tuple[list[Pair], list[Pair]]:
        """What is still below the border is held out; of a tiny corpus, a tenth by their hash."""
        late: list[Pair] = []
        if 0 < self._seen < TINY:
            numbers = sorted(number for number, _ in self._held)
            first_above = numbers[min(max(1, int(HELD_OUT_SHARE_TINY * self._seen)), self._seen - 1)]
            late = self._pass(max(first_above, numbers[0] + 1))
        return late, [pair for _, pair in self._held]

    def holds(self, keys: Keys) -> Mask:
        """Whether they are below the border."""
        return np.asarray((keys >> np.uint64(32)) < self._border)


class HeldAtEnd:
    """Holds out the last lines: running text must not be torn apart."""

    def __init__(self) -> None:
        self._seen = 0
        self._last: deque[Pair] = deque()

    def pass_on(self, pairs: Sequence[Pair], keys: Keys) -> Iterator[Pair]:
        """All but the last thousand so far."""
        self._seen += len(pairs)
        self._last.extend(pairs)
        return (self._last.popleft() for _ in range(len(self._last) - HELD_OUT_MOST))

    def finish(self) -> tuple[list[Pair], list[Pair]]:
        """The share of the whole, from the end: at least the last line."""
        last = list(self._last)
        begin = len(last) - max(1, int(held_out_share(self._seen) * self._seen))
        return last[:begin], last[begin:]

    def holds(self, keys: Keys) -> Mask:
        """Nothing is, by its source."""
        return np.zeros(len(keys), dtype=bool)


class HeldShare:
    """Holds out the last lines that make up a share of the text, in characters, line ends among them."""

    def __init__(self, share: float) -> None:
        self._share, self._seen = share, 0
        self._last: deque[tuple[int, Pair]] = deque()  # with the place in the text where each ends

    def pass_on(self, pairs: Sequence[Pair], keys: Keys) -> Iterator[Pair]:
        """Those that are before the border already: it only moves on."""
        for pair in pairs:
            self._seen += len(pair.target) + 1
            self._last.append((self._seen, pair))
        while self._last and self._last[0][0] <= (1 - self._share) * self._seen:
            yield self._last.popleft()[1]

    def finish(self) -> tuple[list[Pair], list[Pair]]:
        """What ends behind the border is held out: at least the last line."""
        return [], [pair for _, pair in self._last]

    def holds(self, keys: Keys) -> Mask:
        """Nothing is, by its source."""
        return np.zeros(len(keys), dtype=bool)


def held_out_share(pairs: int, share: float = HELD_OUT_SHARE) -> float:
    """The share of a corpus of so many pairs to hold out, `share` at most of a large one; it never grows with it."""
    share = min(share, HELD_OUT_MOST / max(pairs, 1))
    # Small corpora need a larger share, or nothing would be left to validate on.
    return max(share, min(HELD_OUT_SHARE_TINY, HELD_OUT_SMALL / max(pairs, 1)))
