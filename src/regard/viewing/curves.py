"""Curves as one standalone SVG: times against lengths, losses against steps.

Each curve is named at its own end instead of in a legend, and has a colour and a marker of its own. Axes are linear or
logarithmic. Several plots can share a picture. Nothing here knows what is being drawn.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from regard.errors import UsageError
from regard.viewing.svg import text_width

LEFT, TOP, WIDE, HIGH = 72, 72, 520, 340  # the plot inside a picture of one; long numbers move it to the right
SMALL_WIDE, SMALL_HIGH = 330, 180  # a plot inside a picture of several
MARGIN, ABOVE, BELOW = 20, 44, 62  # around such a plot: to its sides, and from one to the next
BESIDE, EDGE = 8, 6  # pixels between the numbers of an upright axis and the plot, and before them
APART = 17  # pixels between two names
MOST_LOGS = 8  # ticks of a logarithmic axis between powers of ten
MARKED = 60  # a curve of more points than this is drawn without markers; in a smaller plot sooner

_COLOURS = [("#1d4bb0", "#7cc4ff"), ("#bd3d0a", "#ff9d6b"), ("#0a7550", "#4fd6a4"), ("#8433b5", "#d59bff"),
            ("#86590a", "#e8c15a"), ("#5f636c", "#b3b8bf"), ("#000000", "#ffffff")]  # fmt: skip
_BETWEEN = [(1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 8), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,)]  # the finest first
_MARKERS = ["M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z", "M-3.5-3.5h7v7h-7z", "M0-5l5 8.5h-10z", "M0-5l5 5l-5 5l-5-5z",
            "M0 5l5-8.5h-10z", "M-1.5-5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z",
            "M0-6L1.5-2L5.7-1.9L2.3.8L3.5 4.9L0 2.5L-3.5 4.9L-2.3.8L-5.7-1.9L-1.5-2z"]  # fmt: skip
_STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif; fill: #1e2228; }
.title { font-size: 15px; } .name { font-weight: 600; } .quiet { fill: #5f636c; } .panel { fill: #fff; }
.grid { stroke: #e4e7ee; } .curve { fill: none; stroke-width: 2; stroke-linejoin: round; }
.again { stroke-dasharray: 8 4; } .leader { opacity: .5; stroke-dasharray: 2 3; } .band { opacity: .2; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e5df; } .quiet { fill: #9a9fa6; } .panel { fill: #15171c; } .grid { stroke: #2b3038; }
}
"""


@dataclass(frozen=True)
class Curve:
    """A name and its points (x, y), from left to right."""

    name: str
    points: tuple[tuple[float, float], ...]
    every: int = 1
    """A marker is at each point, or at every so many of them: then curves that lie on each other take turns."""
    look: int | None = None
    """The number of its colour and marker, for what is to look the same in several pictures; None is its place here."""


Band = tuple[tuple[float, float, float], ...]
"""A stretch of the plot: points (x, lowest y, highest y), from left to right."""


@dataclass(frozen=True)
class Axis:
    """What is measured along an axis, how it is spread out, and which values to write beside it (None: round ones)."""

    title: str
    scale: Literal["linear", "log"] = "linear"
    ticks: tuple[float, ...] | None = None
    zero: bool = False
    """Whether it begins at zero or below, so that heights can be compared; for linear axes."""


@dataclass(frozen=True)
class Plot:
    """Curves over one pair of axes."""

    curves: tuple[Curve, ...]
    x: Axis
    y: Axis
    bands: tuple[Band, ...] = ()
    """What is shaded, in the colour of the curve of the same number."""
    say: Callable[[str], str] = str
    """Puts its words and its numbers into another language."""


def curves_svg(curves: Sequence[Curve], title: str, x: Axis, y: Axis) -> str:
    """Draw curves; the exact value of a marked point is in its tooltip."""
    plot = Plot(tuple(curves), x, y)
    _check(plot)
    left = _room_for_numbers([plot])
    width, height = left + WIDE + _room_for_names(plot) + 12, TOP + HIGH + 58
    parts = [
        f'<text class="quiet" x="{MARGIN}" y="{TOP - 18}">{_text(y.title)}</text>',
        *_plotted(plot, _Frame(left, TOP, WIDE, HIGH)),
    ]
    return _picture(title, width, height, [plot], parts)


def plots_svg(
    plots: Sequence[Plot], title: str, columns: int = 2, wide: int = SMALL_WIDE, note: str | None = None
) -> str:
    """Draw several small plots, row by row; above each stands what its y axis measures.

    `wide` is how many pixels there are for the curves of one; `note` stands under the title.
    """
    for plot in plots:
        _check(plot)
    if not plots:
        raise UsageError("plots_svg: there must be at least one plot, but none was given. Pass what to draw.")
    left = _room_for_numbers(plots)
    cell = left + wide + max(_room_for_names(plot) for plot in plots)
    parts = [f'<text class="quiet" x="{MARGIN}" y="52">{_text(note)}</text>'] if note else []
    for number, plot in enumerate(plots):
        row, column = divmod(number, columns)
        frame = _Frame(left + column * cell, TOP + ABOVE - 14 + row * (ABOVE + SMALL_HIGH + BELOW), wide, SMALL_HIGH)
        begin = MARGIN + column * cell
        parts.append(f'<text class="name" x="{begin:.0f}" y="{frame.top - 18}">{_text(plot.say(plot.y.title))}</text>')
        parts += _plotted(plot, frame)
    rows = -(-len(plots) // columns)
    width, height = min(columns, len(plots)) * cell + MARGIN, TOP - 14 + rows * (ABOVE + SMALL_HIGH + BELOW) - 8
    return _picture(title, width, height, plots, parts)


def _picture(title: str, width: float, height: int, plots: Sequence[Plot], parts: Sequence[str]) -> str:
    looks = [look for plot in plots for look, _ in _looks(plot)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
            f'viewBox="0 0 {width:.0f} {height}" style="max-width:100%;height:auto" role="img" '
            f'aria-label="{_text(title)}">',
            f"<style>{_STYLE}{_colours(max(looks) + 1)}</style>",
            f'<rect class="panel" width="{width:.0f}" height="{height}" rx="10"/>',
            f'<text class="title" x="{MARGIN}" y="30">{_text(title)}</text>',
            *parts,
            "</svg>\n",
        ]
    )


def _room_for_names(plot: Plot) -> float:
    return 34 + max(7.4 * len(plot.say(curve.name)) for curve in plot.curves)


def _room_for_numbers(plots: Sequence[Plot]) -> int:
    """How far to the right a plot begins, so that the numbers of its upright axis are whole in any usual font."""
    widest = max(text_width(_number(tick)) for plot in plots for tick in _heights(plot, 0, 1).ticks or (0.0,))
    return max(LEFT, math.ceil(EDGE + widest + BESIDE))


def _looks(plot: Plot) -> list[tuple[int, Curve]]:
    """Each curve with the number of its colour and marker."""
    return [(place if curve.look is None else curve.look, curve) for place, curve in enumerate(plot.curves)]


def _check(plot: Plot) -> None:
    if not plot.curves:
        raise UsageError("curves_svg: there must be at least one curve, but none was given. Pass what to draw.")
    for curve in plot.curves:
        if not curve.points:
            raise UsageError(f"curves_svg: curve {curve.name!r} must have a point, but has none. Leave it out.")
        for point in curve.points:
            for axis, value in zip((plot.x, plot.y), point, strict=True):
                if not math.isfinite(value) or (axis.scale == "log" and value <= 0):
                    rule = "positive on a logarithmic axis" if axis.scale == "log" else "finite"
                    raise UsageError(
                        f"curves_svg: values of {axis.title!r} must be {rule}, but curve {curve.name!r} has {value}. "
                        "Leave such points out."
                    )


# ---- from values to pixels


@dataclass(frozen=True)
class _Frame:
    """Where a plot is inside the picture, in pixels."""

    left: float
    top: int
    wide: int
    high: int

    @property
    def bottom(self) -> int:
        return self.top + self.high


@dataclass(frozen=True)
class Ruler:
    """An axis laid between two pixels."""

    low: float
    high: float
    log: bool
    first: float
    last: float
    ticks: tuple[float, ...]

    def place(self, value: float) -> float:
        """The pixel of a value."""
        low, high, value = (math.log(number) if self.log else number for number in (self.low, self.high, value))
        return self.first + (value - low) / (high - low) * (self.last - self.first)


def _heights(plot: Plot, first: float, last: float) -> Ruler:
    """The upright axis of a plot: what is shaded has to have room, too."""
    edges = [y for band in plot.bands for _, *ends in band for y in ends]
    return _ruler([*(y for curve in plot.curves for _, y in curve.points), *edges], plot.y, first, last)


def _ruler(values: Sequence[float], axis: Axis, first: float, last: float) -> Ruler:
    low, high, log = min(values), max(values), axis.scale == "log"
    # A little air around the curves; where all values are one, it has to come from somewhere.
    if log:
        air = max((high / low) ** 0.04, 1.02)
        low, high = low / air, high * air
        ticks = _round_logs(low, high)
    else:
        low = min(low, 0.0) if axis.zero else low
        air = 0.04 * (high - low) or 0.1 * abs(high) or 1.0
        low, high = low - air, high + air
        ticks = _round_numbers(low, high)
    chosen = tuple(tick for tick in (ticks if axis.ticks is None else axis.ticks) if low <= tick <= high)
    return Ruler(low, high, log, first, last, chosen)


def _round_numbers(low: float, high: float) -> list[float]:
    """Some three to eight multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / 7
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(times * power for times in (1, 2, 5, 10) if times * power >= rough)
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _round_logs(low: float, high: float) -> list[float]:
    """Powers of ten, and where these are few, round numbers between them: as many as have room."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for times in _BETWEEN:
        ticks = [time * 10.0**power for power in powers for time in times if low <= time * 10.0**power <= high]
        if len(ticks) <= MOST_LOGS:
            break
    return ticks or _round_numbers(low, high)  # of a short stretch


def _spread(places: Sequence[float], limit: float) -> list[float]:
    """The same places, moved as little as needed for each to be APART from the next, and none below the limit."""
    order = sorted(range(len(places)), key=lambda number: places[number])
    spread = list(places)
    for above, below in pairwise(order):
        spread[below] = max(spread[below], spread[above] + APART)
    for number in reversed(order):
        spread[number] = limit = min(spread[number], limit)
        limit -= APART
    return spread


# ---- from pixels to SVG


def _plotted(plot: Plot, frame: _Frame) -> list[str]:
    """The grid, the curves, their names, and the title of the x axis."""
    across = _ruler([x for curve in plot.curves for x, _ in curve.points], plot.x, frame.left, frame.left + frame.wide)
    upward = _heights(plot, frame.bottom, frame.top)
    names = _spread([upward.place(curve.points[-1][1]) for curve in plot.curves], frame.bottom)
    parts = [
        f'<text class="quiet" x="{frame.left + frame.wide:.0f}" y="{frame.bottom + 44}" text-anchor="end">'
        f"{_text(plot.say(plot.x.title))}</text>",
        *_grid(across, upward, frame, plot.say),
        *(_shaded(look, band, across, upward)
          for (look, _), band in zip(_looks(plot), plot.bands, strict=False) if len(band) > 1),
    ]  # fmt: skip
    for place, (look, curve) in enumerate(_looks(plot)):
        curve = replace(curve, name=plot.say(curve.name))
        parts += _drawn(look, curve, across, upward, names[place])
        if len(curve.points) <= MARKED * frame.wide // WIDE:
            parts += _marked(place, look, curve, across, upward, plot.say)
    return parts


def _grid(across: Ruler, upward: Ruler, frame: _Frame, say: Callable[[str], str]) -> list[str]:
    lines = []
    for tick in _readable(across):
        x = across.place(tick)
        lines.append(f'<path class="grid" d="M{x:.1f} {frame.top}v{frame.high}"/>')
        place = f'x="{x:.1f}" y="{frame.bottom + 20}"'
        lines.append(f'<text class="quiet" {place} text-anchor="middle">{_text(say(_number(tick)))}</text>')
    for tick in upward.ticks:
        y = upward.place(tick)
        lines.append(f'<path class="grid" d="M{frame.left:.0f} {y:.1f}h{frame.wide}"/>')
        place = f'x="{frame.left - BESIDE:.0f}" y="{y + 4.5:.1f}"'
        lines.append(f'<text class="quiet" {place} text-anchor="end">{_text(say(_number(tick)))}</text>')
    return lines


def _readable(across: Ruler) -> tuple[float, ...]:
    """The ticks of a horizontal axis, thinned out until their numbers do not touch."""
    ticks = across.ticks
    while len(ticks) > 2 and any(
        across.place(right) - across.place(left) < 4 * (len(_number(left)) + len(_number(right))) + 8
        for left, right in pairwise(ticks)
    ):
        ticks = ticks[::2]
    return ticks


def _shaded(look: int, band: Band, across: Ruler, upward: Ruler) -> str:
    """A band: along its upper edge, and back along the lower one."""
    ends = [(x, high) for x, _, high in band] + [(x, low) for x, low, _ in reversed(band)]
    path = " L".join(f"{across.place(x):.1f} {upward.place(y):.1f}" for x, y in ends)
    return f'<path class="band c{look % len(_COLOURS)}" d="M{path}z"/>'


def _drawn(look: int, curve: Curve, across: Ruler, upward: Ruler, name_y: float) -> list[str]:
    places = [(across.place(x), upward.place(y)) for x, y in curve.points]
    colour, (end_x, end_y), name_x = f"c{look % len(_COLOURS)}", places[-1], across.last + 22
    again = " again" if look >= len(_COLOURS) else ""  # the colour is another curve's, too
    return [
        f'<path class="curve {colour}{again}" d="M{" L".join(f"{x:.1f} {y:.1f}" for x, y in places)}"/>',
        f'<path class="curve leader {colour}" d="M{end_x:.1f} {end_y:.1f}L{name_x:.0f} {name_y:.1f}"/>',
        f'<text class="{colour}" x="{name_x + 6:.0f}" y="{name_y + 4.5:.1f}">'
        f"{_text(curve.name)}{' (dashed)' if again else ''}</text>",
    ]


def _marked(place: int, look: int, curve: Curve, across: Ruler, upward: Ruler, say: Callable[[str], str]) -> list[str]:
    colour, marker = f"c{look % len(_COLOURS)}", _MARKERS[look % len(_MARKERS)]
    return [
        f'<path class="{colour}" transform="translate({across.place(x):.1f} {upward.place(y):.1f})" d="{marker}">'
        f"<title>{_text(curve.name)}: {_text(say(_number(x)))}, {_text(say(f'{y:.4g}'))}</title></path>"
        for x, y in curve.points[place % curve.every :: curve.every]
    ]


def _colours(looks: int) -> str:
    def rules(dark: int) -> str:
        used = enumerate(_COLOURS[:looks])
        return "".join(f".c{n} {{ fill: {pair[dark]}; }} .curve.c{n} {{ fill: none; stroke: {pair[dark]}; }}\n"
                       for n, pair in used)  # fmt: skip

    return f"{rules(0)}@media (prefers-color-scheme: dark) {{\n{rules(1)}}}\n"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _text(text: str) -> str:
    # XML cannot hold control characters or lone surrogates, not even escaped.
    return html.escape("".join(character if character.isprintable() else "\ufffd" for character in text))
