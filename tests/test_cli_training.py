"""`regard train --plan`, and `regard train` without a recipe."""

from __future__ import annotations

import bz2
import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from regard import experiment
from regard.data.corpus import Files
from regard.recipe import Recipe, load_recipe
from regard.training.report import Ending
from tests.tiny import ENGLISH, GERMAN, Ran, failed, regard, write_lines

TOY = (
    "model={encoder_layers=1, decoder_layers=1, d_model=16, d_ff=16, heads=2}",
    "batch={tokens=64, row=16}",
    "training.steps=7",
)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The options for a corpus in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "my words.en", ENGLISH * 40)
    write_lines(tmp_path / "words.de", GERMAN * 40)
    return ["--source", "my words.en", "--target", "words.de"]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Recipe]:
    """The recipes that would have been trained."""
    recipes: list[Recipe] = []

    def train(recipe: Recipe, out: Path, resume: bool = False) -> experiment.Outcome:
        recipes.append(recipe)
        return experiment.Outcome(Ending.done(recipe.training.steps), None, None)

    monkeypatch.setattr(experiment, "train", train)
    return recipes


def planned(*arguments: object) -> str:
    ran = regard("train", *arguments, "--plan")
    assert (ran.code, ran.err) == (0, ""), ran.err
    assert not Path("runs").exists()
    return ran.out


def test_a_plan_trains_nothing_and_prints_everything(files: list[str]) -> None:
    text = planned("tiny", *TOY, *files)
    for word in ("plan: tiny on ", "parameters", "corpus   520 lines", "64 tokens a side: 4 rows of 16", "7, about",
                 "tokens/s", "factor of two", "memory of a process", "1 process"):  # fmt: skip
        assert word in text
    assert "DDP" not in text


def test_a_plan_for_several_processes(files: list[str]) -> None:
    text = planned("tiny", *TOY, *files, "--world", 4)
    for word in ("4 × ", "of which each process reads 1", "DDP × 4", "FSDP × 4", "with FSDP"):
        assert word in text


def test_a_plan_for_programs(files: list[str]) -> None:
    found = json.loads(planned("tiny", *TOY, *files, "--world", 2, "--json"))
    assert (found["world"], found["steps"], found["rows"], found["rows_each"]) == (2, 7, 4, 2)
    assert [holding["way"] for holding in found["holdings"]] == ["1 process", "DDP × 2", "FSDP × 2"]
    assert found["corpus"]["pairs"] == 520
    assert found["seconds"] > 0


def test_without_a_recipe_one_is_chosen_told_and_used(files: list[str], trained: list[Recipe]) -> None:
    ran = regard("train", *TOY, *files, "--out", "x")
    assert (ran.code, ran.out) == (0, ""), ran.err
    assert "No recipe was given, so here is one:\n  `tiny`: 520 pairs; " in ran.err
    assert "The model is in x. Try: regard translate x" in ran.err
    assert trained[0].name == "x"
    assert (trained[0].training.steps, trained[0].tokenizer.vocabulary) == (7, 1_000)
    # The command that it prints trains by the same recipe.
    (line,) = [line for line in ran.err.split("\n") if "said in full: " in line]
    again = regard(*shlex.split(line.split("said in full: regard ")[1]))
    assert again.code == 0
    assert "No recipe was given" not in again.err
    assert trained[1] == replace(trained[0], name="tiny")  # of no folder


def test_the_plan_of_a_chosen_recipe_says_why(files: list[str]) -> None:
    text = planned(*TOY, *files)
    assert "`tiny`: 520 pairs; so few pairs are learned by heart by larger models" in text
    assert "tokenizer.vocabulary=1000: " in text
    assert "--source 'my words.en' --target words.de" in text
    assert "DDP × 2" in planned(*TOY, *files, "--world", 2)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("training.step=5", "training.step: [training] has no such key, but 5 is set; did you mean `steps`?"),
        ("training.steps=many", 'training.steps: must be a whole number, but is "many"; write such a value, or leave '
         "training.steps out"),
        ("batch.row=100000", "batch: `tokens` must be at least `row` (100000), but is "),
    ],
)  # fmt: skip
def test_without_a_recipe_a_mistake_is_the_command_lines(
    change: str, problem: str, files: list[str], trained: list[Recipe]
) -> None:
    ran = regard("train", *files, change)
    assert (ran.code, trained) == (2, [])
    assert ran.err.startswith(f"regard: command line: {problem}")
    assert ran.err.count("\n") == 1


def test_a_recipe_that_was_given_is_not_changed(files: list[str], trained: list[Recipe]) -> None:
    ran = regard("train", "small", *files, "--out", "x")
    assert ran.code == 0, ran.err
    assert "No recipe was given" not in ran.err
    assert trained[0].training == load_recipe("small").training


@pytest.mark.parametrize("place", ["lr=0.1/r.toml", "runs/lr=0.1/r.toml", "lr=0.1.toml"])
def test_the_path_of_a_recipe_may_look_like_a_setting(place: str, files: list[str], trained: list[Recipe]) -> None:
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    Path(place).write_text('extends = "tiny"\nname = "mine"\n')
    ran = regard("train", "training.steps=7", place, *files)
    assert ran.code == 0, ran.err
    assert (trained[0].name, trained[0].training.steps) == ("mine", 7)


def test_a_recipe_that_is_not_there_is_named_and_a_setting_is_none(files: list[str], trained: list[Recipe]) -> None:
    ran = regard("train", "runs/lr=0.1/r.toml", *files)
    assert (ran.code, trained) == (66, [])
    assert "runs/lr=0.1/r.toml: must be a file that can be read" in ran.err
    assert "write the key with dots" in regard("train", "tiny", "training/steps=7", *files).err


@pytest.mark.parametrize("name", ["words.tsv", "words.TSV.gz", "w.jsonl"])
def test_one_file_may_hold_both_sides(
    name: str, tmp_path: Path, trained: list[Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = regard("train", "small", "--source", name, "--out", "x")
    assert ran.code == 0, ran.err
    assert trained[0].data == Files(name)


def test_one_file_without_a_word_on_its_form_is_refused(trained: list[Recipe]) -> None:
    ran = regard("train", "small", "--source", "words.txt")
    assert (ran.code, trained) == (2, [])
    assert "--target is missing and words.txt does not end in .tsv, .csv, .jsonl or .tmx" in ran.err
    assert "--source is missing" in regard("train", "small", "--target", "words.tsv").err


def test_a_damaged_corpus_is_named_while_its_size_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.tsv.bz2").write_bytes(bz2.compress(b"one\teins\n") + b"garbage")
    failed(regard("train", "--source", "words.tsv.bz2"), 65, "words.tsv.bz2: must be readable to its end, but is not")


def test_a_language_model_is_to_be_generated_with(
    tmp_path: Path, trained: list[Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    ran = regard("train", "gpt2", "data={kind='text', text='book.txt'}", "--out", "x")
    assert ran.err == "The model is in x. Try: regard generate x\n"


def test_several_processes_need_a_recipe(
    files: list[str], trained: list[Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setenv("WORLD_SIZE", "2")
    ran = regard("train", *files)
    assert (ran.code, trained) == (2, [])
    assert "several processes must be given one recipe" in ran.err
    assert regard("train", "tiny", *files).code == 0


@pytest.mark.parametrize(
    ("size", "message"),
    [("abc", "WORLD_SIZE: must be a whole number"), ("0", "WORLD_SIZE: must be at least 1, but is 0")],
)
def test_a_number_of_processes_that_makes_no_sense_is_named(
    size: str, message: str, files: list[str], trained: list[Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", size)
    failed(regard("train", *files), 2, message)
    assert trained == []


def test_after_a_signal_one_process_says_how_to_go_on(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = experiment.Outcome(Ending.signal(5, "SIGTERM"), "SIGTERM", None)
    monkeypatch.setattr(experiment, "train", lambda *_: stopped)

    def said(**place: str) -> str:
        for name, value in place.items():
            monkeypatch.setenv(name, value)
        ran = regard("train", "tiny", *files, "--out", "my model")
        assert (ran.code, ran.out) == (143, "")
        return ran.err

    assert said() == "Go on with: regard train --resume --out 'my model'\n"
    assert said(WORLD_SIZE="2", RANK="0") == (
        "Go on with the same torchrun command, and after `train` only: --resume --out 'my model'\n"
    )
    assert said(WORLD_SIZE="2", RANK="1") == ""


def test_after_a_signal_that_came_too_late_to_stop_it_the_model_is_told(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment, "train", lambda *_: experiment.Outcome(Ending.done(5), "SIGINT", None))
    ran = regard("train", "tiny", *files, "--out", "mine")
    assert (ran.code, ran.err) == (130, "The model is in mine. Try: regard translate mine\n")


@pytest.mark.parametrize("option", [["--json"], ["--world", "2"]])
def test_options_of_the_plan_go_with_it(option: list[str], files: list[str], trained: list[Recipe]) -> None:
    ran: Ran = regard("train", "tiny", *files, *option)
    assert (ran.code, trained) == (2, [])
    assert "--json and --world go with --plan" in ran.err


def test_a_plan_of_a_folder(files: list[str]) -> None:
    from regard import settings

    Path("model").mkdir()
    Path("model/recipe.toml").write_text(settings.to_toml(load_recipe("tiny", ["name=mine", *TOY])))
    assert "plan: mine on " in planned("--resume", "--out", "model")


def test_a_plan_names_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = regard("train", "tiny", "--source", "no.en", "--target", "no.de", "--plan")
    assert (ran.code, ran.out) == (66, "")
    assert "no.en: there is no such file" in ran.err
    assert "--world" in regard("train", "tiny", "--plan", "--world", "0").err


def test_files_that_are_missing_are_named_at_once_before_anything_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    there = write_lines(tmp_path / "a.en", ["one"] * 50)
    sides = ("--source", there, "--target", there)
    for more in ([], ["--plan"], ["--out", tmp_path / "out"]):  # even where nobody has chosen a recipe yet
        others = ["data.valid_source=*.valid", "data.valid_target=v.de", f"data.test_source={there}"]
        ran = regard("train", *sides, *others, "data.test_target=t.de", *more)
        assert (ran.code, ran.out) == (66, "")
        listed = "3 are not: *.valid (`data.valid_source`), v.de (`data.valid_target`), t.de (`data.test_target`)"
        assert ran.err.startswith(f"regard: data: all its files must be there, but {listed}")
    assert not (tmp_path / "out").exists()
    listed = "2 are not: no.en (`data.source`), no.de (`data.target`)"
    assert listed in regard("train", "tiny", "--source", "no.en", "--target", "no.de").err
    ran = regard("train", *sides, "data.test_source=t.en", f"data.test_target={there}")
    assert ran.err.startswith("regard: t.en: there is no such file, but `data.test_source` names it. Check the path")


def test_where_nothing_was_begun_nothing_can_go_on(tmp_path: Path) -> None:
    for out in (tmp_path, tmp_path / "new"):
        failed(
            regard("train", "--resume", "--out", out), 66, f"{out}: must hold a run to go on with", "without --resume"
        )
