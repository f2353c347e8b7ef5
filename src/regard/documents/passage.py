"""A passage: text that belongs together, with the marks inside it, and its sentences, which are translated one by one.

A paragraph, a cue of subtitles, a cell of a table is a passage. White space in it counts as one space. A passage whose
sentences come back unchanged is left as it was, to the byte.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from regard.documents.addresses import has_words
from regard.documents.placing import Links, Part, Stretch, place
from regard.errors import DataError
from regard.text.sentences import join, sentences

DEEPEST = 100  # marks inside marks
GAP = re.compile("[ \t\n\r\f\v\x1c-\x1f\x85\u2028\u2029]+")  # not the no-break spaces, which belong to the text


@dataclass(frozen=True)
class Mark:
    """Characters `start` to `end` of a passage have a mark, which is inside the mark number `parent`."""

    start: int
    end: int
    parent: int | None = None


@dataclass(frozen=True)
class Placed:
    """The translation of a passage, and for each of its marks from where to where it stands there."""

    text: str
    marks: tuple[Mark, ...]

    def render(self, write: Callable[[str, int | None], str], wrap: Callable[[int, str], str]) -> str:
        """The translation with its marks: `write(text, innermost mark)` and `wrap(mark, what is inside)` say how."""
        inside: dict[int | None, list[int]] = {}
        for number, mark in sorted(enumerate(self.marks), key=lambda each: (each[1].start, each[1].end, each[0])):
            inside.setdefault(mark.parent, []).append(number)

        def content(parent: int | None, start: int, end: int) -> str:
            pieces = []
            for number in inside.get(parent, []):
                mark = self.marks[number]
                if start < mark.start:
                    pieces.append(write(self.text[start : mark.start], parent))
                pieces.append(wrap(number, content(number, mark.start, mark.end)))
                start = max(start, mark.end)
            if start < end:
                pieces.append(write(self.text[start:end], parent))
            return "".join(pieces)

        return content(None, 0, len(self.text))


@dataclass(frozen=True)
class Passage:
    """Text with marks; white space is single spaces, with none at either end."""

    text: str
    marks: tuple[Mark, ...] = ()

    @cached_property
    def has_words(self) -> bool:
        """Whether there is something to translate; numbers and addresses are left as they are."""
        return has_words(self.text)

    @cached_property
    def parts(self) -> list[str]:
        """Its sentences, each with the space behind it."""
        return sentences(self.text)

    @property
    def sentences(self) -> list[str]:
        """What to translate."""
        return [part.strip() for part in self.parts]

    @cached_property
    def _begins(self) -> list[int]:
        return [0, *accumulate(map(len, self.parts))]

    @cached_property
    def _marks_in(self) -> list[list[int]]:
        """For each sentence the marks it has something of, parents first."""
        found: list[list[int]] = [[] for _ in self.parts]
        for number, mark in enumerate(self.marks):
            first = min(bisect_right(self._begins, mark.start), len(found)) - 1
            last = max(first, bisect_left(self._begins, mark.end) - 1 if mark.start < mark.end else first)
            for sentence in found[max(0, first) : last + 1]:
                sentence.append(number)
        return found

    def has_marks_inside(self, number: int) -> bool:
        """Whether a sentence has a mark that stands around a part of it, so that links between words would help."""
        begin = self._begins[number]
        end = begin + len(self.parts[number].rstrip())
        marks = [self.marks[mark] for mark in self._marks_in[number]]
        return any(begin < mark.start < end or begin < mark.end < end for mark in marks)

    def placed(self, translations: Sequence[str], links: Sequence[Links | None]) -> Placed:
        """The translations of its sentences as one text, with the marks where they belong."""
        clean = [GAP.sub(" ", translation).strip() for translation in translations]
        text, begins = _joined(self.parts, clean)
        starts: dict[int, int] = {}
        ends: dict[int, int] = {}
        for number, (sentence, translation) in enumerate(zip(self.sentences, clean, strict=True)):
            owners, parts = self._marks_of(number)
            found = place(sentence, parts, translation, links[number])
            for owner, (start, end) in zip(owners, found, strict=True):
                starts.setdefault(owner, begins[number] + start)
                ends[owner] = begins[number] + end
        marks = [Mark(starts.get(number, 0), ends.get(number, 0), mark.parent)
                 for number, mark in enumerate(self.marks)]  # fmt: skip
        return Placed(text, tuple(marks))

    def _marks_of(self, number: int) -> tuple[list[int], list[Part]]:
        """The marks that a sentence has something of, and what it has of them."""
        begin = self._begins[number]
        end = begin + len(self.parts[number].rstrip())
        owners = self._marks_in[number]
        places: dict[int | None, int] = {owner: place for place, owner in enumerate(owners)}
        parts = []
        for mark in map(self.marks.__getitem__, owners):
            first, stop = (min(max(edge, begin), end) - begin for edge in (mark.start, mark.end))
            parts.append(Part(first, stop, places.get(mark.parent), mark.start < begin, mark.end > end))
        return owners, parts


def _joined(parts: Sequence[str], translations: Sequence[str]) -> tuple[str, list[int]]:
    """Translations of parts that follow each other as one text, and where each of them begins."""
    pieces: list[str] = []
    begins: list[int] = []
    length, before = 0, None
    for number, translation in enumerate(translations):
        if translation and before is not None:
            both = join([parts[before], parts[number]], [translations[before], translation])
            gap = len(both) - len(translations[before]) - len(translation)
            pieces.append(" " * gap)
            length += gap
        begins.append(length)
        pieces.append(translation)
        length += len(translation)
        before = number if translation else before
    return "".join(pieces), begins


class PassageWriter:
    """Collects the text and the marks of a passage as they come."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._length = 0
        self._space = True  # at the beginning, or behind a space: another one is none
        self._marks: list[tuple[int, int, int | None]] = []
        self._open: list[int] = []
        self._behind_space: list[int] = []
        self.spaced: set[int] = set()
        """The points that have a space on either side, of which the text has one."""

    @property
    def empty(self) -> bool:
        """Whether there is no text yet."""
        return not self._length

    def write(self, text: str) -> None:
        """Text follows."""
        text = GAP.sub(" ", text)
        if text.startswith(" "):
            self.spaced.update(self._behind_space)
        if text:
            self._behind_space.clear()
        if self._space:
            text = text.removeprefix(" ")
        if text:
            self._text.append(text)
            self._length += len(text)
            self._space = text.endswith(" ")

    def open(self, place: str) -> int:
        """A mark begins; its number. `place` is named where they are nested too deeply."""
        if len(self._open) >= DEEPEST:
            raise DataError(f"{place}: at most {DEEPEST} marks may stand inside each other, but here are more.")
        number = self.point()
        self._behind_space.clear()
        self._open.append(number)
        return number

    def close(self) -> None:
        """The innermost mark ends."""
        number = self._open.pop()
        start, _, parent = self._marks[number]
        self._marks[number] = (start, self._length, parent)

    def abandon(self) -> None:
        """The innermost mark never ends: it stands around nothing, and what is inside it is beside it."""
        number = self._open.pop()
        start, _, parent = self._marks[number]
        self._marks[number] = (start, start, parent)
        for inner, (begin, end, other) in enumerate(self._marks[number + 1 :], number + 1):
            if other == number:
                self._marks[inner] = (begin, end, parent)

    def point(self) -> int:
        """A mark around nothing; its number."""
        self._marks.append((self._length, self._length, self._open[-1] if self._open else None))
        number = len(self._marks) - 1
        if self._space:
            self._behind_space.append(number)
        return number

    def passage(self) -> Passage:
        """All of it, when every mark is closed."""
        text = "".join(self._text).rstrip(" ")
        marks: list[Mark] = []
        for start, end, parent in self._marks:
            low, high = (0, len(text)) if parent is None else (marks[parent].start, marks[parent].end)
            start, end = _trimmed(text, *(min(max(edge, low), high) for edge in (start, end)))
            marks.append(Mark(start, end, parent))
        return Passage(text, tuple(marks))


def _trimmed(text: str, start: int, end: int) -> Stretch:
    """A stretch without the spaces at its ends."""
    while start < end and text[start] == " ":
        start += 1
    while start < end and text[end - 1] == " ":
        end -= 1
    return start, end
