"""MIDI files made by hand, byte by byte, and pieces drawn by chance."""

from __future__ import annotations

from hypothesis import strategies as st

from regard.music.notes import Note, Piece


def number(value: int) -> bytes:
    """A number as MIDI writes it: 7 bits a byte, the eighth set on all but the last."""
    found = [value & 0x7F]
    while value := value >> 7:
        found.append(value & 0x7F | 0x80)
    return bytes(reversed(found))


def track(*events: tuple[int, bytes]) -> bytes:
    """A track of (ticks since the last event, event)."""
    body = b"".join(number(ticks) + event for ticks, event in (*events, (0, b"\xff\x2f\x00")))
    return b"MTrk" + len(body).to_bytes(4) + body


def midi(*tracks: bytes, form: int = 1, division: int = 480, count: int | None = None) -> bytes:
    """A whole file; `count` is what its header says of the tracks."""
    numbers = (form, len(tracks) if count is None else count, division)
    return b"MThd" + (6).to_bytes(4) + b"".join(value.to_bytes(2) for value in numbers) + b"".join(tracks)


def on(pitch: int, velocity: int = 64) -> bytes:
    return bytes([0x90, pitch, velocity])


def off(pitch: int) -> bytes:
    return bytes([0x80, pitch, 0])


def pedal(value: int) -> bytes:
    return bytes([0xB0, 64, value])


SCALE = midi(track(*(event for pitch in (60, 62, 64, 65) for event in ((0, on(pitch)), (480, off(pitch))))))
"""Four quarters at 120 a minute, two seconds in all."""

times = st.floats(0, 20, allow_nan=False, width=32)
pieces = st.lists(
    st.builds(Note, times, st.floats(0, 5, width=32), st.integers(0, 127), st.integers(1, 127)), min_size=1, max_size=30
).map(Piece.of)
