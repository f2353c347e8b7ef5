"""Every recipe that gives labels, end to end at toy size: train, measure, use; and what such a model is not for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from regard.api import load
from regard.errors import DataError, UsageError
from regard.recipe import load_recipe, presets
from regard.settings.tree import text_of
from tests.tight import tight
from tests.tiny import ENGLISH, GERMAN, failed, regard, write_lines

CLASSIFIERS = [name for name in presets() if name.startswith("classify-")]
TAGGERS = [name for name in presets() if name.startswith("tag-")]
SMALL = {
    "transformer": "model.body={layers=1, d_model=32, d_ff=32, heads=2, dropout=0.0}",
    "recurrent": "model.body={layers=1, d_model=32, dropout=0.0}",
    "convolution": "model.body={layers=2, d_model=32, kernel=3, dropout=0.0}",
}
COURSE = [
    "training={steps=30, validate_every=15, save_every=15, report_every=15}",
    "training.optimiser={warmup=5, rate=0.01}",
    "batch={tokens=128}",
    "tokenizer.vocabulary=120",
    "device=cpu",
]
PLAY = ["First Citizen, speak.", "Before we go, hear me!", "Speak, speak.", "You are all resolved?"] * 4


def train(out: Path, recipe: str, *changes: str) -> None:
    body = load_recipe(recipe).model.body.kind  # type: ignore[union-attr]
    ran = regard("train", recipe, SMALL[body], *COURSE, *changes, "--out", out)
    assert ran.code == 0, ran.err
    assert "accuracy" in ran.err


def corpus(place: Path, recipe: str) -> list[str]:
    """The corpus of a recipe, as changes of it."""
    data = load_recipe(recipe).data
    if data.kind == "classes":
        files = [write_lines(place / name, lines) for name, lines in (("en", ENGLISH), ("de", GERMAN))]
        classes = ", ".join(f"{{label={text_of(file.name)}, text={text_of(str(file))}}}" for file in files)
        return [f"data.classes=[{classes}]", "data.held_out=2"]
    if data.kind == "labelled":
        lines = [f"{word}\t{label}" for label, words in (("en", ENGLISH), ("de", GERMAN)) for word in words]
        file = write_lines(place / "table.tsv", lines)
        return [f"data={{table={text_of(str(file))}, valid={text_of(str(file))}, test={text_of(str(file))}}}"]
    if data.kind == "tagged":
        lines = [line for word in ENGLISH for line in (f"{word} NUM", "apples NOUN", "")]
        file = write_lines(place / "tags.txt", lines)
        return [f"data={{words={text_of(str(file))}, valid={text_of(str(file))}, test={text_of(str(file))}}}"]
    file = write_lines(place / "play.txt", PLAY)
    return [f"data={{text={text_of(str(file))}, valid={text_of(str(file))}, test={text_of(str(file))}}}"]


def scores(out: Path, *arguments: object) -> dict[str, float]:
    ran = regard("evaluate", out, *arguments, "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert sum(map(sum, found["confusion"])) == found["answers"]
    return {score["name"]: score["value"] for score in found["scores"]}


def verified(out: Path) -> None:
    ran = regard("verify", out, "--texts", 6)
    assert ran.code == 0, ran.out + ran.err
    assert {"neighbours", "padding", "resume"} <= set(ran.out.split())


@pytest.mark.parametrize("recipe", CLASSIFIERS)
def test_classifiers(recipe: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    train(out, recipe, *corpus(tmp_path, recipe))
    lines = [f"{word}\t{label}" for label, words in (("en", ENGLISH), ("de", GERMAN)) for word in words]
    learned = write_lines(tmp_path / "learned.tsv", lines)
    assert (
        scores(out, learned, "--confusion", tmp_path / "confusion.svg")["accuracy"] > 80
    )  # one label for all gives 50
    assert scores(out).keys() >= {"accuracy", "macro F1"}
    assert "<svg" in (tmp_path / "confusion.svg").read_text()
    ran = regard("classify", out, stdin=b"drei\n\neleven\n")
    assert ran.code == 0, ran.err
    given = ran.out.splitlines()
    assert len(given) == 3
    assert set(given) <= {"en", "de"}
    failed(regard("classify", out, stdin=None), 2, "stdin: must be open to be read from, but is closed")
    ran = regard("classify", out, "--json", stdin=b"drei\n")
    found = json.loads(ran.out)
    assert found["label"] == given[0] == next(iter(found["probabilities"]))
    assert sum(found["probabilities"].values()) == pytest.approx(1)
    verified(out)


@pytest.mark.parametrize("recipe", TAGGERS)
def test_taggers(recipe: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    train(out, recipe, *corpus(tmp_path, recipe))
    found = scores(out)
    assert found["accuracy"] > 90  # of what it learned; one tag for all gives 50
    assert ("capitals" in found) == ("punctuation F1" in found) == (recipe != "tag-columns")
    texts = ["Speak, apples!", "", "hear  me"]
    ran = regard("tag", out, stdin="".join(f"{text}\n" for text in texts).encode())
    assert ran.code == 0, ran.err
    assert [len(line.split()) for line in ran.out.split("\n")[:-1]] == [2, 0, 2]
    words = json.loads(regard("tag", out, "--json", stdin=b"hear  me\n").out)["words"]
    assert [word["word"] for word in words] == ["hear", "me"]
    restores = recipe != "tag-columns"
    ran = regard("tag", out, "--restore", stdin=b"speak speak\n")
    assert (ran.code == 0) == restores
    if restores:
        assert ran.out.lower().replace(",", "").replace(".", "").split()[:1] == ["speak"]
    verified(out)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("table")
    train(place / "out", "classify-table", *corpus(place, "classify-table"))
    return place / "out"


@pytest.mark.parametrize(
    "command",
    [
        ["translate"], ["generate", "x"], ["score", "x"], ["tag"],
        ["align", "x", "y"], ["export", "y", "--to", "huggingface"],
    ],
)  # fmt: skip
def test_what_a_classifier_is_not_for(table: Path, tmp_path: Path, command: Sequence[str]) -> None:
    shutil.copytree(table.parent, tmp_path / "here")
    for name in ("x", "y"):
        write_lines(tmp_path / name, ["one"])
    rest = [tmp_path / word if word in ("x", "y") and command[0] in ("score", "align", "export") else word
            for word in command[1:]]  # fmt: skip
    ran = regard(command[0], table, *rest, stdin=b"one\n")
    failed(ran, 2, "classif")


def test_what_a_classifier_looks_at(table: Path, tmp_path: Path) -> None:
    ran = regard("view", table, "twelve", "--what", "heads", "--out", tmp_path / "heads.svg")
    assert ran.code == 0, ran.err
    assert "pooling" in (tmp_path / "heads.svg").read_text(encoding="utf-8").lower()
    failed(regard("view", table, "twelve", "--what", "beam", "--out", tmp_path / "beam.svg"), 2, "heads", "classifier")


def test_the_card_and_the_parts(table: Path) -> None:
    card = (table / "card.md").read_text(encoding="utf-8")
    for words in (
        "pipeline_tag: text-classification",
        "gives each text a label",
        "regard classify out",
        "accuracy",
        "| cost |",
    ):
        assert words in card
    ran = regard("inspect", table)
    assert "classifier, " in ran.out
    assert ", 2 labels, " in ran.out
    assert json.loads(regard("inspect", table, "--json").out)["labels"] == 2
    assert "plan: classify-language on " in regard("train", "classify-language", "--plan").out


def test_from_python(table: Path, words_model: Path) -> None:
    model = load(table)
    assert model.task == "classify"
    assert model.labels == ("de", "en")
    one, empty = model.classify(["zwölf", ""])
    assert one.label == "de"
    assert len(empty.probabilities) == 2
    together = model.classify([*ENGLISH, *GERMAN])
    assert [found.label for found in together] == [model.classify([word])[0].label for word in ENGLISH + GERMAN]
    for wrong in (lambda: model.tag(["x"]), lambda: model.restore(["x"]), lambda: model.translate(["x"])):
        with pytest.raises(UsageError, match="classif"):
            wrong()
    with pytest.raises(UsageError, match="translates"):
        load(words_model).classify(["x"])
    with pytest.raises(UsageError, match="list of texts"):
        model.classify("x")


def test_where_memory_is_short_fewer_texts_are_read_at_a_time(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(table)
    wanted = [found.label for found in model.classify(ENGLISH)]
    tried, heard = tight(monkeypatch, model.labeller.network, 3), list[int]()
    assert [found.label for found in model.classify(ENGLISH, heard.append)] == wanted
    assert max(tried) > 3
    assert sum(heard) == len(ENGLISH)
    tight(monkeypatch, model.labeller.network, 0)
    with pytest.raises(DataError, match=r"classify: text \d+: must fit into the memory of the device"):
        model.classify(ENGLISH)


def test_a_run_begins_with_another(table: Path, tmp_path: Path) -> None:
    data = f"data={{table={text_of(str(table.parent / 'table.tsv'))}}}"
    ran = regard("train", "classify-table", f"init={table}", *COURSE[:1], data, "device=cpu", "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert load(tmp_path / "out").classify(["zwölf"])[0].label == "de"


def test_a_label_that_the_model_it_began_with_does_not_know(table: Path, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "new.tsv", [f"{word}\t{label}" for word in ENGLISH for label in ("en", "de", "fr")])
    data = f"data={{table={text_of(str(file))}}}"
    ran = regard("train", "classify-table", f"init={table}", *COURSE[:1], data, "device=cpu", "--out", tmp_path / "out")
    failed(
        ran, 65, "labels: must be among those that the model knows (de, en), but 'fr' is not.", "train without `init`"
    )
    assert not (tmp_path / "out").exists()


def test_other_test_files(table: Path, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "other.tsv", ["one\ten", "zwei\tde"])
    assert scores(table, file)["accuracy"] == 100
    failed(regard("evaluate", table, write_lines(tmp_path / "new.tsv", ["one\tfr"])), 65, "'fr'")
    failed(regard("evaluate", table, file, file), 2, "one file")
    failed(regard("evaluate", table, file, "--confusion", tmp_path / "x.png"), 2, ".svg")
    for option in (["--beam", 4], ["--out", tmp_path / "labels"], ["--rouge"], ["--extra-length", 3]):
        failed(regard("evaluate", table, file, *option), 2, f"{option[0]} is for models that translate")
    failed(regard("evaluate", table, file, "--overlap", 3), 2, "--overlap is for language models")
