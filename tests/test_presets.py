"""Every preset can be built, and has the parameters that its paper prints."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
import torch

from regard.api import inspect
from regard.models.build import build
from regard.recipe import load_recipe, presets
from regard.viewing.parameters import anatomy

PAGE = (Path(__file__).parents[1] / "docs/inspect.md").read_text(encoding="utf-8")

# Millions, as Table 3 of Attention Is All You Need prints them.
TABLE_3 = {
    "base": 65,
    "table3-b-dk16": 58,
    "table3-b-dk32": 60,
    "table3-c-n2": 36,
    "table3-c-n4": 50,
    "table3-c-n8": 80,
    "table3-c-d256": 28,
    "table3-c-d1024": 168,
    "table3-c-ff1024": 53,
    "table3-c-ff4096": 90,
    "big": 213,
}
# As many as base, by the paper's own design: these rows change no matrix.
LIKE_BASE = [name for name in presets() if re.match(r"table3-(a|d)-", name)]
GPT_2 = {"gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-large": 774_030_080, "gpt2-xl": 1_557_611_200}


@cache
def parameters(preset: str, vocabulary: int | None = None) -> int:
    recipe = load_recipe(preset)
    with torch.device("meta"):
        model = build(recipe.model, vocabulary or recipe.tokenizer.vocabulary)
    return anatomy(model, preset, recipe.model.kind, model.vocabulary).parameters


@pytest.mark.parametrize("preset", presets())
def test_every_preset_can_be_built(preset: str) -> None:
    assert load_recipe(preset).name == preset
    assert parameters(preset) > 0


@pytest.mark.parametrize("preset", GPT_2)
def test_gpt_2_to_the_last_parameter(preset: str) -> None:
    assert parameters(preset) == GPT_2[preset]


@pytest.mark.parametrize("preset", TABLE_3)
def test_table_3(preset: str) -> None:
    printed = TABLE_3[preset] * 10**6
    # The paper prints whole millions, and its vocabulary is "about 37000".
    rounding = 500_000
    assert abs(parameters(preset) - printed) <= max(0.03 * printed, 2.5e6) + rounding


@pytest.mark.parametrize("preset", TABLE_3)
def test_what_the_page_says_about_41000_tokens(preset: str) -> None:
    for vocabulary in (40_935, 41_000, 41_150):
        assert (round(parameters(preset, vocabulary) / 1e6) == TABLE_3[preset]) == (preset != "big")
    assert round(parameters("big", 35_800) / 1e6) == TABLE_3["big"]


def test_rows_that_change_no_matrix() -> None:
    assert len(LIKE_BASE) == 8
    assert {parameters(preset) for preset in LIKE_BASE} == {parameters("base")}
    assert parameters("table3-e-learned") - parameters("base") == 1024 * 512


def test_the_table_of_the_page() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (.*?) \| ([\d,]+) \| ([\d,]+) \|$", PAGE, re.MULTILINE)
    assert [row[0] for row in rows] == list(TABLE_3)
    for preset, printed, ours, larger in rows:
        assert int(printed) == TABLE_3[preset]
        assert int(ours.replace(",", "")) == parameters(preset)
        assert int(larger.replace(",", "")) == parameters(preset, 41_000)


def test_the_example_of_the_page() -> None:
    page = inspect("base").to_text()
    examples = re.findall(r"^```text\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        assert example in page
