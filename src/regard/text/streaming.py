"""Text that grows token by token, given out as soon as it is certain.

One token need not be whole characters: in a vocabulary of bytes an é may be two tokens. Nor does a token's text depend
on that token alone: whether a space stands before it is known only from its neighbour. So each piece is what
the newest tokens add to the text of those just before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

HALF = "\ufffd"  # what bytes decode to that are no whole character, or not yet
UNFINISHED = 3  # so many of them at the end may become a character, which has four bytes at most
BEFORE = 8  # tokens of a prompt that are enough to know what stands in front of a new one


class Decoder(Protocol):
    """What turns tokens into text: a tokenizer."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these tokens."""
        ...


def last_line(ids: Sequence[int], start: int) -> Sequence[int]:
    """The tokens behind the last start: what stands in front of a new one in its line."""
    begin = next((place + 1 for place in reversed(range(len(ids))) if ids[place] == start), 0)
    return ids[begin:]


class TextStream:
    """The text of tokens that come one by one, after those of `prompt`; the pieces, joined, are the whole text.

    The token `line_end`, if there is one, is the end of a line.
    """

    def __init__(self, tokenizer: Decoder, prompt: Sequence[int] = (), line_end: int | None = None) -> None:
        self._tokenizer, self._ids, self._line_end = tokenizer, list(prompt[-BEFORE:]), line_end
        self._settled = len(self._ids)  # tokens that were given out before the last whole character
        self._shown = len(tokenizer.decode(self._ids))  # characters of their text that are given out

    def push(self, token: int) -> str:
        """What is certain now and was not before; nothing in the middle of a character."""
        if token == self._line_end:
            piece = self.end() + "\n"
            self._ids, self._settled, self._shown = [], 0, 0
            return piece
        self._ids.append(token)
        text = self._tokenizer.decode(self._ids)
        halves = len(text) - len(text.rstrip(HALF))
        certain = text[: len(text) - min(halves, UNFINISHED)]
        piece, self._shown = certain[self._shown :], max(self._shown, len(certain))
        if not halves:
            # The newest tokens are what the next one is seen after; those before them are no longer needed.
            self._ids = self._ids[self._settled :]
            self._settled, self._shown = len(self._ids), len(self._tokenizer.decode(self._ids))
        return piece

    def end(self) -> str:
        """The rest: half a character, if the text ends in one."""
        text = self._tokenizer.decode(self._ids)
        piece, self._shown = text[self._shown :], len(text)
        return piece
