"""The examples on the pages about models: Python runs as it stands, TOML is a recipe."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from regard.recipe import build_recipe
from tests.docs.pages import ROOT, blocks

# Python on the page about relatives is about models that its commands train: `test_relatives` runs it.
PAGES = sorted(page for page in (ROOT / "docs" / "models").glob("*.md") if page.stem != "relatives")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_run(page: Path) -> None:
    for example in blocks(page, "python"):
        exec(compile(example.text, str(page), "exec"), {})
    for example in blocks(page, "toml"):
        build_recipe(tomllib.loads(example.text), (), str(page))
