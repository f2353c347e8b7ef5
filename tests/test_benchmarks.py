"""`python -m benchmarks` gets through: what lacks something to measure says so, and the next one has its turn."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from benchmarks import language_models
from benchmarks.runs import Bench, Stopped


@pytest.mark.parametrize(
    "name",
    [
        "bands",
        "beyond",
        "engines",
        "heads",
        "labels",
        "language_models",
        "music",
        "proof",
        "sentences",
        "training",
        "twins",
    ],
)
def test_without_what_it_needs_a_benchmark_is_skipped(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = importlib.import_module(f"benchmarks.{name}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REGARD_DATA", raising=False)
    monkeypatch.setattr(sys, "argv", ["benchmarks"])
    if name == "music":
        monkeypatch.setattr(module, "DATA", tmp_path)
    module.main()
    assert capsys.readouterr().out.startswith("  skipped: ")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("stopped", [False, True])
def test_language_models_end_as_their_table_does(
    stopped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def table(bench: Bench, only: tuple[str, ...]) -> None:
        if stopped:
            raise Stopped("the time was up")
        bench.write("language-models.md", f"a table of {', '.join(only)}")

    (tmp_path / "lm-small").mkdir()
    (tmp_path / "lm-small/tinyshakespeare.txt.gz").touch()
    monkeypatch.setattr(language_models, "table", table)
    asked = ["--only", "lstm", "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    if stopped:
        with pytest.raises(SystemExit, match="1"):
            language_models.main(asked)
        assert "the time was up; call it again to go on" in capsys.readouterr().out
    else:
        language_models.main(asked)
        assert capsys.readouterr().out == "a table of lstm\n"
