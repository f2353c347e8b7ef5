"""The page about reproducing says what the studies are."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePosixPath

import torch

from regard import shipped
from regard.models.build import build
from regard.recipe import load_recipe
from regard.reproduce.ladder import LADDER_EUROPARL, LADDER_MULTI30K
from regard.reproduce.outcome import MEASURES
from regard.reproduce.published import Verdict, published
from regard.reproduce.studies import STUDIES
from regard.reproduce.study import Asked, recipe_of
from regard.reproduce.table2 import TABLE2
from regard.reproduce.table3 import TABLE3

from .pages import DOCS, blocks, prose, table_rows

PAGE = DOCS / "reproduce.md"
TEXT = prose(PAGE)


def test_every_study_and_every_file_is_named() -> None:
    for name in STUDIES:
        assert f"`{name}`" in TEXT
    (folders,) = [block.text for block in blocks(PAGE, "text") if "train.en.bz2" in block.text]
    shown = [line.split()[0].strip("/") for line in folders.strip().split("\n")]
    assert set(shown) == {str(PurePosixPath(file).parent) for file in published().files}


def test_what_can_be_checked_from_a_clean_clone() -> None:
    part = PAGE.read_text(encoding="utf-8").partition("### From a clean clone")[2].partition("\n### ")[0]
    lines = [line for line in part.split("\n") if line.startswith("regard reproduce ")]
    assert lines == [published().commands(name)["check_shipped"] for name in shipped.names()]
    assert re.findall(r"`([a-z-]+)`", part.partition("```")[0]) == shipped.names()
    figures = [str(Verdict(each.set, each.metric, each.value, each.value, each.tolerance, ""))
               for each in published().models["everyday-en-de"].figures]  # fmt: skip
    assert "\n".join(figures) in part


def test_the_budget_of_table_3() -> None:
    recipe = recipe_of(TABLE3, TABLE3.rows[0], Asked(overrides=("data.kind=generated",)))
    course = recipe.training
    assert f"{course.steps:,} steps of {recipe.batch.tokens:,} tokens a side" in TEXT
    assert (recipe.model.norm, course.optimiser.kind, course.average) == ("pre", "muon", 1)
    assert f"at a rate that rises for {course.optimiser.warmup} steps and falls to\n  nothing" in TEXT


def test_the_systems_of_table_2() -> None:
    rows = table_rows(TEXT.partition("### `table2`")[2].partition("\n### ")[0])
    sizes: dict[str, int] = {}
    for row in TABLE2.rows:
        recipe = recipe_of(TABLE2, row, Asked(overrides=("data.kind=generated",)))
        with torch.device("meta"):
            model = build(recipe.model, recipe.tokenizer.vocabulary)
        own = sum(weight.numel() for weight in model.parameters())
        sizes[row.name] = sum(sizes[name] for name in row.members) or own
        assert f"{recipe.training.steps:,} steps" in TEXT.partition("### `table2`")[2]
    assert [(row[0].strip("`"), row[2]) for row in rows] == [
        (name, f"{size / 1e6:.0f}") for name, size in sizes.items()
    ]
    base = recipe_of(TABLE2, TABLE2.rows[-2], Asked(overrides=("data.kind=generated",)))
    rung = recipe_of(LADDER_EUROPARL, LADDER_EUROPARL.rows[-2], Asked(overrides=("data.kind=generated",)))
    assert (base.batch, base.training, base.model) == (rung.batch, rung.training, rung.model)


def test_the_rungs_of_the_ladder() -> None:
    rows = [row[0].strip("`") for row in table_rows(TEXT.partition("### `ladder-multi30k`")[2].partition("\n## ")[0])]
    for study in (LADDER_MULTI30K, LADDER_EUROPARL):
        assert rows == [row.name for row in study.rows]
    windows = [
        load_recipe(row.preset, row.overrides).model.window  # type: ignore[union-attr]
        for row in (LADDER_MULTI30K.rows[-1], LADDER_EUROPARL.rows[-1])
    ]
    found = re.search(r"their neighbours: (\d+) to each side on Multi30k, (\d+) on Europarl", TEXT)
    assert found is not None
    assert [int(number) + 1 for number in found.groups()] == windows


def test_every_column_is_explained() -> None:
    rows = table_rows(TEXT.partition("## What the columns are")[2].partition("\n## ")[0])
    assert {name for row in rows for name in row[0].split(", ")} - {"tokens read"} == MEASURES.keys() - {"tokens"}


def test_the_try_without_a_corpus_is_a_recipe() -> None:
    lines = [block.text for block in blocks(PAGE, "text") if "data.kind=generated" in block.text]
    assert len(lines) == 2
    for line, study in zip(lines, (TABLE3, TABLE2), strict=True):
        words = shlex.split(line)
        assert words[:3] == ["regard", "reproduce", study.name]
        overrides = tuple(word for word in words if "=" in word)
        for row in study.chosen(words[words.index("--rows") + 1]):
            assert recipe_of(study, row, Asked(steps=20, overrides=overrides)).data.kind == "generated"


def test_the_example_in_python_can_be_read() -> None:
    (block,) = blocks(PAGE, "python")
    scope: dict[str, object] = {}
    exec(block.text.partition("run(study")[0], scope)
    assert scope["study"] is TABLE3
