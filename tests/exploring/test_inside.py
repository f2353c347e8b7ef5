"""What is told of a model: in a list, and in full."""

from __future__ import annotations

import json
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from regard.api import inspect, load
from regard.exploring.inside import inside, learning_curves, summary
from regard.viewing.training_curves import APART
from tests.exploring.bundles import tiny


def test_a_list_says_what_each_model_can_do() -> None:
    told = json.loads(json.dumps(summary(tiny("transformer"), "demo").to_json()))
    assert (
        told.items()
        >= {
            "id": "demo",
            "name": "transformer",
            "task": "translate",
            "kind": "transformer",
            "parameters": sum(weight.numel() for weight in tiny("transformer").network.parameters()),
            "context": None,
            "languages": {"source": "en", "target": ["de"]},
            "attention": [{"name": name, "layers": 2, "heads": 2} for name in ("encoder", "decoder", "cross")],
            "walk": True,
        }.items()
    )
    gpt = summary(tiny("gpt"), "x")
    assert (gpt.task, gpt.context, gpt.languages.source, gpt.walk) == ("generate", 64, None, True)
    convs2s = summary(tiny("convs2s"), "x")
    assert [(each.name, each.layers, each.heads) for each in convs2s.attention] == [("cross", 2, 1)]
    assert not convs2s.walk


@pytest.mark.parametrize("name", ["transformer", "gpt", "bytenet"])
def test_every_model_can_be_looked_into(name: str) -> None:
    bundle = tiny(name)
    told = json.loads(json.dumps(inside(bundle).to_json(), allow_nan=False))
    assert told["inspection"]["parameters"] == sum(weight.numel() for weight in bundle.network.parameters())
    assert tomllib.loads(told["recipe"])["model"]["kind"] == bundle.recipe.model.kind
    assert (told["curves"], told["card"]) == (None, None)
    drawn = ET.fromstring(told["wiring"])
    words = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert f"How {bundle.recipe.name} is wired" in words
    assert "softmax" in words
    assert "softmax" in told["tall_wiring"]


def test_a_folder_tells_how_the_model_learned(words_model: Path) -> None:
    model = load(words_model)
    told = model.inside()
    assert told.card is not None
    assert "# words" in told.card
    assert told.curves is not None
    assert "loss in nats a token" in told.curves
    assert told.tall_curves is not None
    assert "loss in nats a token" in told.tall_curves
    # The page says why losses differ, in the language of the reader; a picture that is on its own says it itself.
    assert APART not in told.curves + told.tall_curves
    assert APART in (learning_curves(model, words_model) or "")
    assert told.inspection == inspect(str(words_model)).to_json()
