"""The ways to write music as words, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from regard.music import chorale, performance
from regard.music.midi import read_midi
from regard.music.reading import Reading

Encoding = Literal["performance", "chorale"]
LOWEST, HIGHEST = 21, 108  # the keys of a piano
PITCHED = ("on", "off", *chorale.VOICES)


def vocabulary(encoding: Encoding) -> tuple[str, ...]:
    """Every word there is."""
    return performance.WORDS if encoding == "performance" else chorale.WORDS


def midi_words(data: bytes, encoding: Encoding, place: str = "MIDI", grid: int = chorale.STEPS) -> list[str]:
    """The words of a MIDI file: a performance's are counted in time, a chorale's in beats, `grid` steps a quarter."""
    if encoding == "performance":
        return performance.to_words(read_midi(data, place))
    return chorale.to_words(chorale.steps_of(read_midi(data, place, "beats"), place, grid))


def read_words(words: Sequence[str], encoding: Encoding, grid: int = chorale.STEPS) -> Reading:
    """The piece that words say, and which word speaks of which note."""
    return performance.read_words(words) if encoding == "performance" else chorale.read_words(words, grid)


def last_words(words: Sequence[str], encoding: Encoding, room: int) -> list[str]:
    """The end of a piece, in up to `room` words that could be a piece of their own."""
    return (performance if encoding == "performance" else chorale).last_words(words, room)


def transposed(words: Sequence[str], semitones: int) -> list[str] | None:
    """The same music higher or lower; None if a note would leave the keys of a piano."""
    changed = {word: _moved(word, semitones) for word in set(words)}
    if any(word is None for word in changed.values()):
        return None
    return [changed[word] or word for word in words]


def _moved(word: str, semitones: int) -> str | None:
    kind = word.rstrip("0123456789")
    if kind not in PITCHED or kind == word:
        return word
    pitch = int(word.removeprefix(kind)) + semitones
    return f"{kind}{pitch}" if LOWEST <= pitch <= HIGHEST else None
