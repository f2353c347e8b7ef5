"""Tokens as a reader wants to see them: words and pieces of words, without the marks of a tokenizer."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from regard.text.streaming import TextStream, last_line
from regard.text.tokenizer import Tokenizer
from regard.text.words import SPACE

START_LABEL, END_LABEL = "‹start›", "‹end›"
_CONTROL = {chr(number): chr(0x2400 + number) for number in range(32)}  # Unicode has pictures of these
_SEEN_AS = str.maketrans({**_CONTROL, SPACE: "␣", " ": "␣", "\n": "⏎", "\r": "⏎", "\t": "⇥"})


def readable(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, ...]:
    """Each token by itself: the space around a piece is left out, and a token that is nothing else is shown as ␣."""
    special = special_labels(tokenizer)
    return tuple(
        special.get(token) or _shown(label) for token, label in zip(ids, tokenizer.labels(ids), strict=True)
    )  # fmt: skip


def special_labels(tokenizer: Tokenizer) -> dict[int, str]:
    """What tokens that are no text are called. Where one token starts and ends texts, it is called the end."""
    specials = tokenizer.specials
    tags = {token: f"‹to {language}›" for language, token in tokenizer.languages.items()}
    return {specials.padding: "‹padding›", **tags, specials.start: START_LABEL, specials.end: END_LABEL}


def _shown(label: str) -> str:
    return (label.strip(SPACE) or label).translate(_SEEN_AS)


def pieces(tokenizer: Tokenizer, ids: Sequence[int], before: Sequence[int] = (), running: bool = False) -> list[str]:
    """What each token adds to the text of those before it, spaces and all; joined, they are the text.

    In `running` text, an end ends a line.
    """
    special, specials = special_labels(tokenizer), tokenizer.specials
    stream = TextStream(tokenizer, last_line(before, specials.start), specials.end if running else None)
    if running:
        del special[specials.end]
    found = [special.get(token) or stream.push(token) for token in ids]
    if found and (rest := stream.end()):
        found[-1] += rest
    return found


def separators(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[int, ...]:
    """The places of tokens that separate: the start, the end and their kin, and tokens of punctuation alone."""
    special = special_labels(tokenizer)
    labels = readable(tokenizer, ids)
    return tuple(
        place for place, (token, label) in enumerate(zip(ids, labels, strict=True))
        if token in special or (label and all(unicodedata.category(letter)[0] == "P" for letter in label))
    )  # fmt: skip
