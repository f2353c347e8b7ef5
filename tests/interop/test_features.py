"""What other toolkits cannot express is said by name, on request before training."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard import experiment
from regard.interop.features import TARGETS, lacking, report
from regard.recipe import build_recipe, load_recipe
from tests.tiny import generated_recipe


@pytest.mark.parametrize("preset", ["base", "demo", "gpt2"])
def test_the_presets_can_go_everywhere(preset: str) -> None:
    assert [lacking(load_recipe(preset).model, target) for target in TARGETS] == [[], [], []]


def test_a_line_for_each_target() -> None:
    lines = report(build_recipe({}, ['model={kind="transformer", positions="relative-waves"}'], "t").model)
    assert len(lines) == 3
    assert all('model.positions = "relative-waves"' in line for line in lines)
    assert report(load_recipe("base").model)[0] == "export: huggingface can express this model"


def test_the_five_minute_model_can_be_served_by_every_engine() -> None:
    settings = load_recipe("five-minutes").model
    assert [lacking(settings, target) for target in TARGETS[1:]] == [[], []]
    assert 'positions = "rotary"' in " ".join(lacking(settings, "huggingface"))


@pytest.mark.parametrize("kind", ["transformer", "gpt"])
@pytest.mark.parametrize(
    ("positions", "able"),
    [
        ("sinusoidal", ["ctranslate2", "onnx"]),
        ("learned", ["ctranslate2", "onnx"]),
        ("rotary", ["ctranslate2", "onnx"]),
        ("relative", ["onnx"]),
        ("alibi", ["onnx"]),
        ("relative-waves", []),
    ],
)
def test_which_engine_knows_which_positions(kind: str, positions: str, able: list[str]) -> None:
    settings = build_recipe({}, [f'model={{kind="{kind}", positions="{positions}"}}'], "t").model
    assert [target for target in TARGETS[1:] if not lacking(settings, target)] == able


def test_experts_are_named() -> None:
    settings = build_recipe({}, ['model={kind="transformer", experts=4}'], "t").model
    assert [lacking(settings, target) for target in TARGETS] == [["experts = 4"]] * 3


def test_other_kinds_are_named() -> None:
    settings = build_recipe({}, ['model={kind="recurrent"}'], "t").model
    assert [lacking(settings, target) for target in TARGETS] == [['kind = "recurrent"']] * 3


@pytest.mark.parametrize("asked", [True, False])
def test_training_says_it_when_asked(asked: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes = ["training.steps=1", "model.window=3", f"export.check={str(asked).lower()}"]
    experiment.train(generated_recipe(changes), tmp_path / "model")
    assert ("huggingface cannot express model.window = 3" in capsys.readouterr().err) == asked
