"""Positions and words, which are vectors to a model, as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.exploring.vectors import Neighbours, Positions
from regard.viewing.svg import MARGIN, escaped, level_paths, picture, shortened, text, text_width

SIDE = 420  # pixels of a heat map's longer side
MAP = 380  # pixels of a side of the map of words
ROW, BAR = 24, 160
LONGEST_NAME = 14
EXPLAINED = {
    "sinusoidal": "waves of different lengths: sines in even, cosines in odd columns",
    "learned": "a learned vector for each position",
    "rotary": "cosines and sines of the angles by which queries and keys are turned",
    "relative": "a learned vector for each distance, from far behind to far ahead",
    "relative-waves": "the keys made from the waves of each distance, from far behind to far ahead",
    "alibi": "what each head takes off a score, by distance",
}


# ---- positions


def positions_svg(found: Positions, title: str) -> str:
    """The vectors as one heat map, and how alike any two of them are as another; blue is above zero, orange below."""
    values, alike = np.array(found.values), np.array(found.similarity)
    largest = float(np.abs(values).max()) or 1.0
    top = MARGIN + 88
    pitch = SIDE / max(values.shape)
    second = MARGIN + 44 + max(pitch * values.shape[1], 130) + 56
    alike_pitch = SIDE / len(alike)
    parts = [
        text(MARGIN, MARGIN + 12, title, "title"),
        text(MARGIN, MARGIN + 34, f"{found.kind}: {EXPLAINED[found.kind]}", "quiet"),
        *_heat(values / largest, MARGIN + 44, top, pitch, found.rows, found.columns, found.first, 0),
        text(MARGIN + 44, top - 26, f"values, up to ±{largest:.3g}", "quiet small"),
        *_heat(alike, second, top, alike_pitch, found.rows, found.rows, found.first, found.first),
        text(second, top - 26, "how alike: the cosine", "quiet small"),
    ]
    high = max(pitch * values.shape[0], alike_pitch * len(alike))
    width = max(second + alike_pitch * len(alike), MARGIN + text_width(EXPLAINED[found.kind]) + 90)
    return picture(title, width + MARGIN, top + high + 24 + MARGIN, parts)


def _heat(
    values: NDArray[np.floating[Any]], left: float, top: float, pitch: float, rows: str, columns: str,
    first_row: int, first_column: int,
) -> list[str]:  # fmt: skip
    high, wide = pitch * values.shape[0], pitch * values.shape[1]
    down, across = _ticks(len(values), first_row), _ticks(values.shape[1], first_column)
    return [
        f'<rect class="empty" x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{high:.1f}"/>',
        *level_paths(values, left, top, pitch, "cell", power=1.0),
        *level_paths(-values, left, top, pitch, "against", power=1.0),
        *(text(left - 6, top + pitch * (at + 0.5) + 4, name, "quiet small", "end") for at, name in down),
        *(text(left + pitch * (at + 0.5), top - 6, name, "quiet small", "middle") for at, name in across),
        text(left, top + high + 18, f"rows: {rows}s, columns: {columns}s", "quiet small"),
    ]


def _ticks(count: int, first: int) -> list[tuple[int, str]]:
    """Some rows, and what each is called; the first is called `first`."""
    step = next(step for step in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if count / step <= 8)
    return [(at, f"{first + at}".replace("-", "−")) for at in range(count) if (first + at) % step == 0]


# ---- words


def neighbours_svg(found: Neighbours, title: str) -> str:
    """A map of a word and the tokens most like it, and beside it how alike each is, as bars."""
    top = MARGIN + 48
    labels = [shortened(token.text, 20) for token in found.tokens]
    second = MARGIN + MAP + 130
    wide = max(map(text_width, labels))
    cut = "" if len(found.pieces) < 2 else f" ({' + '.join(found.pieces)})"
    parts = [
        text(MARGIN, MARGIN + 12, title, "title"),
        text(MARGIN, MARGIN + 34, shortened(f"around «{found.text}»{cut}", 60), "quiet"),
        text(second, MARGIN + 34, "cosine", "quiet small"),
        *_map(found, top),
    ]
    for row, (token, label) in enumerate(zip(found.tokens, labels, strict=True)):
        y = top + row * ROW
        parts += [
            text(second + wide, y + 16, label, "", "end", token.text),
            f'<rect class="empty" x="{second + wide + 10:.1f}" y="{y + 5:.1f}" width="{BAR}" height="14" rx="2"/>'
            f'<rect class="cell bar" x="{second + wide + 10:.1f}" y="{y + 5:.1f}" '
            f'width="{BAR * max(token.similarity, 0):.4f}" height="14" rx="2"/>',
            text(second + wide + 18 + BAR, y + 16, f"{token.similarity:.2f}", "quiet small"),
        ]
    height = top + max(MAP, ROW * len(labels)) + 44
    return picture(title, second + wide + BAR + 60 + MARGIN, height, parts)


def _map(found: Neighbours, top: float) -> list[str]:
    """Words where they stand along the two directions in which they differ most."""
    names = [found.text, *(token.text for token in found.tokens)]
    flat = np.array([found.place, *((token.x, token.y) for token in found.tokens)])
    low, span = flat.min(axis=0), float((flat.max(axis=0) - flat.min(axis=0)).max()) or 1.0
    middle = (span - (flat.max(axis=0) - low)) / 2
    spots = 16 + (flat - low + middle) / span * (MAP - 32)
    parts = [f'<rect class="empty" x="{MARGIN}" y="{top:.1f}" width="{MAP + 100}" height="{MAP}" rx="6"/>']
    for number, (name, (x, y), (at, across)) in enumerate(zip(names, spots, _beside(names, spots), strict=True)):
        look = "mark" if number == 0 else "cell"
        parts.append(
            f'<circle class="{look}" cx="{MARGIN + x:.1f}" cy="{top + y:.1f}" r="{5 if number == 0 else 3.5}">'
            f"<title>{escaped(name)}</title></circle>"
        )
        words = shortened(name, LONGEST_NAME)
        parts.append(text(MARGIN + at, top + across, words, "strong" if number == 0 else "small"))
    parts.append(text(MARGIN, top + MAP + 18, "the two directions in which these vectors differ most", "quiet small"))
    return parts


def _beside(names: Sequence[str], spots: NDArray[np.floating[Any]]) -> list[tuple[float, float]]:
    """Where each name is written: right of its spot, left of it, above or below, wherever it covers the least."""
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in spots.tolist()]
    found = []
    for name, (x, y) in zip(names, spots.tolist(), strict=True):
        wide = text_width(shortened(name, LONGEST_NAME), 12)
        tries = [(x + 9, y + 4), (x - 9 - wide, y + 4), (x - wide / 2, y - 9), (x - wide / 2, y + 17)]
        # One that leaves the map covers more than any name could.
        boxes = [(left, base - 10, left + wide, base + 3) for left, base in tries]
        costs = [sum(_common(box, other) for other in taken) + 1e4 * (box[0] < 4 or box[1] < 0) for box in boxes]
        best = costs.index(min(costs))
        taken.append(boxes[best])
        found.append(tries[best])
    return found


def _common(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """The area that two boxes share."""
    wide, high = min(one[2], other[2]) - max(one[0], other[0]), min(one[3], other[3]) - max(one[1], other[1])
    return max(wide, 0.0) * max(high, 0.0)
