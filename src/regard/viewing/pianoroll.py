"""A piano roll as one standalone SVG: time from left to right, pitch from below to above, and attention over it.

A line leads from a note to a note that was looked at when the first was written: a colour for each head, and the wider
the more weight. Lines of all notes would hide the music, so those of a few notes are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

from regard.errors import UsageError
from regard.music.notes import Note, Piece
from regard.viewing.svg import MARGIN, picture, text

LEFT, TOP, WIDE = 56, 54, 1_080
ROW = 7  # pixels a semitone
BELOW = 46
APART = 10  # pixels between the arcs of neighbouring heads, where there is room
ENTRY, ENTRIES = 64, 10  # pixels of a head in the legend, and how many stand in a row of it
LEAST, LEAST_CHOSEN = 2, 9  # pixels of a note, and of one that lines begin at: it has to be found
FOCUS = 4  # notes whose lines are drawn, unless told
COLOURS = (("#1d4bb0", "#7cc4ff"), ("#bd3d0a", "#ff9d6b"), ("#0a7550", "#4fd6a4"), ("#8433b5", "#d59bff"),
           ("#86590a", "#e8c15a"), ("#b3206b", "#ff8fc0"), ("#18727d", "#66d3df"), ("#5f636c", "#b3b8bf"))  # fmt: skip
BLACK = (1, 3, 6, 8, 10)  # keys of an octave
_STYLE = """
.black { fill: #f2f4f9; } .note { fill: #3b4250; } .primed { fill: #a9b0bd; }
.chosen { fill: #c2490f; stroke: #14171c; stroke-width: 1.5; }
.look { fill: none; stroke-linecap: round; opacity: .75; }
@media (prefers-color-scheme: dark) {
  .black { fill: #1d2126; } .note { fill: #c9ced8; } .primed { fill: #5d6573; }
  .chosen { fill: #f19a4b; stroke: #f4f6fa; }
}
"""


class Line(NamedTuple):
    """A note, a note that was looked at when it was written, by which head, and with which share of its weight."""

    note: int
    seen: int
    head: int
    weight: float


def pianoroll_svg(
    piece: Piece,
    title: str,
    primed: Collection[int] = (),
    lines: Sequence[Line] = (),
    focus: Sequence[int] | None = None,
) -> str:
    """Draw a piece; notes of a primer are pale. `focus` are the notes whose lines are drawn, a few unless given."""
    if not piece.notes:
        raise UsageError("piano roll: needs at least one note to draw, but there is none. Write a longer piece.")
    chosen = set(_spread(lines, primed) if focus is None else focus)
    drawn = [line for line in lines if line.note in chosen and line.note != line.seen]
    heads = 1 + max((line.head for line in lines), default=-1)
    roll = _Roll(piece, heads)
    parts = [text(MARGIN, 30, title, "title"), *roll.keys(), *roll.seconds()]
    framed = chosen if drawn else set()
    for number, note in enumerate(piece.notes):
        if number not in framed:
            parts.append(roll.note(note, "primed" if number in primed else "note"))
    parts += [roll.line(line) for line in sorted(drawn, key=lambda line: line.weight)]
    # Last, so that neither lines nor neighbours hide where lines begin.
    parts += [roll.note(piece.notes[number], "chosen") for number in sorted(framed)]
    below = BELOW
    if drawn:
        parts += roll.legend()
        below += (heads - 1) // ENTRIES * 18
    return picture(title, LEFT + WIDE + MARGIN, roll.bottom + below, parts, _STYLE + _colours(heads))


def _spread(lines: Sequence[Line], primed: Collection[int]) -> list[int]:
    """A few notes that the model wrote, evenly apart, with the last one; only such as have lines."""
    notes = sorted({line.note for line in lines if line.note not in primed and line.seen != line.note})
    return [notes[(number + 1) * len(notes) // FOCUS - 1] for number in range(min(FOCUS, len(notes)))]


class _Roll:
    """Where times and pitches are in the picture."""

    def __init__(self, piece: Piece, heads: int) -> None:
        pitches = [note.pitch for note in piece.notes]
        self.heads = heads
        self.piece, self.low, self.high = piece, min(pitches) - 2, max(pitches) + 2
        self.scale = WIDE / max(piece.duration, 0.1)
        self.bottom = TOP + (self.high - self.low + 1) * ROW

    def x(self, seconds: float) -> float:
        return LEFT + seconds * self.scale

    def y(self, pitch: int) -> float:
        return TOP + (self.high - pitch) * ROW

    def keys(self) -> list[str]:
        """Darker rows for the black keys, and the name of each C."""
        found = []
        for pitch in range(self.low, self.high + 1):
            if pitch % 12 in BLACK:
                found.append(f'<rect class="black" x="{LEFT}" y="{self.y(pitch):.0f}" width="{WIDE}" height="{ROW}"/>')
            if pitch % 12 == 0:
                name = f"C{pitch // 12 - 1}"
                found.append(text(LEFT - 8, self.y(pitch) + ROW, name, "small quiet", "end"))
        return found

    def seconds(self) -> list[str]:
        """Marks below at round times."""
        step = next((step for step in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600) if step * self.scale >= 60), 3600)
        times = range(0, int(self.piece.duration) + 1, step)
        return [
            f'<path class="rule" d="M{self.x(time):.1f} {TOP}V{self.bottom}"/>'
            + text(self.x(time), self.bottom + 15, f"{time} s", "small quiet", "middle")
            for time in times
        ]

    def note(self, note: Note, look: str) -> str:
        chosen = look == "chosen"
        width = max(note.duration * self.scale - 0.6, LEAST_CHOSEN if chosen else LEAST)
        opacity = 1 if chosen else 0.35 + 0.65 * note.velocity / 127
        return (
            f'<rect class="{look}" x="{self.x(note.start):.1f}" y="{self.y(note.pitch) + 0.5:.1f}" width="{width:.1f}" '
            f'height="{ROW - 1}" rx="1.5" fill-opacity="{opacity:.2f}"/>'
        )

    def line(self, line: Line) -> str:
        one, other = self.piece.notes[line.note], self.piece.notes[line.seen]
        x, y, to_x, to_y = self.x(one.start), self._middle(one), self.x(other.start) + 2, self._middle(other)
        # An arc, so that lines along a row can be told apart; and for each head another one, since several may look
        # at the same note.
        high = max(min(y, to_y) - min(24 + abs(x - to_x) / 8, 90), 12)
        aside = line.head * min(APART, (self.bottom - high) / self.heads) / max(math.hypot(to_x - x, to_y - y), 1)
        middle, high = (x + to_x) / 2 + (to_y - y) * aside, high + abs(to_x - x) * aside
        return (
            f'<path class="look h{line.head}" stroke-width="{0.6 + 5 * line.weight:.2f}" '
            f'd="M{x:.1f} {y:.1f}Q{middle:.1f} {high:.1f} {to_x:.1f} {to_y:.1f}">'
            f"<title>head {line.head + 1}: {line.weight:.3f}</title></path>"
        )

    def legend(self) -> list[str]:
        """Which colour is whose, in as many rows as it takes."""
        y = self.bottom + 34
        found = [text(LEFT, y, "lines lead to what was looked at when a framed orange note was written", "small quiet")]
        left = LEFT + WIDE - ENTRY * min(self.heads, ENTRIES)
        for head in range(self.heads):
            row, place = divmod(head, ENTRIES)
            x, below = left + ENTRY * place, y + 18 * row
            found.append(f'<path class="look h{head}" stroke-width="4" d="M{x} {below - 4}h14"/>')
            found.append(text(x + 19, below, f"head {head + 1}", "small quiet"))
        return found

    def _middle(self, note: Note) -> float:
        return self.y(note.pitch) + ROW / 2


def _colours(heads: int) -> str:
    light, dark = (
        " ".join(f".h{head} {{ stroke: {COLOURS[head % len(COLOURS)][side]}; }}" for head in range(heads))
        for side in range(2)
    )
    return f"{light}\n@media (prefers-color-scheme: dark) {{ {dark} }}\n"
