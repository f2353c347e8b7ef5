"""BPE-dropout (Provilkov et al. 2020): subwords in which merges are left out by chance, for training.

The `tokenizers` library can do this, but draws from a generator that cannot be seeded. Here a text's subwords are a
pure function of (seed, text), wherever the text stands: all words of many texts are merged at once, one merge a word
and round, and each draw is a hash of where it is made.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from itertools import chain

import numpy as np
import tokenizers
from numpy.typing import NDArray

from regard.batch import Specials
from regard.text.survey import not_unicode

CHUNK = 8_192  # texts at a time
NO_MERGE = np.iinfo(np.int64).max

Ids = NDArray[np.int64]
Hashes = NDArray[np.uint64]


class MergeDropout:
    """A tokenizer that leaves each possible merge out with the chance `rate`, at every step of merging."""

    def __init__(
        self,
        inner: tokenizers.Tokenizer,
        specials: Specials,
        rate: float,
        seed: tuple[int, int],
        source: MergeDropout | None = None,
    ) -> None:
        self._inner, self.specials, self._rate, self._seed = inner, specials, rate, seed
        self.source: MergeDropout = source or self
        model = json.loads(inner.to_str())["model"]
        vocabulary: dict[str, int] = model["vocab"]
        pairs = [(vocabulary[left], vocabulary[right], vocabulary[left + right]) for left, right in model["merges"]]
        left, right, merged = np.array(pairs, np.int64).reshape(-1, 3).T
        self._base = max(vocabulary.values()) + 1
        keys = left * self._base + right
        # The order of the merges is their rank; they are kept by key, to be found quickly.
        self._ranks = np.argsort(keys, kind="stable")
        self._keys, self._merged = keys[self._ranks], merged
        self._atoms, self._first_atom = _atoms(self._base, pairs)

    @property
    def size(self) -> int:
        """How many tokens there are, special ones included."""
        return self._inner.get_vocab_size()

    def to_json(self) -> str:
        """Everything that decides how text is encoded."""
        sides = {self._inner.to_str(): None, self.source._inner.to_str(): None}
        return json.dumps({"dropout": self._rate, "seed": self._seed, "tokenizers": list(sides)})

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of many texts, without start and end."""
        found: list[list[int]] = []
        for first in range(0, len(texts), CHUNK):
            found += self._encode(texts[first : first + CHUNK])
        return found

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        try:
            whole = self._inner.encode_batch(texts, add_special_tokens=False)
        except TypeError as error:
            raise not_unicode(texts, "text") or error from error
        lengths = np.array([len(encoding) for encoding in whole])
        ids = _flat([encoding.ids for encoding in whole])
        inside = _flat([[word or 0 for word in encoding.word_ids] for encoding in whole])
        text = np.repeat(np.arange(len(texts)), lengths)
        seeds = np.array([self._hash(one) for one in texts], np.uint64)
        # Back to the smallest pieces; each knows its word by a number that no other word of these texts has.
        counts = np.diff(self._first_atom)[ids]
        words = int(inside.max(initial=0)) + 1
        word = np.repeat(text * words + inside, counts)
        draws = _mix(np.repeat(seeds[text] + inside.astype(np.uint64), counts)) + _places_in(word).astype(np.uint64)
        pieces, owner = self._merge(self._atoms[_ranges(self._first_atom[ids], counts)], word, draws)
        ends = np.searchsorted(owner // words, np.arange(len(texts)), side="right").tolist()
        everything = pieces.tolist()
        return [everything[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    def _merge(self, pieces: Ids, word: Ids, draws: Hashes) -> tuple[Ids, Ids]:
        """Merge in rounds: in each, every word makes the best of those of its merges that are not left out."""
        done: list[tuple[Ids, Ids, Ids]] = []
        place = np.arange(len(pieces))
        limit = np.uint64(min(int(self._rate * 2.0**64), 2**64 - 1))
        while len(pieces):
            draws = _mix(draws)
            ranks = self._ranks_of(pieces, word)
            ranks[draws < limit] = NO_MERGE
            begins = np.flatnonzero(np.diff(word, prepend=-1))
            best = np.minimum.reduceat(ranks, begins)
            sizes = np.diff(begins, append=len(pieces))
            goes_on = np.repeat(best < NO_MERGE, sizes)
            done.append((place[~goes_on], pieces[~goes_on], word[~goes_on]))
            chosen = np.flatnonzero((ranks == np.repeat(best, sizes)) & goes_on)
            # Of equal merges in a word only the first: the next round finds the others.
            chosen = chosen[np.diff(word[chosen], prepend=-1) != 0]
            pieces[chosen] = self._merged[ranks[chosen]]
            goes_on[chosen + 1] = False
            pieces, word, draws, place = pieces[goes_on], word[goes_on], draws[goes_on], place[goes_on]
        if not done:
            return pieces, word
        places, pieces, word = (np.concatenate(parts) for parts in zip(*done, strict=True))
        order = np.argsort(places)
        return pieces[order], word[order]

    def _ranks_of(self, pieces: Ids, word: Ids) -> Ids:
        """For each piece the rank of its merge with the next one of its word."""
        ranks = np.full(len(pieces), NO_MERGE)
        keys = pieces[:-1] * self._base + pieces[1:]
        spots = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        fits = (word[:-1] == word[1:]) & (self._keys[spots] == keys) if len(self._keys) else np.zeros(len(keys), bool)
        ranks[:-1][fits] = self._ranks[spots[fits]]
        return ranks

    def _hash(self, text: str) -> int:
        key = b"".join(number.to_bytes(8, "little") for number in self._seed)
        return int.from_bytes(blake2b(text.encode(), digest_size=8, key=key).digest(), "little")


def _atoms(size: int, pairs: Sequence[tuple[int, int, int]]) -> tuple[Ids, Ids]:
    """What each token is made of before any merge: all of it in one row, and where each token's part begins."""
    atoms: list[tuple[int, ...]] = [(token,) for token in range(size)]
    for left, right, merged in pairs:
        atoms[merged] = atoms[left] + atoms[right]
    return _flat(atoms), np.cumsum([0, *map(len, atoms)])


def _flat(rows: Sequence[Sequence[int]]) -> Ids:
    return np.fromiter(chain.from_iterable(rows), np.int64, count=sum(map(len, rows)))


def _ranges(begins: Ids, counts: Ids) -> Ids:
    """begins[0], begins[0] + 1, … (counts[0] numbers), then begins[1], …"""
    before = np.cumsum(counts) - counts
    return np.arange(int(counts.sum())) + np.repeat(begins - before, counts)


def _places_in(word: Ids) -> Ids:
    """0, 1, … in each run of equal numbers."""
    begins = np.flatnonzero(np.diff(word, prepend=-1))
    return np.arange(len(word)) - np.repeat(begins, np.diff(begins, append=len(word)))


def _mix(numbers: Hashes) -> Hashes:
    """Numbers into unrelated ones: one step of the generator SplitMix64 (Steele et al. 2014)."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
