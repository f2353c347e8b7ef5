"""Every preset can be built, and has the parameters that its paper prints."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
import torch

from regard.api import inspect
from regard.models.build import build_any
from regard.recipe import load_recipe, presets
from regard.viewing.parameters import anatomy

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "inspect.md").read_text(encoding="utf-8")
TABLE_PAGE = (DOCS / "models/transformer.md").read_text(encoding="utf-8")

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
        model = build_any(recipe.model, vocabulary or recipe.tokenizer.vocabulary)
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
    apart = abs(parameters(preset) - printed)
    if preset == "table3-c-ff1024":
        # The one row that needs the rounding: the paper prints whole millions, and its vocabulary is "about 37000".
        assert 2.5e6 < apart < 2.5e6 + 500_000
    else:
        assert apart <= max(0.03 * printed, 2.5e6)


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
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in TABLE_PAGE.splitlines() if line[:3] == "| `"]
    rows = {row[0].strip("`"): row[2:] for row in cells if len(row) == 7}
    assert sorted(rows) == sorted(name for name in presets() if name in ("base", "big") or name.startswith("table3-"))
    for preset, row in rows.items():
        ours = parameters(preset)
        printed, apart, share = "", "", ""
        if preset in TABLE_3:
            millions = ours / 1e6 - TABLE_3[preset]
            printed, apart = str(TABLE_3[preset]), f"{millions:+.3f}".replace("-", "−")
            share = f"{100 * millions / TABLE_3[preset]:+.1f}".replace("-", "−")
        assert row == [printed, f"{ours:,}", apart, share, f"{parameters(preset, 41_000):,}"]


def test_the_printed_column_contradicts_itself() -> None:
    """Two rows that differ in one setting differ by 50 million, whatever the vocabulary; the paper prints 45."""
    for vocabulary in (30_000, 37_000, 50_000):
        apart = parameters("big", vocabulary) - parameters("table3-c-d1024", vocabulary)
        assert apart == 12 * 2 * 1024 * 2048 + 24_576
    assert TABLE_3["big"] - TABLE_3["table3-c-d1024"] == 45


def test_the_example_of_the_page() -> None:
    page = inspect("base").to_text()
    examples = re.findall(r"^```text\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        assert example in page
