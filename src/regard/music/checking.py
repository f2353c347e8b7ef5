"""Whether bytes are a MIDI file, looked at before anything else may read them.

    file    MThd, 6, format (0 or 1), tracks, ticks a quarter; then for each track: MTrk, its size, its events
    event   ticks since the last one (up to 4 bytes, 7 bits each), status (may be left out if as before), values

A file from anywhere may be cut short, may lie about its sizes, or may be no music at all. A fast reader written in C++
may trust such sizes. So each byte is walked over here, once, and what is not well formed is refused with a sentence.
"""

from __future__ import annotations

from regard.counts import so_many
from regard.errors import DataError
from regard.music.notes import MOST_NOTES, too_many

LARGEST = 2**24  # bytes
MOST_TICKS = 2**31 - 1
HEADER = 14
VALUES = {0x8: 2, 0x9: 2, 0xA: 2, 0xB: 2, 0xC: 1, 0xD: 1, 0xE: 2}  # of each kind of channel event
META, TEMPO, END_OF_TRACK = 0xFF, 0x51, 0x2F
EXCLUSIVE = (0xF0, 0xF7)
COPY = "Copy it again, or export it again from where it was made."


def check_midi(data: bytes, place: str) -> None:
    """Raise DataError unless `data` is a MIDI file that can be read to its end; `place` is named in the error."""
    if len(data) > LARGEST:
        raise too_large(place, len(data))
    if data[:4] != b"MThd":
        found = f"begins with {_shown(data[:4])}" if data else "is empty"
        raise DataError(f"{place}: must be a MIDI file, which begins with MThd, but {found}. Is it the right file?")
    if len(data) < HEADER:
        raise DataError(f"{place}: the header must have {HEADER} bytes, but the file ends after {len(data)}. {COPY}")
    length, form, tracks, division = (int.from_bytes(data[a:b]) for a, b in ((4, 8), (8, 10), (10, 12), (12, 14)))
    if length != HEADER - 8:
        raise DataError(f"{place}: the header must say it has 6 bytes, but says {length:,}. {COPY}")
    if form > 1:
        raise DataError(f"{place}: the format must be 0 or 1, but is {form}. Save it as one of them.")
    if not 0 < division < 0x8000:
        raise DataError(
            f"{place}: the header must count time in ticks a quarter note, from 1 to 32,767, but says {division:#06x}. "
            "Save it with musical time."
        )
    _check_chunks(data, place, tracks)


def too_large(place: str, size: int) -> DataError:
    """What to raise for a file that is larger than any of music."""
    return DataError(f"{place}: a MIDI file must have at most {LARGEST:,} bytes, but has {size:,}. Cut it up.")


def _shown(data: bytes) -> str:
    """Letters as they are, and anything else in numbers."""
    text = data.decode("latin-1")
    return text if text.isascii() and text.isprintable() else f"the bytes {data.hex(' ')}"


def _check_chunks(data: bytes, place: str, tracks: int) -> None:
    at, found, notes = HEADER, 0, 0
    while at < len(data) and found < tracks:
        size = int.from_bytes(data[at + 4 : at + 8])
        end = at + 8 + size
        if len(data) < at + 8 or end > len(data):
            there = max(len(data) - at - 8, 0)
            raise DataError(
                f"{place}, track {found + 1}: must have the {size:,} bytes it says, but the file ends after {there:,} "
                f"of them. {COPY}"
            )
        if data[at : at + 4] == b"MTrk":
            found += 1
            notes += _Track(data, at + 8, end, f"{place}, track {found}").walk()
            if notes > MOST_NOTES:
                raise too_many(place, notes)
        at = end
    if not tracks:
        raise DataError(f"{place}: must have at least one track, but its header says 0. {COPY}")
    if found < tracks:
        raise DataError(f"{place}: must have the {so_many(tracks, 'track')} its header says, but has {found}. {COPY}")


class _Track:
    """Walks over the events of one track."""

    def __init__(self, data: bytes, begin: int, end: int, place: str) -> None:
        self.data, self.at, self.end, self.place = data, begin, end, place

    def walk(self) -> int:
        """Look at every event; gives the number of notes."""
        notes = ticks = status = 0
        while self.at < self.end:
            ticks += self._number()
            if ticks > MOST_TICKS:
                raise self._wrong(f"time must stay below {MOST_TICKS:,} ticks, but goes beyond")
            first = self._byte()
            if first in EXCLUSIVE:
                self._skip(self._number())
            elif first == META:
                if self._meta():
                    return notes
            elif first > META - 0x10:
                raise self._wrong(f"there must be no event {first:#04x} in a file, but is one")
            else:
                if first < 0x80:
                    self.at -= 1
                    if not status:
                        raise self._wrong(f"an event must begin with a status of 0x80 or more, but is {first:#04x}")
                else:
                    status = first
                loud = self._values(VALUES[status >> 4])
                notes += status >> 4 == 0x9 and loud > 0
                if notes > MOST_NOTES:
                    raise too_many(self.place, notes)
        return notes

    def _values(self, count: int) -> int:
        """The last of so many values of 7 bits."""
        value = 0
        for _ in range(count):
            value = self._byte()
            if value >= 0x80:
                raise self._wrong(f"a value must be below 0x80, but is {value:#04x}")
        return value

    def _meta(self) -> bool:
        """Walk over what is no sound; whether the track ends with it."""
        kind, size, begin = self._byte(), self._number(), self.at
        self._skip(size)
        if kind == TEMPO and (size != 3 or not any(self.data[begin : self.at])):
            raise self._wrong("a tempo must be 3 bytes and more than 0, but is not")
        return kind == END_OF_TRACK

    def _number(self) -> int:
        """A number in bytes of 7 bits; all but the last have the eighth bit set."""
        value = 0
        for _ in range(4):
            byte = self._byte()
            value = value << 7 | byte & 0x7F
            if byte < 0x80:
                return value
        raise self._wrong("a number must have at most 4 bytes, but has more")

    def _byte(self) -> int:
        if self.at >= self.end:
            raise self._wrong("must end with a whole event, but breaks off in the middle of one")
        self.at += 1
        return self.data[self.at - 1]

    def _skip(self, size: int) -> None:
        if self.at + size > self.end:
            raise self._wrong(
                f"must hold the {so_many(size, 'byte')} an event says, but ends after {self.end - self.at:,}"
            )
        self.at += size

    def _wrong(self, what: str) -> DataError:
        return DataError(f"{self.place}, byte {self.at:,}: {what}. {COPY}")
