"""The page about search and sampling: its examples run, and its tables are those of the code."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, get_args

import pytest

from regard.decoding import noise, penalties
from regard.decoding.constraints import Constraints
from regard.decoding.ensemble import Average
from regard.decoding.sampling import SamplingSettings
from regard.decoding.search import MOST_BEAMS, SearchSettings
from regard.settings.tree import text_of

from .pages import DOCS, blocks, prose, table_rows

PAGE = DOCS / "decoding.md"


def test_the_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for example in blocks(PAGE, "python"):
        exec(compile(example.text, str(PAGE), "exec"), names)
    lines = capsys.readouterr().out.strip().split("\n")
    assert len(lines) > 10
    assert lines[-1].startswith("the cat sat on ")


def test_every_setting_has_its_row() -> None:
    rows = {row[0].strip("`"): row for row in table_rows(prose(PAGE))}
    for settings in (SearchSettings, SamplingSettings):
        for field in dataclasses.fields(settings):
            assert rows[field.name][1] == f"`{text_of(field.default)}`"
    for field in dataclasses.fields(Constraints):
        assert field.name in rows
    named = {name.strip('"') for name in rows}
    assert {*get_args(penalties.Penalty), *get_args(Average)} <= named


def test_neutral_values_are_neutral() -> None:
    """Each row's neutral value is allowed, and for an option the default does nothing unless the paper uses it."""
    for settings in (SearchSettings, SamplingSettings):
        for field in dataclasses.fields(settings):
            row = next(row for row in table_rows(prose(PAGE)) if row[0] == f"`{field.name}`")
            if re.fullmatch(r"[\d.]+", row[2]):
                settings(**{field.name: type(field.default)(float(row[2]))})
                if field.name not in ("alpha", "diversity"):
                    assert float(row[2]) == field.default


def test_the_numbers_are_those_of_the_code() -> None:
    text = " ".join(prose(PAGE).split())
    assert f"at most {MOST_BEAMS:,};" in text
    assert f"less than {penalties.LEAST_COVERED} counts as {penalties.LEAST_COVERED}" in text
    with pytest.raises(Exception, match=r"from 0 to 2\^63 - 1"):
        noise.Noise([2**63], 5, noise.torch.device("cpu"))
    assert "from 0 to 2^63 - 1" in text
