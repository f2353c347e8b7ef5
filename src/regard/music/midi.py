"""MIDI files to notes and back, on the `symusic` library.

The sustain pedal is not kept as such: a note that is held by the pedal sounds until the pedal is released, or until the
same key is struck again. Drums are left out, and so are notes that are never ended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal

from regard.errors import DataError, UsageError
from regard.music.checking import COPY, check_midi
from regard.music.notes import Note, Piece

SUSTAIN, PRESSED = 64, 64  # the controller's number, and the value from which on the pedal is down
TICKS_A_SECOND = 1000
Clock = Literal["seconds", "beats"]


def read_midi(data: bytes, place: str = "MIDI", clock: Clock = "seconds") -> Piece:
    """The notes of a MIDI file; `place` is named in errors.

    With the clock `beats`, the tempo at the beginning is kept throughout: then notes stand where they are written.
    """
    library = _library()
    check_midi(data, place)
    try:
        score = library.Score.from_midi(data)
        tempos = score.tempos
        quarter = tempos[0].mspq / 1e6 if len(tempos) else 0.5
        timed: Any = score.to("second" if clock == "seconds" else "quarter")
    except Exception as error:  # the library raises nothing narrower
        raise DataError(f"{place}: must be a MIDI file that can be read, but is not ({error}). {COPY}") from error
    scale = 1.0 if clock == "seconds" else quarter
    notes = [note for track in timed.tracks if not track.is_drum for note in _sustained(track, scale)]
    if not notes:
        raise DataError(
            f"{place}: must hold at least one note that ends and is no drum, but has none. Is it the right file?"
        )
    return Piece.of(notes, place, quarter)


def write_midi(piece: Piece) -> bytes:
    """A MIDI file of one piano track; a tick is a millisecond, whatever the tempo."""
    library = _library()
    ticks = max(round(piece.quarter * TICKS_A_SECOND), 1)
    score = library.Score(ticks)
    score.tempos.append(library.Tempo(0, mspq=ticks * 1_000_000 // TICKS_A_SECOND))
    track = library.Track("piano", 0, False)
    for note in piece.notes:
        start, end = (round(time * TICKS_A_SECOND) for time in (note.start, note.start + note.duration))
        track.notes.append(library.Note(start, max(end - start, 1), note.pitch, note.velocity))
    score.tracks.append(track)
    return bytes(score.dumps_midi())


def _sustained(track: Any, scale: float) -> list[Note]:
    """The notes of a track, each as long as it sounds."""
    found = [Note(max(note.time, 0.0) * scale, max(note.duration, 0.0) * scale, note.pitch, max(note.velocity, 1))
             for note in track.notes]  # fmt: skip
    last = max((note.start + note.duration for note in found), default=0.0)
    pedal = [(event.time * scale, event.value >= PRESSED) for event in track.controls if event.number == SUSTAIN]
    spans = _pressed(pedal, last)
    if not spans:
        return found
    begins = [begin for begin, _ in spans]
    struck: dict[int, list[float]] = {}
    for note in found:
        struck.setdefault(note.pitch, []).append(note.start)
    for starts in struck.values():
        starts.sort()
    return [_held(note, spans, begins, struck[note.pitch]) for note in found]


def _pressed(pedal: Iterable[tuple[float, bool]], last: float) -> list[tuple[float, float]]:
    """From when to when the pedal is down; one that is never released is so at the last note's end."""
    ordered = [*sorted(pedal, key=lambda event: event[0]), (last, False)]
    spans: list[tuple[float, float]] = []
    for (begin, down), (end, _) in pairwise(ordered):
        if down and spans and spans[-1][1] >= begin:
            spans[-1] = spans[-1][0], end
        elif down:
            spans.append((begin, end))
    return spans


def _held(note: Note, spans: Sequence[tuple[float, float]], begins: Sequence[float], struck: Sequence[float]) -> Note:
    end = note.start + note.duration
    place = bisect_right(begins, end) - 1
    if place < 0 or spans[place][1] <= end:
        return note
    again = bisect_right(struck, note.start)
    until = min(spans[place][1], struck[again]) if again < len(struck) else spans[place][1]
    return note._replace(duration=max(until - note.start, note.duration))


def _library() -> Any:
    try:
        import symusic
    except ImportError as error:
        raise UsageError(
            "MIDI: to read and write it the package `symusic` must be installed, but is not. "
            "Install it with: pip install 'regard[music]'"
        ) from error
    return symusic
