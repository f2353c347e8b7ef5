"""The wiring as a picture has the parts of the wiring as text."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest
import torch

from regard.models.bert import BertSettings
from regard.models.build import ModelSettings, build_any
from regard.models.bytenet import ByteNetSettings
from regard.models.gpt import GPTSettings
from regard.models.labelling import LabelModel
from regard.models.recurrent import RecurrentSettings
from regard.models.transformer import TransformerSettings
from regard.models.xlnet import XLNetSettings
from regard.viewing.wiring import SUMS, wiring
from regard.viewing.wiring_svg import tall_wiring_svg, wiring_svg

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("draw", [wiring_svg, tall_wiring_svg])
@pytest.mark.parametrize(
    "settings",
    [
        TransformerSettings(),
        GPTSettings(),
        RecurrentSettings(d_model=8),
        RecurrentSettings(d_model=8, encoder_layers=3, links="residual"),
        ByteNetSettings(channels=4),
        BertSettings(),
        XLNetSettings(),
    ],
)
def test_every_part_is_drawn_once_for_its_box(settings: ModelSettings, draw: Callable[..., str]) -> None:
    with torch.device("meta"):
        model = build_any(settings, 50)
    assert not isinstance(model, LabelModel)
    root = ET.fromstring(draw(model, "wired"))
    words = [text.text for text in root.iter(f"{SVG}text")]
    boxes = [box for side in wiring(model) for box in side]
    assert len([rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "box"]) == len(boxes)
    for box in boxes:
        assert all(part.name in words for part in box.parts)
        assert box.times == 1 or f"× {box.times}" in words
    # A road goes around every sub-layer that has a sum behind it.
    roads = [path for path in root.iter(f"{SVG}path") if path.get("class") == "wire around"]
    assert len(roads) == len([part for box in boxes for part in box.parts if part.name in SUMS])
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    for rect in root.iter(f"{SVG}rect"):
        assert float(rect.get("x", "0")) + float(rect.get("width", "0")) <= width
        assert float(rect.get("y", "0")) + float(rect.get("height", "0")) <= height


def test_a_tall_picture_has_the_target_below_the_source() -> None:
    with torch.device("meta"):
        model = build_any(TransformerSettings(), 50)
    assert not isinstance(model, LabelModel)
    wide, tall = (ET.fromstring(draw(model, "wired")) for draw in (wiring_svg, tall_wiring_svg))
    boxes = [rect for rect in tall.iter(f"{SVG}rect") if rect.get("class") == "box"]
    assert len({rect.get("x") for rect in boxes}) == 1
    tops = [float(rect.get("y", "0")) for rect in boxes]
    assert sorted(set(tops)) == tops  # none over another
    assert float(tall.get("width", "0")) < 0.6 * float(wide.get("width", "0"))
    # What reads the source is reached from beside the boxes, and the arrow points at them.
    right = max(float(rect.get("x", "0")) + float(rect.get("width", "0")) for rect in boxes)
    tips = [path.get("d", "") for path in tall.iter(f"{SVG}path") if path.get("class") == "tip"]
    assert any(float(tip[1:].split()[0]) > right > float(tip.split("L")[1].split()[0]) - 2 for tip in tips)
