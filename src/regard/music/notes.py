"""A piece of music as its notes: when each begins, how long it sounds, how high and how loud it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from regard.errors import DataError

MOST_NOTES = 200_000
LONGEST = 6 * 3600.0  # seconds
PITCHES = 128
LOUDEST = 127


class Note(NamedTuple):
    """One note; times are in seconds, `pitch` 60 is middle C, `velocity` is from 1 to 127."""

    start: float
    duration: float
    pitch: int
    velocity: int


@dataclass(frozen=True)
class Piece:
    """Notes in the order in which they begin; those that begin together from low to high."""

    notes: tuple[Note, ...]
    quarter: float = 0.5
    """How long a quarter note is, in seconds; it matters to whoever counts beats."""

    @classmethod
    def of(cls, notes: Sequence[Note], place: str = "notes", quarter: float = 0.5) -> Piece:
        """A piece of any notes, in any order; `place` is named if one of them cannot be."""
        if len(notes) > MOST_NOTES:
            raise too_many(place, len(notes))
        for number, note in enumerate(notes, 1):
            if problem := _problem(note):
                raise DataError(f"{place}, note {number:,}: {problem}. Correct it, or leave the note out.")
        return cls(tuple(sorted(notes, key=lambda note: (note.start, note.pitch))), quarter)

    @property
    def duration(self) -> float:
        """When the last note ends."""
        return max((note.start + note.duration for note in self.notes), default=0.0)

    def to_json(self) -> list[list[float]]:
        """Each note as [start, duration, pitch, velocity]."""
        return [[round(note.start, 4), round(note.duration, 4), note.pitch, note.velocity] for note in self.notes]


def too_many(place: str, notes: int) -> DataError:
    """What to raise for a piece that is larger than any piece of music."""
    return DataError(f"{place}: a piece must have at most {MOST_NOTES:,} notes, but has {notes:,} or more. Cut it up.")


def _problem(note: Note) -> str | None:
    """What is wrong with a note, if anything is."""
    end = note.start + note.duration
    if not (math.isfinite(end) and note.start >= 0 and note.duration >= 0):
        return f"must begin and last 0 seconds or more, but begins at {note.start:g} s and lasts {note.duration:g} s"
    if end > LONGEST:
        return f"must end within {LONGEST / 3600:g} hours, but ends after {end / 3600:,.1f}"
    if not 0 <= note.pitch < PITCHES:
        return f"must have a pitch from 0 to {PITCHES - 1}, but has {note.pitch}"
    if not 1 <= note.velocity <= LOUDEST:
        return f"must have a velocity from 1 to {LOUDEST}, but has {note.velocity}"
    return None
