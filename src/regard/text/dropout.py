"""BPE-dropout (Provilkov et al. 2020): subwords in which merges are left out by chance, for training.

The `tokenizers` library can do this, but draws from a generator that cannot be seeded. Here a text's subwords are a
pure function of (seed, text), wherever the text stands: all words of many texts are merged at once, one merge a word
and round, and each draw is a hash of where it is made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b

import numpy as np
import tokenizers
from numpy.typing import NDArray

from regard.batch import Specials
from regard.text.ragged import Ragged
from regard.text.survey import not_unicode
from regard.text.words import WordTable, spaces_of

CHUNK = 2_048  # texts at a time
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
        self._base = max(vocabulary.values()) + 1
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
        return (_mix(keys.astype(np.uint64)) >> self._shift).astype(np.int64)

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

    def _atoms(self, texts: Sequence[str]) -> list[list[int]]:
        return [
            [token + int(PIECE) * (word or 0) for token, word in zip(found.ids, found.word_ids, strict=True)]
            for found in self._bare.encode_batch(list(texts), add_special_tokens=False)
        ]


class MergeDropout:
    """A tokenizer that leaves each possible merge out with the chance `rate`, at every step of merging."""

    def __init__(
        self,
        merges: Merges,
        size: int,
        specials: Specials,
        rate: float,
        seed: tuple[int, int],
        languages: Mapping[str, int],
        source: MergeDropout | None = None,
    ) -> None:
        self._merges, self.size, self.specials, self._rate, self._seed = merges, size, specials, rate, seed
        self.languages = languages
        self.source: MergeDropout = source or self

    def to_json(self) -> str:
        """Everything that decides how text is encoded."""
        sides = {self._merges.json: None, self.source._merges.json: None}
        return json.dumps({"dropout": self._rate, "seed": self._seed, "tokenizers": list(sides)})

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of many texts, without start and end."""
        return self.encode_flat(texts).lists()

    def encode_flat(self, texts: Sequence[str]) -> Ragged:
        """The tokens of many texts, laid end to end."""
        try:
            return Ragged.joined([self._encode(texts[first : first + CHUNK]) for first in range(0, len(texts), CHUNK)])
        except TypeError as error:
            raise not_unicode(texts, "text") or error from error

    def _encode(self, texts: Sequence[str]) -> Ragged:
        (atoms, lengths), piece = self._merges.atoms(texts)
        text = np.repeat(np.arange(len(texts)), lengths)
        # The first piece of each text has the number 0 there.
        begins = (lengths.cumsum() - lengths)[text]
        inside = piece - piece[begins]
        seeds = np.array([self._hash(one) for one in texts], np.uint64)
        draws = _mix(seeds[text] + inside.astype(np.uint64)) + _places_in(piece).astype(np.uint64)
        text_of = text[np.flatnonzero(np.diff(piece, prepend=-1))]
        tokens, owner = self._merge(atoms.astype(np.int64), piece, draws)
        return Ragged(tokens, np.bincount(text_of[owner], minlength=len(texts)))

    def _merge(self, pieces: Ids, word: Ids, draws: Hashes) -> tuple[Ids, Ids]:
        """Merge in rounds: in each, every word makes the best of those of its merges that are not left out."""
        done: list[tuple[Ids, Ids, Ids]] = []
        place = np.arange(len(pieces))
        limit = np.uint64(min(int(self._rate * 2.0**64), 2**64 - 1))
        while len(pieces):
            draws = _mix(draws)
            ranks = np.full(len(pieces), NO_MERGE)
            # The last piece of a word has nothing to be merged with, and chance leaves others out.
            tried = np.flatnonzero(np.append(word[:-1] == word[1:], False) & (draws >= limit))
            ranks[tried] = self._merges.ranks(pieces[tried], pieces[tried + 1])
            begins = np.flatnonzero(np.diff(word, prepend=-1))
            best = np.minimum.reduceat(ranks, begins)
            sizes = np.diff(begins, append=len(pieces))
            goes_on = np.repeat(best < NO_MERGE, sizes)
            done.append((place[~goes_on], pieces[~goes_on], word[~goes_on]))
            chosen = np.flatnonzero((ranks == np.repeat(best, sizes)) & goes_on)
            # Of equal merges in a word only the first: the next round finds the others.
            chosen = chosen[np.diff(word[chosen], prepend=-1) != 0]
            pieces[chosen] = self._merges.merged[ranks[chosen]]
            goes_on[chosen + 1] = False
            pieces, word, draws, place = pieces[goes_on], word[goes_on], draws[goes_on], place[goes_on]
        if not done:
            return pieces, word
        places, pieces, word = (np.concatenate(parts) for parts in zip(*done, strict=True))
        order = np.argsort(places)
        return pieces[order], word[order]

    def _hash(self, text: str) -> int:
        key = b"".join(number.to_bytes(8, "little") for number in self._seed)
        return int.from_bytes(blake2b(text.encode(), digest_size=8, key=key).digest(), "little")


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
