"""Which sentences share a row, and which rows share a shape.

Two answers. *Packed*: rows of one size, each filled with several whole sentences; hardly anything is padded, and there
is one shape. *Buckets*: one sentence a row, for models that cannot tell two in a row apart; rows whose two sides are
about as long share one of a bounded number of shapes.

Both look at lengths only, and work on the table of lengths that occur: a corpus of millions of pairs has a few
thousand different ones. All lengths count the token that is added, <end> on the source and <start> on the target.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.store import Integers

AIM = 0.045  # the share of padding at which buckets are good enough; with the empty rows it stays below 5 %
FEWEST_BATCHES = 2  # of a bucket: the last batch of each is seldom full, and should not be the only one
NO_SPACE = -1


class Lengths(NamedTuple):
    """The length of a row, or of a sentence pair, on each side; 0 where there is no source."""

    source: int
    target: int

    def within(self, size: Lengths) -> bool:
        """Whether a row of `size` has room for this."""
        return self.source <= size.source and self.target <= size.target


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one shape, and the numbers of the sentences in them."""

    shape: Lengths
    members: Integers
    """The sentences of all rows, one row after another."""
    begin: Integers
    """Where in `members` each row begins; one number more than there are rows."""

    def __len__(self) -> int:
        return len(self.begin) - 1


# ---- the table of lengths


@dataclass(frozen=True, eq=False)
class _Table:
    """Every pair of lengths that occurs, with the sentences that have it, in the order of the corpus."""

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    begin: NDArray[np.int64]
    sentences: NDArray[np.int64]

    @classmethod
    def of(cls, source: Integers | None, target: Integers) -> _Table:
        first = np.zeros(len(target), np.int64) if source is None else source.astype(np.int64)
        width = int(target.max()) + 1
        keys = first * width + target
        sentences = np.argsort(keys, kind="stable")
        cells, begin = np.unique(keys[sentences], return_index=True)
        return cls(cells // width, cells % width, np.append(begin, len(keys)), sentences)

    @property
    def counts(self) -> NDArray[np.int64]:
        return np.diff(self.begin)


# ---- several sentences a row


def packed(source: Integers | None, target: Integers, row: int) -> list[Rows]:
    """Rows of at most `row` tokens a side, filled by best fit, longest sentences first.

    Where one side of the corpus is longer than the other, its rows are `row` long and the other's shorter in
    proportion: both fill up together. A sentence that is longer than its row goes into one of twice the size, or four
    times …; the gaps in these rows are filled with shorter sentences, too.
    """
    table = _Table.of(source, target)
    sizes = _sizes(table, row)
    left = table.counts
    # Longest first: the short ones fill the gaps that the others leave.
    longer = np.maximum(table.source, table.target)
    order = np.lexsort((-(table.source + table.target), -longer)).tolist()
    used = table.begin[:-1].copy()
    found = []
    for level, size in enumerate(sizes):
        smaller = sizes[level + 1] if level + 1 < len(sizes) else Lengths(-1, -1)
        patterns = _fill(table, order, left, size, smaller)
        if patterns:
            found.append(_rows(table, patterns, size, used))
    return found[::-1]


def _sizes(table: _Table, row: int) -> list[Lengths]:
    """The row sizes to use, largest first."""
    totals = [int((side * table.counts).sum()) for side in (table.source, table.target)]
    usual = Lengths(*(min(row, _round_up(-(-row * total // max(totals)))) for total in totals))
    longest = Lengths(int(table.source.max()), int(table.target.max()))
    sizes = [usual]
    while not longest.within(sizes[0]):
        sizes.insert(0, Lengths(2 * sizes[0].source, 2 * sizes[0].target))
    if len(sizes) > 1:
        sizes[0] = Lengths(*(min(size, _round_up(most)) for size, most in zip(sizes[0], longest, strict=True)))
    return sizes


def _round_up(length: int) -> int:
    """A multiple of 8: attention kernels want masks whose rows are that long."""
    return -(-length // 8) * 8


class _Pattern(NamedTuple):
    """Rows that hold sentences of the same lengths: `cells` are their places in the table."""

    cells: tuple[int, ...]
    rows: int


class _Unfinished:
    """The rows that are being filled, by the space that is left in them."""

    def __init__(self) -> None:
        self._places: dict[Lengths, int] = {}
        self._patterns: list[list[_Pattern]] = []
        # The same spaces as arrays, to compare all of them at once; NO_SPACE where no row has that space any more.
        self._space_2N = np.full((2, 64), NO_SPACE)

    def put(self, space: Lengths, pattern: _Pattern) -> None:
        """Rows with this space left."""
        place = self._places.setdefault(space, len(self._patterns))
        if place == len(self._patterns):
            self._patterns.append([])
            if place == self._space_2N.shape[1]:
                self._space_2N = np.pad(self._space_2N, ((0, 0), (0, place)), constant_values=NO_SPACE)
        self._patterns[place].append(pattern)
        self._space_2N[:, place] = space

    def take(self, need: Lengths, count: int) -> tuple[Lengths, _Pattern] | None:
        """At most `count` rows of those in which the larger of the two gaps will be smallest; None if none has room."""
        gaps_2N = self._space_2N[:, : len(self._patterns)] - np.array(need)[:, None]
        fits = np.nonzero(gaps_2N.min(axis=0) >= 0)[0]
        if not len(fits):
            return None
        larger, other = gaps_2N[:, fits].max(axis=0), gaps_2N[:, fits].min(axis=0)
        place = int(fits[np.lexsort((other, larger))[0]])
        space = Lengths(*self._space_2N[:, place].tolist())
        pattern = self._patterns[place].pop()
        rows = min(pattern.rows, count)
        if rows < pattern.rows:
            self._patterns[place].append(_Pattern(pattern.cells, pattern.rows - rows))
        if not self._patterns[place]:
            self._space_2N[:, place] = NO_SPACE
        return space, _Pattern(pattern.cells, rows)

    def patterns(self) -> list[_Pattern]:
        """All rows, however full."""
        return [pattern for patterns in self._patterns for pattern in patterns]


def _fill(table: _Table, order: list[int], left: NDArray[np.int64], size: Lengths, smaller: Lengths) -> list[_Pattern]:
    """Best fit: put each sentence into the row that it leaves the least space in; `left` counts what remains.

    All sentences of the same lengths, and all rows with the same space, are handled at once. Only sentences that
    do not fit into a `smaller` row may begin a new one.
    """
    needs = [Lengths(*need) for need in zip(table.source.tolist(), table.target.tolist(), strict=True)]
    unfinished = _Unfinished()
    unbegun = _fewest_rows(needs, left.tolist(), size, smaller)
    for cell in order:
        need, count = needs[cell], int(left[cell])
        if not need.within(size):
            continue
        while count:
            found = unfinished.take(need, count)
            if found is None:
                if need.within(smaller):
                    break
                copies = min(whole // part for whole, part in zip(size, need, strict=True) if part)
                # As many rows as will be needed anyway are begun early: sentences that differ fill a row's two sides
                # more evenly than copies of the longest.
                found = size, _Pattern((), max(-(-count // copies), min(count, unbegun)))
                unbegun -= found[1].rows
            space, (cells, rows) = found
            rest = Lengths(space.source - need.source, space.target - need.target)
            unfinished.put(rest, _Pattern((*cells, cell), rows))
            count -= rows
        left[cell] = count
    return unfinished.patterns()


def _fewest_rows(needs: list[Lengths], left: list[int], size: Lengths, smaller: Lengths) -> int:
    """How many rows the sentences that may begin one would fill if not a slot were lost."""
    begin = [(need, count) for need, count in zip(needs, left, strict=True)
             if need.within(size) and not need.within(smaller)]  # fmt: skip
    totals = [sum(need[side] * count for need, count in begin) for side in (0, 1)]
    return max(-(-total // whole) for total, whole in zip(totals, size, strict=True) if whole)


def _rows(table: _Table, patterns: list[_Pattern], size: Lengths, used: NDArray[np.int64]) -> Rows:
    """The patterns with actual sentences in them; `used` says how far each cell's have been given out."""
    members, widths = [], []
    for pattern in patterns:
        columns = []
        for cell in pattern.cells:
            first = used[cell]
            used[cell] = first + pattern.rows
            columns.append(table.sentences[first : first + pattern.rows])
        members.append(np.stack(columns, axis=1).ravel())
        widths.append(np.full(pattern.rows, len(columns)))
    begin = np.concatenate([[0], np.concatenate(widths).cumsum()])
    return Rows(size, np.concatenate(members), begin)


# ---- one sentence a row


def bucketed(source: Integers | None, target: Integers, tokens: int, shapes: int) -> list[Rows]:
    """One sentence a row, in at most `shapes` different row sizes.

    All sentences start in one bucket, as long on each side as its longest sentence. Of all cuts of a bucket by the
    length of either side, the one that saves most padding is made; and so on, until little is padded. No bucket
    is cut so small that it could not fill some batches of `tokens`.
    """
    table = _Table.of(source, target)
    counts = table.counts
    real = int(((table.source + table.target) * counts).sum())
    whole = _Bucket.of(table, counts, np.arange(len(counts)), tokens)
    buckets, slots = [whole], whole.slots
    while len(buckets) < shapes and slots * (1 - AIM) > real and buckets[0].gain > 0:
        bucket = heapq.heappop(buckets)
        slots -= bucket.gain
        for cells in bucket.halves:
            heapq.heappush(buckets, _Bucket.of(table, counts, cells, tokens))
    found = []
    for bucket in sorted(buckets, key=lambda bucket: bucket.shape):
        members = np.concatenate([table.sentences[table.begin[c] : table.begin[c + 1]] for c in bucket.cells.tolist()])
        found.append(Rows(bucket.shape, np.sort(members), np.arange(len(members) + 1)))
    return found


@dataclass(frozen=True, eq=False)
class _Bucket:
    """Cells of the table, and how much the best cut through them would save."""

    shape: Lengths
    cells: NDArray[np.int64]
    slots: int
    gain: int
    halves: tuple[NDArray[np.int64], ...]

    def __lt__(self, other: _Bucket) -> bool:
        """The bucket that is worth cutting first; of equal ones, the one with the shorter rows."""
        return (-self.gain, self.shape) < (-other.gain, other.shape)

    @classmethod
    def of(cls, table: _Table, counts: NDArray[np.int64], cells: NDArray[np.int64], tokens: int) -> _Bucket:
        sides = (table.source[cells], table.target[cells])
        shape = Lengths(int(sides[0].max()), int(sides[1].max()))
        slots = int(counts[cells].sum()) * sum(shape)
        best = slots
        halves: tuple[NDArray[np.int64], ...] = ()
        for side, other in (sides, sides[::-1]):
            order = np.argsort(side, kind="stable")
            cost, cut = _best_cut(side[order], other[order], counts[cells[order]], tokens)
            if cost < best:
                best, halves = cost, (cells[order[:cut]], cells[order[cut:]])
        return cls(shape, cells, slots, slots - best, halves)


def _best_cut(
    side: NDArray[np.int64], other: NDArray[np.int64], counts: NDArray[np.int64], tokens: int
) -> tuple[int, int]:
    """Cells in the order of `side`: how many slots remain after the best cut between two lengths, and where it is."""
    cuts = np.nonzero(np.diff(side))[0] + 1
    below = counts.cumsum()[cuts - 1]
    above = int(counts.sum()) - below
    low = side[cuts - 1], np.maximum.accumulate(other)[cuts - 1]
    high = side[-1], np.maximum.accumulate(other[::-1])[::-1][cuts]
    least = FEWEST_BATCHES * tokens
    enough = (below * np.maximum(*low) >= least) & (above * np.maximum(*high) >= least)
    if not enough.any():
        return int(counts.sum()) * int(side[-1] + other.max()), 0
    cost = np.where(enough, below * (low[0] + low[1]) + above * (high[0] + high[1]), np.iinfo(np.int64).max)
    best = int(cost.argmin())
    return int(cost[best]), int(cuts[best])
