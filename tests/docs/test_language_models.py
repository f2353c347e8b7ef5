"""The page about language models: its table of kinds is about the recipes as they are, and adds up."""

from __future__ import annotations

import math

import pytest

from benchmarks.language_models import KINDS
from tests.docs.pages import DOCS, table_rows
from tests.test_presets import parameters

PAGE = (DOCS / "language-models.md").read_text(encoding="utf-8")
CHARACTERS = 65 + 3  # of tiny Shakespeare, and the special tokens


def rows() -> dict[str, list[str]]:
    """The cells of the table, by the name of the kind."""
    section = PAGE.split("## Kinds side by side")[1].split("\n## ")[0]
    return {name: cells for name, *cells in table_rows(section) if name in KINDS.values()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_of_the_table_adds_up(kind: str) -> None:
    size, steps, loss, perplexity, minutes, speed = (float(cell.replace(",", "")) for cell in rows()[KINDS[kind]])
    assert size == parameters(f"lm-shakespeare-{kind}", CHARACTERS)
    assert perplexity == pytest.approx(math.exp(loss), abs=0.01)
    assert minutes == pytest.approx(768 * steps / speed / 60, abs=0.1)


def test_the_kinds_are_of_one_size() -> None:
    sizes = [parameters(f"lm-shakespeare-{kind}", CHARACTERS) for kind in KINDS]
    assert max(sizes) < 1.05 * min(sizes)
