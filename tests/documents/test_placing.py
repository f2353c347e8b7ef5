"""Marks: they find their words, stay inside each other, and none is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.documents.passage import DEEPEST, PassageWriter, Placed
from regard.documents.placing import MOST_WORK, Part, place
from regard.errors import DataError


def words(source: str, marked: str, target: str, links: list[tuple[int, int]] | None = None) -> str:
    begin = source.index(marked)
    ((start, end),) = place(source, [Part(begin, begin + len(marked))], target, links)
    return target[start:end]


def test_a_mark_around_everything_stays_around_everything() -> None:
    assert words("one two.", "one two.", "eins, zwei!") == "eins, zwei!"


def test_twins_are_found_wherever_they_are() -> None:
    assert words("in 1948 he met Anna there", "Anna", "Anna traf er dort 1948") == "Anna"
    assert words("in 1948 he met Anna there", "1948", "Anna traf er dort 1948") == "1948"


def test_links_beat_places() -> None:
    links = [(0, 0), (1, 1), (2, 4), (3, 2), (4, 3)]
    assert words("I have bought a car", "bought", "ich habe ein Auto gekauft", links) == "gekauft"
    assert words("On Tuesday, June, he", "Tuesday", "Dienstag, Juni er", [(1, 0), (2, 1), (3, 2)]) == "Dienstag"
    assert words("I have bought a car.", "a car", "ich habe ein Auto gekauft.", links) == "ein Auto"


def test_an_article_before_a_mark_at_the_beginning_belongs_to_it() -> None:
    links = [(3, 0), (1, 1), (2, 2), (3, 3), (4, 4)]
    assert words("The train arrives on Thursday", "The train", "Der Zug kommt am Donnerstag", links) == "Der Zug"
    assert words(
        "on Thursday arrives the train", "the train", "am Donnerstag kommt Zug der", [(1, 1), (4, 3), (0, 4)]
    ) == ("Zug der")


def test_without_links_the_place_in_the_text_counts() -> None:
    assert words("a very big house", "very big", "ein sehr großes Haus") == "sehr großes"
    assert words("a big house", "house", "一座大房子") == "房子"


def test_marks_side_by_side_may_change_places() -> None:
    links = [(0, 1), (1, 0)]
    found = place("red car", [Part(0, 3), Part(4, 7)], "coche rojo", links)
    assert found == [(6, 10), (0, 5)]


def test_a_mark_around_nothing_stays_with_its_word() -> None:
    links = [(0, 1), (1, 0)]
    assert place("red car now", [Part(3, 3)], "coche rojo ya", links) == [(10, 10)]
    assert place("red car now", [Part(4, 4)], "coche rojo ya", links) == [(0, 0)]
    assert place("red car", [Part(0, 0), Part(7, 7)], "coche rojo", links) == [(0, 0), (10, 10)]


def test_a_mark_that_began_before_the_sentence_begins_with_its_translation() -> None:
    (left,) = place("one two three", [Part(0, 3, open_left=True)], "drei zwei eins")
    (right,) = place("one two three", [Part(8, 13, open_right=True)], "drei zwei eins")
    assert left[0] == 0
    assert right[1] == len("drei zwei eins")


TEXT = st.lists(st.sampled_from(["one", "two", "1948", "Anna", "eins", "大", ",", "don't", "x."]), max_size=12).map(
    " ".join
)


@st.composite
def passages(draw: st.DrawFn) -> PassageWriter:
    """Words with marks that are opened, closed and dropped at any place."""
    writer, depth = PassageWriter(), 0
    for what in draw(
        st.lists(st.sampled_from(["word", "word", "open", "close", "point", "abandon", "end"]), max_size=30)
    ):
        if what == "open":
            writer.open("here")
            depth += 1
        elif what in ("close", "abandon") and depth:
            (writer.close if what == "close" else writer.abandon)()
            depth -= 1
        elif what == "point":
            writer.point()
        elif what == "end":
            writer.write("End. ")
        else:
            writer.write(draw(st.sampled_from(["one ", "two", " Anna", "1948 ", "大", "-"])))
    for _ in range(depth):
        writer.close()
    return writer


@given(passages(), st.data())
def test_marks_stay_inside_each_other_and_beside_each_other(writer: PassageWriter, data: st.DataObject) -> None:
    passage = writer.passage()
    targets = [data.draw(TEXT) for _ in passage.parts]
    links = [
        data.draw(st.none() | st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=10)) for _ in targets
    ]
    placed = passage.placed(targets, links)
    check(placed)
    assert len(placed.marks) == len(passage.marks)
    # Every mark is written once, and all text is there once.
    seen: list[int] = []

    def wrap(number: int, inside: str) -> str:
        seen.append(number)
        return f"⟨{inside}⟩"

    text = placed.render(lambda piece, _: piece, wrap)
    assert sorted(seen) == list(range(len(passage.marks)))
    assert text.replace("⟨", "").replace("⟩", "") == placed.text


@given(passages())
def test_the_text_itself_has_its_marks_where_they_were(writer: PassageWriter) -> None:
    passage = writer.passage()
    check(Placed(passage.text, passage.marks))
    assert "".join(passage.parts) == passage.text


def check(placed: Placed) -> None:
    for mark in placed.marks:
        assert 0 <= mark.start <= mark.end <= len(placed.text)
        if mark.parent is not None:
            parent = placed.marks[mark.parent]
            assert parent.start <= mark.start <= mark.end <= parent.end
    for number, mark in enumerate(placed.marks):
        for other in placed.marks[number + 1 :]:
            if mark.parent == other.parent:
                assert mark.end <= other.start or other.end <= mark.start, (mark, other)


def test_so_many_marks_that_only_their_places_count() -> None:
    text = "a " * 2_000
    parts = [Part(2 * n, 2 * n + 1) for n in range(1_000)]
    assert len(parts) * 2_000 > MOST_WORK
    found = place(text, parts, text.upper())
    assert [text.upper()[start:end] for start, end in found[:3]] == ["A", "A", "A"]


def test_marks_too_deep_are_refused() -> None:
    writer = PassageWriter()
    for _ in range(DEEPEST):
        writer.open("page.html, line 7")
    with pytest.raises(DataError, match=r"page\.html, line 7: at most 100 marks"):
        writer.open("page.html, line 7")
