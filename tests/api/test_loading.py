"""From folders and recipes to models."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
import torch

import regard
from regard.api import load
from regard.errors import MissingError, UsageError
from regard.layers import quantised
from tests.tiny import ENGLISH, GERMAN, generated_recipe


@pytest.mark.parametrize("precision", ["auto", "fp32", "int8"])
def test_a_model_computes_in_the_numbers_asked_for(
    words_model: Path, precision: Literal["auto", "fp32", "int8"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantised, "WORTHWHILE", 1)
    if precision == "int8" and not quantised.can_quantise():
        pytest.skip("torch cannot multiply in 8 bits here")
    model = load(words_model, "cpu", precision)
    assert model.translate(ENGLISH) == GERMAN
    eighth = [module for module in model.network.modules() if isinstance(module, quantised.Int8Linear)]
    assert bool(eighth) == (precision == "int8")
    with pytest.raises(UsageError, match="must be one of: auto, fp32, bf16, int8; but is `fp8`"):
        load(words_model, precision="fp8")  # type: ignore[arg-type]


def test_load_says_what_is_wrong(tmp_path: Path, words_model: Path) -> None:
    with pytest.raises(MissingError, match="nowhere: must be a model folder, but is not there"):
        load(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="device"):
        load(words_model, device="gpu")
    assert load(str(words_model), device="cpu").device == torch.device("cpu")


def test_train_from_python(tmp_path: Path) -> None:
    with torch.random.fork_rng():
        model = regard.train(generated_recipe(["training.steps=1"]), tmp_path / "model")
        assert len(model.translate(["one"])) == 1
        with pytest.raises(UsageError, match="in use"):
            regard.train("demo", tmp_path / "model", ["training.steps=1"])
        with pytest.raises(UsageError, match="did you mean `steps`"):
            regard.train("demo", tmp_path / "other", ["training.step=1"])
