"""What all SVG pictures share: their style, how text enters them, how wide it is, and how large weights are shown."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

MARGIN = 20
LEVELS = 16
"""In a picture of very many cells, shades of the square root of a weight."""

STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif; fill: #1e2228; white-space: pre; }
.title { font-size: 15px; } .strong { font-weight: 600; } .small { font-size: 11px; }
.quiet { fill: #5f636c; } .panel { fill: #fff; } .empty { fill: #f2f4f9; }
.cell { fill: #1d4bb0; }
.against { fill: #bd3d0a; } .mark { fill: #c2490f; } .line { fill: none; stroke: #1d4bb0; }
.rule { fill: none; stroke: #d5d8e0; } .ring { fill: none; stroke: #c2490f; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e5df; } .quiet { fill: #9a9fa6; } .panel { fill: #15171c; }
  .empty { fill: #1d2126; } .cell { fill: #7cc4ff; } .against { fill: #ff9d6b; } .mark { fill: #f19a4b; }
  .line { stroke: #7cc4ff; } .rule { stroke: #363b44; } .ring { stroke: #f19a4b; }
}
"""  # fmt: skip


def picture(title: str, width: float, height: float, parts: Iterable[str], style: str = "") -> str:
    """A whole SVG: a panel with a title for those who listen, and its parts."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" style="max-width:100%;height:auto" role="img" '
            f'aria-label="{escaped(title)}">',
            f"<style>{STYLE}{style}</style>",
            f'<rect class="panel" width="{width:.0f}" height="{height:.0f}" rx="10"/>',
            *parts,
            "</svg>\n",
        ]
    )


def escaped(text: str) -> str:
    """Text as it may stand in an SVG."""
    # XML has no way to write these characters at all, not even escaped.
    return html.escape(re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text))


def text_width(text: str, size: float = 13) -> float:
    """About how wide a text is; an SVG cannot measure its own. These widths are on the generous side."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return (0.6 * (len(text) - wide) + 1.04 * wide) * size


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters; what is cut off is told by an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"


def text(x: float, y: float, content: str, look: str = "", anchor: str = "start", title: str = "") -> str:
    """A line of text; `look` names classes of the style."""
    shape = f' class="{look}"' if look else ""
    where = f' text-anchor="{anchor}"' if anchor != "start" else ""
    more = f"<title>{escaped(title)}</title>" if title else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{shape}{where}>{escaped(content)}{more}</text>'


def level_paths(
    weights_RC: NDArray[np.floating[Any]], left: float, top: float, pitch: float, look: str = "cell", power: float = 0.5
) -> list[str]:
    """Very many cells as one path for each shade: cell (r, c) is a square at column c and row r.

    A weight w from 0 to 1 gets shade round(LEVELS · w^power), and that share of the full opacity.
    """
    shades = np.rint(np.clip(weights_RC, 0, 1) ** power * LEVELS).astype(int)
    found = []
    for shade in range(1, LEVELS + 1):
        if squares := _runs(shades == shade):
            found.append(
                f'<path class="{look}" fill-opacity="{shade / LEVELS:.4g}" '
                f'transform="translate({left:.1f} {top:.1f}) scale({pitch:g})" d="{squares}"/>'
            )
    return found


def _runs(where_RC: NDArray[np.bool_]) -> str:
    """The cells that are true, neighbours of a row joined: M column row, as far as they go, one down, and back."""
    parts = []
    for row in np.flatnonzero(where_RC.any(axis=1)):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], where_RC[row].astype(np.int8), [0]])))
        for first, last in edges.reshape(-1, 2):
            parts.append(f"M{first} {row}h{last - first}v1h{first - last}z")
    return "".join(parts)


def page(svg: str, title: str) -> str:
    """A picture as a page of its own, which needs nothing else and lets nothing run."""
    name = html.escape(title.encode("utf-8", "replace").decode())
    return re.sub(r"\{\{(\w+)\}\}", lambda found: {"title": name, "svg": svg}[found[1]], _PAGE)


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{title}}</title>
<link rel="icon" href="data:,">
<style>
body { margin: 0 auto; padding: 2rem 1.5rem; max-width: max-content; background: #faf9f6; }
main { overflow-x: auto; }
svg { max-width: none !important; }
@media (prefers-color-scheme: dark) { body { background: #0f1115; } }
</style>
</head>
<body>
<main>
{{svg}}
</main>
</body>
</html>
"""
