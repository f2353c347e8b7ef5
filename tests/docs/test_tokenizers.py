"""The page about tokens: its examples run, and what it says of the kinds is so."""

from __future__ import annotations

import re
import tomllib
from typing import get_args

import pytest

from regard.recipe import build_recipe
from regard.text import learning
from regard.text.learning import Kind, TokenizerSettings
from regard.text.tokenizer import Tokenizer

from .pages import DOCS, blocks, prose, table_rows

PAGE = DOCS / "tokenizers.md"


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = blocks(PAGE, "python")
    exec(compile(example.text, str(PAGE), "exec"), {})
    assert capsys.readouterr().out == "('▁newest', '▁low')\nnewest low\n"


def test_the_recipes_can_be_built() -> None:
    found = [build_recipe(tomllib.loads(block.text), [], "the page") for block in blocks(PAGE, "toml")]
    assert {recipe.tokenizer.kind for recipe in found} == {"bpe", "gpt2"}


def test_every_kind_has_its_row() -> None:
    kinds = [row[0].strip("`") for row in table_rows(prose(PAGE).partition("## Kinds")[2].partition("## ")[0])]
    assert kinds == [*get_args(Kind), "gpt2"]


def test_the_subwords_of_the_table_are_marked_as_shown() -> None:
    for kind, row in zip(get_args(Kind)[:2], table_rows(prose(PAGE)), strict=False):
        # `low` and `er` are frequent, `lower` never occurs.
        tokenizer = Tokenizer.learn(["low slow lowly wider older her"] * 9, TokenizerSettings(kind, 40))
        assert list(tokenizer.labels(tokenizer.encode("lower"))) == re.findall(r"`(\S+)`", row[1])


def test_the_numbers_are_those_of_the_code() -> None:
    text = " ".join(prose(PAGE).split())
    assert f"at most {learning.LONGEST_PIECE} characters" in text
    assert f"more than {learning.MOST_UNSPACED:,} such characters" in text
