"""The pages about the project itself: the layers are the contract's, and the mission names what exists."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.models.interface import Learner, SequenceModel

from .pages import DOCS, ROOT, table_rows

SHAPED = [
    file for folder in ("layers", "models", "decoding") for file in sorted((ROOT / "src/regard" / folder).glob("*.py"))
]
GROUPS = {"A": 7, "B": 12, "C": 8, "D": 7}


def test_the_layers_are_those_of_the_import_contract() -> None:
    text = (DOCS / "design.md").read_text(encoding="utf-8").partition("## Imports")[2].partition("## ")[0]
    described = [row[0].strip("`").replace("\\|", "|") for row in table_rows(text)]
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    assert described == contract["layers"]


def test_the_interface_of_models_is_described() -> None:
    text = (DOCS / "design.md").read_text(encoding="utf-8").partition("## The waist")[2].partition("\n## ")[0]
    described = re.findall(r"`(\w+)(?:\([\w, ]*\))?`", text)
    offered = {name for each in (Learner, SequenceModel) for name in {**vars(each), **each.__annotations__}}
    assert {name for name in offered if not name.startswith("_")} <= set(described)


def named(tree: ast.AST) -> Iterator[str]:
    """Every name that a file gives to something."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr


@pytest.mark.parametrize("file", SHAPED, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_shapes_are_explained_where_they_are_used(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    used = {letter for name in named(tree) if (shape := re.fullmatch(r"[a-z]\w*_(\d*[A-Z][A-Z\d]*)", name))
            for letter in re.sub(r"\d", "", shape[1])}  # fmt: skip
    legend = re.search(r"^Shapes: ((?:.+\n?)+)", ast.get_docstring(tree) or "", re.MULTILINE)
    assert used <= set(re.findall(r"\b[A-Z]\b", legend[1] if legend else "")), "begin the file with a legend of these"


def test_the_mission_is_complete() -> None:
    rows = table_rows((DOCS / "mission.md").read_text(encoding="utf-8"))
    wanted = [f"{group}{number}" for group, count in GROUPS.items() for number in range(1, count + 1)]
    assert [row[0] for row in rows] == wanted


def test_what_the_mission_names_exists() -> None:
    for row in table_rows((DOCS / "mission.md").read_text(encoding="utf-8")):
        for column, folder in ((2, "src/regard"), (3, "tests")):
            for name in re.findall(r"`([\w/.-]+)`", row[column]):
                assert (ROOT / folder / name).exists(), f"{row[0]}: {folder}/{name}"
        # Without code there is nothing to test, to describe or to measure.
        assert row[2] or not any(row[3:]), row[0]
