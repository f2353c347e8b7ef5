"""The wiring as a picture has the parts of the wiring as text."""

from __future__ import annotations

import xml.etree.ElementTree as ET

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
from regard.viewing.wiring_svg import wiring_svg

SVG = "{http://www.w3.org/2000/svg}"


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
def test_every_part_is_drawn_once_for_its_box(settings: ModelSettings) -> None:
    with torch.device("meta"):
        model = build_any(settings, 50)
    assert not isinstance(model, LabelModel)
    root = ET.fromstring(wiring_svg(model, "wired"))
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
