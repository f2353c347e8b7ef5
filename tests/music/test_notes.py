from __future__ import annotations

import pytest

from regard.errors import DataError
from regard.music.notes import MOST_NOTES, Note, Piece


def test_notes_come_in_the_order_in_which_they_begin_and_from_low_to_high() -> None:
    piece = Piece.of([Note(1.0, 1.0, 60, 64), Note(0.0, 3.0, 67, 64), Note(0.0, 1.0, 48, 64)])
    assert [note.pitch for note in piece.notes] == [48, 67, 60]
    assert piece.duration == 3.0


def test_nothing_lasts_no_time() -> None:
    assert Piece.of([]).duration == 0.0


@pytest.mark.parametrize(
    ("note", "message"),
    [
        (Note(-1.0, 1.0, 60, 64), "0 seconds or more, but begins at -1 s"),
        (Note(0.0, -0.5, 60, 64), "lasts -0.5 s"),
        (Note(float("nan"), 1.0, 60, 64), "begins at nan"),
        (Note(0.0, float("inf"), 60, 64), "lasts inf"),
        (Note(30_000.0, 1.0, 60, 64), "within 6 hours, but ends after 8.3"),
        (Note(0.0, 1.0, 128, 64), "pitch from 0 to 127, but has 128"),
        (Note(0.0, 1.0, 60, 0), "velocity from 1 to 127, but has 0"),
    ],
)
def test_a_note_that_cannot_be_is_refused_with_its_number(note: Note, message: str) -> None:
    with pytest.raises(DataError, match=f"in.mid, note 2: .*{message}"):
        Piece.of([Note(0.0, 1.0, 60, 64), note], "in.mid")


def test_a_million_notes_are_refused() -> None:
    with pytest.raises(DataError, match=f"at most {MOST_NOTES:,} notes, but has 1,000,000"):
        Piece.of([Note(0.0, 1.0, 60, 64)] * 1_000_000)


def test_as_json() -> None:
    assert Piece.of([Note(0.12345678, 1.0, 60, 64)]).to_json() == [[0.1235, 1.0, 60, 64]]
