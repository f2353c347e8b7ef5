"""The page about BERT, Transformer-XL and XLNet: its commands and its Python run, at toy size; its numbers are true."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from regard import experiment
from regard.recipe import Recipe
from tests.test_presets import parameters
from tests.tiny import ENGLISH, GERMAN, write_lines

from .pages import DOCS, table_rows
from .test_use import follow

PAGE = DOCS / "models/relatives.md"
CHARACTERS = 65 + 3  # of tiny Shakespeare, and the special tokens


def test_the_page_about_relatives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trained = experiment.train

    def train(recipe: Recipe, out: Path, resume: bool = False) -> experiment.Outcome:
        course = replace(recipe.training, steps=2, validate_every=1, save_every=1)
        batch = replace(recipe.batch, tokens=256)
        return trained(replace(recipe, training=course, batch=batch, device="cpu"), out, resume)

    monkeypatch.setattr(experiment, "train", train)
    write_lines(Path("tinyshakespeare.txt"), ["To be, or not to be, that is the question:", "ROMEO:", "What?"] * 20)
    write_lines(Path("test.txt"), ["To be, or not to be"] * 3)
    write_lines(Path("train.tsv"), [f"{word}\ten" for word in ENGLISH] + [f"{word}\tde" for word in GERMAN])
    follow(PAGE)
    assert Path("heads.svg").is_file()


def test_the_sizes_are_those_of_the_recipes() -> None:
    rows = [row for row in table_rows(PAGE.read_text(encoding="utf-8")) if row[0].split(" ")[0].endswith("-small`")]
    found = {row[0].strip("`").split(" ")[0]: int(row[1].replace(",", "")) for row in rows}
    assert found == {name: parameters(name, CHARACTERS) for name in found}
    assert len(found) == 3
