"""Studies are what they say: every row is a recipe that exists, and differs from the others in what it is about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from regard.errors import MissingError, UsageError
from regard.models.build import build
from regard.recipe import load_recipe, presets
from regard.reproduce.ladder import LADDER_EUROPARL
from regard.reproduce.outcome import MEASURES
from regard.reproduce.studies import STUDIES
from regard.reproduce.study import Asked, Row, Study, changes_corpus, corpus_of, recipe_of
from regard.reproduce.table2 import TABLE2
from regard.reproduce.table3 import TABLE3


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    """A folder with all files that studies name, which nobody reads."""
    for study in STUDIES.values():
        for name in study.data.values():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize("study", STUDIES.values(), ids=lambda study: study.name)
def test_every_row_is_a_recipe_of_its_own(study: Study, corpora: Path) -> None:
    recipes = [recipe_of(study, row, Asked(corpora)) for row in study.rows if not row.members]
    different = {repr(replace(recipe, name="")) for recipe in recipes}
    assert len(different) == len(recipes)
    # What is not studied is the same for all: the text, how it is cut, how it is searched, and for how long.
    for part in ("data", "tokenizer", "search"):
        assert len({repr(getattr(recipe, part)) for recipe in recipes}) == 1, part
    assert {recipe.seed for recipe in recipes} == ({1, 2} if any(row.members for row in study.rows) else {1})
    assert len({recipe.training.steps for recipe in recipes}) == 1
    for row in study.rows:
        assert set(row.paper) <= set(MEASURES)


def test_table_3_has_every_preset_of_table_3(corpora: Path) -> None:
    named = {name for name in presets() if name.startswith("table3-")} | {"base", "big"}
    assert {row.preset for row in TABLE3.rows} == named
    for row in TABLE3.rows:
        assert recipe_of(TABLE3, row, Asked(corpora)).model == load_recipe(row.preset, ["model.norm=pre"]).model


@pytest.mark.parametrize(("row", "rung"), [("bytenet", "bytenet"), ("convs2s", "convs2s"), ("base", "transformer")])
def test_three_rows_of_table_2_are_rungs_of_the_ladder(row: str, rung: str, corpora: Path) -> None:
    studies = ((TABLE2, row), (LADDER_EUROPARL, rung))
    one, other = (recipe_of(study, study.chosen(name)[0], Asked(corpora)) for study, name in studies)
    assert replace(one, name=other.name) == other


def test_the_ladder_compares_models_of_about_one_size(corpora: Path) -> None:
    sizes = []
    for row in LADDER_EUROPARL.rows:
        recipe = recipe_of(LADDER_EUROPARL, row, Asked(corpora))
        with torch.device("meta"):
            model = build(recipe.model, recipe.tokenizer.vocabulary)
        sizes.append(sum(weight.numel() for weight in model.parameters()))
        assert recipe.batch.layout == ("packed" if model.packs_sentences else "buckets")
    assert max(sizes) < 1.5 * min(sizes)


def test_the_members_of_an_ensemble_differ_in_their_seed_alone(corpora: Path) -> None:
    for row in TABLE2.rows:
        each = [recipe_of(TABLE2, member, Asked(corpora)) for member in TABLE2.rows if member.name in row.members]
        assert len({replace(recipe, name="", seed=0) for recipe in each}) == min(1, len(each))
        assert len({recipe.seed for recipe in each}) == len(each)
    assert sum(bool(row.members) for row in TABLE2.rows) == 3
    with pytest.raises(ValueError, match=r"`members` must be rows above `b`, but \['c'\] are not"):
        Study("wrong", "", (Row("a", "", "base"), Row("b", "", "base", members=("a", "c"))), (), {})


def test_fewer_steps_shorten_the_warm_up_and_an_override_has_the_last_word(corpora: Path) -> None:
    row = TABLE3.rows[0]
    fewer = recipe_of(TABLE3, row, Asked(corpora, steps=120)).training
    assert (fewer.steps, fewer.optimiser.warmup) == (120, 20)
    assert recipe_of(TABLE3, row, Asked(corpora, steps=1)).training.optimiser.warmup == 1
    own = recipe_of(TABLE3, row, Asked(corpora, 200, ("training.optimiser.warmup=7", "seed=3")))
    assert (own.training.optimiser.warmup, own.seed, own.name) == (7, 3, "table3-base")


def test_a_corpus_of_ones_own_needs_no_folder() -> None:
    recipe = recipe_of(TABLE3, TABLE3.rows[0], Asked(overrides=("data.kind=generated", "data.pairs=9")))
    assert recipe.data.kind == "generated"


def test_one_setting_of_the_corpus_leaves_the_rest_of_it(corpora: Path) -> None:
    row = TABLE3.rows[0]
    asked = [Asked(corpora, None, (change,)) for change in ("data.target_language=de", "data={target_language = 'de'}")]
    one, other = (recipe_of(TABLE3, row, each).data for each in asked)
    assert one == other
    assert one.kind == "files"
    assert [changes_corpus(each.changes) for each in (*asked, Asked(None, 3, ("seed=3",)))] == [True, True, False]


def test_a_setting_that_a_row_lacks_is_refused_by_the_name_of_the_row() -> None:
    """ByteNet and the Transformer share the preset `base`; one of them has no such setting."""
    for steps in (None, 3):
        asked = Asked(steps=steps, overrides=("data.kind=generated", "model.d_model=32", "batch.rows=2"))
        with pytest.raises(UsageError) as found:
            recipe_of(TABLE2, TABLE2.rows[0], asked)
        lines = str(found.value).split("\n")
        assert all(line.startswith("row `bytenet` of table2: ") for line in lines)
        assert any(
            "`bytenet` of table2: model.d_model: [model] has no such key, but 32 is set" in line for line in lines
        )


def test_rows_are_chosen_by_name() -> None:
    assert [row.name for row in TABLE3.chosen("big, base,big")] == ["big", "base"]
    assert TABLE3.chosen(None) == list(TABLE3.rows)
    with pytest.raises(UsageError, match=r"`huge` is not one. There are: base, a-h1"):
        TABLE3.chosen("base,huge")
    for names in ("base,", "", " , "):
        with pytest.raises(UsageError, match=r"--rows: must be names with commas .*, but is '.*'. Write base,a-h1\."):
            TABLE3.chosen(names)


def test_mistakes_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REGARD_DATA", raising=False)
    with pytest.raises(UsageError, match="table3: needs the folder of its corpora"):
        corpus_of(TABLE3, None)
    with pytest.raises(MissingError, match="must be the folder of all corpora"):
        corpus_of(TABLE3, tmp_path / "nowhere")
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    with pytest.raises(MissingError, match=r"europarl-ende/train.en.bz2: table3 needs this file"):
        corpus_of(TABLE3, None)
    with pytest.raises(UsageError, match="--steps: must be at least 1, but is 0"):
        Asked(steps=0)
    with pytest.raises(UsageError, match="faster: what follows the study must be KEY=VALUE"):
        Asked(overrides=("faster",))
    with pytest.raises(ValueError, match="`rows` must have different names"):
        Study("twice", "", (Row("a", "", "base"), Row("a", "", "big")), (), {})
    with pytest.raises(ValueError, match=r"`sentence` must end with `corpus`, ' on B', but is 'On A'"):
        Study("other", "On A", (Row("a", "", "base"),), (), {}, corpus=" on B")
