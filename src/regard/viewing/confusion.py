"""Which label was taken for which, as a standalone SVG: a row for each right label, a column for each given one.

A cell is as dark as its share of the row, by the square root, so that rare mistakes can be seen; hits are blue and
mistakes orange. The number in it is how often it happened.
"""

from __future__ import annotations

from collections.abc import Sequence

from regard.viewing.svg import MARGIN, escaped, picture, shortened, text, text_width

PITCH, GAP = 46, 2
SQUARES = 40  # labels, of which each pair gets a square; of more, those that something happened to
LONGEST_LABEL = 24
DARK = 0.5  # a cell darker than this has light figures
STYLE = ".on { fill: #fff; } @media (prefers-color-scheme: dark) { .on { fill: #15171c; } }"


def confusion_svg(labels: Sequence[str], counts: Sequence[Sequence[int]], title: str) -> str:
    """Draw a confusion matrix: `counts[r][c]` answers should have been label r, and were label c."""
    names = [shortened(label, LONGEST_LABEL) for label in labels]
    left = MARGIN + max([*map(text_width, names), text_width("right label")]) + 12
    # Column labels lean at 45 degrees: each needs its width over the root of 2, upwards and to the right.
    lean = max(map(text_width, names)) * 0.71 + 14
    top, side = MARGIN + 34 + lean, PITCH * len(names)
    parts = [
        text(MARGIN, MARGIN + 12, title, "quiet"),
        text(left - 10, top - 8, "right label", "small quiet", "end"),
        text(left, top + side + 22, "given label →", "small quiet"),
    ]
    for place, (label, name) in enumerate(zip(labels, names, strict=True)):
        middle = PITCH * (place + 0.5)
        parts.append(text(left - 10, top + middle + 4, name, "strong", "end", title=label))
        x, y = left + middle, top - 8
        parts.append(f'<text x="{x:.1f}" y="{y:.1f}" transform="rotate(-45 {x:.1f} {y:.1f})">{escaped(name)}</text>')
    if len(names) > SQUARES:
        parts.append(f'<rect class="empty" x="{left:.1f}" y="{top:.1f}" width="{side}" height="{side}" rx="4"/>')
    for row, numbers in enumerate(counts):
        for column, number in enumerate(numbers):
            if number or len(names) <= SQUARES:
                parts += _cell(labels, row, column, number, sum(numbers), left + PITCH * column, top + PITCH * row)
    width = max(left + side + lean, text_width(title) + MARGIN) + MARGIN
    return picture(title, width, top + side + 22 + MARGIN, parts, STYLE)


def _cell(labels: Sequence[str], row: int, column: int, number: int, of: int, x: float, y: float) -> list[str]:
    square = f'x="{x:.1f}" y="{y:.1f}" width="{PITCH - GAP}" height="{PITCH - GAP}" rx="4"'
    parts = [f'<rect class="empty" {square}/>']
    if not number:
        return parts
    shade = (number / of) ** 0.5
    told = f"{labels[row]} → {labels[column]}: {number:,} of {of:,}, {number / of:.1%}"
    look = "cell" if row == column else "against"
    parts.append(f'<rect class="{look}" opacity="{shade:.2f}" {square}><title>{escaped(told)}</title></rect>')
    figure = f"{number:,}" if number < 100_000 else f"{number / 1000:,.0f}k"
    dark = " on" if shade > DARK else ""
    parts.append(text(x + (PITCH - GAP) / 2, y + PITCH / 2 + 3, figure, f"small{dark}", "middle", title=told))
    return parts
