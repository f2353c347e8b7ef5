"""Two orders side by side: the best on top, and a strong line for what moves far."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from regard.errors import UsageError
from regard.viewing.orders import Placed, orders_svg

SVG = "{http://www.w3.org/2000/svg}"


def placed(name: str, left: float, right: float) -> Placed:
    return Placed(name, left, right, f"{left:g}", f"{right:g}")


def lines(picture: str) -> dict[str, str]:
    """How each line is drawn, by what its tooltip says."""
    return {
        "".join(path.itertext()): str(path.get("class")) for path in ET.fromstring(picture).iter(f"{SVG}path")
    }  # fmt: skip


def test_the_lowest_or_the_highest_is_on_top() -> None:
    things = [placed("a", 1, 5), placed("b", 2, 4), placed("c", 3, 3), placed("d", 4, 2), placed("e", 5, 1)]
    lowest = orders_svg(things, "t", "one", "other", lowest_first=True)
    assert lines(lowest) == {"a: 1 → 5": "fall", "b: 2 → 4": "fall", "c: 3 → 3": "same",
                             "d: 4 → 2": "rise", "e: 5 → 1": "rise"}  # fmt: skip
    highest = orders_svg(things, "t", "one", "other", lowest_first=False)
    assert next(iter(lines(highest))) == "a: 5 → 1"


def test_equal_ones_keep_their_order_and_a_short_way_is_drawn_weakly() -> None:
    things = [placed("a", 1, 2), placed("b", 1, 1), placed("c", 3, 3), placed("d", 4, 4)]
    assert lines(orders_svg(things, "t", "one", "other", lowest_first=True)) == {
        "a: 1 → 2": "same", "b: 2 → 1": "same", "c: 3 → 3": "same", "d: 4 → 4": "same",
    }  # fmt: skip


def test_each_side_has_names_with_figures_and_what_it_is() -> None:
    said = [text.text for text in ET.fromstring(
        orders_svg([placed("<base>", 4.92, 9.5)], "T & U", "the paper's", "ours", lowest_first=True)
    ).iter(f"{SVG}text")]  # fmt: skip
    assert said == ["T & U", "the paper's", "ours", "<base>  4.92", "9.5  <base>"]


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one thing"):
        orders_svg([], "t", "one", "other", lowest_first=True)
