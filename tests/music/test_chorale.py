from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError
from regard.music.chorale import QUARTER, STEPS, WORDS, Step, last_words, read_words, steps_of, to_words
from regard.music.notes import Note, Piece

LENGTH = QUARTER / STEPS
voices = st.none() | st.integers(0, 127)
chorales = st.lists(st.tuples(voices, voices, voices, voices), min_size=1, max_size=20)


def test_four_words_a_step() -> None:
    assert to_words([(74, 70, 65, 58), (72, None, 65, 58)]) == ["S74", "A70", "T65", "B58", "S72", "A-", "T65", "B58"]
    assert len(WORDS) == 4 * 129


def test_equal_pitches_that_follow_each_other_are_one_note() -> None:
    reading = read_words(["S74", "A70", "T65", "B58", "S74", "A-", "T65", "B57", "S74", "A70", "T-", "B58"])
    found = {(note.pitch, round(note.start / LENGTH), round(note.duration / LENGTH)) for note in reading.piece.notes}
    assert found == {(74, 0, 3), (70, 0, 1), (65, 0, 2), (58, 0, 1), (57, 1, 1), (70, 2, 1), (58, 2, 1)}
    assert reading.owners[0] == reading.owners[4] == reading.owners[8]
    assert reading.owners[5] is None


@given(chorales)
def test_words_say_every_step(steps: list[Step]) -> None:
    words = to_words(steps)
    reading = read_words(words)
    for place, (word, owner) in enumerate(zip(words, reading.owners, strict=True)):
        if owner is None:
            assert word.endswith("-")
            continue
        note, step = reading.piece.notes[owner], place // 4
        assert note.pitch == int(word[1:])
        assert round(note.start / LENGTH) <= step < round((note.start + note.duration) / LENGTH)


def test_what_a_model_leaves_out_rests() -> None:
    notes = read_words(["S74", "B58", "T60", "<unk>", "B50"]).piece.notes
    assert [(note.pitch, round(note.start / LENGTH)) for note in notes] == [(58, 0), (74, 0), (50, 1), (60, 1)]


def test_a_pitch_after_a_step_left_out_is_a_note_of_its_own() -> None:
    reading = read_words(["S74", "A70", "T65", "S74", "T65", "S74", "A70"])
    found = [(note.pitch, round(note.start / LENGTH), round(note.duration / LENGTH)) for note in reading.piece.notes]
    assert found == [(65, 0, 2), (70, 0, 1), (74, 0, 3), (70, 2, 1)]
    assert reading.owners[1] != reading.owners[6]


falling = st.lists(st.lists(st.integers(0, 127), min_size=4, max_size=4, unique=True), min_size=1, max_size=12)


@given(falling)
def test_a_chorale_without_crossings_comes_back_from_its_notes(steps: list[list[int]]) -> None:
    ordered: list[Step] = [tuple(sorted(step, reverse=True)) for step in steps]
    assert steps_of(read_words(to_words(ordered)).piece) == ordered


@given(falling, st.sampled_from([1, 2, 3, 8]))
def test_a_grid_says_how_long_a_step_is(steps: list[list[int]], grid: int) -> None:
    ordered: list[Step] = [tuple(sorted(step, reverse=True)) for step in steps]
    piece = read_words(to_words(ordered), grid).piece
    assert piece.duration == pytest.approx(len(steps) * QUARTER / grid)
    assert steps_of(piece, grid=grid) == ordered


def test_the_end_of_a_piece_is_whole_steps() -> None:
    words = to_words([(74, 70, 65, step) for step in range(9)])
    assert last_words(words, 11) == words[-8:]
    assert last_words(words, 99) == words
    assert last_words(words, 3) == []


def test_of_many_notes_the_highest_three_and_the_lowest_are_kept() -> None:
    piece = Piece.of([Note(0.0, 0.125, pitch, 64) for pitch in (40, 50, 60, 70, 80, 90)], quarter=0.5)
    assert steps_of(piece) == [(90, 80, 70, 40)]


def test_silence_before_the_first_note_is_left_out_and_silence_inside_is_a_rest() -> None:
    piece = Piece.of([Note(1.0, 0.125, 60, 64), Note(1.25, 0.125, 62, 64)], quarter=0.5)
    assert steps_of(piece) == [(60, None, None, None), (None,) * 4, (62, None, None, None)]


def test_a_note_of_a_million_beats_is_refused() -> None:
    piece = Piece.of([Note(0.0, 6000.0, 60, 64)], quarter=0.001)
    with pytest.raises(DataError, match=r"in\.mid: the notes of a chorale must fill at most 1,000,000 steps"):
        steps_of(piece, "in.mid")
