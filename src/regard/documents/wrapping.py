"""Lines of at most so many characters; tags in them take no room."""

from __future__ import annotations

import re
from collections.abc import Sequence

from regard.text.sentences import UNSPACED

NOTHING = re.compile(r"(?!)")


def wrap(text: str, width: int, hidden: re.Pattern[str] = NOTHING) -> list[str]:
    """The fewest lines of at most `width` characters, cut at spaces and between characters of unspaced scripts.

    A word that is longer has a line of its own. What `hidden` matches takes no room and is not cut.
    """
    lines: list[str] = []
    line, room, space = "", width, ""
    for word, length, gap in _words(text, hidden):
        if line and len(space) + length > room:
            lines.append(line)
            line, room, space = "", width, ""
        line += space + word
        room -= len(space) + length
        space = gap
    return [*lines, line]


def balanced(text: str, width: int, hidden: re.Pattern[str] = NOTHING) -> list[str]:
    """As many lines as `wrap` makes, of lengths as equal as can be."""
    lines = wrap(text, width, hidden)
    low, high = 1, width
    while low < high:
        middle = (low + high) // 2
        if len(wrap(text, middle, hidden)) <= len(lines):
            high = middle
        else:
            low = middle + 1
    return wrap(text, low, hidden)


def _words(text: str, hidden: re.Pattern[str]) -> list[tuple[str, int, str]]:
    """What may not be cut: each word with the characters it shows and the space behind it."""
    found: list[tuple[str, int, str]] = []
    word, length, place = "", 0, 0
    while place < len(text):
        tag = hidden.match(text, place)
        if tag is not None and tag.end() > place:
            word += tag[0]
            place = tag.end()
            continue
        char = text[place]
        place += 1
        if char == " ":
            found.append((word, length, " "))
            word, length = "", 0
            continue
        word, length = word + char, length + 1
        following = text[place : place + 1]
        if UNSPACED.match(char) and following.strip() and not _clings(following):
            found.append((word, length, ""))
            word, length = "", 0
    if word:
        found.append((word, length, ""))
    return found


def _clings(char: str) -> bool:
    """Whether a character must not begin a line: a mark that closes."""
    return not (char.isalnum() or char in "「『（【［〈《<{(")


def is_wrapped(lines: Sequence[str], width: int) -> bool:
    """Whether these lines are what `wrap` would make of their words."""
    return wrap(" ".join(lines), width) == list(lines)
