"""Folders and engines: who reads what, and what happens when they do not fit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import regard as package
from regard import folder as folders
from regard.api import Options
from regard.decoding.search import SearchSettings
from regard.engines.loading import choose, engine_of
from regard.errors import DataError, UsageError
from regard.interop import ctranslate2, onnx
from regard.interop.reading import recognise
from tests.interop.exported import GPTS, LINES, TRANSLATORS, empty, random_model
from tests.tiny import failed, regard, write_lines

pytest.importorskip("ctranslate2")
pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One random model: its own folder, and exported."""
    place = tmp_path_factory.mktemp("models")
    loaded = random_model(TRANSLATORS["paper"], ["search.extra_length=5"])
    own = place / "own"
    folders.write_beginning(own, loaded.recipe, loaded.tokenizer)
    (own / folders.METRICS).touch()
    ctranslate2.write(loaded, empty(place / "ct2"))
    onnx.write(loaded, empty(place / "onnx"))
    ctranslate2.write(loaded, empty(place / "bare"))
    for name in (folders.RECIPE, folders.TOKENIZER):
        (place / "bare" / name).unlink()
    weights = {name: weight.clone() for name, weight in loaded.model.state_dict().items()}
    folders.write_end(own, weights, "# random")
    return {name: place / name for name in ("own", "ct2", "onnx", "bare")}


def test_a_folder_knows_its_engine(places: dict[str, Path], tmp_path: Path) -> None:
    found = {name: engine_of(place) for name, place in places.items()}
    assert found == {"own": "torch", "ct2": "ctranslate2", "onnx": "onnx", "bare": "ctranslate2"}
    assert engine_of(tmp_path) == "torch"
    assert {name: recognise(place) for name, place in places.items()} == {**found, "own": "regard"}
    assert choose(places["ct2"], "auto") == choose(places["ct2"], "ctranslate2") == "ctranslate2"


def test_what_torch_reads_is_torchs_whatever_lies_beside(places: dict[str, Path], tmp_path: Path) -> None:
    both = tmp_path / "both"
    shutil.copytree(places["own"], both)
    for name in ("model.bin", "config.json"):
        shutil.copy(places["ct2"] / name, both)
    assert engine_of(both) == "torch"
    assert recognise(both) == "regard"


def test_a_list_of_models_tells_of_an_exported_one_what_is_known(places: dict[str, Path]) -> None:
    own, known, bare = (package.load(places[name]).summary(name) for name in ("own", "ct2", "bare"))
    assert known.parameters == own.parameters
    assert known.kind == own.kind == "transformer"
    assert (bare.parameters, bare.kind, bare.languages.target) == (None, "ctranslate2", ())
    with pytest.raises(UsageError, match=r"must say how a model is built, but CTranslate2's files of `bare`"):
        package.load(places["bare"]).inside()


def test_every_engine_gives_the_same_greedy_translations(places: dict[str, Path]) -> None:
    texts = [*LINES, "", "one two", "a b c d e f g h i j " * 3]
    search = SearchSettings(beam=1, extra_length=5)
    answers = []
    for name in ("own", "ct2", "onnx"):
        found = [each for (each,) in package.load(places[name]).translations(texts, search)]
        answers.append([(each.text, each.tokens, each.cut, each.flags, round(each.score, 3)) for each in found])
    assert answers[0] == answers[1] == answers[2]


def test_alignments_are_those_of_our_own_model(places: dict[str, Path]) -> None:
    search = SearchSettings(beam=1, extra_length=5)
    own, theirs = (
        package.load(places[name]).translations(LINES, search, options=Options(alignment=True))
        for name in ("own", "ct2")
    )
    for (one,), (other,) in zip(own, theirs, strict=True):
        assert [link[:2] for link in one.alignment] == [link[:2] for link in other.alignment]
        for first, second in zip(one.alignment, other.alignment, strict=True):
            assert first[2] == pytest.approx(second[2], abs=1e-3)


def test_a_bare_folder_reads_tokens_between_spaces(places: dict[str, Path]) -> None:
    own, bare = package.load(places["ct2"]), package.load(places["bare"])
    search = SearchSettings(beam=1, extra_length=5)
    tokenizer = own.tokenizer
    cut = [" ".join(tokenizer.tokens[token] for token in tokenizer.encode(line)) for line in LINES]
    wanted = own.translations(LINES, search)
    for (one,), (other,) in zip(bare.translations(cut, search), wanted, strict=True):
        assert one.tokens == other.tokens
        assert one.score == pytest.approx(other.score, abs=1e-3)


def test_an_engine_that_does_not_fit_is_refused_with_the_way_out(places: dict[str, Path]) -> None:
    with pytest.raises(UsageError, match=f"regard export {places['own']} DIR --to onnx"):
        package.load(places["own"], engine="onnx")
    with pytest.raises(UsageError, match="is one for ctranslate2"):
        package.load(places["ct2"], engine="onnx")
    with pytest.raises(UsageError, match="must be one of: auto, torch, ctranslate2, onnx"):
        package.load(places["own"], engine="tensorrt")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="onnx computes in"):
        package.load(places["onnx"], precision="int8")
    with pytest.raises(UsageError, match="ctranslate2 computes in"):
        package.load(places["ct2"], precision="bf16")


def test_vocabularies_that_are_none_are_refused(places: dict[str, Path], tmp_path: Path) -> None:
    for file in places["bare"].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "shared_vocabulary.json").write_text(json.dumps({"a": 1}))
    with pytest.raises(DataError, match="must be a list of words"):
        package.load(tmp_path)
    (tmp_path / "shared_vocabulary.json").write_text(json.dumps(["a", "b"]))
    with pytest.raises(DataError, match="must hold the end token"):
        package.load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(DataError, match="must be JSON"):
        package.load(tmp_path)


@pytest.mark.parametrize("name", ["ct2", "onnx", "bare"])
def test_the_command_line_translates_and_resumes(places: dict[str, Path], tmp_path: Path, name: str) -> None:
    source = write_lines(tmp_path / "in.txt", [*LINES, ""])
    out = tmp_path / "out.txt"
    ran = regard("translate", places[name], source, "--out", out, "--beam", "2")
    assert ran.code == 0, ran.err
    assert len(out.read_text().split("\n")) == len(LINES) + 2
    again = regard("translate", places[name], source, "--out", out, "--beam", "2", "--resume")
    assert again.code == 0, again.err
    told = regard("translate", places[name], "--json", "--nbest", "2", "--beam", "2", stdin=b"one two\n")
    assert set(json.loads(told.out)) == {
        "text", "score", "tokens", "source_tokens", "alternatives", "alignment", "flags",
    }  # fmt: skip


def test_the_command_line_names_what_an_engine_cannot_do(places: dict[str, Path]) -> None:
    failed(regard("translate", places["ct2"], "--mbr", "4", stdin=b"one\n"), 2, "ctranslate2", "--mbr")
    failed(regard("translate", places["own"], "--engine", "onnx", stdin=b"one\n"), 2, "regard export")


@pytest.mark.parametrize("name", ["ct2", "bare"])
def test_a_config_that_is_no_object_is_refused(name: str, places: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(places[name], tmp_path / "copy")
    (tmp_path / "copy" / "config.json").write_text("[]")
    failed(regard("translate", tmp_path / "copy", stdin=b"one\n"), 65, "must be a JSON object, but is a list")


@pytest.mark.parametrize("limit", ["x", 0, 2.5, None, True])
def test_a_limit_that_is_no_number_is_refused(limit: object, places: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(places["ct2"], tmp_path / "copy")
    config = tmp_path / "copy" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"regard_positions": limit}))
    failed(regard("translate", tmp_path / "copy", stdin=b"one\n"), 65, "`regard_positions` must be a whole number")


@pytest.mark.parametrize("other", ["gpt", "deeper", "wider", "more words"])
def test_another_models_graph_is_refused(other: str, places: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(places["onnx"], tmp_path / "copy")
    kind = {
        "gpt": GPTS["gpt2"],
        "deeper": TRANSLATORS["paper"].replace("decoder_layers=3", "decoder_layers=4"),
        "wider": TRANSLATORS["paper"].replace("d_model=16", "d_model=32"),
        "more words": TRANSLATORS["paper"],
    }[other]
    wrong = random_model(kind, ["tokenizer.vocabulary=50"] if other == "more words" else [])
    onnx.write(wrong, empty(tmp_path / "other"))
    shutil.copy(tmp_path / "other" / "decoder.onnx", tmp_path / "copy")
    failed(regard("translate", tmp_path / "copy", stdin=b"one\n"), 65, "another model's")
