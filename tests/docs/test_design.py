"""The pages about the project itself: the layers are the contract's, and the mission names what exists."""

from __future__ import annotations

import re
import tomllib

from .pages import DOCS, ROOT, table_rows

GROUPS = {"A": 7, "B": 12, "C": 8, "D": 7}


def test_the_layers_are_those_of_the_import_contract() -> None:
    text = (DOCS / "design.md").read_text(encoding="utf-8").partition("## Imports")[2].partition("## ")[0]
    described = [row[0].strip("`").replace("\\|", "|") for row in table_rows(text)]
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    assert described == contract["layers"]


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
