"""Where a text that is too long for a model may be cut, and how translated pieces are joined again.

A text is cut at sentence ends, in any language that marks them; a sentence that is still too long behind commas and
the like, then at spaces, and a word that is too long anywhere: into small pieces, since no sense is lost with it, and a
model is soon done with them. The pieces, laid end to end, are the text: nothing is lost.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

Measure = Callable[[Sequence[str]], list[int]]
"""Texts → the length of each, in whatever the limit counts."""

UNSPACED_ENDS = "。！？｡．"
CLOSING = "\"'”’»›)\\]」』）】］"
# Marks, what closes with them, and the space behind.
END = re.compile(rf"(?P<marks>[.!?…؟।॥۔{UNSPACED_ENDS}]+)[{CLOSING}]*(?P<space>\s*)")
CLAUSE = re.compile(r"[,;:–—]\s+|[，；：、]\s*")
GAP = re.compile(r"\s+")
OPENING = "\"'“”„‘’«»‹›([「『（【［¿¡-–— "
# Scripts that are written without spaces, and their punctuation.
UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uff65]")

# They end in a full stop that ends nothing. The list need not be long: a sentence that is not cut here is cut at
# the next end, or at a comma if need be.
ABBREVIATIONS = re.compile(
    "mrs?|ms|dr|prof|st|[js]r|vs|etc|figs?|vol|pp|inc|ltd|corp?|co|dept|gen|col|sgt|capt|lt|rev|approx|al|"
    "nr|bzw|ca|usw|vgl|abb|str|hr|fr|bd|evtl|ggf|inkl|max|min|mio|mrd|tel|mme|mlle|sra|dra|av|art|núm|sig|"
    "jan|feb|mar|apr|ju[nl]|aug|sept?|o[ck]t|nov|de[cz]",
    re.IGNORECASE,
)
# More of them, and words without a vowel, which most likely are some: minded where no capital says what begins.
MORE_ABBREVIATIONS = re.compile(
    "incl|excl|exkl|einschl|ausschl|resp|sog|allg|geb|urspr|anm|evt|zus|uvm|esp|misc|eg|ie|ave"
)
VOWELS = re.compile("[aeiouyæœøıаеиоуыэюяαεηιουωაეიოუ]")
ORDINAL = re.compile(r"\d{1,2}")  # 3. Mai; a year may well end a sentence
LAST_WORD = re.compile(r"(?:(?<=\w)'(?=\w)|[^\s\"'(\[“„«])*\Z")  # with its apostrophes: can't
UNBROKEN = 64  # how long the pieces of a word are that is too long
FAR = 40  # how far from an end to look for what stands around it


def pieces(text: str, measure: Measure, longest: int) -> list[str]:
    """`text` in pieces of at most `longest`, which joined give it back: its sentences, cut further where too long."""
    found: list[str] = []
    parts = sentences(text)
    for sentence, length in zip(parts, measure(parts), strict=True):
        found.extend([sentence] if length <= longest else _cut(sentence, measure, longest))
    return found


def sentences(text: str) -> list[str]:
    """The sentences of a text, each with the space behind it; joined they give it back.

    None begins with a small letter, except where there is no capital in all of the text.
    """
    small = not any(map(str.isupper, text))
    cuts = [match.end() for match in END.finditer(text) if _ends_a_sentence(text, match, small)]
    return _at(text, cuts)


def join(parts: Sequence[str], translations: Sequence[str]) -> str:
    """The translations of `parts`, which follow each other in one text, as one text."""
    joined, before = "", ""
    for part, translation in zip(parts, translations, strict=True):
        written = translation.strip()
        if joined and written:
            joined += "" if _touch(joined[-1], written[0]) or _inside_a_word(before, part) else " "
        joined += written
        before = part
    return joined


def _ends_a_sentence(text: str, match: re.Match[str], small: bool) -> bool:
    """Whether a sentence ends with `match`; `small` says that the text has no capitals."""
    marks, following = match["marks"], text[match.end() : match.end() + FAR].lstrip(OPENING)[:1]
    if marks[-1] in UNSPACED_ENDS:
        return True
    if not match["space"] and match.end() < len(text):
        return False  # 3.14, example.org
    if following.islower() and (not small or _may_go_on(match)):
        return False
    if marks != ".":
        return True
    before = text[max(0, match.start() - FAR) : match.start()]
    found = LAST_WORD.search(before)
    word = found[0] if found else ""
    if following.islower() and _may_be_short(word):
        return False
    initial = len(word) == 1 and word.isalpha()
    return not (initial or "." in word or ABBREVIATIONS.fullmatch(word) or ORDINAL.fullmatch(word))


def _may_go_on(match: re.Match[str]) -> bool:
    """Whether a sentence may well go on in small letters: behind dots (`well... yes`), and behind speech (`"no!" he
    said`)."""
    return match["marks"].endswith(("..", "…")) or match.end("marks") < match.start("space")


def _may_be_short(word: str) -> bool:
    """Whether a word is likely to be an abbreviation."""
    plain = unicodedata.normalize("NFD", word)
    return (word.isalpha() and not VOWELS.search(plain)) or MORE_ABBREVIATIONS.fullmatch(word) is not None


def _cut(sentence: str, measure: Measure, longest: int) -> Iterator[str]:
    """A sentence that is too long, in pieces: as few as the limit allows, cut where it hurts least."""
    for places in (CLAUSE, GAP):
        parts: Sequence[str] = _at(sentence, [match.end() for match in places.finditer(sentence)])
        if len(parts) > 1:
            break
    else:
        parts, longest = sentence, min(longest, UNBROKEN)
    first = 0
    while first < len(parts):
        count = _fitting(parts, first, measure, longest)
        if count == 0 and len(parts[first]) > 1:
            yield from _cut(parts[first], measure, longest)
        else:
            yield "".join(parts[first : first + max(count, 1)])
        first += max(count, 1)


def _fitting(parts: Sequence[str], first: int, measure: Measure, longest: int) -> int:
    """How many of the parts from `first` on fit, measured as one: each by itself would be longer than its share.

    Twice as many each time until they are too many, then halfway between, so that however long a text is, each of its
    parts is read some ten times.
    """
    fits, size, too_many = 0, 1, len(parts) - first + 1
    while too_many - fits > 1:
        if measure(["".join(parts[first : first + size])])[0] <= longest:
            fits = size
        else:
            too_many = size
        size = min(2 * size, (fits + too_many) // 2)
    return fits


def _at(text: str, cuts: Sequence[int]) -> list[str]:
    bounds = sorted({0, *cuts, len(text)})
    return [text[begin:end] for begin, end in pairwise(bounds)]


def _touch(left: str, right: str) -> bool:
    """Whether no space belongs between two characters, because one of them is of a script that writes none."""
    return bool(UNSPACED.match(left) or UNSPACED.match(right))


def _inside_a_word(left: str, right: str) -> bool:
    """Whether the cut between two parts went through a word of a script that writes spaces."""
    last, first = left[-1:], right[:1]
    return last.isalnum() and first.isalnum() and not _touch(last, first)
