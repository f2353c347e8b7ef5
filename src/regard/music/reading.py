"""What words of music say: a piece, and which word belongs to which of its notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.music.notes import Note, Piece


@dataclass(frozen=True)
class Reading:
    """A piece, and for each word the number of the note it speaks of; None where it speaks of none."""

    piece: Piece
    owners: tuple[int | None, ...]

    @classmethod
    def of(cls, notes: Sequence[Note], owners: Sequence[int | None], quarter: float = 0.5) -> Reading:
        """Of notes in the order of their words; a piece has them in the order in which they begin."""
        order = sorted(range(len(notes)), key=lambda number: (notes[number].start, notes[number].pitch))
        place = {number: where for where, number in enumerate(order)}
        piece = Piece.of([notes[number] for number in order], "words", quarter)
        return cls(piece, tuple(None if owner is None else place[owner] for owner in owners))
