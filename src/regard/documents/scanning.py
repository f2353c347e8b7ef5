"""HTML cut into tags and text, as browsers do it, in one pass over the file; joined, the pieces are the file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "open", "close", "other"]

# Up to the closing tag of the same name there are no tags inside these.
RAW = {"script", "style", "xmp", "iframe", "noembed", "noframes", "textarea", "title"}
NAME = re.compile(r"[a-zA-Z][^\s/>]*")
SKIPPED = re.compile(r"[\s/]*")
ATTRIBUTE = re.compile(r"(?P<name>=?[^\s/>=]*)(?P<is>\s*=\s*)?")
UNQUOTED = re.compile(r"[^\s>]*")


@dataclass(frozen=True)
class Attribute:
    """The value of an attribute, from `start` to `end`, quotes included."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Token:
    """A tag, a stretch of text, or what is neither: a comment, a declaration, a script."""

    kind: Kind
    start: int
    end: int
    name: str = ""
    attributes: tuple[Attribute, ...] = ()


def scan(text: str) -> list[Token]:
    """The tokens of a page, which follow each other without gaps.

    What begins and never ends (a tag, a comment, a script) goes on to the end of the file, so every character is looked
    at a few times at most, whatever somebody sends.
    """
    tokens: list[Token] = []
    place = begin = 0  # where to look on, and where the text began that is being read

    def add(token: Token) -> int:
        if begin < token.start:
            tokens.append(Token("text", begin, token.start))
        tokens.append(token)
        return token.end

    while (less := text.find("<", place)) >= 0:
        token = _markup(text, less)
        if token is None:
            place = less + 1
            continue
        place = begin = add(token)
        if token.kind == "open" and token.name in RAW:
            closing = re.compile(rf"</{token.name}(?=[\s/>])", re.IGNORECASE).search(text, place)
            stop = len(text) if closing is None else closing.start()
            if place < stop:
                tokens.append(Token("text" if token.name == "title" else "other", place, stop))
            place = begin = stop
    if begin < len(text):
        tokens.append(Token("text", begin, len(text)))
    return tokens


def _markup(text: str, less: int) -> Token | None:
    """What begins at a <; None where it is only that character."""
    if text.startswith("<!--", less):
        return Token("other", less, _behind(text, "-->", less + 4))
    if text.startswith(("<!", "<?"), less):
        return Token("other", less, _behind(text, ">", less + 2))
    if text.startswith("</", less):
        name = NAME.match(text, less + 2)
        if name is None:
            return None
        return Token("close", less, _behind(text, ">", name.end()), name[0].lower())
    name = NAME.match(text, less + 1)
    return None if name is None else _tag(text, less, name)


def _behind(text: str, what: str, place: int) -> int:
    found = text.find(what, place)
    return len(text) if found < 0 else found + len(what)


def _tag(text: str, less: int, name: re.Match[str]) -> Token:
    """An opening tag; a > inside a quoted value does not end it."""
    attributes = []
    place = _skip(text, name.end())
    while place < len(text) and text[place] != ">":
        found = ATTRIBUTE.match(text, place)
        place = place + 1 if found is None or found.end() == place else found.end()
        if found is not None and found["is"] is not None:
            end = _value_end(text, place)
            attributes.append(Attribute(found["name"].lower(), place, end))
            place = end
        place = _skip(text, place)
    if place >= len(text):
        return Token("other", less, len(text))
    return Token("open", less, place + 1, name[0].lower(), tuple(attributes))


def _value_end(text: str, place: int) -> int:
    quote = text[place : place + 1]
    if quote in ("'", '"'):
        return _behind(text, quote, place + 1)
    found = UNQUOTED.match(text, place)
    return place if found is None else found.end()


def _skip(text: str, place: int) -> int:
    found = SKIPPED.match(text, place)
    return place if found is None else found.end()
