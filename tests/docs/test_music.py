"""The page about music: its commands and its Python run, and what it says of words is so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regard.music.encoding import read_words
from tests.exploring.test_composing import music_model

from .pages import DOCS, blocks
from .test_use import follow

PAGE = DOCS / "music.md"


def test_the_page_about_music(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("symusic")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("regard.cli.generating.MUSIC_TOKENS", 40)
    steps = [[[60, 57, 52, 45], [62, 57, 52, 45]]] * 3
    Path("chorales.json").write_text(json.dumps({"train": steps, "valid": steps, "test": steps}))
    music_model(Path("my-bach"), "chorale", "data.music=chorales.json")
    follow(PAGE)
    assert {file.name for file in Path().glob("five-*")} == {
        f"five-{n}.{e}" for n in range(1, 6) for e in ("mid", "svg")
    }


@pytest.mark.parametrize(("number", "encoding"), [(0, "performance"), (1, "chorale")])
def test_words_that_are_shown_are_words(number: int, encoding: str) -> None:
    words = blocks(PAGE, "text")[number].text.split()[:-1]
    reading = read_words(words, "performance" if encoding == "performance" else "chorale")
    assert reading.piece.notes
    if encoding == "chorale":
        assert sum(owner is None for owner in reading.owners) == 1  # the rest
