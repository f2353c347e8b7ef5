"""A model folder can be held against published figures; tests/docs/test_results.py holds those against the pages."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
import torch

import regard
from benchmarks import sentences
from regard import shipped, status
from regard.bands.band import BANDS, read_band
from regard.data.sources import Files, Mixture, Text
from regard.errors import DataError, MissingError, UsageError
from regard.evaluation.catalogue import Scoring
from regard.evaluation.likelihood import Likelihood
from regard.folder import Loaded, read_recipe
from regard.layers.positions import TooLongError
from regard.models.build import build_any
from regard.recipe import load_recipe
from regard.reproduce import judging
from regard.reproduce import published as module
from regard.reproduce.judging import Judge
from regard.reproduce.published import Figure, Publication, Publications, TestFiles, Verdict, check, published
from regard.reproduce.sameness import Made, in_words
from tests.tiny import ENGLISH, GERMAN, failed
from tests.tiny import regard as command

if TYPE_CHECKING:
    from regard.text.tokenizer import Tokenizer

CORPORA = Path(os.environ.get("REGARD_DATA", Path(__file__).parents[2] / "../shared/data"))
PUBLIC = ("tatoeba/manythings-2018.en-de.tsv.bz2", "lm-small/tinyshakespeare.txt.gz", "lm-small/warandpeace.txt.gz")
MADE = ("everyday/", "writer/", "sentences/")
BLEU = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:0.0.1"


def test_every_figure_has_a_recipe_and_a_tolerance() -> None:
    known = published()
    for model in known.models.values():
        assert load_recipe(model.recipe, model.overrides)
        assert all(0 < figure.tolerance < 1 for figure in model.figures)
    assert all(re.fullmatch("[0-9a-f]{64}", sha256) for sha256 in known.files.values())


@pytest.fixture
def words(words_model: Path, tmp_path: Path) -> Publications:
    """A published figure of the model of thirteen words, on a test set in which one word is another."""
    files = {}
    for name, lines in (("words.en.gz", ENGLISH), ("words.de.gz", ["nichts", *GERMAN[1:]])):
        (tmp_path / name).write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
        files[name] = hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
    figures = (
        Figure("words", "exact match", "exact", 100 * 12 / 13, 0.01),
        Figure("words", "perplexity per token", "perplexity", 50.0, 1e3),
    )
    signatures = {"exact": "percent of 13 lines, to the letter", "perplexity": "another"}
    sets = {"words": TestFiles("words.en.gz", "words.de.gz")}
    model = Publication("thirteen words", str(words_model / "recipe.toml"), figures)
    return Publications(files, {}, sets, signatures, {"words": model})


def test_a_model_is_held_against_its_figures(words: Publications, words_model: Path, tmp_path: Path) -> None:
    exact, perplexity = check("words", words_model, tmp_path, words)
    assert exact.holds
    assert str(exact) == "ok      words: exact match is 92.31, published 92.31, within 0.01"
    # Near enough, but nobody knows of what.
    assert not perplexity.holds
    assert "but computed in another way: first reference|tokens:" in str(perplexity)


def test_a_check_says_how_far_it_is(
    words: Publications, words_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(status, "PAUSE_ELSEWHERE", 0.0)
    check("words", words_model, tmp_path, words)
    assert "translated 13 of 13 lines" in capsys.readouterr().err


def test_what_is_found_is_what_regard_evaluate_says(words: Publications, words_model: Path, tmp_path: Path) -> None:
    report = regard.load(words_model).evaluate(ENGLISH, ["nichts", *GERMAN[1:]], Scoring(language="de"))
    scores = {score.name: score.value for score in report.scores}
    for verdict in check("words", words_model, tmp_path, words):
        assert verdict.found == pytest.approx(scores[verdict.metric], rel=1e-5)


def test_pairs_may_stand_in_two_columns_of_one_file(words: Publications, words_model: Path, tmp_path: Path) -> None:
    text = "".join(f"{german}\tmore\t{english}\n" for english, german in zip(ENGLISH, GERMAN, strict=True))
    (tmp_path / "words.tsv").write_text(text, encoding="utf-8")
    figures = (
        Figure("words", "exact match", "exact", 100.0, 0.01),
        Figure("words", "BLEU tokenised", "de", 0.0, 1000.0),
    )
    known = replace(
        words,
        files={"words.tsv": hashlib.sha256(text.encode()).hexdigest()},
        sets={"words": TestFiles("words.tsv", columns=(3, 1), language="de")},
        signatures={**words.signatures, "de": "nrefs:1|case:mixed|eff:no|tok:like-moses-de|smooth:none"},
        models={"words": replace(words.models["words"], figures=figures)},
    )
    assert [verdict.holds for verdict in check("words", words_model, tmp_path, known)] == [True, True]


def test_a_language_model_has_one_file(babbling_model: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("one\ntwo\n", encoding="utf-8")
    files = {"text": hashlib.sha256(b"one\ntwo\n").hexdigest()}
    figure = Figure("text", "perplexity per byte", "bytes", 1.0, 1e9)
    model = Publication("babble", str(babbling_model / "recipe.toml"), (figure,))
    signature = {"bytes": "text|line by line|bytes:8|UTF-8|line ends:yes"}
    known = Publications(files, {}, {"text": TestFiles("text")}, signature, {"babble": model})
    (verdict,) = check("babble", babbling_model, tmp_path, known)
    assert verdict.holds
    assert verdict.found == pytest.approx(
        next(s.value for s in regard.load(babbling_model).evaluate_text(["one", "two"]).scores if "byte" in s.name)
    )


@pytest.mark.parametrize(("found", "holds"), [(41.66, True), (41.86, True), (41.65, False), (41.87, False)])
def test_the_tolerance_goes_both_ways(found: float, holds: bool) -> None:
    verdict = Verdict("test2016", "BLEU", 41.76, found, 0.1, BLEU)
    assert verdict.holds == holds
    assert ("more than 0.1 apart" in str(verdict)) != holds


def test_another_version_of_the_library_is_no_other_definition() -> None:
    assert module._definition(BLEU) == module._definition(BLEU.replace("0.0.1", "2.6.0"))
    assert module._definition(BLEU) != module._definition(BLEU.replace("13a", "intl"))


def test_other_files_are_refused(words: Publications, words_model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="NAME must be one of: words; but is `wirds`"):
        check("wirds", words_model, tmp_path, words)
    (tmp_path / "words.de.gz").write_bytes(gzip.compress(b"eins\n"))
    with pytest.raises(DataError, match=r"words.de.gz: its SHA-256 must be [0-9a-f]{12}…"):
        check("words", words_model, tmp_path, words)
    (tmp_path / "words.de.gz").unlink()
    with pytest.raises(MissingError, match=r"the published figure is of this file.* --data; docs/reproduce\.md says"):
        check("words", words_model, tmp_path, words)


@pytest.mark.parametrize("name", shipped.names())
def test_a_missing_file_of_a_shipped_model_leads_to_the_commands_that_make_it(name: str, tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"--data; docs/shipped\.md, \"How they were made\", has the commands"):
        check(name, Path(name), tmp_path)
    page = (Path(__file__).parents[2] / "docs/shipped.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"^## How they were made$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    for figure in published().models[name].figures:
        for file in published().sets[figure.set].names:
            assert Path(file).name in section


def test_a_shipped_model_is_called_by_its_name(
    words: Publications, words_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "package").mkdir()
    shutil.copytree(words_model, tmp_path / "package/everyday-en-de")
    monkeypatch.setattr(shipped, "PLACE", tmp_path / "package")
    monkeypatch.setattr(module, "published", lambda: words)
    monkeypatch.chdir(tmp_path)
    ran = command("reproduce", "words", "--check", "everyday-en-de", "--data", tmp_path)
    assert ran.out.startswith("ok      words: exact match is 92.31"), ran.err
    ran = command("reproduce", "words", "--check", "everyday", "--data", tmp_path)
    failed(ran, 66, "everyday: must be a model folder", "comes with Regard: everyday-en-de")


@pytest.mark.parametrize(
    ("preset", "kind", "does"),
    [
        ("writer", "gpt", "continues text"),
        ("multi30k", "transformer", "translates"),
        ("classify-language", "classifier", "gives labels"),
        ("bert-small", "bert", "fills gaps"),
        ("music-jsb", "gpt", "writes music"),
    ],
)
def test_a_model_that_does_something_else_is_refused(preset: str, kind: str, does: str) -> None:
    recipe = load_recipe(preset)
    with torch.device("meta"):
        loaded = Loaded(recipe, cast("Tokenizer", None), build_any(recipe.model, 300, 300))
    for files, needed in ((TestFiles("a", "b"), "translates"), (TestFiles("a"), "continues text")):
        if does == needed:
            module._must_fit(loaded, "here:", files)
            continue
        said = rf"^here: it must hold a model that {needed}, but holds one of kind `{kind}`, which {does}\. Name"
        with pytest.raises(UsageError, match=said):
            module._must_fit(loaded, "here:", files)


def made_as(name: str, *overrides: str, corpus: str | None = None, ended: str | None = "done") -> Made:
    """A model as the command trains it that is printed for a published one, with changes."""
    known = published()
    model = known.models[name]
    recipe = load_recipe(model.recipe, [*known._corpus(model, "here"), *model.overrides, *overrides])
    learned = known.corpora.get(corpus or model.corpus or "", {})
    return Made(recipe, {str(getattr(recipe.data, key)): known.files[file] for key, file in learned.items()}, ended)


def refused(made: Made, name: str) -> str | None:
    try:
        module._must_be_one(made, "here:", name, published())
    except UsageError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", published().models)
def test_a_model_trained_by_the_command_that_is_printed_may_be_checked(name: str) -> None:
    assert refused(made_as(name), name) is None
    more = (
        "name=mine", "seed=7", "device=cpu", "training.compile=no", "training.validate_every=50",
        "training.save_every=50", "training.keep=9", "training.parts=2", "training.precision=fp32",
        "training.deterministic=true", "training.bleu_lines=10", "log.tensorboard=false", "search.nbest=2",
    )  # fmt: skip
    wanted = load_recipe(published().models[name].recipe).training
    if wanted.average > 1 and wanted.average_of == "best":  # what is validated is what there is to choose from
        more = tuple(each for each in more if not each.startswith("training.validate_every"))
        for other in ("training.validate_every=6000", "training.keep_best=9"):
            assert other.partition("=")[0] in str(refused(made_as(name, other), name))
    assert refused(made_as(name, *more), name) is None
    assert refused(replace(made_as(name), files=None, ended=None), name) is None


@pytest.mark.parametrize("name", shipped.names())
def test_a_shipped_model_was_made_as_its_recipe_says(name: str) -> None:
    place = shipped.path(name)
    assert refused(Made.read(place, read_recipe(place)), name) is None


@pytest.mark.parametrize(
    ("name", "overrides", "said"),
    [
        ("multi30k", ["training.r_drop=5"], "`training.r_drop` is 5.0, not 0.0"),
        ("multi30k", ["training.steps=20000"], "`training.steps` is 20000, not 8000"),
        ("multi30k", ["training.optimiser.rate=1e-3"], "`training.optimiser.rate` is 0.001, not 0.005"),
        ("multi30k", ["training.ema=0.5"], "`training.ema` is 0.5, not 0.998"),
        ("multi30k", ["training.average=2"], "`training.average` is 2, not 1"),
        ("multi30k", ["batch.tokens=4096"], "`batch.tokens` is 4096, not 8192"),
        ("multi30k", ["tokenizer.vocabulary=500"], "`tokenizer.vocabulary` is 500, not 10000"),
        ("multi30k", ["model.window=5"], "`model.window` is 5, but must not be set"),
        ("multi30k", ["search.beam=1"], "`search.beam` is 1, not 5"),
        ("multi30k", ["data.filters.max_words=9"], "`data.filters.max_words` is 9, not 250"),
        ("zh-en", ["data.columns=[1, 2]"], "`data.columns` is [1, 2], not [2, 1]"),
        ("fr-en", ["training.optimiser.warmup=9"], "`training.optimiser.warmup` is 9, not 400"),
        ("five-minutes", ["model.d_model=128"], "`model.d_model` is 128, not 512"),
        ("five-minutes", ["training.by_clock=false"], "`training.by_clock` is false, not true"),
        ("writer", ["training.steps=10"], "`training.steps` is 10, not 6000"),
        ("everyday-en-de", ["data.weights=[1.0, 1.0, 1.0]"], "`data.weights` is [1.0, 1.0, 1.0], not [3.0, 1.0, 2.0]"),
    ],
)
def test_a_model_of_other_settings_is_refused_and_each_is_named(name: str, overrides: list[str], said: str) -> None:
    found = refused(made_as(name, *overrides, ended=None), name)
    assert found is not None
    assert found.startswith(f"here: it must hold a model that was made as that one, but {said}. Train one with the ")
    assert f"`regard reproduce {name}` prints, or name another folder; `regard evaluate` scores any" in found


def test_of_many_differences_the_first_are_named() -> None:
    changes = [f"model.{key}=64" for key in ("d_model", "d_ff", "d_k")]
    changes += ["tokenizer.split_punctuation=false", "search.beam=1", "batch.tokens=999"]
    found = refused(made_as("multi30k", *changes), "multi30k")
    assert found is not None
    assert found.count("` is ") == module.NAMED
    assert "; 1 more. Train one" in found


def test_a_setting_that_is_not_there_is_told() -> None:
    assert in_words("a.b", None, True) == "`a.b` is not set, but must be true"
    assert in_words("a.b", 1, None) == "`a.b` is 1, but must not be set"
    assert in_words("a.b", 1, 2) == "`a.b` is 1, not 2"


def test_the_search_of_a_language_model_decides_nothing() -> None:
    assert refused(made_as("writer", "search.beam=1"), "writer") is None


@pytest.mark.parametrize(
    ("name", "overrides", "ended", "key"),
    [
        ("five-minutes", ["training.steps=30000"], "time", None),
        ("five-minutes", ["training.steps=100"], "done", "steps"),  # the bound came first
        ("five-minutes", ["training.minutes=1"], "time", "minutes"),
        ("multi30k", ["training.minutes=60"], "done", None),  # it did not take so long
        ("multi30k", ["training.minutes=1"], "time", "minutes"),
        ("multi30k", ["training.patience=3"], "done", None),
        ("multi30k", ["training.patience=3"], "no improvement", "patience"),
    ],
)
def test_what_did_not_end_a_run_does_not_count(name: str, overrides: list[str], ended: str, key: str | None) -> None:
    found = refused(made_as(name, *overrides, ended=ended), name)
    assert found is None if key is None else f"but `training.{key}` is " in str(found)


def test_a_model_of_another_corpus_is_refused() -> None:
    german, french = (published().files[f"multi30k/task1/train.{side}.gz"][:12] for side in ("de", "fr"))
    said = f'`data.target` is "here/multi30k/task1/train.fr.gz" ({german}…), not multi30k/task1/train.fr.gz ({french}…)'
    found = refused(made_as("multi30k-fr", corpus="multi30k"), "multi30k-fr")
    assert found is not None
    assert f"made as that one, but {said}. Check it against `multi30k`, since" in found
    # Files that nothing is known of are not those; nor is a corpus of another kind.
    made = made_as("multi30k")
    assert '`data.source` is "here/multi30k/task1/train.en.gz", not' in str(
        refused(replace(made, files={}), "multi30k")
    )
    other = replace(made, recipe=load_recipe("multi30k"), files={})
    assert 'but `data.kind` is "generated", not "files". Train one' in str(refused(other, "multi30k"))


@pytest.mark.parametrize(
    ("like", "name", "said"),
    [
        (
            "multi30k-r-drop",
            "multi30k",
            "but `training.r_drop` is 5.0, not 0.0; `training.steps` is 20000, not 8000. Check",
        ),
        ("five-minutes", "five-minutes-sinusoidal", '`model.positions` is "rotary", not "sinusoidal"; '),
        ("everyday-en-de", "five-minutes", "but holds one of `everyday-en-de`: `data.kind` is "),
        ("everyday-en-de", "everyday-de-en", "`data.corpora.0.columns` is [1, 2], not [2, 1]"),
        ("decoder-only-multi30k", "multi30k", '`: `model.kind` is "decoder-only", not "transformer"; `model.d_ff` '),
    ],
)
def test_another_published_model_is_refused_and_named(like: str, name: str, said: str) -> None:
    found = refused(made_as(like), name)
    assert found is not None
    assert said in found
    assert f"Check it against `{like}`, since it was made as that, or name another folder" in found


def test_a_model_folder_says_how_it_was_made(words_model: Path, babbling_model: Path) -> None:
    made = Made.read(words_model, read_recipe(words_model))
    assert made.ended == "done"
    files = [words_model.parent / f"words.{side}" for side in ("en", "de")]
    assert made.files == {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    bare = Made.read(babbling_model, read_recipe(babbling_model))
    assert (bare.files, bare.ended) == (None, None)


def test_nothing_is_translated_to_find_out_that_it_is_another(
    words: Publications, words_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "Judge", lambda _: pytest.fail("it was to be refused before"))
    model = replace(words.models["words"], overrides=("training.steps=50", "seed=9"))
    with pytest.raises(
        UsageError, match=rf"^{words_model}: to be checked against words .*`training.steps` is 40, not 50"
    ):
        check("words", words_model, tmp_path, replace(words, models={"words": model}))
    monkeypatch.chdir(tmp_path)
    ran = command("reproduce", "five-minutes", "--check", "everyday-en-de", "--data", tmp_path)
    failed(ran, 2, "everyday-en-de: to be checked against five-minutes it must hold a model that was made as that one")


def test_a_wrong_folder_is_told_before_the_files_are_looked_at(
    words: Publications, babbling_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "words.de.gz").unlink()
    with pytest.raises(UsageError, match=rf"^{babbling_model}: to be checked against words it must hold a model that"):
        check("words", babbling_model, tmp_path, words)


def test_the_command_ends_with_0_or_1(
    words: Publications, words_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "published", lambda: words)
    line = ("reproduce", "words", "--check", words_model, "--data", tmp_path)
    ran = command(*line)
    assert ran.code == 1
    assert "words: missed 1 of 2 published figures. They are those of the published weights: a model" in ran.out
    found = json.loads(command(*line, "--json").out)
    assert (found["holds"], [each["holds"] for each in found["figures"]]) == (False, [True, False])
    words.signatures["perplexity"] = found["figures"][1]["other_signature"]  # type: ignore[index]
    ran = command(*line)
    assert ran.code == 0
    assert ran.out.endswith(f"words: {words_model} has its published figures.\n")


def test_a_mean_over_seeds_is_not_called_one_of_published_weights(
    words: Publications, words_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = replace(words, models={"words": replace(words.models["words"], seeds=3)})
    monkeypatch.setattr(module, "published", lambda: known)
    ran = command("reproduce", "words", "--check", words_model, "--data", tmp_path)
    assert "published figures. They are means over 3 seeds, and 19 of 20 other seeds would be within" in ran.out
    assert "weights" not in ran.out
    assert [name for name, model in published().models.items() if model.seeds > 1] == [
        "multi30k", "decoder-only-multi30k", "multi30k-fr",
    ]  # fmt: skip


def test_without_a_name_everything_is_listed() -> None:
    ran = command("reproduce")
    assert ran.code == 0
    for name in ("table1", "table3", "ladder-multi30k", "ladder-europarl", *published().models):
        assert re.search(rf"^{name}  +\S", ran.out, re.MULTILINE), name
    assert set(json.loads(command("reproduce", "--json").out)) == {"tables", "published"}


@pytest.mark.parametrize("name", [name for name, model in published().models.items() if model.corpus is not None])
def test_the_command_that_trains_one_names_every_file(name: str) -> None:
    """A recipe may name files of its own, as a test set, which nobody has."""
    _, _, preset, *overrides, out, _ = published().commands(name)["train"].split()
    assert out == "--out"
    data = load_recipe(preset, overrides).data
    assert isinstance(data, Files)
    files = [data.source, data.target, data.valid_source, data.valid_target, data.test_source, data.test_target]
    named = [file.removeprefix("FOLDER/") for file in files if file is not None]
    assert len(named) >= (4 if data.target is not None else 2)  # or both sides are in one
    assert set(named) <= published().files.keys()


@pytest.mark.data
@pytest.mark.parametrize("file", [file for file in published().files if not file.startswith(MADE)])
def test_the_public_files_are_those(file: str) -> None:
    """The others are made of public ones, and looked at where that is tried, below."""
    if not (CORPORA / file).is_file():
        pytest.skip(f"needs {file} in REGARD_DATA")
    module._check_file(CORPORA / file, published().files[file])


def test_a_model_alone_says_how_it_was_made() -> None:
    ran = command("reproduce", "multi30k-pre")
    assert ran.code == 0
    assert "test2016: BLEU tokenised 40.91, within 0.1  (nrefs:1|case:lc|" in ran.out
    made = "To train one: regard train multi30k data.kind=files data.source=FOLDER/multi30k/task1/train.en.gz "
    assert made in ran.out
    end = "model.norm=pre training.optimiser.clip=1.0 --out runs/multi30k-pre\n"
    assert f"data.valid_target=FOLDER/multi30k/task1/val.de.gz {end}" in ran.out
    assert "To check one: regard reproduce multi30k-pre --check runs/multi30k-pre --data FOLDER\n" in ran.out
    found = json.loads(command("reproduce", "multi30k-pre", "--json").out)
    assert found["commands"]["train"].endswith(end.strip())
    first = {"set": "test2016", "metric": "BLEU tokenised", "value": 40.91, "tolerance": 0.1}
    assert first.items() <= found["figures"][0].items()


@pytest.mark.parametrize("name", shipped.ORDER)
def test_a_shipped_model_is_checked_on_what_its_recipe_holds_out(name: str) -> None:
    known, data = published(), load_recipe(name).data
    sets = [known.sets[figure.set] for figure in known.models[name].figures]
    if isinstance(data, Mixture):
        (corpus,) = [corpus for corpus in data.corpora if corpus.test_source is not None]
        made = TestFiles(corpus.test_source or "", None, corpus.columns, corpus.target_language)
        assert {replace(files, source=f"data/{files.source}") for files in sets} == {made}
    else:
        assert isinstance(data, Text)
        assert all(fnmatch(f"data/{files.source}", data.valid or "") and not files.has_pairs for files in sets)
    card = (shipped.path(name) / "card.md").read_text(encoding="utf-8")
    found = command("reproduce", name).out
    trained = f"regard train {name} --out runs/{name}\n"
    assert f"To train one: {trained}" in found
    assert f"```sh\n{trained}```" in card
    assert f"To check one: regard reproduce {name} --check runs/{name} --data data\n" in found
    end = f"comes with Regard: regard reproduce {name} --check {name} --data data\n"
    assert found.endswith(end)
    assert json.loads(command("reproduce", name, "--json").out)["commands"]["check_shipped"] in end


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The test sets of the shipped models, made by the commands of their page from the public files."""
    place = tmp_path_factory.mktemp("made")
    for file in PUBLIC:
        if not (CORPORA / file).is_file():
            pytest.skip(f"needs {file} in REGARD_DATA")
        (place / Path(file).name).symlink_to((CORPORA / file).resolve())
    page = (Path(__file__).parents[2] / "docs/shipped.md").read_text(encoding="utf-8")
    for block in re.findall(r"```bash\n(.*?)```", page, re.DOTALL):
        if any(Path(file).name in block for file in PUBLIC):
            subprocess.run(["bash", "-e", "-c", block], cwd=place, check=True)
    return place / "data"


@pytest.mark.data
def test_the_page_of_the_shipped_models_makes_the_files(made: Path) -> None:
    known = published()
    for name in shipped.ORDER:
        for figure in known.models[name].figures:
            for file in known.sets[figure.set].names:
                assert hashlib.sha256((made / file).read_bytes()).hexdigest() == known.files[file]


@pytest.mark.data
def test_the_benchmark_makes_the_files_of_chinese_to_english(tmp_path: Path) -> None:
    """By hashes of sentences, so that they are the same everywhere; and their usual course is of the same files."""
    if not (CORPORA / "tatoeba").is_dir() or not (CORPORA / "softdocs").is_dir():
        pytest.skip("needs tatoeba and softdocs in REGARD_DATA")
    known = published()
    made = sentences.chinese_pairs(CORPORA, tmp_path)
    for split, file in made.items():
        name = known.corpora["zh-en"][f"{split}source"]
        assert Path(name).name == file.name
        module._check_file(file, known.files[name])
    assert len(made["test_"].read_text(encoding="utf-8").strip("\n").split("\n")) == 1_198


def test_the_usual_course_of_chinese_to_english_is_of_the_same_files() -> None:
    known = published()
    files = [known.files[known.corpora["zh-en"][key]] for key in ("source", "valid_source")]
    assert list(read_band(BANDS / "zh-en.toml").corpus) == files


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("name", shipped.ORDER)
def test_the_shipped_models_have_their_published_figures(name: str, made: Path) -> None:
    ran = command("reproduce", name, "--check", name, "--data", made)
    assert ran.code == 0, ran.out + ran.err


@pytest.mark.data
@pytest.mark.slow
def test_the_figures_by_length_of_the_page_are_those_of_the_command(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made.parent)
    ran = command("evaluate", "everyday-en-de", "--json")
    assert ran.code == 0, ran.err
    short, long, _ = json.loads(ran.out)["lengths"]
    assert [(each["first"], each["last"]) for each in (short, long)] == [(0, 10), (11, 20)]
    page = " ".join((Path(__file__).parents[2] / "docs/shipped.md").read_text(encoding="utf-8").split())
    assert f"On the {long['lines']} lines whose German reference has 11 to 20 tokens" in page
    told = f"a BLEU of {long['bleu']:.2f}, against {short['bleu']:.2f} on the {short['lines']:,} lines with up to 10"
    assert told in page


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            'corpus = "europarl"',
            'corpus = "euro"',
            r"models.five-minutes must name one of \[corpora\], but names `euro`",
        ),
        ('set = "mscoco"', 'set = "coco"', r"models.multi30k must name one of \[sets\], but names `coco`"),
        (
            'signature = "cased"',
            'signature = "x"',
            r"models.five-minutes must name one of \[signatures\], but names `x`",
        ),
        ('source = "europarl-ende/test.en.bz2"', 'source = "gone"', r"sets.europarl must name one of \[files\]"),
        ('target = "europarl-ende/train.de.xz"', 'target = "gone"', r"corpora.europarl must name one of \[files\]"),
        ("value = 25.78", 'value = "much"', r"`models.five-minutes.figures.0.value` must be .* valid number"),
        (
            'metric = "BLEU", signature = "cased"',
            'signature = "cased"',
            r"`models.five-minutes.figures.0.metric` must be",
        ),
        ("[signatures]", "signatures", "must be TOML, but is not"),
    ],
)
def test_a_file_that_names_what_it_does_not_have_is_refused(before: str, after: str, said: str, tmp_path: Path) -> None:
    text = module.FIGURES.read_text(encoding="utf-8")
    assert before in text
    (tmp_path / "figures.toml").write_text(text.replace(before, after), encoding="utf-8")
    with pytest.raises(DataError, match=rf"figures.toml: {said}"):
        Publications.read(tmp_path / "figures.toml")


def test_a_figure_that_cannot_be_computed_is_missed(words: Publications, words_model: Path, tmp_path: Path) -> None:
    figures = (Figure("words", "perplexity per word", "perplexity", 5.0, 1.0),)
    known = replace(words, models={"words": replace(words.models["words"], figures=figures)})
    (verdict,) = check("words", words_model, tmp_path, known)
    assert not verdict.holds
    assert str(verdict) == "FAILED  words: perplexity per word cannot be computed of this model, published 5.000"


def test_only_what_is_too_long_has_no_perplexity(words_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(words_model)

    def failing(error: Exception) -> Callable[..., Likelihood]:
        def likelihood(*_: object) -> Likelihood:
            raise error

        return likelihood

    monkeypatch.setattr(judging, "likelihood", failing(TooLongError("positions: …")))
    assert "perplexity per token" not in judge.pairs(ENGLISH, GERMAN, Scoring()).scores
    monkeypatch.setattr(judging, "likelihood", failing(UsageError("something else")))
    with pytest.raises(UsageError, match="something else"):
        judge.pairs(ENGLISH, GERMAN, Scoring())
