"""Bands come back from their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.bands.band import Band, band_of_recipe
from regard.errors import DataError


def test_a_band_comes_back_from_its_file(measured: Band, capsys: pytest.CaptureFixture[str]) -> None:
    found = band_of_recipe("pairs")
    assert found is not None
    assert found.to_toml() == measured.to_toml()
    assert (found.seeds, found.course.runs, found.course.stretch) == ((1, 2, 3), 3, 2)
    assert [usual.step for usual in found.course.validation] == [30, 60]
    assert [usual.step for usual in found.course.training] == list(range(2, 61, 2))
    assert "--out" not in (found.command or "")


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bands" / "pairs.toml").write_text("recipe = 'pairs'\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"pairs\.toml: must be a band"):
        band_of_recipe("pairs")
