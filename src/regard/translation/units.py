"""What is searched as one, and with which others: texts, and pieces of those that are too long."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from regard.text.sentences import pieces, sentences

SLOTS_PER_BATCH = 16_384  # beams × source tokens searched at a time: enough to keep a device busy

Encode = Callable[[Sequence[str]], list[list[int]]]
"""Texts → the tokens of each, with the end token."""


@dataclass(frozen=True)
class Unit:
    """What is searched as one: a text or a piece of one."""

    place: int  # of its text
    text: str
    ids: list[int]  # with the end token
    number: int  # of the piece, from 0
    pieces: int
    begins: bool = False  # whether it is only the beginning of its text


def cut(
    texts: Sequence[str], encode: Encode, longest: int, begin: bool = False, each_sentence: bool = False
) -> list[Unit]:
    """What is to be searched, in the order of the texts; those that say nothing have nothing.

    A text of more than `longest` tokens is cut into pieces, and with `each_sentence` every text into its sentences;
    with `begin`, only as many of the first as fit are read.
    """

    def measure(some: Sequence[str]) -> list[int]:
        return list(map(len, encode([part.strip() for part in some])))

    units: list[Unit] = []
    for place, (text, ids) in enumerate(zip(texts, encode(texts), strict=True)):
        if not _says_something(text):
            continue
        if len(ids) <= longest and not (each_sentence and len(sentences(text)) > 1):
            units.append(Unit(place, text, ids, 0, 1))
            continue
        parts = [part for part in pieces(text, measure, longest) if _says_something(part)]
        if begin:
            units.append(Unit(place, *_beginning(parts, encode, longest), 0, 1, begins=len(parts) > 1))
            continue
        of_parts = zip(parts, encode([part.strip() for part in parts]), strict=True)
        units.extend(Unit(place, part, some, number, len(parts)) for number, (part, some) in enumerate(of_parts))
    return units


def _says_something(text: str) -> bool:
    """Whether there is more to it than spaces and what only tells how to set others, such as a soft hyphen."""
    return any(not letter.isspace() and unicodedata.category(letter) != "Cf" for letter in text)


def _beginning(parts: Sequence[str], encode: Encode, longest: int) -> tuple[str, list[int]]:
    """As many of the first parts of a text as fit together, and their tokens; the first always does."""
    text = parts[0]
    (ids,) = encode([text.strip()])
    for part in parts[1:]:
        (more,) = encode([(text + part).strip()])
        if len(more) > longest:
            break
        text, ids = text + part, more
    return text, ids


def batches(lengths: Sequence[int], beam: int, slots: int | None = None) -> list[list[int]]:
    """Numbers of units of similar length together, the longest first, so that memory runs out at once or never."""
    found: list[list[int]] = []
    longest = 0
    for number in sorted(range(len(lengths)), key=lambda number: lengths[number], reverse=True):
        if not found or (len(found[-1]) + 1) * longest * beam > (slots or SLOTS_PER_BATCH):
            found.append([])
            longest = lengths[number]
        found[-1].append(number)
    return found
