from __future__ import annotations

import math
import re
from itertools import combinations
from xml.etree import ElementTree

import pytest

from regard.errors import UsageError
from regard.music.notes import Note, Piece
from regard.viewing.pianoroll import LEAST, LEAST_CHOSEN, LEFT, ROW, TOP, WIDE, Line, pianoroll_svg

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


@pytest.mark.parametrize("seen", [0, 2])  # along the time, and in one chord
@pytest.mark.parametrize("heads", [2, 8, 16])
def test_heads_that_look_at_the_same_note_do_not_hide_each_other(seen: int, heads: int) -> None:
    lines = [Line(3, seen, head, 0.5) for head in range(heads)]
    svg = pianoroll_svg(PIECE, "a piece", lines=lines, focus=[3])
    middles = []
    for part in drawn(svg, "look"):
        if part.find(f"{SVG}title") is not None:
            x, y, by_x, by_y, to_x, to_y = map(float, re.findall(r"[\d.]+", part.get("d", "")))
            middles.append((x / 4 + by_x / 2 + to_x / 4, y / 4 + by_y / 2 + to_y / 4))
    assert len(middles) == heads
    assert all(math.dist(one, other) > 1 for one, other in combinations(middles, 2))
    assert all(0 < y < float(ElementTree.fromstring(svg).get("height", "")) for _, y in middles)


def test_the_legend_of_many_heads_has_rows() -> None:
    svg = pianoroll_svg(PIECE, "a piece", lines=[Line(1, 0, head, 0.5) for head in range(16)])
    words = {part.text: part for part in ElementTree.fromstring(svg).iter(f"{SVG}text") if part.text}
    places = [tuple(float(words[f"head {head}"].get(side, "")) for side in "xy") for head in range(1, 17)]
    assert len(set(places)) == 16
    assert min(x for x, _ in places) > LEFT + 400  # beside the sentence
    assert max(y for _, y in places) < float(ElementTree.fromstring(svg).get("height", ""))


def test_a_few_notes_that_the_model_wrote_are_chosen() -> None:
    svg = pianoroll_svg(PIECE, "a piece", primed={0, 1}, lines=LINES)
    assert len(drawn(svg, "chosen")) == 1
    assert len(drawn(svg, "primed")) == 2


def test_short_and_quiet_notes_that_lines_begin_at_can_be_found() -> None:
    piece = Piece.of([Note(second / 2, 0.02, 60 + second % 3, 9) for second in range(120)])
    svg = pianoroll_svg(piece, "a piece", lines=[Line(90, 80, 0, 0.5)])
    (chosen,) = drawn(svg, "chosen")
    assert float(chosen.get("width", "")) == LEAST_CHOSEN
    assert chosen.get("fill-opacity") == "1.00"
    assert {float(note.get("width", "")) for note in drawn(svg, "note")} == {LEAST}
    places = [svg.index(f'class="{look}') for look in ("note", "look", "chosen")]
    assert places == sorted(places)  # above its neighbours, and above lines
    assert re.search(r"\.chosen \{[^}]*stroke: #", svg)


def test_a_title_is_text() -> None:
    svg = pianoroll_svg(PIECE, "<script>&")
    assert "<script>" not in svg
    assert ElementTree.fromstring(svg).get("aria-label") == "<script>&"


def test_nothing_cannot_be_drawn() -> None:
    with pytest.raises(UsageError, match="at least one note"):
        pianoroll_svg(Piece.of([]), "silence")
