"""A matrix of weights between words as a standalone SVG, large or small.

Opacity grows with the square root of a weight: with forty words to look at, an even gaze gives 0.025 to each, which a
linear scale would hide. Up to `FEW` words a side, every cell is a square that tells its weight when pointed at. With
more, cells share a path for each of sixteen shades, and only some words are written: 512 × 512 cells then take two
megabytes or less, where squares of their own would take forty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.viewing.svg import MARGIN, escaped, level_paths, picture, shortened, text, text_width

SMALLEST_DRAWN = 0.0005  # a weight that prints as 0.000 gets no cell
FEW = 64
PITCH, GAP = 28, 2
SMALL = 12  # the pitch of many cells, from which on their labels fit; below it every second is left out, …
MOST_SIDE = 1400  # pixels that many cells may take
LONGEST_LABEL = 24


@dataclass(frozen=True, eq=False)
class Grid:
    """Weights between rows and columns of words; `rings` are cells to be marked, `verb` what a row does to a column."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    weights: NDArray[np.floating[Any]]
    rings: tuple[tuple[int, int], ...] = ()
    verb: str = "looks at"


def grid_svg(grid: Grid) -> str:
    """Draw a grid."""
    few = max(len(grid.rows), len(grid.columns)) <= FEW
    return _few(grid) if few else _many(grid)


def _few(grid: Grid) -> str:
    left = MARGIN + max(map(text_width, grid.rows)) + 10
    # Column labels lean at 45 degrees: each needs its width over the root of 2, upwards and to the right.
    lean = [text_width(label) * 0.71 + 12 for label in grid.columns]
    top = MARGIN + 28 + max(lean)
    right = max([PITCH * (k + 0.5) + lean[k] for k in range(len(lean))] + [PITCH * len(lean), 210])
    height = top + PITCH * len(grid.rows) + 64
    parts = [
        text(MARGIN, MARGIN + 12, grid.title, "quiet"),
        *_labels(grid, left, top),
        *_cells(grid, left, top),
        *_rings(grid, left, top),
        *_legend(left, height - 40),
    ]
    return picture(grid.title, max(left + right, text_width(grid.title) + MARGIN) + MARGIN, height, parts)


def _labels(grid: Grid, left: float, top: float) -> list[str]:
    rows = [
        text(left - 10, top + PITCH * (place + 0.5) + 4.5, label, anchor="end")
        for place, label in enumerate(grid.rows)
    ]  # fmt: skip
    columns = [
        f'<text transform="translate({left + PITCH * (place + 0.5) + 3:.1f} {top - 8:.1f}) rotate(-45)">'
        f"{escaped(label)}</text>"
        for place, label in enumerate(grid.columns)
    ]
    return rows + columns


def _cells(grid: Grid, left: float, top: float) -> list[str]:
    side = PITCH - GAP
    found = [
        f'<rect class="empty" x="{left:.1f}" y="{top:.1f}" width="{PITCH * len(grid.columns) - GAP}" '
        f'height="{PITCH * len(grid.rows) - GAP}" rx="2"/>'
    ]
    for row, column in np.argwhere(grid.weights >= SMALLEST_DRAWN):
        weight = float(grid.weights[row, column])
        told = escaped(f"«{grid.rows[row]}» {grid.verb} «{grid.columns[column]}» {weight:.3f}")
        found.append(
            f'<rect class="cell" x="{left + PITCH * column:.1f}" y="{top + PITCH * row:.1f}" width="{side}" '
            f'height="{side}" rx="2" fill-opacity="{min(weight, 1) ** 0.5:.4f}"><title>{told}</title></rect>'
        )
    return found


def _rings(grid: Grid, left: float, top: float) -> list[str]:
    side = PITCH - GAP
    return [
        f'<rect class="ring" x="{left + PITCH * column:.1f}" y="{top + PITCH * row:.1f}" width="{side}" '
        f'height="{side}" rx="2" stroke-width="2"/>'
        for row, column in grid.rings
    ]


def _legend(left: float, top: float) -> list[str]:
    parts = []
    for place, weight in enumerate((0.01, 0.1, 0.25, 0.5, 1.0)):
        x = left + 42 * place
        parts.append(
            f'<rect class="empty" x="{x:.1f}" y="{top:.1f}" width="40" height="8"/>'
            f'<rect class="legend cell" x="{x:.1f}" y="{top:.1f}" width="40" height="8" '
            f'fill-opacity="{weight**0.5:.4f}"/>'
        )
        parts.append(text(x + 20, top + 24, f"{weight:g}", "quiet", "middle"))
    return parts


# ---- many cells


def _many(grid: Grid) -> str:
    pitch = max(1.0, min(SMALL, MOST_SIDE / max(len(grid.rows), len(grid.columns))))
    every = -(-SMALL // pitch)  # so many words share the room of one label
    rows, columns = (_thinned(labels, every) for labels in (grid.rows, grid.columns))
    left = MARGIN + max(text_width(label, 11) for _, label in rows) + 8
    top = MARGIN + 38 + max(text_width(label, 11) for _, label in columns)
    wide, high = pitch * len(grid.columns), pitch * len(grid.rows)
    parts = [
        text(MARGIN, MARGIN + 12, grid.title, "quiet"),
        *(text(left - 8, top + pitch * (row + 0.5) + 4, label, "small", "end") for row, label in rows),
        *(
            f'<text class="small" transform="translate({left + pitch * (column + 0.5) + 4:.1f} {top - 8:.1f}) '
            f'rotate(-90)">{escaped(label)}</text>'
            for column, label in columns
        ),
        f'<rect class="empty" x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{high:.1f}"/>',
        *level_paths(grid.weights, left, top, pitch),
        *_legend(left, top + high + 24),
    ]
    return picture(grid.title, left + wide + 2 * MARGIN, top + high + 24 + 40, parts)


def _thinned(labels: Sequence[str], every: float) -> list[tuple[int, str]]:
    """Those labels that are written, with their places."""
    return [(place, shortened(labels[place], LONGEST_LABEL)) for place in range(0, len(labels), int(every))]
