"""The page about labels: its commands and its Python run, on small corpora and for a few steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from regard import experiment
from regard.recipe import Recipe
from regard.text.restoring import bare
from tests.tiny import ENGLISH, GERMAN, write_lines

from .pages import DOCS, blocks, table_rows
from .test_use import follow

PAGE = DOCS / "classify.md"


def test_the_page_about_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trained = experiment.train

    def train(recipe: Recipe, out: Path, resume: bool = False) -> experiment.Outcome:
        course = replace(recipe.training, steps=2, validate_every=1, save_every=1)
        words = replace(recipe.tokenizer, vocabulary=100)
        small = replace(recipe, training=course, tokenizer=words, batch=replace(recipe.batch, tokens=200), device="cpu")
        return trained(small, out, resume)

    monkeypatch.setattr(experiment, "train", train)
    table, tags = blocks(PAGE, "text")[0].text, next(b.text for b in blocks(PAGE, "text") if "DET" in b.text)
    subjects = [f"{word}\tfood" for word in ENGLISH] + [f"{word}\ttravel" for word in GERMAN]
    Path("train.tsv").write_text(table + "\n".join(subjects))
    Path("other.tsv").write_text(table)
    Path("train.txt").write_text(tags + "\n" + "\n\n".join(f"{word} NUM\nis VERB" for word in ENGLISH))
    for name in ("train.en", "dev.en", "test.en"):
        write_lines(Path(name), ["Hello, Mr. Smith!", "How are you?"] * 3)
    write_lines(Path("lines.txt"), ["Hello, Mr. Smith!", "the cat sleeps"])
    follow(PAGE)
    assert set(Path("labels.txt").read_text().split()) <= {"food", "travel"}
    assert Path("confusion.svg").is_file()


def test_the_tags_that_are_shown() -> None:
    rows = {row[0]: row[1:] for row in table_rows(PAGE.read_text(encoding="utf-8")) if row[0] in ("word", "tag")}
    words, tags = bare("Hello, Mr. Smith!")
    assert rows == {"word": words, "tag": [f"`{tag}`" for tag in tags]}
