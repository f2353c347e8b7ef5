"""The page about pictures: its commands and its Python run, its tables are complete, its pictures are there."""

from __future__ import annotations

import re
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import get_args

import pytest

from regard.cli.looking import PICTURES
from regard.exploring.pictures import What
from tests.tiny import language_model

from .pages import DOCS, table_rows
from .test_use import follow

VIEW = DOCS / "view.md"


def test_the_page_about_viewing(words_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="the pictures extra is not installed")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(words_model, "demo/model")
    language_model(Path("my-gpt"))
    follow(VIEW)
    assert {file.name for file in tmp_path.glob("*.*")} >= {"attention.html", "beam.svg", "heads.svg", "curves.png"}


def test_every_picture_is_described_and_shown() -> None:
    rows = table_rows(VIEW.read_text(encoding="utf-8").partition("| `--what` |")[2].partition("\n\n")[0])
    described = [row[0].strip("`") for row in rows if len(row) == 3]
    assert [*described] == list(get_args(What)) == PICTURES.split(", ")
    shown = re.findall(r"\(pictures/(view-\w+)\.svg\)", VIEW.read_text(encoding="utf-8"))
    assert sorted(shown) == sorted(file.stem for file in (DOCS / "pictures").glob("view-*.svg"))
    for name in shown:
        file = DOCS / "pictures" / f"{name}.svg"
        assert ET.fromstring(file.read_text(encoding="utf-8")).get("aria-label")
        assert file.stat().st_size < 100_000
