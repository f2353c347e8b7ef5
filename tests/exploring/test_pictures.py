"""Every picture for every kind of model, and the numbers in it read back from the SVG."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from regard.api import load
from regard.errors import UsageError
from regard.evaluation.alignment import word_attention
from regard.exploring import pictures
from regard.exploring.attention import look
from regard.exploring.beam import grow
from regard.exploring.bundle import best, source_ids
from regard.exploring.chances_svg import BAR, along_svg
from regard.exploring.following import along, next_tokens
from regard.exploring.pictures import Asked, What, draw
from regard.exploring.tree_svg import tree_svg
from regard.exploring.vectors import neighbours, positions
from regard.exploring.vectors_svg import BAR as COSINE_BAR
from regard.exploring.vectors_svg import neighbours_svg, positions_svg
from regard.viewing.svg import LEVELS
from tests.exploring.bundles import by_sentence, tiny

SVG = "{http://www.w3.org/2000/svg}"
TEXT = "one two three"
CAN = {
    "transformer": {"page", "matrix", "arcs", "heads", "alignment", "beam", "next", "positions", "neighbours"},
    "gpt": {"page", "matrix", "arcs", "heads", "next", "positions", "neighbours"},
    "decoder-only": {"page", "matrix", "arcs", "heads", "beam", "next", "positions", "neighbours"},
    "recurrent": {"page", "matrix", "arcs", "heads", "alignment", "beam", "next", "neighbours"},
    "convs2s": {"page", "matrix", "arcs", "heads", "alignment", "beam", "next", "positions", "neighbours"},
    "bytenet": {"beam", "next", "neighbours"},
}


def words_of(root: ET.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


@pytest.mark.parametrize("name", CAN)
def test_each_model_has_its_pictures_and_says_what_it_cannot_show(name: str) -> None:
    bundle = tiny(name)
    for what in get_args(What):
        if what not in CAN[name]:
            with pytest.raises(UsageError):
                draw(bundle, what, Asked(TEXT))
            continue
        shown = draw(bundle, what, Asked(TEXT))
        page = shown.to_html()
        assert page.startswith("<!doctype html>")
        assert re.findall(r"(?:src|href)=[\"']?http", page) == []
        if what == "page":
            with pytest.raises(UsageError, match="can only be HTML"):
                shown.to_svg()
        else:
            root = ET.fromstring(shown.to_svg())
            width, height = float(root.get("width", "0")), float(root.get("height", "0"))
            assert 0 < width < 20_000
            for rect in root.iter(f"{SVG}rect"):
                assert float(rect.get("x", "0")) + float(rect.get("width", "0")) <= width + 1
                assert float(rect.get("y", "0")) + float(rect.get("height", "0")) <= height + 1


def test_one_head_is_the_one_asked_for() -> None:
    bundle = tiny("transformer")
    shown = draw(bundle, "matrix", Asked(TEXT, name="encoder", layer=1, head=0)).to_svg()
    assert ET.fromstring(shown).get("aria-label") == "Encoder attention, layer 2, head 1"
    usual = draw(bundle, "arcs", Asked(TEXT)).to_svg()
    assert ET.fromstring(usual).get("aria-label") == "Cross attention, layer 2, mean of 2 heads"
    only = draw(bundle, "heads", Asked(TEXT, name="decoder")).to_svg()
    assert [word for word in words_of(ET.fromstring(only)) if word.endswith("attention")] == ["Decoder attention"]
    with pytest.raises(UsageError, match="must be one of encoder 1 to 2"):
        draw(bundle, "matrix", Asked(TEXT, name="middle"))
    with pytest.raises(UsageError, match="must be one of: page, matrix"):
        draw(bundle, "painting", Asked(TEXT))  # type: ignore[arg-type]


def test_the_alignment_is_the_attention_between_words() -> None:
    bundle = tiny("transformer")
    root = ET.fromstring(draw(bundle, "alignment", Asked(TEXT, target="eins zwei")).to_svg())
    (wanted,) = word_attention(bundle.network, bundle.tokenizer, [TEXT], ["eins zwei"])
    weights = wanted.weights_ATS[wanted.names.index("2.mean")]
    found = {}
    for rect in root.iter(f"{SVG}rect"):
        if told := re.fullmatch("«(.*)» looks at «(.*)» (.*)", rect.findtext(f"{SVG}title") or ""):
            found[told[1], told[2]] = float(told[3])
    for row, target in enumerate(("eins", "zwei")):
        for column, source in enumerate(TEXT.split()):
            assert found.get((target, source), 0) == pytest.approx(weights[row, column], abs=6e-4)
    rings = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "ring"]
    assert len(rings) == 2


def test_the_tree_shows_every_node_and_marks_the_way() -> None:
    tree = grow(tiny("transformer"), TEXT, beam=3)
    root = ET.fromstring(tree_svg(tree, "a tree"))
    nodes = {int(group.get("data-node", "-1")): group for group in root.iter(f"{SVG}g")}
    assert sorted(nodes) == [node.id for nodes in tree.rounds for node in nodes]
    marked = {number for number, group in nodes.items() if group.find(f"{SVG}rect[@class='best']") is not None}
    assert marked == set(tree.results[0].nodes)
    for node in (node for nodes in tree.rounds for node in nodes):
        told = nodes[node.id].findtext(f"{SVG}title") or ""
        assert told == f"{node.token}: log P {node.log_probability:.3f}, score {node.score:.3f}"
        chip = nodes[node.id].find(f"{SVG}rect")
        assert (chip is not None) == (node.kept or node.ended)
    branches = [path for path in root.iter(f"{SVG}path") if "branch" in (path.get("class") or "")]
    assert len(branches) == sum(node.parent is not None for nodes in tree.rounds for node in nodes)
    assert [word for word in words_of(root) if word == tree.results[0].text]


def test_bars_are_as_long_as_probabilities() -> None:
    bundle = tiny("gpt")
    found, following = along(bundle, TEXT), next_tokens(bundle, TEXT)
    root = ET.fromstring(along_svg(found, "chances", following))
    bars = [float(rect.get("width", "0")) for rect in root.iter(f"{SVG}rect") if rect.get("class") == "cell bar"]
    wanted = [*(token.probability for token in found.tokens), *(token.probability for token in following.tokens)]
    assert bars == pytest.approx([BAR * chance for chance in wanted], abs=1e-3)
    ranks = [f"{token.rank:,}" for token in found.tokens]
    assert [word for word in words_of(root) if word in ranks] == ranks


def test_a_long_text_goes_on_in_the_next_column() -> None:
    root = ET.fromstring(along_svg(along(tiny("gpt"), "one two " * 25), "long"))
    assert words_of(root).count("likeliest here") == 2


def test_heat_maps_show_the_vectors() -> None:
    found = positions(tiny("transformer"), length=8, dimensions=6)
    root = ET.fromstring(positions_svg(found, "positions"))
    frame = next(rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "empty")
    corner = f"translate({float(frame.get('x', '0')):.1f} {float(frame.get('y', '0')):.1f})"
    shown = np.zeros((8, 6))
    for path in root.iter(f"{SVG}path"):
        if (path.get("transform") or "").startswith(corner):
            sign = 1 if path.get("class") == "cell" else -1
            for column, row, wide in re.findall(r"M(\d+) (\d+)h(\d+)v1", path.get("d", "")):
                shown[int(row), int(column) : int(column) + int(wide)] = sign * float(path.get("fill-opacity", "0"))
    values = np.array(found.values)
    assert np.abs(shown - values / np.abs(values).max()).max() <= 0.5 / LEVELS + 1e-6


def test_distances_are_called_by_their_numbers() -> None:
    """From far behind to far ahead; dimensions and positions count from nothing."""
    root = ET.fromstring(positions_svg(positions(tiny("transformer-xl"), length=8, dimensions=4), "positions"))
    numbers = [word for word in words_of(root) if word.lstrip("−").isdecimal()]
    distances = ["−4", "−2", "0", "2", "4"]
    assert numbers == [*distances, "0", "1", "2", "3", *distances, *distances]
    assert {"0", "7"} <= set(words_of(ET.fromstring(positions_svg(positions(tiny("gpt"), 8, 4), "positions"))))


def test_neighbours_have_their_bar_and_their_spot() -> None:
    found = neighbours(tiny("transformer"), "seven", count=6)
    root = ET.fromstring(neighbours_svg(found, "words"))
    bars = [float(rect.get("width", "0")) for rect in root.iter(f"{SVG}rect") if rect.get("class") == "cell bar"]
    assert bars == pytest.approx([COSINE_BAR * max(each.similarity, 0) for each in found.tokens], abs=1e-3)
    spots = [(float(each.get("cx", "0")), float(each.get("cy", "0"))) for each in root.iter(f"{SVG}circle")]
    places = np.array([found.place, *((each.x, each.y) for each in found.tokens)])
    drawn = np.array(spots)
    # The map is moved and stretched, both directions alike.
    scale = np.ptp(drawn[:, 0]) / np.ptp(places[:, 0])
    assert np.allclose(drawn - drawn[0], (places - places[0]) * scale, atol=0.3)


def test_curves_come_from_the_folder(words_model: Path) -> None:
    model = load(words_model)
    assert "loss in nats a token" in model.draw("curves", Asked()).to_svg()
    with pytest.raises(UsageError, match="need a model folder with a metrics"):
        draw(tiny("gpt"), "curves", Asked())


def test_a_picture_tells_the_translation() -> None:
    bundle = tiny("transformer")
    own = bundle.tokenizer.decode(best(bundle, source_ids(bundle, TEXT)).tokens)
    for what in ("page", "matrix", "beam", "next", "alignment"):
        assert draw(bundle, what, Asked(TEXT)).told == own  # type: ignore[arg-type]
    assert draw(tiny("gpt"), "next", Asked(TEXT)).told is None
    with pytest.raises(UsageError, match="at least one word"):
        draw(bundle, "beam", Asked(" "))


def test_without_spaces_tokens_are_aligned() -> None:
    bundle = tiny("transformer")
    shown = draw(bundle, "alignment", Asked("one", target="eins")).to_svg()
    looked = look(bundle, "one", target="eins")
    layer = looked.map("cross", 0).mean()
    root = ET.fromstring(shown)
    cells = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "cell"]
    assert len(cells) == (layer.weights[0][:-1, :-1] >= 0.0005).sum()
    assert not {"‹end›", "‹start›"} & set(words_of(root))


def test_a_picture_says_which_sentence_it_shows() -> None:
    bundle = by_sentence(tiny("transformer"))
    whats: tuple[What, ...] = ("page", "matrix", "arcs", "heads", "alignment", "beam", "next")
    for what in whats:
        several, first = (draw(bundle, what, Asked(text)) for text in ("One two. Three!", "One two."))
        assert several == first
        assert several.source == "One two."


def test_a_picture_that_nobody_could_open_is_refused_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(*_: object) -> None:
        raise AssertionError("nothing may be searched or read")

    monkeypatch.setattr(pictures, "look", work)
    bundle, long = tiny("transformer"), "one two " * 2_000
    with pytest.raises(UsageError, match=r"at most 64 MB, but a `page` of 4,001 tokens may have 221\. Shorten"):
        draw(bundle, "page", Asked(long))
    with pytest.raises(UsageError, match=r"a `matrix` of 4,001 tokens may have 192"):
        draw(bundle, "matrix", Asked(long))
    with pytest.raises(AssertionError, match="nothing may be searched"):
        draw(bundle, "arcs", Asked(long))
    with pytest.raises(AssertionError, match="nothing may be searched"):
        draw(bundle, "page", Asked("one " * 512))
