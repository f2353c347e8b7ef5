"""Usual courses are told to runs of the same recipe alone, with what those have otherwise."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from regard import experiment, folder
from regard.bands import comparing
from regard.bands.band import Band, band_of_recipe, read_band
from regard.bands.comparing import THOUGHTS, TOO_LOW, TOO_SHORT, Comparison, not_compared, watch_of
from regard.bands.decisive import languages_of, within
from regard.recipe import PRESETS, Recipe, build_recipe, load_recipe
from regard.settings.tree import text_of
from regard.training.usual import TOO_HIGH
from regard.viewing.training_curves import CURVES
from tests.bands.pairs import SOURCE, TARGET, recipe_of
from tests.tiny import write_lines


def notes(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("note:")]


def test_a_run_like_the_others_says_nothing_and_is_drawn_over_what_is_usual(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment.train(recipe_of(tmp_path / "corpus", overrides=["seed=4"]), tmp_path / "out")
    assert notes(capsys) == []
    picture = (tmp_path / "out" / CURVES).read_text(encoding="utf-8")
    assert picture.count('class="band c') == 2
    assert "shaded: usual, 3 runs" in picture


def test_a_rate_a_hundred_times_higher_is_noticed_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment.train(recipe_of(tmp_path / "corpus", overrides=["training.optimiser.factor=30.0"]), tmp_path / "out")
    (said,) = notes(capsys)
    assert re.search(r"loss \d\.\d\d at step \d+ is \d\.\d\d nats above the usual .* of `pairs` \(3 runs\)", said)
    assert said.endswith(
        "What differs here: `training.optimiser.factor` is 30.0, not 0.3. Think of a rate too high. See “The usual "
        "course” in docs/training.md."
    )


def test_lines_that_are_not_aligned_are_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shuffled = random.Random(1).sample(TARGET, len(TARGET))
    experiment.train(recipe_of(tmp_path / "corpus", shuffled), tmp_path / "out")
    (said,) = notes(capsys)
    assert said.endswith(
        "the corpus is about as large, but another one, whose lines may not stand beside their translations. See “The "
        "usual course” in docs/training.md."
    )


def test_a_run_that_is_not_compared_says_so_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    half = recipe_of(tmp_path / "corpus", overrides=["training.optimiser.factor=9.0", "training.steps=10"])
    for name, side in (("words.en", SOURCE), ("words.de", TARGET)):
        write_lines(tmp_path / "corpus" / name, side[:80])
    experiment.train(half, tmp_path / "out")
    said = "note: this run is not compared with the usual course of `pairs`: its corpus has 80 examples, not about 169."
    assert notes(capsys) == [said]
    experiment.train(replace(half, training=replace(half.training, steps=12)), tmp_path / "out", resume=True)
    assert notes(capsys) == []


@pytest.mark.parametrize(
    ("overrides", "why"),
    [(["model.d_ff=64"], "`model.d_ff` is 64, not 128."),
     (["data.source_language='en'", "data.target_language='fr'"], "it is from en to fr, not from en to de."),
     (["training.label_smoothing=0.1", "batch.layout='packed'"],
      "`batch.layout` is \"packed\", not \"buckets\"; `training.label_smoothing` is 0.1, not 0.0."),
     (["model={d_ff = 64, d_model = 32, heads = 4, norm = 'post'}", "tokenizer.vocabulary=99"],
      "`tokenizer.vocabulary` is 99, not 120; `model.d_model` is 32, not 64; `model.d_ff` is 64, not 128; 2 more.")],
)  # fmt: skip
def test_why_a_run_is_not_compared(overrides: list[str], why: str, runs: list[Path]) -> None:
    said = not_compared(folder.read_recipe(runs[0], overrides), folder.read_fingerprint(runs[0]) or {})
    assert said == f"note: this run is not compared with the usual course of `pairs`: {why}"


def test_nothing_is_said_of_a_run_that_is_compared_or_has_no_course(runs: list[Path]) -> None:
    fingerprint = folder.read_fingerprint(runs[0]) or {}
    assert not_compared(folder.read_recipe(runs[0], ["batch.tokens=64"]), fingerprint) is None
    assert not_compared(folder.read_recipe(runs[0], ["name=other", "model.d_ff=64"]), fingerprint) is None
    assert not_compared(folder.read_recipe(runs[0], ["init=else", "model.d_ff=64"]), fingerprint) is None


def test_under_another_name_a_run_is_compared_if_all_else_is_the_same(runs: list[Path]) -> None:
    fingerprint = folder.read_fingerprint(runs[0]) or {}
    for name in ("mine", "../pairs"):
        mine = folder.read_recipe(runs[0], [f"name={name}", "training.optimiser.factor=30.0"])
        watch = watch_of(mine, fingerprint)
        assert watch is not None
        assert watch.course.recipe == "pairs"
        assert watch.causes == ["`training.optimiser.factor` is 30.0, not 0.3"]
    other_corpus = {**fingerprint, "files": {"words.en": "1", "words.de": "2"}}
    assert watch_of(folder.read_recipe(runs[0]), other_corpus) is not None
    assert watch_of(folder.read_recipe(runs[0], ["name=mine"]), other_corpus) is None
    assert watch_of(folder.read_recipe(runs[0], ["name=mine", "model.d_ff=64"]), fingerprint) is None
    assert band_of_recipe("../pairs") is None


@pytest.mark.parametrize(
    ("overrides", "thoughts"),
    [(["factor=3.0"], [TOO_HIGH]), (["factor=0.1"], [TOO_LOW]), (["warmup=2"], [TOO_SHORT]),
     (["warmup=200"], [TOO_LOW]), (["factor=3.0", "warmup=2", "clip=9.0"], [TOO_HIGH, TOO_SHORT]),
     (["factor=0.1", "warmup=200"], [TOO_LOW]),
     # What is higher here and lower there, or measured otherwise, is not known to be either.
     *((each, [THOUGHTS["training.optimiser"]])
       for each in (["factor=3.0", "warmup=200"], ["factor=3.0", "kind=adamw"], ["factor=3.0", "schedule=constant"],
                    ["beta1=0.5"])),
     (["rate=1.0"], [])],  # which the paper's schedule does not have
)  # fmt: skip
def test_the_direction_of_the_rate_is_said_where_it_is_known(
    overrides: list[str], thoughts: list[str], measured: Band, runs: list[Path]
) -> None:
    recipe = folder.read_recipe(runs[0], [f"training.optimiser.{override}" for override in overrides])
    assert Comparison(measured, recipe, folder.read_fingerprint(runs[0]) or {}).thoughts() == thoughts


def test_what_the_usual_runs_did_not_use_is_no_cause(measured: Band, runs: list[Path]) -> None:
    """Another schedule has a rate and an end of its own: those of the usual runs are defaults that nobody chose."""
    schedule, rate = "training.optimiser.schedule", "training.optimiser.rate=0.3"
    recipe = folder.read_recipe(runs[0], [f"{schedule}=cosine", rate, "training.steps=77"])
    found = Comparison(measured, recipe, folder.read_fingerprint(runs[0]) or {})
    assert found.causes() == [f'`{schedule}` is "cosine", not "paper"']


def test_a_warm_up_that_moves_the_whole_rate_has_no_direction(measured: Band, runs: list[Path]) -> None:
    schedule = {"training.optimiser.schedule": "inverse-sqrt"}
    band = replace(measured, settings={**measured.settings, **schedule})
    changes = ["training.optimiser.schedule=inverse-sqrt", "training.optimiser.warmup=200"]
    comparison = Comparison(band, folder.read_recipe(runs[0], changes), folder.read_fingerprint(runs[0]) or {})
    assert comparison.thoughts() == [THOUGHTS["training.optimiser"]]


def test_a_key_is_within_a_place_by_whole_words() -> None:
    assert within("batch", ["data", "batch"])
    assert within("batch.tokens", ["data", "batch"])
    assert not within("training.average_of", ["training.average", "data"])


def test_by_the_clock_a_faster_machine_is_thought_of() -> None:
    band = read_band(PRESETS / "bands" / "five-minutes.toml")
    fingerprint = {"files": dict(enumerate(band.corpus)), "examples": band.examples, "tokens": band.tokens}
    assert Comparison(band, load_recipe("five-minutes"), fingerprint).thoughts() == [
        "a machine faster than theirs (NVIDIA H200, 150 GB), where the rate falls at later steps by the clock"
    ]
    faster = load_recipe("five-minutes", ["training.optimiser.rate=0.4"])
    assert Comparison(band, faster, fingerprint).thoughts() == [TOO_HIGH]


def test_steps_are_no_cause_where_the_rate_does_not_end_with_them() -> None:
    band = read_band(PRESETS / "bands" / "lm-shakespeare-small.toml")
    assert "training.steps" in band.settings
    recipe = load_recipe("lm-shakespeare-small", ["training.optimiser.schedule=paper"])
    fingerprint = {"files": dict(enumerate(band.corpus)), "examples": band.examples, "tokens": band.tokens}
    assert not any("training.steps" in cause for cause in Comparison(band, recipe, fingerprint).causes())


def test_minutes_are_a_cause_where_the_rate_falls_by_the_clock() -> None:
    band = read_band(PRESETS / "bands" / "five-minutes.toml")
    fingerprint = {"files": dict(enumerate(band.corpus)), "examples": band.examples, "tokens": band.tokens}
    longer = Comparison(band, load_recipe("five-minutes", ["training.minutes=500"]), fingerprint)
    assert longer.causes() == ["`training.minutes` is 500.0, not 5.0"]
    assert THOUGHTS["training.minutes"] in longer.thoughts()
    by_steps = load_recipe("five-minutes", ["training.minutes=500", "training.by_clock=false"])
    assert Comparison(band, by_steps, fingerprint).causes() == ["`training.by_clock` is false, not true"]


def test_of_a_generated_corpus_the_setting_is_named() -> None:
    recipe = load_recipe("demo", ["data.pairs=20000", "training.optimiser.factor=10.5"])
    band = read_band(PRESETS / "bands" / "demo.toml")
    fingerprint = {"files": {}, "reading": "", "examples": 20_000, "tokens": band.tokens // 2}
    assert Comparison(band, recipe, fingerprint).hindrances() == ["`data.pairs` is 20000, not 40000"]
    assert Comparison(band, load_recipe("demo", ["batch.tokens=256", "data.seed=5"]), fingerprint).thoughts() == [
        THOUGHTS["batch"], THOUGHTS["data"]
    ]  # fmt: skip


def test_a_run_that_goes_on_is_compared_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = recipe_of(tmp_path / "corpus", overrides=["seed=4", "training.steps=25"])
    experiment.train(recipe, tmp_path / "out")
    longer = replace(recipe, training=replace(recipe.training, steps=60))
    experiment.train(longer, tmp_path / "out", resume=True)
    assert notes(capsys) == []
    faster = replace(longer.training.optimiser, factor=3.0)
    broken = replace(longer, training=replace(longer.training, steps=90, optimiser=faster))
    assert watch_of(broken, folder.read_fingerprint(tmp_path / "out") or {}) is not None


@pytest.mark.parametrize(
    "override",
    ["model.d_ff=64", "model.dropout=0.1", "tokenizer.vocabulary=110", "training.label_smoothing=0.1",
     "training.r_drop=1.0", "batch.layout='packed'"],
)  # fmt: skip
def test_another_recipe_has_another_course(override: str, runs: list[Path]) -> None:
    fingerprint = folder.read_fingerprint(runs[0]) or {}
    assert watch_of(folder.read_recipe(runs[0]), fingerprint) is not None
    assert watch_of(folder.read_recipe(runs[0], [override]), fingerprint) is None


@pytest.mark.parametrize(
    "override",
    ["seed=9", "training.steps=500", "training.save_every=7", "search.beam=2", "device=cpu", "log.tensorboard=true"],
)  # fmt: skip
def test_what_does_not_change_the_course_is_no_cause(override: str, runs: list[Path]) -> None:
    watch = watch_of(folder.read_recipe(runs[0], [override]), folder.read_fingerprint(runs[0]) or {})
    assert watch is not None
    assert watch.causes == []


@pytest.mark.parametrize(
    ("override", "cause"),
    [("training.parts=2", "`training.parts` is 2, not 1"),
     ("training.deterministic=false", "`training.deterministic` is false, not true"),
     ("training.ema=0.9", "`training.ema` is 0.9, usually not set")],
)  # fmt: skip
def test_whatever_a_step_is_made_with_may_be_a_cause(override: str, cause: str, runs: list[Path]) -> None:
    watch = watch_of(folder.read_recipe(runs[0], [override]), folder.read_fingerprint(runs[0]) or {})
    assert watch is not None
    assert watch.causes == [cause]


@pytest.fixture
def generated(measured: Band) -> Band:
    """The same of a corpus that is generated, from French to English."""
    settings = {**measured.settings, "data.source": "fr", "data.target": "en"}
    return replace(measured, corpus=(), languages=("fr", "en"), settings=settings)


def written(band: Band, *overrides: str) -> tuple[Recipe, dict[str, object]]:
    """A run on a generated corpus as large as that of a band."""
    data = "data={kind = 'generated', source = 'fr', target = 'en'}"
    here = {key: value for key, value in band.settings.items() if not key.startswith("data.")}
    recipe = build_recipe({}, ["name=pairs", data, *(f"{key}={text_of(value)}" for key, value in here.items()),
                               *overrides], "pairs")  # fmt: skip
    return recipe, {"files": {}, "reading": "", "examples": band.examples, "tokens": band.tokens}


def test_a_generated_corpus_in_other_languages_is_another_course(generated: Band) -> None:
    same = Comparison(generated, *written(generated))
    assert not same.hindrances()
    assert same.causes() == []
    for override, languages in (
        ("data.source=de", "de to en"),
        ("data.target=de", "fr to de"),
        ("data={source = 'en', target = 'fr'}", "en to fr"),
    ):
        found = Comparison(generated, *written(generated, override)).hindrances()
        assert found == [f"it is from {languages}, not from fr to en"]


@pytest.mark.parametrize("name", ["demo", "everyday-en-de"])
def test_files_the_other_way_round_are_another_course_than_a_generated_corpus_and_a_mixture(name: str) -> None:
    band = read_band(PRESETS / "bands" / f"{name}.toml")
    fingerprint = {"files": {"a": "1", "b": "2"}, "examples": band.examples, "tokens": band.tokens}

    def hindrances(source: str, target: str) -> list[str]:
        recipe = load_recipe(name, [f"data={{kind = 'files', source = 'a.{source}', target = 'a.{target}'}}"])
        return Comparison(band, recipe, fingerprint).hindrances()

    assert hindrances("en", "de") == []
    assert hindrances("de", "en") == ["it is from de to en, not from en to de"]


def test_a_mixture_has_languages_where_all_of_it_has_the_same() -> None:
    def languages(*pairs: tuple[str, str]) -> tuple[str, ...]:
        parts = ", ".join(f"{{source = 'a.{source}', target = 'a.{target}'}}" for source, target in pairs)
        return languages_of(load_recipe("small", [f"data={{kind = 'mixture', corpora = [{parts}]}}"]))

    assert languages(("en", "de"), ("en", "de")) == ("en", "de")
    assert languages(("en", "de"), ("fr", "de")) == languages(("txt", "de"), ("txt", "de")) == ()


def test_other_lines_of_a_generated_corpus_may_be_a_cause(generated: Band) -> None:
    changed = Comparison(generated, *written(generated, "data.seed=7", "data.valid=90"))
    assert not changed.hindrances()
    assert changed.causes() == ["`data.valid` is 90, not 500", "`data.seed` is 7, not 1"]


def test_under_another_name_a_corpus_generated_otherwise_is_another(
    generated: Band, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "all_bands", lambda: [generated])
    assert watch_of(*written(generated, "name=mine")) is not None
    assert watch_of(*written(generated, "name=mine", "data.seed=7")) is None


def test_a_corpus_in_files_is_known_by_its_content_alone(generated: Band, measured: Band, runs: list[Path]) -> None:
    recipe, fingerprint = folder.read_recipe(runs[0]), folder.read_fingerprint(runs[0]) or {}
    on_files = Comparison(replace(generated, languages=("en", "de")), recipe, fingerprint)
    assert not on_files.hindrances()
    (cause,) = on_files.causes()
    assert cause.startswith("the corpus is about as large, but another one")
    on_generated = Comparison(measured, *written(generated, "data={source = 'en', target = 'de', pairs = 9}"))
    assert not on_generated.hindrances()
    (cause,) = on_generated.causes()
    assert cause == "the corpus is about as large, but another one"


def test_causes_are_named_with_both_values(measured: Band, runs: list[Path]) -> None:
    changes = ["batch.tokens=64", "training.optimiser.schedule=cosine", "training.optimiser.warmup=4_000"]
    recipe = folder.read_recipe(runs[0], changes)
    causes = Comparison(measured, recipe, folder.read_fingerprint(runs[0]) or {}).causes()
    assert "`batch.tokens` is 64, not 512" in causes
    assert '`training.optimiser.schedule` is "cosine", not "paper"' in causes
    assert "`training.optimiser.warmup` is 4000, not 20" in causes


def test_another_amount_of_data_is_another_course(measured: Band, runs: list[Path]) -> None:
    recipe, fingerprint = folder.read_recipe(runs[0]), dict(folder.read_fingerprint(runs[0]) or {})
    assert not Comparison(measured, recipe, {**fingerprint, "tokens": round(measured.tokens * 1.04)}).hindrances()
    assert Comparison(measured, recipe, {**fingerprint, "tokens": round(measured.tokens * 1.06)}).hindrances()
    assert Comparison(measured, recipe, {**fingerprint, "examples": round(measured.examples * 0.9)}).hindrances()
    assert Comparison(measured, recipe, {"files": {}, "reading": ""}).hindrances()


def test_the_same_files_the_other_way_round_are_another_course(measured: Band, runs: list[Path]) -> None:
    recipe, fingerprint = folder.read_recipe(runs[0]), dict(folder.read_fingerprint(runs[0]) or {})
    assert len(fingerprint["files"]) == 2
    swapped = {**fingerprint, "files": dict(reversed(fingerprint["files"].items()))}
    assert Comparison(measured, recipe, swapped).hindrances() == ["its files are the same the other way round"]


@pytest.mark.parametrize("file", sorted((PRESETS / "bands").glob("*.toml")), ids=lambda file: file.stem)
def test_what_is_shipped_was_measured_with_the_recipe_as_it_is(file: Path) -> None:
    band = read_band(file)
    assert band.course.recipe == file.stem
    recipe, hashes = load_recipe(file.stem), {str(number): found for number, found in enumerate(band.corpus)}
    fingerprint = {"files": hashes, "reading": "", "examples": band.examples, "tokens": band.tokens}
    comparison = Comparison(band, recipe, fingerprint)
    assert not comparison.hindrances(), f"{file.stem} has changed: measure its course anew"
    assert comparison.causes() == []
    assert len(set(band.seeds)) == band.course.runs != 2
    assert len(band.course.training) >= 20
    assert band.course.validation
