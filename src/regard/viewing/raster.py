"""The pictures this package draws as SVG, turned into pixels by matplotlib.

Not any SVG: what `regard.viewing` and `regard.exploring` write (rectangles, circles, paths, text; classes and a style
sheet of simple rules) and nothing else. The light colours are used.
"""

from __future__ import annotations

import io
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np

from regard.errors import MissingError

PIXELS = 2  # for each pixel of the SVG: sharp on a screen of today
INCH = 100  # pixels of the SVG
_NAMESPACE = "{http://www.w3.org/2000/svg}"
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_TRANSFORM = re.compile(r"(translate|scale|rotate)\(([^)]*)\)")
_PATH = re.compile(r"[A-Za-z]|-?(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?")
# The first one that is installed and has a character draws it; matplotlib brings DejaVu Sans along.
_FONTS = ("Noto Sans", "DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "Noto Sans Arabic")

Style = Mapping[str, str]


def to_png(svg: str) -> bytes:
    """A picture as a PNG file; raises MissingError where matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingError(
            "view: PNG files are drawn by matplotlib, which is not installed. Write .svg or .html, or install it: "
            "pip install 'regard[pictures]'"
        ) from error
    root = ET.fromstring(svg)
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    figure = Figure(figsize=(width / INCH, height / INCH), dpi=INCH * PIXELS)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.axis("off")
    rules = _rules("".join(element.text or "" for element in root.iter(f"{_NAMESPACE}style")))
    for order, element in enumerate(_shapes(root)):
        _draw(axes, element, _style(element, rules), order)
    file = io.BytesIO()
    with warnings.catch_warnings():
        # A character that no installed font has is drawn as a box, which says it well enough.
        warnings.filterwarnings("ignore", message=".*Glyph.*missing from.*")
        figure.savefig(file, format="png", dpi=INCH * PIXELS)
    return file.getvalue()


def _shapes(root: ET.Element) -> Iterator[ET.Element]:
    for element in root.iter():
        if element.tag.removeprefix(_NAMESPACE) in ("rect", "circle", "path", "text"):
            yield element


# ---- style


def _rules(sheet: str) -> list[tuple[str, frozenset[str], dict[str, str]]]:
    """Tag (or ""), classes and declarations of each rule, those with more classes last: they have the last word."""
    sheet = re.sub(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", sheet)
    found = []
    for selectors, body in _RULE.findall(sheet):
        declared: dict[str, str] = {}
        for line in filter(None, map(str.strip, body.split(";"))):
            name, _, value = line.partition(":")
            declared[name.strip()] = value.strip()
        for selector in selectors.split(","):
            tag, *classes = selector.strip().split(".")
            found.append((tag, frozenset(classes), declared))
    return sorted(found, key=lambda rule: len(rule[1]))


def _style(element: ET.Element, rules: list[tuple[str, frozenset[str], dict[str, str]]]) -> Style:
    tag, classes = element.tag.removeprefix(_NAMESPACE), set((element.get("class") or "").split())
    found: dict[str, str] = {}
    for wanted, needed, declared in rules:
        if wanted in ("", tag) and needed <= classes:
            found.update(declared)
    for name in ("fill", "fill-opacity", "stroke", "stroke-opacity", "stroke-width", "opacity", "text-anchor"):
        if (value := element.get(name)) is not None:
            found.setdefault(name, value)  # a rule has precedence over an attribute
    if font := re.match(r"([\d.]+)px", found.get("font", "")):
        found.setdefault("font-size", font[1])
    return found


def _paint(style: Style) -> dict[str, Any]:
    """How a shape is filled and outlined, in matplotlib's words."""
    opacity = float(style.get("opacity", 1))
    fill, stroke = style.get("fill", "black"), style.get("stroke", "none")
    width = float(style.get("stroke-width", 1)) * 72 / INCH
    return {
        "facecolor": "none" if fill == "none" else (fill, opacity * float(style.get("fill-opacity", 1))),
        "edgecolor": "none" if stroke == "none" else (stroke, opacity * float(style.get("stroke-opacity", 1))),
        "linewidth": 0 if stroke == "none" else width,
        "linestyle": (0, (2, 3)) if "stroke-dasharray" in style else "solid",
    }


# ---- shapes


def _draw(axes: Any, element: ET.Element, style: Style, order: int) -> None:
    from matplotlib.patches import Circle, FancyBboxPatch, PathPatch, Rectangle

    def get(name: str) -> float:
        return float(element.get(name, "0"))

    match element.tag.removeprefix(_NAMESPACE):
        case "rect" if get("rx") and min(get("width"), get("height")) >= 2 * get("rx"):
            rounded = f"round,pad=0,rounding_size={get('rx')}"
            shape: Any = FancyBboxPatch((get("x"), get("y")), get("width"), get("height"), rounded, **_paint(style))
        case "rect":
            shape = Rectangle((get("x"), get("y")), get("width"), get("height"), **_paint(style))
        case "circle":
            shape = Circle((get("cx"), get("cy")), get("r"), **_paint(style))
        case "path":
            shape = PathPatch(_path(element.get("d", ""), _affine(element)), **_paint(style))
        case _:
            _write(axes, element, style, order)
            return
    shape.set_zorder(order)
    axes.add_patch(shape)


def _write(axes: Any, element: ET.Element, style: Style, order: int) -> None:
    turned = re.search(r"rotate\(([-\d.]+)\)", element.get("transform", ""))
    place = np.array([float(element.get("x", "0")), float(element.get("y", "0")), 1.0])
    x, y, _ = _affine(element) @ place
    axes.text(
        x,
        y,
        (element.text or "").replace("$", r"\$"),
        fontsize=float(style.get("font-size", "13").removesuffix("px")) * 72 / INCH,
        fontweight="bold" if style.get("font-weight") == "600" else "normal",
        fontfamily=_fonts(),
        color=style.get("fill", "black"),
        ha={"end": "right", "middle": "center"}.get(style.get("text-anchor", ""), "left"),
        va="baseline",
        rotation=-float(turned[1]) if turned else 0,
        rotation_mode="anchor",
        zorder=order,
        parse_math=False,
    )


@cache
def _fonts() -> list[str]:
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    return [font for font in _FONTS if font in installed]


def _affine(element: ET.Element) -> Any:
    """The element's own transform as a matrix, [3, 3]."""
    matrix = np.eye(3)
    for kind, numbers in _TRANSFORM.findall(element.get("transform", "")):
        values = [float(value) for value in numbers.replace(",", " ").split()]
        step = np.eye(3)
        if kind == "translate":
            step[:2, 2] = values
        elif kind == "scale":
            step[0, 0] = step[1, 1] = values[0]
        else:
            turn = np.deg2rad(values[0])
            step[:2, :2] = [[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]
        matrix = matrix @ step
    return matrix


def _path(description: str, matrix: Any) -> Any:
    from matplotlib.path import Path

    vertices, codes = _Pen(description).trace()
    points = np.column_stack([np.array(vertices, dtype=float), np.ones(len(vertices))]) @ matrix.T
    return Path(points[:, :2], codes)


class _Pen:
    """Follows a path's description: M, L, H, V, C, Z, and small letters for steps; `a` for half circles."""

    MOVE, LINE, CURVE, CLOSE = 1, 2, 4, 79  # matplotlib's codes

    def __init__(self, description: str) -> None:
        self.words = _PATH.findall(description)
        self.at = self.start = (0.0, 0.0)
        self.vertices: list[tuple[float, float]] = []
        self.codes: list[int] = []

    def trace(self) -> tuple[list[tuple[float, float]], list[int]]:
        """The points and what to do at each."""
        command, numbers = "", iter(self.words)
        for word in numbers:
            if word.isalpha():
                command = word
                if command in "zZ":
                    self._go(self.CLOSE, self.start)
                    continue
                word = next(numbers)
            self._step(command, word, numbers)
            command = {"M": "L", "m": "l"}.get(command, command)
        return self.vertices, self.codes

    def _step(self, command: str, first: str, numbers: Iterator[str]) -> None:
        x, y = self.at
        base = (x, y) if command.islower() else (0.0, 0.0)

        def take(count: int) -> list[float]:
            return [float(next(numbers)) for _ in range(count)]

        match command.lower():
            case "h":
                self._go(self.LINE, (base[0] + float(first), y))
            case "v":
                self._go(self.LINE, (x, base[1] + float(first)))
            case "m" | "l":
                (down,) = take(1)
                self._go(self.MOVE if command in "mM" else self.LINE, (base[0] + float(first), base[1] + down))
            case "c":
                values = [float(first), *take(5)]
                for place in range(0, 6, 2):
                    self._go(self.CURVE, (base[0] + values[place], base[1] + values[place + 1]))
            case _:
                *_, across, down = take(6)
                self._half_circle((base[0] + across, base[1] + down))

    def _go(self, code: int, place: tuple[float, float]) -> None:
        self.vertices.append(place)
        self.codes.append(code)
        self.at = place
        if code == self.MOVE:
            self.start = place

    def _half_circle(self, end: tuple[float, float]) -> None:
        (x, y), (to_x, to_y) = self.at, end
        middle, half = ((x + to_x) / 2, (y + to_y) / 2), ((x - to_x) / 2, (y - to_y) / 2)
        for turn in np.linspace(0, np.pi, 13)[1:]:
            cosine, sine = float(np.cos(turn)), float(np.sin(turn))
            across, down = half[0] * cosine + half[1] * sine, half[1] * cosine - half[0] * sine
            self._go(self.LINE, (middle[0] + across, middle[1] + down))
