"""The page about batches: its example runs, and its numbers are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.data.batching import BatchSettings
from regard.data.dataset import FILED
from regard.data.packing import AIM, FEWEST_BATCHES

from .pages import DOCS, blocks, prose

PAGE = DOCS / "batches.md"


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for name, word in (("talks.en", "word"), ("talks.de", "Wort")):
        lines = (f"{word} {number} and {word} {number * 7 % 90}\n" * (1 + number % 2) for number in range(300))
        Path(name).write_text("".join(lines), encoding="utf-8")
    (example,) = blocks(PAGE, "python")
    exec(compile(example.text, str(PAGE), "exec"), {})
    summary, shape = capsys.readouterr().out.strip().split("\n")
    assert summary.endswith("% padding")
    assert shape.startswith("torch.Size([")


def test_the_numbers_are_those_of_the_code() -> None:
    text = " ".join(prose(PAGE).split())
    assert f"less than {100 * AIM:g} % is padded" in text
    assert f"less than {['no', 'one', 'two'][FEWEST_BATCHES]} batches" in text
    assert f"files have {FILED // 2**20} MiB or more" in text
    assert f"about {BatchSettings().tokens:,} source" in text
    assert f"rows of {BatchSettings().row}," in text
