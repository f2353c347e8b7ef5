"""The page about training: its plans can be printed, and its numbers are those of the code."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from regard import choosing
from regard.bands.band import BANDS, read_band
from regard.bands.comparing import AMOUNT
from regard.bands.measuring import ASSUMED, FALLING
from regard.choosing import CPU_HOURS
from regard.data.glance import BYTES_A_TOKEN, subword_bytes
from regard.planning import SHARE
from regard.recipe import presets
from regard.status import PAUSE_ELSEWHERE
from regard.training import usual
from regard.training.adapters import EVENTS, LogSettings
from regard.training.log import RECENT
from tests.tiny import ENGLISH, GERMAN, write_lines

from .pages import DOCS, blocks, prose, run, table_rows

PAGE = DOCS / "training.md"


def test_the_plans_can_be_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "talks.en", ENGLISH * 9)
    write_lines(tmp_path / "talks.de", GERMAN * 9)
    lines = [line for block in blocks(PAGE, "sh") for line in block.text.strip().split("\n") if "--plan" in line]
    assert len(lines) == 5
    shown = next(block.text for block in blocks(PAGE, "text") if block.text.startswith("plan:"))
    for line in lines:
        answer = run(line)
        assert answer.code == 0, f"{line}\n{answer.errors}"
        if "--json" in line:
            assert json.loads(answer.output)["name"] == "tiny"
        elif "--world 8" in line:
            # The same lines with other numbers.
            assert [row.split()[0] for row in answer.output.strip().split("\n")] == [
                row.split()[0] for row in shown.strip().split("\n")
            ]


def test_the_numbers_are_those_of_the_code() -> None:
    text = " ".join(prose(PAGE).split())
    told = [f"{subword_bytes(vocabulary):.1f} with {vocabulary:,}" for vocabulary in (1_000, 4_000, 8_000, 32_000)]
    assert ", ".join(told) in text
    assert f"{BYTES_A_TOKEN} bytes for words" in text
    assert f"{SHARE['cpu']} of that speed on a CPU and {SHARE['cuda']} on a GPU" in text
    assert f"what can be done in {CPU_HOURS:g} hours" in text
    assert f"over the last {RECENT:g} seconds" in text
    assert PAUSE_ELSEWHERE == 10
    assert "every ten seconds" in text
    sizes = (choosing.TINY, choosing.SMALL, choosing.MEDIUM, choosing.BASE)
    epochs = sorted(size.epochs for size in sizes)
    assert f"some {epochs[0]} to {epochs[-1]} epochs" in text
    rows = table_rows(PAGE.read_text(encoding="utf-8"))
    for size in sizes:
        assert [f"`{size.preset}`", str(size.epochs), f"{size.fewest:,}", f"{size.most:,}"] in rows


def test_what_is_chosen_exists() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("### Without a recipe")[2].partition("## ")[0]
    named = set(re.findall(r"`(\w+)`", " ".join(cell for row in table_rows(text) for cell in row)))
    assert named == {"tiny", "small", "medium", "base"} <= set(presets())


def test_the_settings_of_the_log_exist() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("### For programs")[2].partition("## ")[0]
    named = re.findall(r"`log\.(\w+)=", text)
    assert named == list(LogSettings.__dataclass_fields__)
    assert f"`{EVENTS}/`" in text


def test_the_usual_course_is_that_of_the_code_and_of_the_bands() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("### The usual course")[2].partition("### ")[0]
    assert f"mean ± {usual.WIDTH:g} standard deviations over the runs, but at least ± {usual.FLOOR} nats" in text
    assert usual.FAR == 3
    assert "three times as far off" in text
    assert AMOUNT == 1 / 20
    assert "one in twenty" in text
    assert usual.WIDTH / FALLING == 0.5
    assert round(usual.WIDTH * ASSUMED, 9) == 0.15
    assert "half as far as the loss fell since the stretch before" in text
    assert "two bounds, 0.15 nats and 15 % of the loss" in text
    rows = {row[0].strip("`"): row[1:] for row in table_rows(text.rpartition("| recipe |")[2])}
    files = {file.stem: read_band(file) for file in BANDS.glob("*.toml")}
    assert rows.keys() == files.keys()
    for name, band in files.items():
        last = [points[-1] for points in (band.course.training, band.course.validation)]
        values = [(f"{point.mean:.3f} ± {point.margin:.3f}", f"{point.step:,}") for point in last]
        assert rows[name] == [str(band.course.runs), *values[0], *values[1]]
    without = set(re.findall(r"`([\w*-]+)`", text.partition("and there is no usual course of them")[2]))
    assert {name for name in presets() if not any(fnmatch(name, each) for each in without)} == files.keys()
