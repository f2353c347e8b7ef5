"""Learning the merges of byte-pair encoding (Sennrich et al. 2016) from counted pieces of text.

Start from single characters; merge the pair of neighbours that is most frequent, in all pieces at once; again and
again, until the vocabulary is full. Of pairs that are equally frequent the one whose tokens were learned first comes
first. The result is what the trainer of the `tokenizers` library finds (`tests/text/test_merging.py` compares them).
But that one wants to read every word as often as it occurs, and here a word and its count are enough.

A queue holds each pair with the pieces it was seen in. Its counts may be out of date: a pair that comes up with another
count than it has by now goes back into the queue.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.status import StatusLine
from regard.text.ragged import ranges

CODE_POINTS = 0x110000
Numbers = NDArray[np.int64]


class Learned(NamedTuple):
    """A vocabulary in the order of its numbers, and the merges in the order of their making."""

    tokens: list[str]
    merges: list[tuple[str, str]]


def learn_merges(
    pieces: Mapping[str, int],
    tokens: Sequence[str],
    size: int,
    min_frequency: int,
    status: StatusLine | None = None,
) -> Learned:
    """Extend `tokens` by merges until there are `size` of them, or no pair is frequent enough.

    `pieces` says how often each piece of text occurs. Single characters are merged if they are among `tokens`; others
    are left out.
    """
    grown, numbers = list(tokens), {token: number for number, token in enumerate(tokens)}
    text = _Text(pieces, numbers, size)
    counts, places = text.pairs()
    queue = [(-count, pair, number) for number, (pair, count) in enumerate(counts.items())]
    heapq.heapify(queue)
    merges: dict[int, None] = {}
    while queue and len(grown) < size:
        count, pair, number = heapq.heappop(queue)
        now = counts[pair]
        if now != -count:
            heapq.heappush(queue, (-now, pair, number))
            continue
        if now < max(min_frequency, 1):
            break
        if status is not None:
            status.show(partial("learned {:,} of {:,} tokens".format, len(grown), size))
        left, right = divmod(pair, size)
        token = grown[left] + grown[right]
        if token not in numbers:
            numbers[token] = len(grown)
            grown.append(token)
        # A pair that comes up again, because one of its tokens was made in two ways, counts from then on.
        merges.pop(pair, None)
        merges[pair] = None
        gone, new = text.merge(places[number], left, right, numbers[token])
        places[number] = None
        for other, times in gone.counts():
            counts[other] = counts.get(other, 0) - times
        for (other, times), words in zip(new.counts(), new.places(), strict=True):
            counts[other] = counts.get(other, 0) + times
            if counts[other] > 0:
                heapq.heappush(queue, (-counts[other], other, len(places)))
                places.append(words)
    return Learned(grown, [(grown[pair // size], grown[pair % size]) for pair in merges])


class _Pairs(NamedTuple):
    """Pairs of neighbours, each as a number: that of the left token times the size of the vocabulary, plus the right's.

    They are sorted, and `begin` says where each different one begins.
    """

    pairs: Numbers
    words: NDArray[np.int32]
    times: Numbers
    begin: Numbers

    @classmethod
    def of(cls, pairs: Numbers, words: NDArray[np.int32], times_of_words: Numbers) -> _Pairs:
        order = np.argsort(pairs, kind="stable")
        pairs, words = pairs[order], words[order]
        return cls(pairs, words, times_of_words[words], np.flatnonzero(np.diff(pairs, prepend=-1)))

    def counts(self) -> list[tuple[int, int]]:
        """Each different pair, and how often it occurs."""
        if not len(self.pairs):
            return []
        sums = np.add.reduceat(self.times, self.begin)
        return list(zip(self.pairs[self.begin].tolist(), sums.tolist(), strict=True))

    def places(self) -> list[NDArray[np.int32] | None]:
        """For each different pair the pieces that have it, some more than once."""
        edges = [*self.begin.tolist(), len(self.pairs)]
        return [self.words[begin:end] for begin, end in pairwise(edges)]


class _Text:
    """Pieces of text as rows of tokens; a row gets shorter in its place as its tokens are merged."""

    def __init__(self, pieces: Mapping[str, int], numbers: Mapping[str, int], base: int) -> None:
        known = np.full(CODE_POINTS, -1, np.int32)
        for token, number in numbers.items():
            if len(token) == 1:
                known[ord(token)] = number
        tokens = known[np.frombuffer("".join(pieces).encode("utf-32-le"), np.uint32)]
        lengths = np.fromiter(map(len, pieces), np.int64, count=len(pieces))
        words = np.repeat(np.arange(len(pieces), dtype=np.int32), lengths)[tokens >= 0]
        self._base = base
        self._tokens = tokens[tokens >= 0]
        self._times = np.fromiter(pieces.values(), np.int64, count=len(pieces))
        self._lengths = np.bincount(words, minlength=len(pieces))
        self._begin = self._lengths.cumsum() - self._lengths

    def pairs(self) -> tuple[dict[int, int], list[NDArray[np.int32] | None]]:
        """How often each pair of neighbours occurs, and in which pieces."""
        words = np.repeat(np.arange(len(self._lengths), dtype=np.int32), self._lengths)
        inside = np.flatnonzero(words[:-1] == words[1:])
        found, words = self._pair(self._tokens[inside], self._tokens[inside + 1]), words[inside]
        all_pairs = _Pairs.of(found, words, self._times)
        return dict(all_pairs.counts()), all_pairs.places()

    def merge(self, words: NDArray[np.int32] | None, left: int, right: int, merged: int) -> tuple[_Pairs, _Pairs]:
        """Merge a pair wherever these pieces have it; gives the pairs that are gone by it and those that are new.

        The pair itself is not among those gone.
        """
        assert words is not None, "a pair was taken from the queue twice"
        words = np.unique(words)
        lengths, begin = self._lengths[words], self._begin[words]
        tokens = self._tokens[ranges(begin, lengths)]
        owners = np.repeat(np.arange(len(words)), lengths)
        # The first and the last token of a piece have no neighbour there.
        last = np.append(owners[:-1] != owners[1:], True)
        hits = np.flatnonzero((tokens[:-1] == left) & (tokens[1:] == right) & ~last[:-1])
        hits = _every_second(hits) if left == right else hits
        seconds = np.zeros(len(tokens), bool)
        seconds[hits + 1] = True
        before, behind = hits[(hits > 0) & ~last[hits - 1]], hits[~last[hits + 1]]
        # From left to right: what stands before may just have been merged, what stands behind has not yet.
        neighbours = np.where(seconds[before - 1], merged, tokens[before - 1])
        followers = tokens[behind + 2]
        where = words[owners[np.concatenate([before, behind])]]
        gone = np.concatenate([self._pair(neighbours, left), self._pair(right, followers)])
        new = np.concatenate([self._pair(neighbours, merged), self._pair(merged, followers)])
        tokens[hits] = merged
        self._lengths[words] = lengths - np.bincount(owners[hits], minlength=len(words))
        self._tokens[ranges(begin, self._lengths[words])] = tokens[~seconds]
        return _Pairs.of(gone, where, self._times), _Pairs.of(new, where, self._times)

    def _pair(self, left: NDArray[np.int32] | int, right: NDArray[np.int32] | int) -> Numbers:
        return np.asarray(left, np.int64) * self._base + right


def _every_second(hits: Numbers) -> Numbers:
    """Of a a a only the first two can be merged: in each run of neighbours the first, the third, …"""
    begins = np.flatnonzero(np.diff(hits, prepend=-2) != 1)
    inside = np.arange(len(hits)) - np.repeat(begins, np.diff(begins, append=len(hits)))
    return hits[inside % 2 == 0]
