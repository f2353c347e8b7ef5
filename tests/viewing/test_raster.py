"""Pixels show what the SVG says; without matplotlib the extra is named."""

from __future__ import annotations

import io
import re
import sys

import numpy as np
import pytest

from regard.errors import MissingError
from regard.viewing.figures import AttentionMap, matrix_svg
from regard.viewing.raster import PIXELS, _Pen, to_png
from regard.viewing.svg import level_paths, picture


def pixels(png: bytes) -> np.ndarray:
    image = pytest.importorskip("matplotlib.image", reason="matplotlib is not installed")
    return np.asarray(image.imread(io.BytesIO(png)))[..., :3]


def colour(code: str) -> np.ndarray:
    return np.array([int(code[place : place + 2], 16) / 255 for place in (1, 3, 5)])


def test_cells_have_the_colour_of_their_weight() -> None:
    weights = np.array([[[0.09, 0.91], [0.64, 0.36]]])
    svg = matrix_svg(AttentionMap("cross", 0, ("a", "b"), ("c", "d"), weights), 0)
    seen = pixels(to_png(svg))
    cells = re.findall(r'class="cell" x="([\d.]+)" y="([\d.]+)"', svg)
    assert len(cells) == 4
    for (x, y), weight in zip(cells, weights.flatten(), strict=True):
        spot = seen[int((float(y) + 13) * PIXELS), int((float(x) + 13) * PIXELS)]
        wanted = colour("#f2f4f9") * (1 - weight**0.5) + colour("#1d4bb0") * weight**0.5
        assert spot == pytest.approx(wanted, abs=0.02)


def test_the_size_is_that_of_the_svg_and_paths_lie_where_they_should() -> None:
    svg = picture("squares", 120, 80, level_paths(np.eye(3), 30, 20, 10))
    seen = pixels(to_png(svg))
    assert seen.shape == (80 * PIXELS, 120 * PIXELS, 3)
    for row in range(3):
        for column in range(3):
            spot = seen[(25 + 10 * row) * PIXELS, (35 + 10 * column) * PIXELS]
            assert spot == pytest.approx(colour("#1d4bb0") if row == column else np.ones(3), abs=0.02)


def test_the_pen_follows_absolute_and_relative_steps() -> None:
    vertices, codes = _Pen("M1 2h3v-1l2 2C0 0 1 1 9.5 8z").trace()
    assert vertices == [(1, 2), (4, 2), (4, 1), (6, 3), (0, 0), (1, 1), (9.5, 8), (1, 2)]
    assert codes == [1, 2, 2, 2, 4, 4, 4, 79]
    circle, _ = _Pen("M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z").trace()
    assert np.hypot(*np.array(circle).T) == pytest.approx(4)


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingError, match=r"pip install 'regard\[pictures\]'"):
        to_png(picture("nothing", 10, 10, []))
