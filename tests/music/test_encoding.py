from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.music.encoding import midi_words, read_words, transposed, vocabulary
from tests.music.scores import SCALE


def test_a_file_in_both_ways() -> None:
    pytest.importorskip("symusic")
    assert midi_words(SCALE, "performance")[:4] == ["loud16", "on60", "wait50", "off60"]
    assert midi_words(SCALE, "chorale")[:8] == ["S60", "A-", "T-", "B-"] * 2
    assert len(midi_words(SCALE, "chorale")) == 4 * 16


@pytest.mark.parametrize("encoding", ["performance", "chorale"])
@given(data=st.data())
def test_a_piece_moved_up_and_down_again_is_itself(encoding: str, data: st.DataObject) -> None:
    kind = "performance" if encoding == "performance" else "chorale"
    words = data.draw(st.lists(st.sampled_from(vocabulary(kind)), max_size=20))
    key = data.draw(st.integers(-6, 6))
    moved = transposed(words, key)
    if moved is None:
        return
    assert transposed(moved, -key) in (words, None)
    before, after = read_words(words, kind).piece.notes, read_words(moved, kind).piece.notes
    assert sorted(note.pitch + key for note in before) == sorted(note.pitch for note in after)


def test_no_note_leaves_the_piano() -> None:
    assert transposed(["on107", "wait3"], 1) == ["on108", "wait3"]
    assert transposed(["on108", "wait3"], 1) is None
    assert transposed(["S60", "A-", "T40", "B21"], -1) is None
