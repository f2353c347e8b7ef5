"""A chosen recipe suits corpus and machine, says why, and is one that can be typed again."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from regard import choosing, planning, shipped
from regard.choosing import choose, choose_further
from regard.data.corpus import Files
from regard.data.glance import CorpusSize
from regard.machine import Machine
from regard.recipe import Recipe, load_recipe
from regard.viewing.costs import Lesson
from tests.machines import CPU, GPU, run_at

pytestmark = pytest.mark.usefixtures("no_clock")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs by a rule of thumb, for tests of the choice itself."""

    def thumb(model: Any, length: int, tokens: int, moments: int) -> Lesson:
        parameters = sum(weight.numel() for weight in model.parameters())
        return Lesson(tokens // length, 6 * parameters, *[4 * parameters] * 4)

    monkeypatch.setattr(planning, "count_training", thumb)


def corpus(pairs: int) -> CorpusSize:
    return CorpusSize(pairs, 60 * pairs, 60 * pairs)


DATA = ["data={kind='files', source='a.en', target='a.de'}"]


@pytest.mark.parametrize(
    ("pairs", "machine", "speed", "preset"),
    [
        (5_000, CPU, 1e15, "tiny"),
        (5_000, GPU, 1e15, "tiny"),
        (150_000, CPU, 1e15, "small"),
        (150_000, CPU, 1e11, "tiny"),  # a small one would take too long
        (150_000, GPU, 1e15, "medium"),
        (4_000_000, GPU, 1e15, "base"),
        (4_000_000, GPU, 1e9, "base"),  # a GPU's owner decides for how long
    ],
)
def test_the_choice_follows_corpus_and_machine(
    pairs: int, machine: Machine, speed: float, preset: str, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_at(monkeypatch, speed)
    found = choose(corpus(pairs), machine, DATA)
    assert found.preset == preset
    assert found.plan.steps == found.recipe.training.steps
    assert found.recipe.data == Files("a.en", "a.de")
    assert found.recipe.training.optimiser.warmup <= found.recipe.training.steps / 5
    # Every reason but the first is about a change, and the command in full gives the same recipe.
    assert {reason.split(":")[0] for reason in found.reasons[1:]} <= set(found.changes)
    command = found.to_text(["--source", "a.en"]).split("said in full: ")[1]
    words = shlex.split(command)
    assert words[:3] == ["regard", "train", preset]
    assert load_recipe(preset, [*DATA, *[word for word in words[3:] if "=" in word]]) == found.recipe


def test_who_asks_for_steps_gets_a_rate_that_goes_by_them(quick: None) -> None:
    found = choose(corpus(5_000), CPU, DATA, ["training.steps=300"])
    course = found.recipe.training
    assert (course.steps, course.validate_every, course.optimiser.warmup) == (300, 50, 60)
    assert found.changes.count("training.steps=300") == 1


def test_a_trial_of_a_few_steps_has_a_warm_up() -> None:
    found = choose(corpus(5_000), CPU, DATA, ["training.steps=3"])
    assert found.recipe.training.optimiser.warmup == 1


@pytest.mark.parametrize(
    ("pairs", "tokens", "steps"), [(400, 1_024, 200), (20_000, 13_312, 400), (4_000_000, 25_600, 5_000)]
)
def test_a_model_goes_on_with_small_batches_few_steps_and_a_low_rate(
    pairs: int, tokens: int, steps: int, quick: None
) -> None:
    own, sides = str(shipped.path("everyday-en-de") / "recipe.toml"), {"source": "a.en", "target": "a.de"}
    found = choose_further(own, corpus(pairs), CPU, ["init=everyday-en-de"], sides)
    recipe, before = found.recipe, load_recipe("everyday-en-de")
    assert (recipe.model, recipe.tokenizer, recipe.search) == (before.model, before.tokenizer, before.search)
    assert recipe.data == Files("a.en", "a.de")
    assert (recipe.batch.tokens, recipe.training.steps) == (tokens, steps)
    assert recipe.training.optimiser.rate == choosing.FURTHER.rate < before.training.optimiser.rate
    # The command in full gives the same recipe.
    words = shlex.split(found.to_text(["--source", "a.en"]).split("said in full: regard train ")[1])
    assert choose_further(own, corpus(pairs), CPU, words[:-2], sides).recipe == recipe


def test_what_is_typed_stands_above_the_course_of_a_model_that_goes_on(quick: None) -> None:
    own = str(shipped.path("everyday-en-de") / "recipe.toml")
    typed = ["init=everyday-en-de", "training.steps=1000", "training.optimiser.rate=1e-5", *DATA]
    found = choose_further(own, None, CPU, typed, None)
    course = found.recipe.training
    assert (course.steps, course.optimiser.rate, course.optimiser.warmup, course.validate_every) == (
        1000,
        1e-5,
        100,
        50,
    )
    assert not [reason for reason in found.reasons if "rate" in reason or "steps" in reason]


def test_on_a_slow_cpu_steps_are_cut_and_this_is_said(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    run_at(monkeypatch, 2e9)
    found = choose(corpus(40_000), CPU, DATA)
    assert choosing.FEWEST_STEPS <= found.recipe.training.steps < 10_000
    assert found.recipe.training.validate_every <= found.recipe.training.steps / 10
    assert "hours on this CPU" in found.reasons[-1]
    assert found.plan.seconds <= 3600 * choosing.CPU_HOURS * 1.1 or found.recipe.training.steps == choosing.FEWEST_STEPS
    asked = choose(corpus(40_000), CPU, DATA, ["training.steps=50_000"])
    assert asked.recipe.training.steps == asked.plan.steps == 50_000


@pytest.mark.parametrize(("hours", "cut"), [(3.9, False), (4.1, True)])
def test_a_cpu_trains_for_four_hours_at_most(
    hours: float, cut: bool, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_at(monkeypatch, 1e15)
    wanted = choose(corpus(40_000), CPU, DATA).plan
    run_at(monkeypatch, 1e15 * wanted.seconds / (3600 * hours))
    assert (choose(corpus(40_000), CPU, DATA).plan.steps < wanted.steps) is cut


def test_overrides_have_the_last_word(quick: None) -> None:
    found = choose(corpus(5_000), GPU, DATA, ["model.d_model=64", "name=mine", "training.patience=3"])
    assert (found.recipe.name, found.recipe.training.patience) == ("mine", 3)
    assert found.recipe.model.d_model == 64  # type: ignore[union-attr]
    table = choose(corpus(5_000), GPU, DATA, ["training={steps=80, keep=9}", "tokenizer.vocabulary=500"])
    # What was not taken is not given a reason, either.
    assert [reason.partition(":")[0] for reason in table.reasons] == ["`tiny`"]
    assert "training.patience=10" in table.changes
    words = shlex.split(table.to_text([]).split("said in full: ")[1])
    assert load_recipe("tiny", [*DATA, *words[3:]]) == table.recipe


def test_a_pipe_gets_the_small_recipe(quick: None) -> None:
    found = choose(None, CPU, ["data={kind='files', source='-', target='a.de'}"])
    assert (found.preset, found.changes, found.plan.corpus) == ("small", (), None)


@pytest.mark.parametrize("overrides", [[], ["batch.tokens=1_000"]])
def test_reasons_and_plan_tell_the_same_epochs(overrides: list[str], quick: None) -> None:
    found = choose(corpus(3_000), GPU, DATA, overrides)
    assert found.plan.steps_per_epoch is not None
    epochs = f"about {found.plan.steps / found.plan.steps_per_epoch:.0f} epochs of {found.plan.steps_per_epoch} steps"
    assert f"training.steps={found.plan.steps}: {epochs}; " in found.reasons[-1]
    assert epochs in found.plan.to_text()


def test_a_run_that_stops_after_its_best_averages_the_best(quick: None) -> None:
    course = choose(corpus(3_000), GPU, DATA).recipe.training
    assert (course.patience, course.keep_best, course.average_of) == (10, 5, "best")
    assert course.average <= course.keep_best
    assert course.save_every == course.validate_every  # a best one that was not saved cannot be kept
    asked = choose(corpus(3_000), GPU, DATA, ["training.average_of=newest"])
    assert asked.recipe.training.average_of == "newest"
    assert not any("average_of" in change for change in asked.changes[:-1])


@pytest.mark.parametrize("pairs", [1, 13, 49_999])
def test_the_smallest_corpora_have_recipes_too(pairs: int, quick: None) -> None:
    recipe: Recipe = choose(corpus(pairs), CPU, DATA).recipe
    assert 1_000 <= recipe.tokenizer.vocabulary <= 8_000
