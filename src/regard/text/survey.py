"""A first look at a corpus: which characters it has, and how often."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError

CODE_POINTS = 0x110000
CHUNK = 2**20  # characters counted at a time

# Scripts written without spaces: Thai, Lao and Tibetan, Burmese, Khmer, and those of Chinese and Japanese.
UNSPACED = ((0x0E00, 0x10A0), (0x1780, 0x1800), (0x2E80, 0xA000), (0xF900, 0xFB00), (0x20000, 0x40000))


@dataclass(frozen=True, eq=False)
class Survey:
    """How often each character occurs."""

    counts: NDArray[np.int64]
    """By code point."""

    @property
    def unspaced(self) -> int:
        """How many characters belong to scripts that are written without spaces."""
        return sum(int(self.counts[first:end].sum()) for first, end in UNSPACED)

    def alphabet(self, min_frequency: int, most: int, without: Collection[str] = ()) -> list[str]:
        """The characters that occur so often, at most `most` of them, the most frequent first."""
        codes = np.nonzero(self.counts >= min_frequency)[0]
        # A stable sort: characters that are equally frequent stay in the order of their code points.
        order = np.argsort(-self.counts[codes], kind="stable")
        return [chr(code) for code in codes[order].tolist() if chr(code) not in without][:most]


def survey(lines: Iterable[str], normalise: Callable[[str], str]) -> Survey:
    """Count the characters of `lines` as `normalise` leaves them."""
    counts = np.zeros(CODE_POINTS, np.int64)
    for number, chunk in chunks(lines):
        try:
            # Normalised together, but with a line end between: a mark must not melt into the line before.
            codes = np.frombuffer(normalise("\n".join(chunk)).encode("utf-32-le"), np.uint32)
        except (UnicodeEncodeError, TypeError) as error:
            raise not_unicode(chunk, "line", number) or error from error
        counts += np.bincount(codes, minlength=CODE_POINTS)
        counts[ord("\n")] -= len(chunk) - 1
    return Survey(counts)


def chunks(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Lines together, and the number of the first of them, counted from 1."""
    first, chunk, characters = 1, list[str](), 0
    for line in lines:
        chunk.append(line)
        characters += len(line)
        if characters >= CHUNK:
            yield first, chunk
            first, chunk, characters = first + len(chunk), [], 0
    if chunk:
        yield first, chunk


def not_unicode(texts: Iterable[str], name: str, first: int = 1) -> DataError | None:
    """What to say of the first text with half a character in it, as Python makes of stray bytes in an argument."""
    for number, text in enumerate(texts, start=first):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return DataError(
                f"{name} {number:,}: must be Unicode, but character {error.start + 1} is the lone surrogate "
                f"U+{ord(text[error.start]):04X}. Was the text decoded from bytes that are not UTF-8? Convert it first."
            )
    return None
