"""How a model is wired, as a picture: the same boxes that `wiring.py` draws for a terminal."""

from __future__ import annotations

from collections.abc import Callable

from regard.viewing.svg import MARGIN, picture, text, text_width
from regard.viewing.wiring import SOURCE_PARTS, SUMS, Box, Drawn, Part, titles, wiring

LINE, PAD, APART, GUTTER = 22, 12, 30, 84  # of a part, inside a box, between boxes, between columns
LANE = 44  # between the source and the target below it, and beside them for what goes from one to the other
ROAD = 12  # the width left of the parts for what goes around them
_STYLE = """
.box { fill: #f5f7fc; stroke: #c3cbe0; } .tip { fill: #5f6f96; }
.wire { fill: none; stroke: #5f6f96; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) {
  .box { fill: #1c2027; stroke: #3b4453; } .wire { stroke: #8da2c9; } .tip { fill: #8da2c9; }
}
"""


def wiring_svg(model: Drawn, title: str, say: Callable[[str], str] = str) -> str:
    """The wiring of a model on the meta device: the source on the left, the target on the right.

    `say` puts its words into another language.
    """
    (source, target), (one_side, other_side) = wiring(model), titles(model)
    top = MARGIN + 34
    left = _Column(one_side, source, MARGIN, top, say) if source else None
    x = MARGIN if left is None else MARGIN + left.width + GUTTER
    right = _Column(other_side, target, x, top, say)
    height = max(right.bottom, 0 if left is None else left.bottom) + 24 + MARGIN
    parts = [text(MARGIN, MARGIN + 10, title, "title"), *right.parts, _arrow(right.middle, right.bottom)]
    if left is not None:
        parts += [*left.parts, *_links(left, right, right.x - GUTTER / 2, right.x)]
    return picture(title, x + right.width + MARGIN, height, parts, _STYLE)


def tall_wiring_svg(model: Drawn, title: str, say: Callable[[str], str] = str) -> str:
    """The same for where there is little room beside each other: the target below the source."""
    (source, target), (one_side, other_side) = wiring(model), titles(model)
    if not source:
        return wiring_svg(model, title, say)
    upper = _Column(one_side, source, MARGIN, MARGIN + 34, say)
    lower = _Column(other_side, target, MARGIN, upper.bottom + LANE, say)
    lane = MARGIN + max(upper.width, lower.width) + LANE / 2
    parts = [text(MARGIN, MARGIN + 10, title, "title"), *upper.parts, *lower.parts, _arrow(lower.middle, lower.bottom)]
    parts += _links(upper, lower, lane, lower.x + lower.width)
    width = max(lane, MARGIN + text_width(title, 15)) + MARGIN
    return picture(title, width, lower.bottom + 24 + MARGIN, parts, _STYLE)


class _Column:
    """Boxes below one another: what they look like, and where their lines are."""

    def __init__(self, title: str, boxes: list[Box], x: float, top: float, say: Callable[[str], str]) -> None:
        self.say = say
        names = max(text_width(say(part.name)) for box in boxes for part in box.parts)
        sizes = max(text_width(say(part.sizes), 12) for box in boxes for part in box.parts)
        notes = max(text_width(say(note), 11) for box in boxes for part in box.parts for note in ["", *part.below()])
        self.x, self.width = x, max(names + sizes + 16, notes + 12) + 2 * PAD + ROAD + 26
        self.middle = x + 28
        self.lines: list[tuple[Part, float]] = []
        self.tops: list[float] = []
        self.parts = [text(x + 4, top + 4, say(title), "quiet")]
        y = top + 12
        for number, box in enumerate(boxes):
            self.parts.append(_arrow(self.middle, y, 18 if number == 0 else APART))
            y += 18 if number == 0 else APART
            y = self._box(box, y)
        self.bottom = y

    def _box(self, box: Box, top: float) -> float:
        self.tops.append(top + PAD + LINE / 2)
        drawn, y, left = [], top + PAD, self.x + PAD + ROAD
        leaves = top + 6  # where the road around the next sub-layer begins
        for part in box.parts:
            self.lines.append((part, y + LINE / 2))
            drawn.append(text(left, y + 15, self.say(part.name)))
            if part.name in SUMS:
                drawn.append(_around(self.x + PAD, leaves, y + 11, left - 3))
                leaves = y + LINE - 1
            drawn.append(text(self.x + self.width - PAD, y + 15, self.say(part.sizes), "quiet", "end"))
            y += LINE
            for note in part.below():
                drawn.append(text(left + 12, y + 9, self.say(note), "quiet small"))
                y += 16
        bottom = y + PAD - 4
        frame = (
            f'<rect class="box" x="{self.x:.1f}" y="{top:.1f}" width="{self.width:.1f}" '
            f'height="{bottom - top:.1f}" rx="8"/>'
        )
        times = [text(self.x + self.width, top - 7, f"× {box.times}", "strong", "end")] if box.times > 1 else []
        self.parts += [frame, *times, *drawn]
        return bottom


def _arrow(x: float, y: float, length: float = 24) -> str:
    return (
        f'<path class="wire" d="M{x:.1f} {y:.1f}V{y + length - 5:.1f}"/>'
        f'<path class="tip" d="M{x - 4:.1f} {y + length - 7:.1f}H{x + 4:.1f}L{x:.1f} {y + length:.1f}Z"/>'
    )


def _around(x: float, leaves: float, joins: float, end: float) -> str:
    """The road around a sub-layer, to the sum behind it."""
    return (
        f'<path class="wire around" d="M{end:.1f} {leaves:.1f}H{x:.1f}V{joins:.1f}H{end - 4:.1f}"/>'
        f'<path class="tip" d="M{end - 5:.1f} {joins - 3:.1f}V{joins + 3:.1f}L{end:.1f} {joins:.1f}Z"/>'
    )


def _links(source: _Column, target: _Column, lane: float, edge: float) -> list[str]:
    """One line from below the source to its lane, and arrows from there to the edge of all that reads it."""
    start, ahead = source.bottom, 1 if lane < edge else -1
    down = start + 16
    # Where nothing attends to the source, it enters the stack as a whole.
    arrives = [y for part, y in target.lines if part.name in SOURCE_PARTS] or target.tops[:2][-1:]
    found = [f'<path class="wire" d="M{source.middle:.1f} {start:.1f}V{down:.1f}H{lane:.1f}"/>']
    for y in arrives:
        found.append(f'<path class="wire" d="M{lane:.1f} {down:.1f}V{y:.1f}H{edge - 6 * ahead:.1f}"/>')
        tip = f"M{edge - 8 * ahead:.1f} {y - 4:.1f}V{y + 4:.1f}L{edge - ahead:.1f} {y:.1f}Z"
        found.append(f'<path class="tip" d="{tip}"/>')
    return found
