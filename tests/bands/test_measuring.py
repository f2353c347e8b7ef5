"""Usual courses are made from runs that belong together."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks import bands as command
from regard import folder
from regard.bands.band import Band
from regard.bands.measuring import band_of_runs
from regard.errors import DataError, MissingError, UsageError


def test_the_command_prints_the_file(runs: list[Path], measured: Band, capsys: pytest.CaptureFixture[str]) -> None:
    command.main([str(run) for run in runs])
    assert capsys.readouterr().out == measured.to_toml()
    with pytest.raises(SystemExit, match="66"):
        command.main([str(runs[0]), "nowhere"])
    assert "nowhere" in capsys.readouterr().err


def test_one_run_is_usual_within_what_is_assumed(runs: list[Path], measured: Band) -> None:
    band = band_of_runs(runs[:1])
    assert "One run has no standard deviation: it is assumed." in band.to_toml()
    assert "assumed" not in measured.to_toml()
    first, *others = band.course.training
    assert [usual.step for usual in others] == [usual.step for usual in measured.course.training[1:]]
    assert first.sd == others[0].sd
    for before, after in pairwise(band.course.training):
        assert after.sd == pytest.approx(max(0.05 * min(1, after.mean), abs(before.mean - after.mean) / 6))


def test_runs_that_do_not_belong_together_are_refused(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a seed of its own"):
        band_of_runs([runs[0], runs[0]])
    with pytest.raises(MissingError, match=r"recipe\.toml"):
        band_of_runs([runs[0], tmp_path])
    other = Path(shutil.copytree(runs[1], tmp_path / "other"))
    text = (other / folder.RECIPE).read_text(encoding="utf-8")
    (other / folder.RECIPE).write_text(text.replace("factor = 0.3", "factor = 0.4"), encoding="utf-8")
    with pytest.raises(UsageError, match="differ in their seed alone, but its settings differ"):
        band_of_runs([runs[0], other])
    (other / folder.RECIPE).write_text(text, encoding="utf-8")
    metrics = (other / folder.METRICS).read_text(encoding="utf-8").splitlines()
    (other / folder.METRICS).write_text("\n".join(metrics[:50]), encoding="utf-8")
    with pytest.raises(DataError, match="came to its end"):
        band_of_runs([runs[0], other])
