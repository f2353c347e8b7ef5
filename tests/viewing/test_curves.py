from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import UsageError
from regard.viewing import curves as module
from regard.viewing.curves import (
    APART,
    EDGE,
    HIGH,
    LEFT,
    MARGIN,
    MARKED,
    TOP,
    WIDE,
    Axis,
    Curve,
    Plot,
    curves_svg,
    plots_svg,
)

SVG = "{http://www.w3.org/2000/svg}"
POINTS = st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), min_size=1, max_size=20)


X, Y = Axis("x"), Axis("y")


def drawn(*curves: Curve, x: Axis = X, y: Axis = Y, title: str = "A title") -> ET.Element:
    return ET.fromstring(curves_svg(curves, title, x, y))


def places(picture: ET.Element, number: int = 0) -> list[tuple[float, float]]:
    """The corners of a curve, in pixels."""
    path = next(each for each in picture.iter(f"{SVG}path") if each.get("class") == f"curve c{number}")
    numbers = [float(found) for found in re.findall(r"-?[\d.]+", str(path.get("d")))]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def texts(picture: ET.Element) -> list[str]:
    return ["".join(each.itertext()) for each in picture.iter(f"{SVG}text")]


def test_equal_steps_are_equally_far_apart() -> None:
    linear = places(drawn(Curve("a", ((0, 0), (1, 10), (2, 20)))))
    doubling = ((1.0, 1.0), (2.0, 10.0), (4.0, 100.0))
    logarithmic = places(drawn(Curve("a", doubling), x=Axis("x", "log"), y=Axis("y", "log")))
    for (x0, y0), (x1, y1), (x2, y2) in (linear, logarithmic):
        assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
        assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)
        assert x0 < x1 < x2
        assert y0 > y1 > y2  # more is higher, and pixels count downwards


@given(POINTS, POINTS)
def test_everything_is_inside_the_plot(
    one: list[tuple[float, float]], other: list[tuple[float, float]]
) -> None:  # fmt: skip
    picture = drawn(Curve("one", tuple(one)), Curve("other", tuple(other)))
    found = [path.get("d", "") for path in picture.iter(f"{SVG}path") if path.get("class") == "grid"]
    lefts = {int(across[1]) for path in found if (across := re.fullmatch(rf"M(\d+) [\d.]+h{WIDE}", path))}
    assert len(lefts) == 1
    left = lefts.pop()
    assert left >= LEFT
    for x, y in (*places(picture), *places(picture, 1)):
        assert left <= x <= left + WIDE
        assert TOP <= y <= TOP + HIGH


@given(st.floats(0.001, 1e12), st.floats(0, 1))
def test_the_numbers_of_an_upright_axis_are_whole(high: float, share: float) -> None:
    """A font that a reader has may be wide: digits of DejaVu Sans are 0.64 of its size, commas half of that."""
    curve = Curve("a", ((0, share * high), (1, high)))
    plots = [Plot((curve,), X, Axis("y", zero=True)), Plot((Curve("b", ((0, 0), (1, 1))),), X, Y)] * 2
    for picture in (drawn(curve, y=Axis("y", zero=True)), ET.fromstring(plots_svg(plots, "t"))):
        names = [float(each.get("x", "")) for each in picture.iter(f"{SVG}text") if each.get("class") == "name"]
        for each in picture.iter(f"{SVG}text"):
            if each.get("text-anchor") == "end" and (number := each.text or "") not in ("x", "y"):
                begin = float(each.get("x", "")) - 13 * sum(0.32 if sign in ",." else 0.64 for sign in number)
                column = max((name - MARGIN for name in names if name < begin + 60), default=0.0)
                assert begin >= column + EDGE / 2, number
    assert float(drawn(Curve("a", ((0, 0), (1, 250_000)))).get("width", "")) == float(
        drawn(Curve("a", ((0, 0), (1, 1)))).get("width", "")
    )


def test_a_curve_can_look_as_it_does_elsewhere() -> None:
    curves = [Curve(name, ((0, 0), (1, number))) for number, name in enumerate("abc")]
    whole = drawn(*curves)
    some = drawn(*(replace(curve, look=number) for number, curve in enumerate(curves) if number != 1))

    def looks(picture: ET.Element) -> dict[str, list[tuple[str | None, str | None]]]:
        named = {each.text: each.get("class") for each in picture.iter(f"{SVG}text") if each.text in ("a", "c")}
        paths = [(path.get("class"), path.get("d")) for path in picture.iter(f"{SVG}path") if path.get("transform")]
        return {str(name): [path for path in paths if path[0] == look] for name, look in named.items()}

    assert looks(some) == looks(whole)
    assert "#0a7550" in str(some[0].text)  # its colour is there, though it is the second of two


def test_a_narrow_window_shows_the_whole_picture() -> None:
    picture = drawn(Curve("a", ((0, 0), (1, 1))))
    assert picture.get("viewBox") == f"0 0 {picture.get('width')} {picture.get('height')}"
    assert picture.get("style") == "max-width:100%;height:auto"


def test_values_ticks_names_and_titles_are_written() -> None:
    curve = Curve("slow & steady", ((64, 0.5), (4096, 8)))
    picture = drawn(curve, x=Axis("n", "log", (64, 4096)), y=Axis("ms", "log"), title="Time <b>")
    written = texts(picture)
    assert {"Time <b>", "n", "ms", "slow & steady", "64", "4,096", "1", "5"} <= set(written)
    assert picture.get("aria-label") == "Time <b>"
    tooltips = [each.text for each in picture.iter(f"{SVG}title")]
    assert tooltips == ["slow & steady: 64, 0.5", "slow & steady: 4,096, 8"]


def test_each_of_seven_curves_has_a_colour_and_a_marker_of_its_own() -> None:
    picture = drawn(*(Curve(str(number), ((number, 1.0),)) for number in range(7)))
    marked = [each for each in picture.iter(f"{SVG}path") if each.get("transform")]
    for looks in ([each.get("d") for each in marked], [each.get("class") for each in marked]):
        assert len(looks) == len(set(looks)) == 7


# What is seen by people who lack one kind of cone, from linear RGB: Machado, Oliveira and Fernandes 2009, severity 1.
SEEN = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no long": ((0.1523, 1.0526, -0.2049), (0.1145, 0.7863, 0.0992), (-0.0039, -0.0481, 1.0520)),
    "no medium": ((0.3673, 0.8606, -0.2280), (0.2801, 0.6725, 0.0474), (-0.0118, 0.0429, 0.9689)),
    "no short": ((1.2555, -0.0767, -0.1788), (-0.0784, 0.9308, 0.1476), (0.0047, 0.6914, 0.3039)),
}
Triple = tuple[float, ...]


def linear(colour: str) -> Triple:
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    return tuple(share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)


def times(matrix: tuple[Triple, ...], vector: Triple) -> Triple:
    return tuple(sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix)


def lightness_and_hue(rgb: Triple) -> Triple:
    """CIE L*a*b*, in which equal distances look about as large."""
    white = ((0.4339, 0.3762, 0.1899), (0.2127, 0.7152, 0.0722), (0.0178, 0.1095, 0.8727))  # XYZ over those of white
    x, y, z = (
        share ** (1 / 3) if share > 0.008856 else 7.787 * share + 16 / 116
        for share in times(white, tuple(min(max(share, 0.0), 1.0) for share in rgb))
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("cones", SEEN)
@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_the_last_colour_is_told_from_the_others_by_everyone(theme: int, cones: str) -> None:
    """Among the others some are near each other without a kind of cone; their markers tell them apart."""
    *others, last = (lightness_and_hue(times(SEEN[cones], linear(pair[theme]))) for pair in module._COLOURS)
    assert min(math.dist(other, last) for other in others) > 20


@pytest.mark.parametrize("pair", module._COLOURS, ids=lambda pair: pair[0])
def test_names_in_the_colours_of_curves_can_be_read(pair: tuple[str, str]) -> None:
    """A contrast of 4.5 is what WCAG wants of text; the grounds are those of the panel."""
    for colour, ground in zip(pair, ("#ffffff", "#15171c"), strict=True):
        assert f".panel {{ fill: {'#fff' if ground == '#ffffff' else ground}; }}" in module._STYLE
        lights = [0.05 + sum(a * b for a, b in zip((0.2126, 0.7152, 0.0722), linear(each), strict=True))
                  for each in (colour, ground)]  # fmt: skip
        assert max(lights) / min(lights) >= 4.5


def test_curves_that_lie_on_each_other_take_turns_with_their_markers() -> None:
    points = tuple((float(x), 1.0) for x in range(12))
    picture = drawn(Curve("a", points, every=4), Curve("b", points, every=4))
    found = [(each.get("class"), title.text) for each in picture.iter(f"{SVG}path") for title in each]
    assert found == [(f"c{n}", f"{name}: {x}, 1") for n, name in enumerate("ab") for x in (n, n + 4, n + 8)]


def test_long_curves_have_no_markers() -> None:
    curve = Curve("loss", tuple((step, 1 / step) for step in range(1, MARKED + 2)))
    assert not list(drawn(curve).iter(f"{SVG}title"))


def test_characters_that_xml_cannot_hold_are_replaced() -> None:
    assert "a\ufffdb" in texts(drawn(Curve("a\x00b", ((0, 0), (1, 1)))))
    assert "a\ufffdb" in texts(drawn(Curve("a\ud800b", ((0, 0), (1, 1)))))


def test_more_curves_than_colours() -> None:
    picture = drawn(*(Curve(str(number), ((0, number), (1, number))) for number in range(9)))
    styles = "".join(picture.itertext())
    for each in picture.iter(f"{SVG}path"):
        for colour in re.findall(r"\bc\d+", str(each.get("class"))):
            assert f".{colour} {{" in styles
    lines = [str(each.get("class")) for each in picture.iter(f"{SVG}path") if "leader" not in str(each.get("class"))]
    curves = [line for line in lines if line.startswith("curve ")]
    assert len(curves) == len(set(curves)) == 9


@given(st.lists(st.floats(TOP, TOP + HIGH), min_size=1, max_size=15))
def test_names_keep_apart_and_in_order(wanted: list[float]) -> None:
    found = module._spread(wanted, TOP + HIGH)
    order = sorted(range(len(wanted)), key=lambda number: wanted[number])
    for above, below in pairwise(order):
        assert found[below] - found[above] >= APART - 1e-6
    assert max(found) <= TOP + HIGH
    if all(wanted[b] - wanted[a] >= APART for a, b in pairwise(order)):
        assert found == wanted


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_round_numbers(low: float, span: float) -> None:
    ticks = module._round_numbers(low, low + span)
    assert 3 <= len(ticks) <= 9
    steps = {round(math.log10(b - a) % 1, 3) for a, b in pairwise(ticks)}
    assert steps <= {0.0, 1.0, 0.301, 0.699} or span < 1e-8 * abs(low)


@given(st.floats(1e-6, 1e6), st.floats(1.1, 1e9))
def test_round_logs_have_few_digits(low: float, ratio: float) -> None:
    ticks = module._round_logs(low, low * ratio)
    assert ticks
    assert all(float(f"{tick:.2e}") == pytest.approx(tick) for tick in ticks)  # three digits say it
    assert len(ticks) <= module.MOST_LOGS or ratio > 1e6  # then powers of ten alone
    assert ticks == sorted(ticks)


@pytest.mark.parametrize(
    ("curves", "rule"),
    [
        ([], "at least one curve"),
        ([Curve("a", ())], "'a' must have a point"),
        ([Curve("a", ((1.0, math.nan),))], "'ms' must be positive on a logarithmic axis, but curve 'a' has nan"),
        ([Curve("a", ((1.0, 0.0),))], "'ms' must be positive on a logarithmic axis, but curve 'a' has 0.0"),
        ([Curve("a", ((math.inf, 1.0),))], "'n' must be finite"),
    ],
)
def test_what_cannot_be_drawn_is_named(curves: list[Curve], rule: str) -> None:
    with pytest.raises(UsageError, match=re.escape(rule)):
        curves_svg(curves, "t", Axis("n"), Axis("ms", "log"))


def test_an_axis_can_begin_at_zero() -> None:
    picture = drawn(Curve("a", ((0, 90), (1, 100))), y=Axis("speed", zero=True))
    assert "0" in texts(picture)
    (_, low), (_, high) = places(picture)
    assert (TOP + HIGH - low) / (TOP + HIGH - high) == pytest.approx(0.9, abs=0.01)


def test_numbers_along_the_bottom_do_not_touch() -> None:
    ruler = module._ruler([0, 7_000_000], Axis("step"), 0, 200)
    assert len(module._readable(ruler)) < len(ruler.ticks)
    wide = module._ruler([0, 7], Axis("step"), 0, 200)
    assert module._readable(wide) == wide.ticks


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_several_plots_share_a_picture_and_do_not_overlap(count: int) -> None:
    plots = [Plot((Curve(f"curve {n}", ((0, n), (5, n + 1))),), Axis("step"), Axis(f"plot {n}")) for n in range(count)]
    picture = ET.fromstring(plots_svg(plots, "All"))
    width, height = (float(str(picture.get(name))) for name in ("width", "height"))
    boxes = []
    for each in picture.iter(f"{SVG}path"):
        if each.get("class") == "curve c0":
            numbers = [float(found) for found in re.findall(r"-?[\d.]+", str(each.get("d")))]
            boxes.append((numbers[0], numbers[3], numbers[2], numbers[1]))
    assert len(boxes) == count
    for one, other in pairwise(boxes):
        assert one[2] < other[0] or one[3] < other[1]
    assert all(0 < left < right < width and 0 < top < bottom < height for left, top, right, bottom in boxes)
    assert {f"plot {n}" for n in range(count)} <= set(texts(picture))
    with pytest.raises(UsageError, match="at least one plot"):
        plots_svg([], "None")
