"""The reference of recipes lists every key with its true rule and default; its examples can be built."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from regard.recipe import PRESETS, Recipe, build_recipe, find, presets
from regard.settings import read
from regard.settings.shape import describe, fields_of, kinds_of, rows_of, tables_of, walk
from regard.settings.tree import text_of

from .pages import DOCS, blocks, run, table_rows

PAGE = DOCS / "recipes.md"


def expected() -> dict[str, list[list[str]]]:
    """For each heading the rows of its table, without their meanings, as the dataclasses have them."""
    sections = {}
    for path, table in walk(Recipe):
        kinds = kinds_of(table)
        heading = (f"`[{path}]`" if path else "The top of the file") + (
            f" with `kind = {text_of(kinds[0])}`" if len(kinds) == 1 else ""
        )
        rows = [[f"`{name}`", describe(hint), default(field)] for name, (field, hint) in fields_of(table).items()
                if not tables_of(hint) and not rows_of(hint)]  # fmt: skip
        # A page reads better when the key that chooses a table comes first.
        sections[heading] = sorted(rows, key=lambda row: row[0] != "`kind`")
    return sections


def default(field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING:
        return "*required*"
    return "" if field.default is None else f"`{text_of(field.default)}`"


def found() -> dict[str, list[list[str]]]:
    """The tables of the page by heading."""
    text = PAGE.read_text(encoding="utf-8").partition("## All settings")[2]
    parts = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    return {part.split("\n", 1)[0]: table_rows(part) for part in parts}


def test_every_setting_has_its_row() -> None:
    wanted, page = expected(), {heading: [row[:3] for row in rows] for heading, rows in found().items()}
    for heading, rows in wanted.items():
        # Printed so that it can be pasted into the page, and only the meanings are left to write.
        lines = "\n".join(f"| {' | '.join(row)} | |" for row in rows)
        assert page.get(heading) == rows, f"docs/recipes.md must have\n\n### {heading}\n\n{lines}\n"
    assert list(page) == list(wanted), "docs/recipes.md must have these headings, in this order"


def test_every_setting_has_a_meaning() -> None:
    silent = [row[0] for rows in found().values() for row in rows if not row[3] and row[0] != "`kind`"]
    assert silent == []


def test_every_preset_is_listed_with_what_it_extends() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## Presets")[2].partition("## ")[0]
    listed = {row[0].strip("`"): row[1].strip("`") for row in table_rows(text)}
    files = {name: tomllib.loads((PRESETS / f"{name}.toml").read_text()).get("extends", "") for name in presets()}
    assert listed == files


def test_the_examples_are_recipes(tmp_path: Path) -> None:
    examples = blocks(PAGE, "toml")
    assert examples
    for number, block in enumerate(examples):
        file = tmp_path / f"{number}.toml"
        file.write_text(block.text, encoding="utf-8")
        build_recipe(read(file, find), [], str(file))


def test_the_overrides_of_the_page_work() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## Use one")[2].partition("## ")[0]
    shown = [span.strip("'") for span in re.findall(r"`('?\w+\.[\w.]+=[^`]*)`", text)]
    assert len(shown) >= 4
    recipe = build_recipe({}, shown, "the page")
    assert (recipe.training.steps, recipe.model.kind) == (500, "transformer")
    assert (recipe.training.optimiser.warmup, recipe.training.optimiser.beta2) == (200, 0.98)


def test_the_schema_is_written_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = next(block.text.strip() for block in blocks(PAGE, "sh") if "schema" in block.text)
    assert run(command).code == 0
    assert "properties" in json.loads(Path("recipe.schema.json").read_text(encoding="utf-8"))
