"""Plain text: paragraphs with blank lines between them, or lines that stay lines.

In a file, lines that were wrapped, each holding as many words as fit, are one passage, and are wrapped anew at the
width of the longest. Other lines are passages of their own: a list, a poem, a file with a paragraph a line; and so are
all lines of what somebody has typed. Indentation, bullets, blank lines and line ends stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from regard.documents.document import LINES, Document
from regard.documents.encoding import decode
from regard.documents.passage import Passage, PassageWriter, Placed
from regard.documents.wrapping import is_wrapped, wrap

BEGINNING = re.compile(r"\s*(?:[-–—*•‣·+>#]+[ \t]+|\d{1,3}[.)][ \t]+)?")  # indentation, a bullet, a number
NARROWEST = 40  # characters of the longest of lines that were wrapped; shorter ones were meant to be lines


@dataclass(frozen=True)
class Stretch:
    """Lines that are one passage, or what lies between such."""

    raw: str
    width: int = 0
    """Of the lines to write; 0 where there is only one."""


def read_plain(name: str, data: bytes) -> Document:
    """The paragraphs of a text file."""
    return _read(name, data, "txt", _width)


def read_lines(name: str, data: bytes) -> Document:
    """The lines of a text: a line of the translation is that of the same line of the text."""
    return _read(name, data, LINES, lambda lines: 0)


def _read(name: str, data: bytes, form: str, width_of: Callable[[Sequence[str]], int]) -> Document:
    decoded = decode(name, data)
    stretches: list[Stretch] = []
    passages: list[Passage] = []
    lines = decoded.text.split("\n")
    whole = [f"{line}\n" for line in lines[:-1]] + lines[-1:]
    for blank, group in groupby(whole, key=lambda line: not line.strip()):
        some = list(group)
        if blank:
            stretches.append(Stretch("".join(some)))
            passages.append(Passage(""))
            continue
        width = width_of(some)
        for raw in ["".join(some)] if width else some:
            writer = PassageWriter()
            writer.write(raw[_beginning(raw) :])
            stretches.append(Stretch(raw, width))
            passages.append(writer.passage())
    kept = [place for place, passage in enumerate(passages) if passage.has_words]

    def finish(placed: Sequence[Placed | None]) -> bytes:
        pieces = [stretch.raw for stretch in stretches]
        for place, found in zip(kept, placed, strict=True):
            if found is not None:
                pieces[place] = _written(stretches[place], found.text)
        return decoded.encode("".join(pieces))

    return Document(form, "text/plain", [passages[place] for place in kept], finish)


def _width(lines: Sequence[str]) -> int:
    """The width at which lines were wrapped, 0 if they were not."""
    bare = [line.rstrip("\r\n") for line in lines]
    width = max(map(len, bare))
    if len(bare) < 2 or width < NARROWEST or any(line != line.strip() for line in bare):
        return 0
    return width if is_wrapped(bare, width) else 0


def _written(stretch: Stretch, text: str) -> str:
    indent = stretch.raw[: _beginning(stretch.raw)]
    rest = stretch.raw[len(stretch.raw.rstrip()) :]
    if not stretch.width:
        return indent + text + rest
    end = "\r\n" if "\r\n" in stretch.raw else "\n"
    return end.join(wrap(indent + text, stretch.width)) + rest


def _beginning(raw: str) -> int:
    """The length of what stands before the words of a line."""
    found = BEGINNING.match(raw)
    return 0 if found is None else found.end()
