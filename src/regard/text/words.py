"""Encoding by words: a word that was met before is looked up, not cut and merged again.

A few hundred thousand words make up a corpus of a hundred million. The rules of nearly all tokenizers treat the words
between plain spaces one by one; for these, the tokens of a text are those of its words, laid end to end. Where a text
holds something that could reach across a space (other white space, the mark ▁), or a word too long to be met again,
the whole text is encoded as it always was. `tests/text/test_words.py` holds both ways to be equal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from threading import Lock
from typing import Literal

import numpy as np
import tokenizers
from numpy.typing import NDArray

from regard.text.ragged import Integers, Ragged, ranges

Spaces = Literal["between", "before"]
"""Whether a space only separates words, or belongs to the word behind it."""

SPACE = "▁"
FIRST = " "  # marks the first word of a text, which has no space before it; nothing else here can hold a space
LONGEST_WORD = 64
MOST_WORDS = 2**20  # some 200 bytes each; with more of them, all are forgotten and learned anew
UNMET, NOTHING = -1, 0
# Whatever anybody counts as white space, and what is invisible besides: better too much than too little.
REACHING = re.compile(rf"[\s{SPACE}\x00-\x20\x7f-\x9f\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff]")


def spaces_of(inner: tokenizers.Tokenizer) -> Spaces | None:
    """How a tokenizer treats plain spaces; None where it is not known to treat words one by one."""
    rules = json.loads(inner.to_str())
    cuts = rules["pre_tokenizer"] or {}
    first = cuts["pretokenizers"][0] if cuts.get("type") == "Sequence" else cuts
    match first:
        case {"type": "Metaspace", "prepend_scheme": "always", "split": True, "replacement": "▁"}:
            return "between" if _strips(rules["normalizer"]) else None
        case {"type": "Split", "pattern": {"String": "▁"}, "behavior": "MergedWithPrevious", "invert": False}:
            return "between" if _strips(rules["normalizer"]) else None
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}:
            return "before"
        case _:
            return None


def _strips(normaliser: dict[str, object] | None) -> bool:
    """Whether spaces at the ends of a text vanish."""
    steps = (normaliser or {}).get("normalizers", [])
    assert isinstance(steps, list)
    return {"type": "Strip", "strip_left": True, "strip_right": True} in steps


def split(texts: Sequence[str], spaces: Spaces) -> tuple[list[str], NDArray[np.int64]]:
    """The words of all texts in one list, and the place of each text's first; every text has at least one word."""
    words = " ".join(texts).split(" ")
    counts = np.fromiter((text.count(" ") for text in texts), np.int64, count=len(texts)) + 1
    begins = counts.cumsum() - counts
    if spaces == "before":
        for place in begins.tolist():
            words[place] = FIRST + words[place]
    return words, begins


def stands_alone(word: str, spaces: Spaces) -> bool:
    """Whether a word means the same wherever it stands."""
    bare = word.removeprefix(FIRST) if spaces == "before" else word
    # Two spaces in a row are a word of nothing between them. If they only separate, that is no harm.
    return len(bare) <= LONGEST_WORD and (spaces == "between" or bare != "") and REACHING.search(bare) is None


def as_written(word: str, spaces: Spaces) -> str:
    """What stands in the text for a word that `split` found."""
    if spaces == "between":
        return word
    return word.removeprefix(FIRST) if word.startswith(FIRST) else f" {word}"


class WordTable:
    """Looks up the numbers that belong to words, and asks `encode` for those it has not met.

    `encode` gives any numbers for a text, as long as those of its words laid end to end are those of the text.
    """

    def __init__(self, encode: Callable[[list[str]], list[list[int]]], spaces: Spaces) -> None:
        self._encode, self._spaces = encode, spaces
        self._lock = Lock()
        self._forget()

    def _forget(self) -> None:
        self._numbers: dict[str, int] = {}
        self._ids: Integers = np.zeros(0, np.int64)
        self._ends: Integers = np.zeros(1, np.int64)  # word 0 has no tokens
        self._used = self._entries = 0
        self._add([[]])

    def look_up(self, texts: Sequence[str]) -> tuple[Ragged, Ragged]:
        """The numbers of each text, and of each word of each text: the same ones, in other rows."""
        if not texts:
            return Ragged.of([]), Ragged.of([])
        with self._lock:
            if len(self._numbers) > MOST_WORDS:
                self._forget()
            words, begins = split(texts, self._spaces)
            numbers = self._find(words)
            met, used = self._entries, self._used
            self._whole(texts, numbers, begins)
            ends = self._ends[numbers]
            counts = ends - np.where(numbers == NOTHING, ends, self._ends[numbers - 1])
            by_word = Ragged(self._ids[ranges(ends - counts, counts)], counts)
            self._entries, self._used = met, used
        return Ragged(by_word.ids, np.add.reduceat(counts, begins)), by_word

    def _find(self, words: list[str]) -> NDArray[np.int64]:
        """The number of each word; those that do not stand alone stay unmet."""
        numbers = np.fromiter(map(self._numbers.get, words, repeat(UNMET)), np.int64, count=len(words))
        unmet = np.flatnonzero(numbers == UNMET)
        new = [word for word in dict.fromkeys(words[place] for place in unmet) if stands_alone(word, self._spaces)]
        first = self._add(self._encode([as_written(word, self._spaces) for word in new]))
        self._numbers.update(zip(new, range(first, first + len(new)), strict=True))
        numbers[unmet] = [self._numbers.get(words[place], UNMET) for place in unmet]
        return numbers

    def _whole(self, texts: Sequence[str], numbers: NDArray[np.int64], begins: Integers) -> None:
        """Let each text with an unmet word be one word, for this time only."""
        unmet = np.flatnonzero(numbers == UNMET)
        found = np.unique(np.searchsorted(begins, unmet, side="right") - 1)
        first = self._add(self._encode([texts[place] for place in found]))
        ends = np.append(begins, len(numbers))[found + 1]
        numbers[ranges(begins[found], ends - begins[found])] = NOTHING
        numbers[begins[found]] = np.arange(first, first + len(found))

    def _add(self, rows: Sequence[Iterable[int]]) -> int:
        """Note the tokens of some words; gives the number of the first of them."""
        ids, lengths = Ragged.of([list(row) for row in rows])
        first, used = self._entries, self._used
        self._entries, self._used = first + len(lengths), used + len(ids)
        self._ids, self._ends = _room(self._ids, self._used), _room(self._ends, self._entries)
        self._ids[used : self._used] = ids
        self._ends[first : self._entries] = used + lengths.cumsum()
        return first


def _room(array: Integers, size: int) -> Integers:
    """The array, or a copy with room for twice as many."""
    return array if len(array) >= size else np.concatenate([array, np.zeros(max(size, len(array)), array.dtype)])
