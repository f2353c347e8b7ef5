import base64
import hashlib
import html
import json
import math
import re
import xml.etree.ElementTree as ET
import zlib
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError, UsageError
from regard.viewing.figures import SMALLEST_DRAWN, AttentionMap, attention_html, matrix_svg

SVG = "{http://www.w3.org/2000/svg}"
NASTY = [
    "</script><script>alert(1)</script>",
    "<!--",
    "<img src=x onerror=alert(1)>",
    "\u2028\u2029",
    "{{script}}",
    "\ud800",
    "\x00",
    "&lt;",
]


def random_map(heads: int = 2, queries: int = 3, keys: int = 4, *, name: str = "cross", layer: int = 0) -> AttentionMap:
    scores = np.random.default_rng(heads + 10 * queries + 100 * keys).normal(0, 2, (heads, queries, keys))
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    rows, columns = (tuple(f"{side}{i}" for i in range(count)) for side, count in (("q", queries), ("k", keys)))
    return AttentionMap(name, layer, rows, columns, weights)


def page_of(*maps: AttentionMap, title: str = "A title", source: str = "a b c", target: str = "d e") -> str:
    return attention_html(maps, title=title, source=source, target=target)


class Reader(HTMLParser):
    """Collects the elements of a page the way a browser splits it, script contents included."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[int, str] = {}
        self.inside = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside = True

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        at = len(self.elements) - 1
        if self.inside:
            self.texts[at] = self.texts.get(at, "") + data

    def of(self, tag: str, **attributes: str) -> list[str]:
        return [
            self.texts.get(i, "")
            for i, (name, found) in enumerate(self.elements)
            if name == tag and attributes.items() <= found.items()
        ]


def embedded(page: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(Reader(page).of("script", id="page")[0])
    return data


def decoded(page: str, index: int, shape: tuple[int, ...]) -> np.ndarray:
    """The weights as attention.js reads them: inflate, join low and high bytes, divide by 65535."""
    packed = base64.b64decode(Reader(page).of("script", id=f"weights-{index}")[0])
    low, high = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(2, -1).astype(np.float64)
    return ((low + 256 * high) / 65535).reshape(shape)


@given(st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32 - 1), st.floats(0, 30))
def test_embedded_weights_decode_to_the_given_ones(heads: int, queries: int, keys: int, seed: int, heat: float) -> None:
    scores = heat * np.random.default_rng(seed).normal(size=(heads, queries, keys))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    attention = AttentionMap("self", 0, ("q",) * queries, ("k",) * keys, weights)
    found = decoded(page_of(attention), 0, weights.shape)
    assert np.abs(found - weights).max() <= 1 / 131070 + 1e-7


def test_every_map_keeps_its_place_labels_and_summaries() -> None:
    maps = [random_map(name="encoder"), random_map(3, 2, 4, name="cross", layer=1)]
    page = page_of(*maps)
    data = embedded(page)
    for index, (attention, entry) in enumerate(zip(maps, data["maps"], strict=True)):
        assert (entry["name"], entry["layer"]) == (attention.name, attention.layer)
        assert data["labels"][entry["queries"]] == list(attention.queries)
        assert data["labels"][entry["keys"]] == list(attention.keys)
        assert [head["entropy"] for head in entry["heads"]] == pytest.approx(attention.entropy(), abs=1e-4)
        assert [head["distance"] for head in entry["heads"]] == pytest.approx(attention.distance(), abs=1e-4)
        assert entry["mean"]["entropy"] == pytest.approx(attention.mean().entropy()[0], abs=1e-4)
        np.testing.assert_allclose(decoded(page, index, attention.weights.shape), attention.weights, atol=1e-5)


def test_labels_shared_by_layers_are_embedded_once() -> None:
    maps = [random_map(name="encoder", layer=layer) for layer in range(3)]
    assert len(embedded(page_of(*maps))["labels"]) == 2


def test_entropy_and_distance_of_known_gazes() -> None:
    eye, even = np.eye(4), np.full((4, 4), 0.25)
    attention = AttentionMap("encoder", 0, tuple("abcd"), tuple("abcd"), np.stack([eye, np.roll(eye, 1, axis=1), even]))
    assert attention.entropy() == pytest.approx([0, 0, math.log(4)])
    # Rolled: three words look one place on, the last three places back. Even: the mean of |i - j| on a 4x4 grid.
    assert attention.distance() == pytest.approx([0, 6 / 4, 20 / 16])


def test_mean_averages_the_heads() -> None:
    attention = random_map(3)
    np.testing.assert_allclose(attention.mean().weights[0], attention.weights.mean(axis=0), rtol=1e-6)


def test_nested_lists_become_float32() -> None:
    attention = AttentionMap("cross", 0, ("a",), ("b", "c"), [[[0.25, 0.75]]])  # type: ignore[arg-type]
    assert attention.weights.dtype == np.float32
    assert attention.weights.tolist() == [[[0.25, 0.75]]]


@pytest.mark.parametrize("nasty", NASTY)
def test_text_stays_text(nasty: str) -> None:
    attention = AttentionMap("cross", 0, (nasty,), (nasty,), np.ones((1, 1, 1)))
    page = page_of(attention, title=nasty, source=nasty, target=nasty)
    plain = Reader(page_of(random_map(1, 1, 1)))
    read = Reader(page)
    assert [tag for tag, _ in read.elements] == [tag for tag, _ in plain.elements]
    assert read.of("script", type="module") == plain.of("script", type="module")
    assert embedded(page)["labels"] == [[nasty]]
    assert html.escape(nasty.encode("utf-8", "replace").decode()) in page
    page.encode("utf-8")


def test_script_never_turns_strings_into_markup_or_code() -> None:
    script = Reader(page_of(random_map())).of("script", type="module")[0]
    for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "fetch("):
        assert sink not in script


def test_policy_allows_the_inline_style_and_script_and_nothing_else() -> None:
    page = page_of(random_map())
    read = Reader(page)
    policy = next(found["content"] for tag, found in read.elements if found.get("http-equiv"))
    for kind, text in (("script", read.of("script", type="module")[0]), ("style", read.of("style")[0])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}';" in str(policy)
    assert str(policy).startswith("default-src 'none';")
    assert "unsafe" not in str(policy)
    # Inline handlers and style attributes would be refused by the policy, so the template must have none.
    assert not [name for _, found in read.elements for name in found if name == "style" or name.startswith("on")]


def test_page_asks_for_nothing_outside_itself() -> None:
    page = page_of(random_map())
    assert not re.findall(r"(?i)\b(?:https?|wss?|ftp):|url\(|@import", page)
    links = [found[name] for _, found in Reader(page).elements for name in ("href", "src") if name in found]
    assert links == ["data:,"]


def test_page_stays_small() -> None:
    bare = len(page_of(random_map(1, 1, 1)))
    assert bare < 60_000
    # Dense weights, the worst case: two bytes each, a third more as base64.
    one = random_map(8, 100, 100)
    assert len(page_of(one)) - bare < one.weights.size * 8 / 3 + 2000


@pytest.mark.parametrize(
    ("weights", "rule"),
    [
        (np.ones((1, 2, 1)), "shape of their labels"),
        (np.ones((1, 1, 2)) / 2, "shape of their labels"),
        (np.ones((1, 1)), "shape of their labels"),
        (np.ones((0, 1, 1)), "at least one head"),
        (np.array([[[np.nan]]]), "must be finite, but 1 of 1 are not"),
        (np.array([[[np.inf]]]), "must be finite"),
        (np.array([[[0.5]]]), "must sum to 1, but one sums to 0.5"),
        ([[["much"]]], "must be numbers"),
        ([[[1.0], [1.0, 2.0]]], "must be numbers"),
    ],
)
def test_wrong_weights_are_named(weights: Any, rule: str) -> None:
    with pytest.raises(DataError, match=rf"^decoder attention, layer 3: .*{rule}"):
        AttentionMap("decoder", 2, ("a",), ("b",), weights)


def test_negative_weights_are_refused_even_when_rows_sum_to_one() -> None:
    with pytest.raises(DataError, match=r"must not be negative, but one is -0\.5"):
        AttentionMap("cross", 0, ("a",), ("b", "c"), np.array([[[-0.5, 1.5]]]))


def test_half_precision_weights_are_accepted() -> None:
    weights = random_map(4, 30, 300).weights.astype(np.float16)
    assert AttentionMap("cross", 0, ("q",) * 30, ("k",) * 300, weights).weights.dtype == np.float32


def test_a_page_needs_maps_and_each_layer_once() -> None:
    with pytest.raises(UsageError, match="at least one attention map"):
        page_of()
    with pytest.raises(UsageError, match="cross attention, layer 1 appears twice"):
        page_of(random_map(), random_map())


def cells_of(svg: str) -> list[ET.Element]:
    return [rect for rect in ET.fromstring(svg).iter(f"{SVG}rect") if rect.get("class") == "cell"]


def test_svg_cells_carry_the_weights_of_their_head() -> None:
    attention = random_map(2, 3, 4)
    cells = cells_of(matrix_svg(attention, 1))
    expected = [(q, k, w) for (q, k), w in np.ndenumerate(attention.weights[1]) if w >= SMALLEST_DRAWN]
    assert len(cells) == len(expected) == 12
    for cell, (q, k, weight) in zip(cells, expected, strict=True):
        assert float(cell.get("fill-opacity", "")) ** 2 == pytest.approx(weight, abs=2e-4)
        assert cell.findtext(f"{SVG}title") == f"«q{q}» looks at «k{k}» {weight:.3f}"
    columns, rows = ({cell.get(side) for cell in cells} for side in "xy")
    assert (len(columns), len(rows)) == (4, 3)


def test_svg_leaves_out_cells_that_would_print_as_zero() -> None:
    cells = cells_of(matrix_svg(AttentionMap("cross", 0, ("a", "b"), ("c", "d"), np.eye(2)[None]), 0))
    assert [cell.findtext(f"{SVG}title") for cell in cells] == ["«a» looks at «c» 1.000", "«b» looks at «d» 1.000"]


@given(st.text(max_size=8))
def test_svg_is_well_formed_and_shows_any_label(label: str) -> None:
    svg = matrix_svg(AttentionMap("cross", 0, (label,), ("key",), np.ones((1, 1, 1))), 0)
    texts = [text.text or "" for text in ET.fromstring(svg.encode("utf-8")).iter(f"{SVG}text")]
    # XML turns line ends into "\n" and cannot hold most control characters at all.
    legal = re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]", "\ufffd", label)
    assert legal.replace("\r\n", "\n").replace("\r", "\n") in texts


def test_svg_names_the_head_and_needs_no_other_file() -> None:
    svg = matrix_svg(random_map(2, layer=4), 1)
    assert ET.fromstring(svg).get("aria-label") == "Cross attention, layer 5, head 2"
    assert re.findall(r"https?://[^\"]+", svg) == ["http://www.w3.org/2000/svg"]


@pytest.mark.parametrize("head", [-1, 2])
def test_svg_of_a_missing_head_is_refused(head: int) -> None:
    with pytest.raises(UsageError, match=rf"has heads 1 to 2, but head {head + 1} \({head}, counted from 0\)"):
        matrix_svg(random_map(2), head)
