"""Plans: sizes are counted, times follow from the formula, and a chosen recipe is one that can be typed again."""

from __future__ import annotations

import gzip
import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from regard import planning
from regard.data.corpus import Files, Mixture, Text
from regard.data.generated import Generated
from regard.data.glance import CorpusSize, measure
from regard.errors import MissingError, UsageError
from regard.machine import Machine
from regard.models.build import build
from regard.planning import FILLED, SHARE, choose, plan
from regard.recipe import Recipe, load_recipe
from regard.text.tokenizer import Tokenizer
from regard.training.optim import OptimiserSettings, step_flops
from regard.viewing.costs import Lesson, count
from tests.tiny import ENGLISH, GERMAN, generated_recipe, write_lines

CPU = Machine("cpu", "a CPU", 2, 16 * 10**9)
GPU = Machine("cuda", "a GPU", 2, 80 * 10**9)
SPEED = 1e9


@pytest.fixture(autouse=True)
def no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "matmul_speed", lambda *_: SPEED)


# ---- the corpus


def test_lines_and_bytes_are_counted_whatever_the_file(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.en", ENGLISH)
    target = tmp_path / "a.de.gz"
    text = "\n".join(GERMAN).encode()  # the last line has no end
    target.write_bytes(gzip.compress(text))
    both = CorpusSize(13, source.stat().st_size, len(text))
    assert measure(Files(str(source), str(target))) == both
    assert measure(Mixture((Files(str(source), str(target)),) * 2)) == both + both
    assert measure(Text(str(source))) == CorpusSize(13, 0, source.stat().st_size)
    assert measure(Text(str(target))) == CorpusSize(13, 0, len(text))
    table = write_lines(tmp_path / "a.tsv", ["one\teins", "two\tzwei"])
    assert measure(Files(str(table))) == CorpusSize(2, 9, 9)


def test_a_generated_corpus_is_measured_by_a_sample() -> None:
    found = measure(Generated(pairs=5_000))
    assert found is not None
    assert found.pairs == 5_000
    assert 20 < found.source / 5_000 < 60


def test_what_cannot_be_read_twice_has_no_size_and_what_is_not_there_is_named(tmp_path: Path) -> None:
    assert measure(Files("-", "a.de")) is None
    assert measure(Text("-")) is None
    with pytest.raises(MissingError, match=r"no\.en"):
        measure(Files(str(tmp_path / "no.en"), str(tmp_path / "no.de")))


# ---- the plan of a recipe


def test_the_plan_of_a_recipe_is_its_formula() -> None:
    recipe = generated_recipe(["batch.row=16", "batch.layout=packed"])
    size = CorpusSize(300, 9_000, 9_000)
    found = plan(recipe, CPU, size)
    with torch.device("meta"):
        model = build(recipe.model, recipe.tokenizer.vocabulary)
    flops, memory = count(model, 16, recipe.batch.tokens, recipe.search.beam)
    assert found.parameters == sum(weight.numel() for weight in model.parameters())
    assert (found.rows, found.length, found.steps) == (recipe.batch.tokens // 16, 16, 30)
    step = recipe.batch.tokens * flops.training_token / (SHARE["cpu"] * SPEED)
    assert found.seconds == pytest.approx(30 * step)
    assert found.tokens_per_second == pytest.approx(2 * FILLED * recipe.batch.tokens / step)
    assert found.steps_per_epoch == round(size.tokens / (FILLED * recipe.batch.tokens))
    (alone,) = found.holdings
    assert (alone.weights, alone.activations, alone.most) == (memory.weights, memory.activations, memory.training)
    assert json.loads(json.dumps(found.to_json()))["holdings"][0]["way"] == "1 process"
    assert "of which each process" not in found.to_text()


def test_the_characters_of_a_corpus_are_its_vocabulary(tmp_path: Path) -> None:
    """What is planned with is what training would learn; a letter and its accent are one where they are composed."""
    lines = ["Größe", "Gro\u0308ße, sagt er", "一二"]
    text = write_lines(tmp_path / "a.txt", lines)
    wish = ["model={layers=1, d_model=16, d_ff=16, heads=2}", "batch={tokens=256, row=16}"]
    recipe = load_recipe("lm-shakespeare-small", [f"data.text={text}", *wish])
    found = plan(recipe, CPU, measure(recipe.data))
    assert found.vocabulary == Tokenizer.learn(lines, recipe.tokenizer).size
    assert found.vocabulary_from == "corpus"
    assert found.corpus is not None
    assert found.corpus.tokens == pytest.approx(sum(map(len, lines)) + 2 * len(lines), abs=1)
    assert "the characters of the corpus" in found.to_text()
    few = replace(recipe, tokenizer=replace(recipe.tokenizer, vocabulary=8))  # type: ignore[arg-type]
    assert plan(few, CPU, measure(recipe.data)).vocabulary == 8
    piped = plan(recipe, CPU, None)
    assert (piped.vocabulary, piped.vocabulary_from) == (8_000, "limit")
    assert "parameters if the vocabulary has 8,000 tokens" in piped.to_text()
    assert "of vocabulary\n" in plan(generated_recipe(), CPU, None).to_text()


def test_a_vocabulary_of_bytes_alone_has_a_token_for_each() -> None:
    recipe = generated_recipe(["tokenizer={kind='bytes', vocabulary=260}"])
    found = plan(recipe, CPU, CorpusSize(10, 900, 900)).corpus
    assert found is not None
    assert found.tokens == 910


def test_a_model_that_fills_gaps_is_planned_too(tmp_path: Path) -> None:
    """A BERT costs what a GPT of its sizes does, and the layer before its output; a classifier is refused."""
    text = write_lines(tmp_path / "a.txt", ENGLISH)
    bert, gpt = (
        plan(load_recipe(name, [f"data.text={text}", "batch.tokens=768"]), CPU, measure(Text(str(text))))
        for name in ("bert-small", "lm-shakespeare-small")
    )
    assert bert.flops_per_token - gpt.flops_per_token == 6 * 128 * 128
    assert (bert.rows, bert.length, bert.vocabulary) == (gpt.rows, gpt.length, gpt.vocabulary)
    with pytest.raises(UsageError, match="`classifier`, which gives labels"):
        plan(load_recipe("classify-table", [f"data.table={text}"]), CPU, None)


def test_more_processes_share_the_batch_and_the_time() -> None:
    recipe = generated_recipe(["batch.row=16", "batch.layout=packed"])
    one, four = plan(recipe, GPU, None), plan(recipe, GPU, None, world=4)
    assert four.seconds == pytest.approx(one.seconds / 4)
    assert (four.rows, four.rows_each) == (16, 4)
    alone, ddp, fsdp = four.holdings
    assert alone == one.holdings[0]
    assert (ddp.way, ddp.weights, ddp.moments) == ("DDP × 4", alone.weights, alone.moments)
    assert ddp.activations == pytest.approx(alone.activations / 4, rel=0.1)
    assert fsdp.weights == -(-alone.weights // 4)
    assert fsdp.moments == -(-alone.moments // 4)
    assert 0 < fsdp.gathered <= 2 * alone.weights
    assert fsdp.activations == ddp.activations
    text = four.to_text()
    assert "each process reads 4" in text
    assert f"with FSDP {-(-one.parameters // 4):,} of them" in text


def test_the_plan_knows_what_the_optimiser_keeps() -> None:
    """Adam two numbers for each weight, Muon one for those of its matrices, plain descent none."""
    wishes = ("adam", "muon", "sgd")
    plans = {kind: plan(generated_recipe([f"training.optimiser.kind={kind}"]), CPU, None) for kind in wishes}
    (adam,), (muon,), (descent,) = (plans[kind].holdings for kind in wishes)
    # One layer on each side: queries, keys, values, outputs once and twice, then the two maps of the feed-forward.
    matrices = 4 * ((4 + 8) * 16 * 16 + 2 * 2 * 16 * 32)
    assert (adam.moments, muon.moments, descent.moments) == (2 * adam.weights, 2 * adam.weights - matrices, 0)
    assert adam.most - muon.most == matrices


def test_the_plan_counts_muons_own_products() -> None:
    """For each matrix with sides m ≤ n, 5·(4·m²·n + 2·m³) FLOP a step, which processes cannot share."""
    wish = ["batch.row=16", "batch.layout=packed", "training.optimiser.kind=muon"]
    adam, muon = plan(generated_recipe(wish[:2]), CPU, None), plan(generated_recipe(wish), CPU, None)
    squares, others = (4 + 8) * (4 * 16**3 + 2 * 16**3), 2 * 2 * (4 * 16**2 * 32 + 2 * 16**3)
    assert (adam.optimiser_flops, muon.optimiser_flops) == (0, 5 * (squares + others))
    step = muon.optimiser_flops / (SHARE["cpu"] * SPEED)
    assert muon.seconds == pytest.approx(adam.seconds + 30 * step)
    assert muon.tokens_per_second < adam.tokens_per_second
    four = plan(generated_recipe(wish), CPU, None, world=4)
    assert four.seconds == pytest.approx(adam.seconds / 4 + 30 * step)
    assert "FLOP a step for Muon" in muon.to_text()
    assert "Muon" not in adam.to_text()


def test_muon_takes_the_share_of_the_base_model_that_is_documented() -> None:
    with torch.device("meta"):
        model = build(load_recipe("base").model, 32_000)
    assert step_flops(model, OptimiserSettings(kind="muon")) == pytest.approx(580e9, rel=0.01)


def test_the_plan_says_how_many_steps_there_is_time_for() -> None:
    found = plan(generated_recipe(["training.minutes=2.0"]), CPU, None)
    assert found.steps_in_time == found.steps == 30
    assert "training.minutes" not in found.to_text()
    slow = replace(found, seconds=1_200.0)
    assert slow.steps_in_time == 3
    assert "training.minutes stops it after 2:00, about 3 steps" in slow.to_text()


def test_what_fsdp_gathers_is_a_layer_or_an_embedding() -> None:
    with torch.device("meta"):
        wide, deep = (build(load_recipe("base").model, vocabulary) for vocabulary in (37_000, 100))
    assert planning._largest_layer(wide) == 37_000 * 512 * 4
    layer = sum(weight.nbytes for weight in deep.decoder[0].parameters())  # type: ignore[attr-defined]
    assert planning._largest_layer(deep) == layer


def test_a_model_that_does_not_fit_is_warned_of() -> None:
    recipe = generated_recipe()
    assert "warning" not in plan(recipe, CPU, None).to_text()
    assert "training.parts" in plan(recipe, replace(CPU, memory=1_000), None).to_text()


def test_a_run_took_six_products_a_weight_and_pair() -> None:
    recipe, d, inner, vocabulary, tokens = load_recipe("demo"), 96, 384, 8_000, 2_000_000
    weights = 2 * (4 * d * d + 2 * d * inner) + 2 * (8 * d * d + 2 * d * inner) + d * vocabulary
    found = planning.training_flops(recipe, vocabulary, tokens, 900)
    # Two for each multiply-add, forward, and twice as many on the way back; attention among 25 tokens is little.
    assert found == pytest.approx(tokens / 2 * 6 * weights, rel=0.05)
    twice = replace(recipe, training=replace(recipe.training, r_drop=5.0))
    assert planning.training_flops(twice, vocabulary, tokens, 900) == pytest.approx(2 * found)
    assert planning.training_flops(load_recipe("classify-language"), vocabulary, tokens, 900) is None


@pytest.mark.parametrize("kind", ["gpt", "decoder-only"])
def test_what_it_took_is_counted_within_the_positions_there_are(kind: str) -> None:
    few = ["model.d_model=16", "model.d_ff=32", "model.heads=2", "model.layers=1", "model.max_positions=8"]
    recipe = load_recipe("lm-shakespeare-small" if kind == "gpt" else "decoder-only", [*few, "model.positions=learned"])
    assert (planning.training_flops(recipe, 100, 1_000, 1) or 0) > 0


def test_rows_of_buckets_are_as_long_as_sentences() -> None:
    recipe = generated_recipe(["batch.layout=buckets"])
    assert plan(recipe, CPU, CorpusSize(100, 4_500, 4_500)).length == 11  # ten tokens and an end


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0.00 "), (7, "7.00 "), (999, "999 "), (1_000, "1.00 k"), (82_542_592, "82.5 M"), (3.2e18, "3200 P")],
)
def test_short_numbers(value: float, text: str) -> None:
    assert planning._short(value) == text


# ---- the recipe nobody gave


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
    monkeypatch.setattr(planning, "matmul_speed", lambda *_: speed)
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


def test_on_a_slow_cpu_steps_are_cut_and_this_is_said(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "matmul_speed", lambda *_: 2e9)
    found = choose(corpus(40_000), CPU, DATA)
    assert planning.FEWEST_STEPS <= found.recipe.training.steps < 10_000
    assert found.recipe.training.validate_every <= found.recipe.training.steps / 10
    assert "hours on this CPU" in found.reasons[-1]
    assert found.plan.seconds <= 3600 * planning.CPU_HOURS * 1.1 or found.recipe.training.steps == planning.FEWEST_STEPS
    asked = choose(corpus(40_000), CPU, DATA, ["training.steps=50_000"])
    assert asked.recipe.training.steps == asked.plan.steps == 50_000


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
    assert f"training.steps={planning.TINY.fewest}: {epochs}; " in found.reasons[-1]
    assert epochs in found.plan.to_text()


def test_epochs_are_said_in_words() -> None:
    recipe = generated_recipe()
    found = plan(recipe, CPU, CorpusSize(300, 9_000, 9_000))
    assert replace(found, steps=7, steps_per_epoch=7).epochs == "about 1.0 epoch of 7 steps"
    assert replace(found, steps=2_000, steps_per_epoch=1).epochs == "about 2,000 epochs of 1 step"
    assert plan(recipe, CPU, None).epochs == ""


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
