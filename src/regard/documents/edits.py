"""Changes to a text that leave all else as it is."""

from __future__ import annotations

from bisect import bisect_left
from typing import AnyStr, Generic


class Edits(Generic[AnyStr]):
    """A text, or bytes, in which stretches are replaced; each by its place in the text as it was."""

    def __init__(self, text: AnyStr) -> None:
        self.text: AnyStr = text
        self._starts: list[int] = []
        self._edits: list[tuple[int, int, AnyStr]] = []

    def replace(self, start: int, end: int, new: AnyStr) -> None:
        """Replace a stretch, which lies behind all that was replaced before, or around the latest of it."""
        while self._edits and self._edits[-1][0] >= start:
            self._edits.pop()
            self._starts.pop()
        self._edits.append((start, end, new))
        self._starts.append(start)

    @property
    def changed(self) -> bool:
        """Whether anything was replaced."""
        return bool(self._edits)

    def now(self, start: int = 0, end: int | None = None) -> AnyStr:
        """What a stretch has become."""
        end = len(self.text) if end is None else end
        pieces: list[AnyStr] = []
        for place in range(bisect_left(self._starts, start), len(self._edits)):
            begin, stop, new = self._edits[place]
            if begin >= end:
                break
            pieces += [self.text[start:begin], new]
            start = stop
        pieces.append(self.text[start:end])
        return self.text[:0].join(pieces)
