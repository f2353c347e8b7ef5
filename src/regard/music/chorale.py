"""Chorales as words: what soprano, alto, tenor and bass sing at each step of a grid, one voice after the other.

    S74 A70 T65 B58   S74 A70 T65 B58   S72 A- T65 B58   …

A step is a sixteenth note, or another part of a quarter: `grid` says how many there are in one. This is the raster
order of Coconet (Huang et al. 2017) and Music Transformer (Huang et al. 2018), with the voice said in the word. A note
that goes on and a note that is sung again look the same, as in the published data; read back, equal pitches that
follow each other are one note. `-` is a rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from regard.errors import DataError
from regard.music.notes import PITCHES, Note, Piece
from regard.music.reading import Reading

VOICES = "SATB"
REST = "-"
STEPS = 4  # in a quarter note, unless told
FINEST = 96
QUARTER = 0.75  # seconds: 80 quarters a minute
VELOCITY = 80
MOST_STEPS = 1_000_000  # of all notes together

Step = tuple[int | None, ...]
"""For each voice its pitch, None for a rest; from high to low."""

WORDS = tuple(f"{voice}{pitch}" for voice in VOICES for pitch in (REST, *range(PITCHES)))
MEANING = {word: (VOICES.index(word[0]), None if word[1:] == REST else int(word[1:])) for word in WORDS}


def to_words(steps: Sequence[Step]) -> list[str]:
    """The words of the steps, four each."""
    return [
        f"{voice}{REST if pitch is None else pitch}"
        for step in steps
        for voice, pitch in zip(VOICES, step, strict=True)
    ]


def check_grid(grid: int) -> None:
    """Raise ValueError for a number of steps in a quarter that cannot be."""
    if not 1 <= grid <= FINEST:
        raise ValueError(f"`grid` must be from 1 to {FINEST} steps in a quarter note, but is {grid}")


def last_words(words: Sequence[str], room: int) -> list[str]:
    """As many whole steps at the end as `room` words hold."""
    return list(words[max(len(words) - room // len(VOICES) * len(VOICES), 0) :])


def read_words(words: Sequence[str], grid: int = STEPS) -> Reading:
    """The piece that words say. What is no word of a chorale says nothing; a voice that is left out rests."""
    notes: list[Note] = []
    owners: list[int | None] = []
    singing: list[int | None] = [None] * len(VOICES)  # the note that each voice sang last
    ends = [0] * len(VOICES)  # and the step before which it ended
    step, last = -1, len(VOICES)
    length = QUARTER / grid
    for word in words:
        if word not in MEANING:
            owners.append(None)
            continue
        voice, pitch = MEANING[word]
        step += voice <= last
        last = voice
        number = singing[voice]
        if pitch is None:
            number = None
        elif number is not None and notes[number].pitch == pitch and ends[voice] == step:
            notes[number] = notes[number]._replace(duration=notes[number].duration + length)
        else:
            number = len(notes)
            notes.append(Note(step * length, length, pitch, VELOCITY))
        singing[voice], ends[voice] = number, step + 1
        owners.append(number)
    return Reading.of(notes, owners, QUARTER)


def steps_of(piece: Piece, place: str = "chorale", grid: int = STEPS) -> list[Step]:
    """The steps of a piece whose notes stand on beats: what sounds in the middle of each.

    Of more than four notes the three highest and the lowest are kept; of fewer, the lower voices rest.
    """
    length = piece.quarter / grid
    if (sung := sum(1 + note.duration / length for note in piece.notes) + piece.duration / length) > MOST_STEPS:
        raise DataError(
            f"{place}: the notes of a chorale must fill at most {MOST_STEPS:,} steps, but fill {sung:,.0f}. "
            "Cut it up, or correct its tempo."
        )
    sounding: dict[int, set[int]] = {}
    for note in piece.notes:
        first, end = round(note.start / length), round((note.start + note.duration) / length)
        for step in range(first, max(end, first + 1)):
            sounding.setdefault(step, set()).add(note.pitch)
    first = min(sounding, default=0)
    return [_voices(sounding.get(step, set())) for step in range(first, max(sounding, default=-1) + 1)]


def _voices(pitches: set[int]) -> Step:
    ordered: list[int | None] = [*sorted(pitches, reverse=True)]
    if len(ordered) > len(VOICES):
        ordered = [*ordered[: len(VOICES) - 1], ordered[-1]]
    return (*ordered, *[None] * (len(VOICES) - len(ordered)))
