"""Three runs that differ in their seed alone, and their usual course as one that comes with Regard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from regard import experiment
from regard.bands import band as band_module
from regard.bands.band import Band
from regard.bands.measuring import band_of_runs
from tests.bands.pairs import recipe_of


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three runs that differ in their seed alone."""
    place = tmp_path_factory.mktemp("runs")
    recipe = recipe_of(place / "corpus")
    with torch.random.fork_rng():
        for seed in (1, 2, 3):
            experiment.train(replace(recipe, seed=seed), place / str(seed))
    return [place / str(seed) for seed in (1, 2, 3)]


@pytest.fixture(autouse=True)
def measured(runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Band]:
    """Their course is that of a recipe which comes with Regard."""
    band = band_of_runs(runs)
    (tmp_path / "bands").mkdir()
    (tmp_path / "bands" / "pairs.toml").write_text(band.to_toml(), encoding="utf-8")
    monkeypatch.setattr(band_module, "BANDS", tmp_path / "bands")
    with torch.random.fork_rng():
        yield band
