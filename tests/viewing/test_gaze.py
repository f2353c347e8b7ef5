"""Lines and tiles carry the weights they stand for: the SVG is read back."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import UsageError
from regard.viewing.figures import AttentionMap, matrix_svg
from regard.viewing.gaze import FAINTEST_LINE, MOST_CELLS, arcs_svg, heads_svg, pooled
from regard.viewing.svg import LEVELS, text_width

SVG = "{http://www.w3.org/2000/svg}"


def gaze(heads: int, queries: int, keys: int, name: str = "cross", layer: int = 0) -> AttentionMap:
    scores = np.random.default_rng(heads * 100 + queries + layer).normal(0, 2, (heads, queries, keys))
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    words = [f"w{number}" for number in range(queries)], [f"k{number}" for number in range(keys)]
    return AttentionMap(name, layer, tuple(words[0]), tuple(words[1]), weights, (keys - 1,))


def cells(element: ET.Element, shape: tuple[int, int]) -> np.ndarray:
    """The opacity of every cell below an element that holds paths of cells."""
    found = np.zeros(shape)
    for path in element.iter(f"{SVG}path"):
        if path.get("class") == "cell":
            for column, row, wide in re.findall(r"M(\d+) (\d+)h(\d+)v1h-\d+z", path.get("d", "")):
                found[int(row), int(column) : int(column) + int(wide)] = float(path.get("fill-opacity", "0"))
    return found


@given(st.integers(1, 3), st.integers(1, 12), st.integers(1, 12))
def test_each_line_is_one_look(heads: int, queries: int, keys: int) -> None:
    attention = gaze(heads, queries, keys)
    for head in (*range(heads), "mean"):
        weights = attention.one(head).weights[0]  # type: ignore[arg-type]
        root = ET.fromstring(arcs_svg(attention, head))  # type: ignore[arg-type]
        lines = [path for path in root.iter(f"{SVG}path") if path.get("class") == "line"]
        assert len(lines) == int((weights >= FAINTEST_LINE).sum())
        for line in lines:
            told = re.fullmatch(r"«w(\d+)» looks at «k(\d+)» ([\d.]+)", line.findtext(f"{SVG}title") or "")
            assert told is not None
            weight = weights[int(told[1]), int(told[2])]
            assert float(told[3]) == pytest.approx(weight, abs=5e-4)
            assert float(line.get("stroke-width", "0")) == pytest.approx(0.75 + 4.25 * weight, abs=1e-3)
            start, end = re.findall(r"[MC ]([\d.]+) ([\d.]+)", line.get("d", ""))[::3]
            rows = [float(height) for _, height in (start, end)]
            assert rows[1] - rows[0] == pytest.approx(24 * (int(told[2]) - int(told[1])), abs=0.11)


def test_each_tile_is_one_head() -> None:
    maps = [gaze(2, 5, 5, "encoder", layer) for layer in (0, 1)] + [gaze(2, 4, 5)]
    root = ET.fromstring(heads_svg(maps, "all heads"))
    frames = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "empty"]
    assert len(frames) == 6
    for frame, attention, head in zip(frames, [each for each in maps for _ in range(2)], [0, 1] * 3, strict=True):
        told = frame.findtext(f"{SVG}title") or ""
        assert told.startswith(attention.caption(head))
        numbers = [float(number) for number in re.findall(r"(?:nats|distance|entropy|separators) ([\d.]+)", told)]
        wanted = [attention.entropy()[head], attention.distance()[head], attention.separators()[head]]
        assert numbers == pytest.approx(wanted, abs=5e-4)
        x, y = (float(frame.get(name, "0")) for name in "xy")
        near = [
            path for path in root.iter(f"{SVG}path")
            if (path.get("transform") or "").startswith(f"translate({x:.1f} {y:.1f})")
        ]  # fmt: skip
        tile = ET.Element("g")
        tile.extend(near)
        shades = cells(tile, attention.weights[head].shape)
        assert shades == pytest.approx(np.rint(np.sqrt(attention.weights[head]) * LEVELS) / LEVELS)
    with pytest.raises(UsageError, match="at least one attention map"):
        heads_svg([], "none")


def test_a_long_text_is_pooled_by_its_largest_weights() -> None:
    weights = gaze(1, 100, 70).weights[0]
    small = pooled(weights)
    assert small.shape == (MOST_CELLS, MOST_CELLS)
    assert small.max() == weights.max()
    rows, columns = np.arange(MOST_CELLS) * 100 // MOST_CELLS, np.arange(MOST_CELLS) * 70 // MOST_CELLS
    assert small[3, 5] == weights[rows[3] : rows[4], columns[5] : columns[6]].max()


def test_captions_speak_of_tokens() -> None:
    """What looks is a token, a word or a piece of one; distances are counted in tokens, too."""
    drawn = heads_svg([gaze(1, 3, 3)], "x"), arcs_svg(gaze(1, 3, 3), 0)
    captions = [text.text or "" for svg in drawn for text in ET.fromstring(svg).iter(f"{SVG}text")]
    assert "each token" in captions
    assert any("distance in tokens" in caption for caption in captions)
    assert not any("word" in caption for caption in captions)


def test_512_words_fit_into_a_matrix_and_every_shade_is_right() -> None:
    attention = gaze(1, 512, 512)
    svg = matrix_svg(attention, 0)
    assert len(svg) < 3_000_000
    root = ET.fromstring(svg)
    shades = cells(root, (512, 512))
    assert np.abs(shades - np.sqrt(attention.weights[0])).max() <= 0.5 / LEVELS + 1e-6
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert "w0" in words
    assert 10 < len(words) < 300


@pytest.mark.parametrize("draw", [arcs_svg, matrix_svg])
def test_words_are_text_whatever_they_hold(draw: object) -> None:
    nasty = "<script>&\"'\x00\ud800"
    attention = AttentionMap("cross", 0, (nasty, "b"), (nasty, "d"), np.full((1, 2, 2), 0.5))
    root = ET.fromstring(draw(attention, 0).encode("utf-8"))  # type: ignore[operator]
    assert root.findall(f".//{SVG}script") == []
    assert any("<script>&" in (text.text or "") for text in root.iter(f"{SVG}text"))


def test_the_numbers_of_neighbouring_heads_do_not_touch() -> None:
    even = AttentionMap("encoder", 0, ("a",) * 200, ("a",) * 200, np.full((3, 200, 200), 1 / 200), tuple(range(200)))
    root = ET.fromstring(heads_svg([even], "all heads"))
    numbers = [each for each in root.iter(f"{SVG}text") if (each.text or "").startswith("H 5.3")]
    places = [float(each.get("x", "0")) for each in numbers]
    assert numbers[0].text == "H 5.3 · d 66.7 · s 100%"
    assert all(b - a >= text_width(numbers[0].text, 11) for a, b in pairwise(places))
    assert float(root.get("width", "0")) >= places[-1] + text_width(numbers[0].text, 11)
