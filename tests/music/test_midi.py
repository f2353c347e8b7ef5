from __future__ import annotations

import builtins
from typing import Any

import pytest
from hypothesis import given

from regard.errors import DataError, UsageError
from regard.music.midi import read_midi, write_midi
from regard.music.notes import Note, Piece
from tests.music.scores import SCALE, midi, off, on, pedal, pieces, track

pytest.importorskip("symusic")


def ends(piece: Piece) -> list[float]:
    return [round(note.start + note.duration, 3) for note in piece.notes]


def test_times_are_in_seconds() -> None:
    piece = read_midi(SCALE)
    assert [(note.start, note.duration, note.pitch) for note in piece.notes] == [
        (0.0, 0.5, 60), (0.5, 0.5, 62), (1.0, 0.5, 64), (1.5, 0.5, 65)
    ]  # fmt: skip


def test_a_tempo_that_changes_moves_notes_in_time_but_not_on_the_beat() -> None:
    slower = b"\xff\x51\x03\x0f\x42\x40"  # one second a quarter
    data = midi(track((0, on(60)), (480, off(60)), (0, slower), (0, on(62)), (480, off(62))))
    assert ends(read_midi(data)) == [0.5, 1.5]
    first = midi(
        track((0, slower), (0, on(60)), (480, off(60)), (0, b"\xff\x51\x03\x07\xa1\x20"), (0, on(62)), (480, off(62)))
    )
    assert ends(read_midi(first, clock="beats")) == [1.0, 2.0]
    assert read_midi(first).quarter == 1.0


def test_the_pedal_holds_notes_until_it_is_released() -> None:
    data = midi(track((0, pedal(127)), (0, on(60)), (240, off(60)), (240, on(64)), (240, pedal(0)), (240, off(64))))
    assert ends(read_midi(data)) == [0.75, 1.0]


def test_the_pedal_lets_go_of_a_key_that_is_struck_again() -> None:
    data = midi(track((0, pedal(127)), (0, on(60)), (100, off(60)), (380, on(60)), (100, off(60)), (380, pedal(0))))
    assert ends(read_midi(data)) == [0.5, 1.0]


def test_a_pedal_that_is_never_released_holds_up_to_the_last_note() -> None:
    data = midi(track((0, pedal(127)), (0, on(60)), (240, off(60)), (240, on(64)), (480, off(64))))
    assert ends(read_midi(data)) == [1.0, 1.0]


def test_a_half_pressed_pedal_that_rises_does_not_end_a_note() -> None:
    data = midi(track((0, pedal(100)), (0, on(60)), (240, off(60)), (0, pedal(80)), (240, pedal(90)), (480, pedal(10)),
                      (0, on(64)), (480, off(64))))  # fmt: skip
    assert ends(read_midi(data))[0] == 1.0


def test_a_pedal_that_is_up_changes_nothing() -> None:
    data = midi(track((0, on(60)), (240, off(60)), (0, pedal(127)), (240, pedal(0)), (0, on(64)), (240, off(64))))
    # It goes down as the key comes up: that catches the note.
    assert ends(read_midi(data)) == [0.5, 0.75]
    early = midi(track((0, pedal(127)), (10, pedal(0)), (0, on(60)), (240, off(60))))
    assert ends(read_midi(early)) == [round(250 / 960, 3)]


def test_a_note_that_never_ends_is_left_out() -> None:
    assert [note.pitch for note in read_midi(midi(track((0, on(60)), (0, on(64)), (480, off(64))))).notes] == [64]
    with pytest.raises(DataError, match=r"in\.mid: must hold at least one note that ends"):
        read_midi(midi(track((0, on(60)))), "in.mid")


def test_drums_are_left_out() -> None:
    drums = track((0, bytes([0x99, 36, 64])), (480, bytes([0x89, 36, 0])))
    assert len(read_midi(midi(drums, track((0, on(60)), (480, off(60))))).notes) == 1
    with pytest.raises(DataError, match=r"drums\.mid: must hold at least one note that ends and is no drum"):
        read_midi(midi(drums), "drums.mid")


@given(pieces)
def test_what_is_written_is_read_back_to_the_millisecond(piece: Piece) -> None:
    # A key cannot go down twice: of two such notes a reader may see others.
    apart = Piece.of([note for number, note in enumerate(piece.notes)
                      if note.pitch not in {other.pitch for other in piece.notes[:number]}])  # fmt: skip
    found = read_midi(write_midi(apart))
    assert len(found.notes) == len(apart.notes)
    by_pitch = {note.pitch: note for note in found.notes}
    for note in apart.notes:
        other = by_pitch[note.pitch]
        assert other.velocity == note.velocity
        assert other.start == pytest.approx(note.start, abs=0.0011)
        assert other.start + other.duration == pytest.approx(max(note.start + note.duration, note.start), abs=0.0021)


def test_the_beat_is_kept() -> None:
    assert read_midi(write_midi(Piece.of([Note(0.0, 0.75, 60, 64)], quarter=0.75))).quarter == 0.75


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = builtins.__import__

    def absent(name: str, *rest: Any) -> Any:
        if name == "symusic":
            raise ImportError(name)
        return usual(name, *rest)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(UsageError, match=r"pip install 'regard\[music\]'"):
        read_midi(SCALE)
