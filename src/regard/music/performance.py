"""Performances as words: what a pianist's hands do, one thing after another (Oore et al. 2018, section 3.1).

    on60      the key of pitch 60 goes down        128 words
    off60     it comes up                          128
    wait25    25 · 10 ms pass                      100, up to one second
    loud20    keys go down at velocity 80 to 83     32, four velocities each

Times are rounded to 10 ms from the beginning of the piece, so that roundings do not add up. A piece begins with its
first note; silence before it is left out. A key that is struck while it sounds ends its note.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from regard.music.notes import PITCHES, Note, Piece
from regard.music.reading import Reading

UNITS = 100  # in a second
LONGEST_WAIT = 100
LEVELS = 32
WIDTH = 4  # velocities a level
DEFAULT = 16  # the level before the first is said

WORDS = (
    *(f"on{pitch}" for pitch in range(PITCHES)),
    *(f"off{pitch}" for pitch in range(PITCHES)),
    *(f"wait{units}" for units in range(1, LONGEST_WAIT + 1)),
    *(f"loud{level}" for level in range(LEVELS)),
)
MEANING = {word: (word.rstrip("0123456789"), int(word.lstrip("abcdefghijklmnopqrstuvwxyz"))) for word in WORDS}


def to_words(piece: Piece) -> list[str]:
    """The words of a piece."""
    events: list[tuple[int, bool, int, int]] = []  # when, whether a key goes down, which, at which level
    for start, end, pitch, level in _on_grid(piece.notes):
        events += [(start, True, pitch, level), (end, False, pitch, level)]
    events.sort()  # at one time keys first come up, then go down
    words: list[str] = []
    now, said = (events[0][0] if events else 0), None
    for when, down, pitch, level in events:
        words += _waits(when - now)
        now = when
        if down and level != said:
            words.append(f"loud{level}")
            said = level
        words.append(f"on{pitch}" if down else f"off{pitch}")
    return words


def read_words(words: Sequence[str]) -> Reading:
    """The piece that words say. What is no event, or ends no note, says nothing; what is not ended, the end ends."""
    notes: list[Note] = []
    owners: list[int | None] = []
    sounding: dict[int, int] = {}  # the note of each key that is down
    now, level = 0, DEFAULT

    def end(pitch: int) -> int | None:
        number = sounding.pop(pitch, None)
        if number is not None:
            start = round(notes[number].start * UNITS)
            notes[number] = notes[number]._replace(duration=max(now - start, 1) / UNITS)
        return number

    for word in words:
        kind, value = MEANING.get(word, ("", 0))
        owner = None
        if kind == "wait":
            now += value
        elif kind == "loud":
            level = value
        elif kind == "off":
            owner = end(value)
        elif kind == "on":
            end(value)
            owner = sounding[value] = len(notes)
            notes.append(Note(now / UNITS, 0.0, value, level * WIDTH + WIDTH // 2))
        owners.append(owner)
    for pitch in list(sounding):
        end(pitch)
    return Reading.of(notes, owners)


def last_words(words: Sequence[str], room: int) -> list[str]:
    """Up to `room` words at the end, from a note on, as loud as they were.

    How loud keys go down may have been said before; then it is said again. What comes before the first key that goes
    down, and what ends a note that was left out, is left out as well.
    """
    if len(words) <= room:
        return list(words)
    first = len(words) - room + 1  # one is for the loudness
    first = next((place for place in range(first, len(words)) if words[place].startswith("on")), len(words))
    loud = next((word for word in reversed(words[:first]) if word.startswith("loud")), None)
    kept = [loud] if loud is not None and first < len(words) else []
    down: set[int] = set()
    for word in words[first:]:
        kind, value = MEANING[word]
        if kind == "off" and value not in down:
            continue
        if kind == "on":
            down.add(value)
        kept.append(word)
    return kept


def _on_grid(notes: Iterable[Note]) -> list[tuple[int, int, int, int]]:
    """(start, end, pitch, level) in units of 10 ms; no key is down twice at a time."""
    found: dict[int, list[tuple[int, int, int, int]]] = {}
    for note in notes:
        start = round(note.start * UNITS)
        end = max(round((note.start + note.duration) * UNITS), start + 1)
        found.setdefault(note.pitch, []).append((start, end, note.pitch, note.velocity // WIDTH))
    kept = []
    for same in found.values():
        same.sort()
        for number, (start, end, pitch, level) in enumerate(same):
            until = same[number + 1][0] if number + 1 < len(same) else end
            if until > start:  # of notes struck together the longest is kept
                kept.append((start, min(end, until), pitch, level))
    return kept


def _waits(units: int) -> list[str]:
    whole, rest = divmod(units, LONGEST_WAIT)
    return [f"wait{LONGEST_WAIT}"] * whole + ([f"wait{rest}"] if rest else [])
