from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.music.notes import Note, Piece
from regard.music.performance import WIDTH, WORDS, last_words, read_words, to_words
from tests.music.scores import pieces


def test_there_are_the_388_words_of_the_paper() -> None:
    assert len(WORDS) == len(set(WORDS)) == 128 + 128 + 100 + 32


def test_a_piece_in_words() -> None:
    piece = Piece.of([Note(3.0, 0.5, 60, 80), Note(3.5, 2.25, 64, 80), Note(3.5, 0.1, 67, 20)])
    assert " ".join(to_words(piece)) == (
        "loud20 on60 wait50 off60 on64 loud5 on67 wait10 off67 wait100 wait100 wait15 off64"
    )


@given(pieces)
def test_words_say_the_notes_to_ten_milliseconds_and_a_level(piece: Piece) -> None:
    first = round(piece.notes[0].start * 100) / 100
    alone = [note for note in piece.notes if sum(other.pitch == note.pitch for other in piece.notes) == 1]
    found = {note.pitch: note for note in read_words(to_words(piece)).piece.notes}
    for note in alone:
        read = found[note.pitch]
        assert read.start + first == pytest.approx(note.start, abs=0.0051)
        assert read.start + read.duration + first == pytest.approx(
            max(note.start + note.duration, note.start + 0.01), abs=0.0101
        )
        assert read.velocity // WIDTH == note.velocity // WIDTH


@given(pieces)
def test_words_are_stable(piece: Piece) -> None:
    words = to_words(piece)
    assert to_words(read_words(words).piece) == words


@given(pieces)
def test_words_are_stable_through_a_file(piece: Piece) -> None:
    pytest.importorskip("symusic")
    from regard.music.midi import read_midi, write_midi

    words = to_words(piece)
    assert to_words(read_midi(write_midi(read_words(words).piece))) == words


@given(st.lists(st.sampled_from([*WORDS, "<unk>", "nonsense"]), max_size=60))
def test_any_words_are_a_piece(words: list[str]) -> None:
    reading = read_words(words)
    assert len(reading.owners) == len(words)
    assert sum(word.startswith("on") for word in words) == len(reading.piece.notes)
    for word, owner in zip(words, reading.owners, strict=True):
        if word.startswith("on"):
            assert owner is not None
            assert reading.piece.notes[owner].pitch == int(word[2:])


def test_a_key_struck_again_ends_its_note_and_the_end_ends_all() -> None:
    piece = read_words(["on60", "wait10", "on60", "wait5", "off61", "wait5"]).piece
    assert [(note.start, note.duration) for note in piece.notes] == [(0.0, 0.1), (0.1, 0.1)]


def test_a_word_belongs_to_its_note() -> None:
    assert read_words(["loud3", "on64", "on60", "wait5", "off60", "off64"]).owners == (None, 1, 0, None, 0, 1)


def test_notes_struck_together_on_one_key_are_one() -> None:
    piece = Piece.of([Note(0.0, 0.2, 60, 64), Note(0.001, 0.5, 60, 64)])
    assert to_words(piece) == ["loud16", "on60", "wait50", "off60"]


@given(pieces, st.integers(1, 60))
def test_the_end_of_a_piece_sounds_as_it_did(piece: Piece, room: int) -> None:
    words = to_words(piece)
    kept = last_words(words, room)
    if len(words) <= room:
        assert kept == words
        return
    assert len(kept) <= room
    whole, end = read_words(words).piece, read_words(kept).piece
    late = [(note.pitch, note.velocity) for note in whole.notes][len(whole.notes) - len(end.notes) :]
    assert sorted((note.pitch, note.velocity) for note in end.notes) == sorted(late)


def test_a_quiet_piece_that_is_cut_stays_quiet() -> None:
    words = ["loud5", *(word for pitch in range(40, 60) for word in (f"on{pitch}", "wait10", f"off{pitch}"))]
    assert last_words(words, 8) == ["loud5", "on58", "wait10", "off58", "on59", "wait10", "off59"]
    assert {note.velocity for note in read_words(last_words(words, 8)).piece.notes} == {22}
    held = ["loud5", "on40", "wait9", "on41", "wait9", "off40", "wait9", "off41"]
    assert last_words(held, 6) == ["loud5", "on41", "wait9", "wait9", "off41"]
