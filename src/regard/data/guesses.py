"""The language of a text, by the name of its file or by a guess, and how alike two texts are.

They serve reports, cards and warnings; no text is read in another way for them. A guess names its grounds: the share
of the known frequent words that are of this language (English, German, French), or the share of letters that are
Chinese characters.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePath

from regard.data.filters import count_letters
from regard.data.streams import COMPRESSED

CODES = {"ar", "bg", "ca", "cs", "da", "de", "el", "en", "es", "et", "fi", "fr", "ga", "he", "hi", "hr", "hu", "it",
         "ja", "ko", "lt", "lv", "mt", "nl", "no", "pl", "pt", "ro", "ru", "sk", "sl", "sv", "tr", "uk", "vi",
         "zh"}  # fmt: skip
"""The languages that names of files may end in."""
LAYOUTS = (".txt", ".tsv", ".csv", ".json", ".jsonl")
FREQUENT = {
    "en": "the of and to is that it for with you this are have not we be he she they what from my which has by there",
    "de": "der das und ist nicht ich zu den mit sie ein eine auf dem wir für von sich auch wie haben wird dass daß hat "
    "er sind es im bei",
    "fr": "les et est une dans pour qui pas nous vous je il ce sur avec au du sont cette elle aux ne mais ou ont leur",
}
"""Frequent words that only one of these languages has."""
LANGUAGE_OF = {word: language for language, words in FREQUENT.items() for word in words.split(" ")}
# In corpora of talks, captions, software and short sentences they are 15 to 33 % of all words.
LEAST_FREQUENT = 0.08
LEAST_HITS = 10
SURE = 0.8


@dataclass(frozen=True)
class Guess:
    """A language, and how sure it is, from 0 to 1."""

    language: str
    confidence: float

    @property
    def sure(self) -> bool:
        """Whether a warning may rest on it."""
        return self.confidence >= SURE


def language_of(file: Path) -> str | None:
    """The language that a file's name ends in, as in test.de or test.zh.gz; None where it says nothing."""
    code = ending(file)
    return code if code in CODES else None


def ending(file: PurePath) -> str:
    """What a name ends in, in small letters, apart from how the file is packed and laid out: `en` of a.EN.tsv.gz."""
    endings = [suffix.lower() for suffix in file.suffixes]
    while endings and endings[-1] in (*COMPRESSED, *LAYOUTS):
        endings.pop()
    return endings[-1].removeprefix(".") if endings else ""


def guess_language(texts: Iterable[str]) -> Guess | None:
    """English, German, French or Chinese; None where the texts look like none of them, or are too few."""
    text = " ".join(texts).lower()
    letters = count_letters([text])
    # A Chinese character says about as much as three letters, and a Chinese text has few of the latter.
    chinese = 3 * letters.get("Han", 0) / max(sum(letters.values()) + 2 * letters.get("Han", 0), 1)
    if chinese > 0.5 and letters["Han"] >= LEAST_HITS:
        return Guess("zh", round(chinese, 3))
    words = re.findall(r"[^\W\d_]+", text)
    hits = Counter(LANGUAGE_OF[word] for word in words if word in LANGUAGE_OF)
    if hits.total() < max(LEAST_HITS, LEAST_FREQUENT * len(words)):
        return None
    language, count = hits.most_common(1)[0]
    return Guess(language, round(count / hits.total(), 3))


def trigrams(texts: Iterable[str]) -> Counter[str]:
    """How often each three characters in a row occur; a space stands at either end of a text."""
    found: Counter[str] = Counter()
    for text in texts:
        padded = f" {text.lower()} "
        found.update(map("".join, zip(padded, padded[1:], padded[2:], strict=False)))
    return found


def cosine(one: Counter[str], other: Counter[str]) -> float:
    """How alike two counts are, from 0 to 1."""
    norm = math.sqrt(sum(n * n for n in one.values()) * sum(n * n for n in other.values()))
    return sum(count * other[gram] for gram, count in one.items()) / norm if norm else 0.0
