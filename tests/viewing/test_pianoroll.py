from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from regard.errors import UsageError
from regard.music.notes import Note, Piece
from regard.viewing.pianoroll import LEFT, ROW, TOP, WIDE, Line, pianoroll_svg

SVG = "{http://www.w3.org/2000/svg}"
PIECE = Piece.of([Note(0.0, 1.0, 60, 127), Note(1.0, 2.0, 64, 64), Note(3.0, 1.0, 67, 64), Note(3.0, 1.0, 72, 64)])
LINES = [Line(1, 0, 0, 0.9), Line(2, 0, 1, 0.5), Line(2, 1, 0, 0.25), Line(3, 3, 1, 0.8)]


def drawn(svg: str, *looks: str) -> list[ElementTree.Element]:
    return [part for part in ElementTree.fromstring(svg).iter() if set(looks) & set(part.get("class", "").split())]


def test_every_note_stands_where_it_sounds() -> None:
    notes = drawn(pianoroll_svg(PIECE, "a piece"), "note")
    assert len(notes) == 4
    for note, rectangle in zip(PIECE.notes, notes, strict=True):
        assert float(rectangle.get("x", "")) == pytest.approx(LEFT + WIDE * note.start / 4, abs=0.1)
        assert float(rectangle.get("width", "")) == pytest.approx(WIDE * note.duration / 4 - 0.6, abs=0.1)
        assert float(rectangle.get("y", "")) == pytest.approx(TOP + (74 - note.pitch) * ROW + 0.5, abs=0.1)


def test_louder_is_darker() -> None:
    opacity = [float(part.get("fill-opacity", "")) for part in drawn(pianoroll_svg(PIECE, "a piece"), "note")]
    assert opacity[0] == 1.0
    assert opacity[1] < opacity[0]


def test_lines_have_a_colour_for_each_head_and_the_width_of_their_weight() -> None:
    svg = pianoroll_svg(PIECE, "a piece", lines=LINES, focus=[1, 2])
    lines = [part for part in drawn(svg, "look") if part.find(f"{SVG}title") is not None]
    found = {(part.get("class"), part.get("stroke-width")) for part in lines}
    assert found == {("look h0", "5.10"), ("look h1", "3.10"), ("look h0", "1.85")}
    assert {part.findtext(f"{SVG}title") for part in lines} == {"head 1: 0.900", "head 2: 0.500", "head 1: 0.250"}
    assert len(drawn(svg, "chosen")) == 2
    assert re.search(r"\.h0 \{ stroke: #[0-9a-f]{6}; \} \.h1 \{ stroke: #[0-9a-f]{6}; \}", svg)


def test_a_few_notes_that_the_model_wrote_are_chosen() -> None:
    svg = pianoroll_svg(PIECE, "a piece", primed={0, 1}, lines=LINES)
    assert len(drawn(svg, "chosen")) == 1
    assert len(drawn(svg, "primed")) == 2


def test_a_title_is_text() -> None:
    svg = pianoroll_svg(PIECE, "<script>&")
    assert "<script>" not in svg
    assert ElementTree.fromstring(svg).get("aria-label") == "<script>&"


def test_nothing_cannot_be_drawn() -> None:
    with pytest.raises(UsageError, match="at least one note"):
        pianoroll_svg(Piece.of([]), "silence")
