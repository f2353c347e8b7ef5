"""BPE-dropout (Provilkov et al. 2020): subwords in which merges are left out by chance, for training.

The `tokenizers` library can do this, but draws from a generator that cannot be seeded. Here a text's subwords are a
pure function of (seed, text), wherever the text stands: words of many texts are merged at once, as columns of a table,
one merge a word and round, and each draw is a hash of where it is made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import tokenizers
from numpy.typing import NDArray

from regard.text.ragged import Ragged
from regard.text.survey import not_unicode
from regard.text.words import WordTable, spaces_of

if TYPE_CHECKING:  # with torch a process that only cuts would take three times the memory
    from regard.batch import Specials

CHUNK = 4_096  # texts at a time
EXACT, STEP = 16, 8  # pieces up to so many atoms are merged with others of their length; longer ones in steps
TABLE = 2**17  # atoms merged at a time: few enough for a processor's cache
ROW_BITS = 32
ROW_MASK = np.int64(2**ROW_BITS - 1)
GONE = -1
SPREAD = np.uint64(0x9E3779B97F4A7C15)
NO_MERGE = np.iinfo(np.int64).max
EMPTY = -1
PIECE = np.int64(2**32)  # atoms carry the number of their piece above these bits

Ids = NDArray[np.int64]
Hashes = NDArray[np.uint64]


class Merges:
    """The merges of a tokenizer to be made by hand, and what text is before any of them is made."""

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        self.json = inner.to_str()
        rules = json.loads(self.json)
        vocabulary: dict[str, int] = rules["model"]["vocab"]
        pairs = [(vocabulary[one], vocabulary[two], vocabulary[one + two]) for one, two in rules["model"]["merges"]]
        left, right, self.merged = np.array(pairs, np.int64).reshape(-1, 3).T
        self.nothing = max(vocabulary.values()) + 1
        """A token that is merged with none."""
        self._base = self.nothing + 1
        # A table with a place for each pair that follows from the pair, or the next free place behind it.
        size = 8 * 2 ** max(len(pairs), 1).bit_length()
        self._shift, self._last = np.uint64(64 - (size - 1).bit_length()), size - 1
        self._pairs, self._ranks = np.full(size, EMPTY), np.full(size, NO_MERGE)
        keys = left * self._base + right
        for rank, (key, place) in enumerate(zip(keys.tolist(), self._places(keys).tolist(), strict=True)):
            while self._pairs[place] != EMPTY:
                place = (place + 1) & self._last
            self._pairs[place], self._ranks[place] = key, rank
        rules["model"]["merges"] = []
        self._bare = tokenizers.Tokenizer.from_str(json.dumps(rules))
        self._bare.encode_special_tokens = True
        spaces = spaces_of(inner)
        self._table = None if spaces is None else WordTable(self._atoms, spaces)

    def _places(self, keys: Ids) -> Ids:
        return ((keys.astype(np.uint64) * SPREAD) >> self._shift).astype(np.int64)

    def ranks(self, left: Ids, right: Ids) -> Ids:
        """For each pair of neighbours how early it is merged, `NO_MERGE` if never."""
        keys = left * self._base + right
        places = self._places(keys)
        found = self._pairs[places]
        ranks = np.where(found == keys, self._ranks[places], NO_MERGE)
        others = np.flatnonzero((found != keys) & (found != EMPTY))
        while len(others):
            places[others] = (places[others] + 1) & self._last
            found = self._pairs[places[others]]
            ranks[others] = np.where(found == keys[others], self._ranks[places[others]], NO_MERGE)
            others = others[(found != keys[others]) & (found != EMPTY)]
        return ranks

    def atoms(self, texts: Sequence[str]) -> tuple[Ragged, Ids]:
        """What the texts are before any merge, and for each atom the number of its piece, among those of all texts."""
        if self._table is None:
            by_text = by_word = Ragged.of(self._atoms(texts))
        else:
            by_text, by_word = self._table.look_up(texts)
        full = by_word.lengths[by_word.lengths > 0]
        pieces = by_word.ids[full.cumsum() - 1] // PIECE + 1
        before = np.repeat(pieces.cumsum() - pieces, full)
        return Ragged(by_text.ids % PIECE, by_text.lengths), by_text.ids // PIECE + before

    def __reduce__(self) -> tuple[Callable[[str], Merges], tuple[str]]:
        return _read, (self.json,)  # another process meets its words itself

    def _atoms(self, texts: Sequence[str]) -> list[list[int]]:
        return [
            [token + int(PIECE) * (word or 0) for token, word in zip(found.ids, found.word_ids, strict=True)]
            for found in self._bare.encode_batch(list(texts), add_special_tokens=False)
        ]


def _read(rules: str) -> Merges:
    return Merges(tokenizers.Tokenizer.from_str(rules))


@dataclass(frozen=True)
class Draws:
    """Which merges are left out: each with the chance `rate`, as follows from `seed`."""

    rate: float
    seed: tuple[int, int]

    def hashes(self, texts: Sequence[bytes]) -> Hashes:
        """A number for each text, given in UTF-8, from which all its draws follow."""
        key = b"".join(number.to_bytes(8, "little") for number in self.seed)
        return np.frombuffer(b"".join([blake2b(text, digest_size=8, key=key).digest() for text in texts]), "<u8")


class MergeDropout:
    """A tokenizer that leaves each possible merge out by chance, at every step of merging."""

    def __init__(
        self,
        merges: Merges,
        size: int,
        specials: Specials,
        draws: Draws,
        languages: Mapping[str, int],
        source: MergeDropout | None = None,
    ) -> None:
        self.merges, self.size, self.specials, self.draws = merges, size, specials, draws
        self.languages = languages
        self.source: MergeDropout = source or self

    def to_json(self) -> str:
        """Everything that decides how text is encoded."""
        sides = {self.merges.json: None, self.source.merges.json: None}
        return json.dumps({"dropout": self.draws.rate, "seed": self.draws.seed, "tokenizers": list(sides)})

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of many texts, without start and end."""
        return self.encode_flat(texts).lists()

    def encode_flat(self, texts: Sequence[str]) -> Ragged:
        """The tokens of many texts, laid end to end."""
        return encode_each(self.merges, [self.draws], texts)[0]


def encode_each(merges: Merges, draws: Sequence[Draws], texts: Sequence[str]) -> list[Ragged]:
    """The tokens of many texts, cut in several ways; words are looked up once for all of them.

    All draws have the same rate.
    """
    try:
        chunks = [_encode(merges, draws, texts[first : first + CHUNK]) for first in range(0, len(texts), CHUNK)]
    except (TypeError, UnicodeEncodeError) as error:
        raise not_unicode(texts, "text") or error from error
    return [Ragged.joined([chunk[number] for chunk in chunks]) for number in range(len(draws))]


def _encode(merges: Merges, draws: Sequence[Draws], texts: Sequence[str]) -> list[Ragged]:
    (atoms, lengths), piece = merges.atoms(texts)
    begins = np.flatnonzero(np.diff(piece, prepend=-1))
    text = np.repeat(np.arange(len(texts)), lengths)[begins]
    # The first piece of each text has the number 0 there.
    ends = np.append(0, lengths.cumsum())
    inside = (piece[begins] - piece[ends[text]]).astype(np.uint64)
    written = [text.encode() for text in texts]
    seeds = np.stack([_mix(one.hashes(written)[text] + inside) for one in draws])
    rows = _merge(merges, atoms.astype(np.int64), begins, seeds, draws[0].rate)
    so_far = [np.append(0, np.cumsum(row != GONE)) for row in rows]
    return [Ragged(row[row != GONE], np.diff(count[ends])) for row, count in zip(rows, so_far, strict=True)]


def _merge(merges: Merges, atoms: Ids, begins: Ids, seeds: Hashes, rate: float) -> NDArray[np.int32]:
    """The atoms merged by each of several cuts, one row a cut; an atom that became part of the one before it is `GONE`.

    `begins` says where each piece begins, and `seeds` what its draws follow from, for each cut.
    """
    found = np.tile(atoms.astype(np.int32), (len(seeds), 1))
    sizes = np.diff(begins, append=len(atoms))
    ranks = np.append(merges.ranks(atoms[:-1], atoms[1:]), NO_MERGE)[: len(atoms)]
    ranks[begins[1:] - 1] = NO_MERGE  # the last atom of a piece has nothing to be merged with
    # Pieces that are about equally long are merged together, as columns of a table.
    heights = np.where(sizes <= EXACT, sizes, -(-sizes // STEP) * STEP)
    order = np.argsort(heights, kind="stable")
    changes = np.flatnonzero(np.diff(heights[order], prepend=0, append=-1))
    for one, two in pairwise(changes.tolist()):
        height = int(heights[order[one]])
        if height == 1:
            continue
        width = max(TABLE // (height * len(seeds)), 1)
        for begin in range(one, two, width):
            some = order[begin : min(begin + width, two)]
            inside = np.arange(height)[:, None] < sizes[some]
            places = np.where(inside, begins[some] + np.arange(height)[:, None], 0)
            table = _Table(
                np.tile(np.where(inside, atoms[places], merges.nothing), len(seeds)),
                np.tile(np.where(inside, ranks[places], NO_MERGE), len(seeds)),
                seeds[:, some].reshape(-1),
                merges.nothing,
            )
            merged = table.merged(merges, rate).reshape(height, len(seeds), len(some)).transpose(1, 0, 2)
            found[:, places[inside]] = merged[:, inside]
    return found


class _Table:
    """Pieces to be merged, one a column, with a row of nothing above and below."""

    def __init__(self, tokens: Ids, ranks: Ids, seeds: Hashes, nothing: int) -> None:
        self._height, self._width = tokens.shape
        none = np.full((1, self._width), nothing)
        self._tokens = np.concatenate([none, tokens, none])
        row = np.arange(self._height + 2)[:, None]
        # A merge and its place in one number: the smallest is the earliest merge, and of equal ones the first.
        never = np.full((1, self._width), NO_MERGE)
        self._merges = np.concatenate([never, _with_row(ranks, row[1:-1]), never])
        self._draws = seeds + row[:-2].astype(np.uint64)
        self._above, self._below = np.tile(row - 1, self._width), np.tile(row + 1, self._width)

    def merged(self, known: Merges, rate: float) -> Ids:
        """Merge in rounds: in each, every piece makes the best of those of its merges that are not left out."""
        limit = np.uint64(min(int(rate * 2.0**64), 2**64 - 1))
        columns, room = np.arange(self._width), np.empty_like(self._draws)
        while True:
            _mix_in_place(self._draws, room)
            tried = np.where(self._draws < limit, NO_MERGE, self._merges[1:-1])
            best = tried.min(axis=0)[columns]
            # A piece of which all merges are left out is done, even if others could come up in the next round.
            columns, best = columns[best != NO_MERGE], best[best != NO_MERGE]
            if not len(columns):
                return self._tokens[1:-1]
            self._make(known, best, columns)

    def _make(self, known: Merges, best: Ids, columns: Ids) -> None:
        """Make one merge in each of these columns."""
        tokens, merges, above, below = (
            table.reshape(-1) for table in (self._tokens, self._merges, self._above, self._below)
        )
        rank, row = best >> ROW_BITS, best & ROW_MASK
        here = row * self._width + columns
        gone = below[here] * self._width + columns
        row_below, row_above = below[gone], above[here]
        next_one, one_before = row_below * self._width + columns, row_above * self._width + columns
        token = known.merged[rank]
        tokens[here], tokens[gone], merges[gone] = token, GONE, NO_MERGE
        below[here], above[next_one] = row_below, row
        before, behind = tokens[one_before], tokens[next_one]
        ranks = known.ranks(np.concatenate([before, token]), np.concatenate([token, behind]))
        now = _with_row(ranks, np.concatenate([row_above, row]))
        merges[one_before], merges[here] = now[: len(columns)], now[len(columns) :]


def _with_row(ranks: Ids, row: Ids) -> Ids:
    return np.where(ranks == NO_MERGE, NO_MERGE, (ranks << ROW_BITS) | row)


def _mix(numbers: Hashes) -> Hashes:
    """Numbers into unrelated ones: one step of the generator SplitMix64 (Steele et al. 2014)."""
    mixed = numbers.copy()
    _mix_in_place(mixed, np.empty_like(mixed))
    return mixed


def _mix_in_place(numbers: Hashes, room: Hashes) -> None:
    """The same; nothing is copied but into `room`."""
    numbers += SPREAD
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, None)):
        np.right_shift(numbers, np.uint64(shift), out=room)
        numbers ^= room
        if factor is not None:
            numbers *= np.uint64(factor)
