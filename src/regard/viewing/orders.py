"""Two orders of the same things side by side, as one SVG: what stands higher on one side than on the other is seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.errors import UsageError
from regard.viewing.svg import MARGIN, escaped, picture, text_width

TOP, LINE, ACROSS = 84, 21, 210  # pixels above the first line, from one to the next, and between the sides
MOVED = 0.25  # of all places: a line that rises or falls by more is drawn strongly

_STYLE = """
.same, .rise, .fall { fill: none; stroke-width: 1.5; } .rise, .fall { stroke-width: 2; }
.same { stroke: #b9bec8; } .rise { stroke: #1d4bb0; } .fall { stroke: #bd3d0a; }
@media (prefers-color-scheme: dark) {
  .same { stroke: #4a505b; } .rise { stroke: #7cc4ff; } .fall { stroke: #ff9d6b; }
}
"""


@dataclass(frozen=True)
class Placed:
    """A thing with its figure on either side, as numbers to order by and as they are written."""

    name: str
    left: float
    right: float
    left_text: str
    right_text: str


def orders_svg(things: Sequence[Placed], title: str, left: str, right: str, lowest_first: bool) -> str:
    """Draw two columns, the best on top, with a line from each thing to itself; equal ones keep their order."""
    if not things:
        raise UsageError("orders_svg: there must be at least one thing, but none was given. Pass what to draw.")
    sign = 1 if lowest_first else -1
    lefts = sorted(range(len(things)), key=lambda number: sign * things[number].left)
    rights = sorted(range(len(things)), key=lambda number: sign * things[number].right)
    labels = [(f"{each.name}  {each.left_text}", f"{each.right_text}  {each.name}") for each in things]
    first = MARGIN + max(text_width(label) for label in [left, *(label for label, _ in labels)]) + 8
    last = first + ACROSS
    width = last + 8 + max(text_width(label) for label in [right, *(label for _, label in labels)]) + MARGIN
    parts = [
        f'<text class="title" x="{MARGIN}" y="30">{escaped(title)}</text>',
        f'<text class="quiet" x="{first - 8:.0f}" y="{TOP - 24}" text-anchor="end">{escaped(left)}</text>',
        f'<text class="quiet" x="{last + 8:.0f}" y="{TOP - 24}">{escaped(right)}</text>',
    ]
    for number, (left_label, right_label) in enumerate(labels):
        begin, end = lefts.index(number), rights.index(number)
        strong = abs(end - begin) > MOVED * len(things)
        kind = ("rise" if end < begin else "fall") if strong else "same"
        from_y, to_y = TOP + LINE * begin, TOP + LINE * end
        middle = (first + last) / 2
        parts += [
            f'<path class="{kind}" d="M{first:.0f} {from_y}C{middle:.0f} {from_y} {middle:.0f} {to_y} '
            f'{last:.0f} {to_y}"><title>{escaped(things[number].name)}: {begin + 1} → {end + 1}</title></path>',
            f'<text x="{first - 8:.0f}" y="{from_y + 4.5}" text-anchor="end">{escaped(left_label)}</text>',
            f'<text x="{last + 8:.0f}" y="{to_y + 4.5}">{escaped(right_label)}</text>',
        ]
    width = max(width, 2 * MARGIN + text_width(title, 15))
    return picture(title, width, TOP + LINE * len(things), parts, _STYLE)
