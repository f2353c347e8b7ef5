"""Plans: sizes are counted, and times follow from the formula."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from regard import planning
from regard.data.corpus import Files, Mixture, Text
from regard.data.formats import Repairs
from regard.data.generated import Generated
from regard.data.glance import CorpusSize, measure
from regard.data.labelled import Labelled, Restoring, Tagged, read_labels
from regard.errors import MissingError, UsageError
from regard.models.build import build
from regard.planning import FILLED, SHARE, plan
from regard.recipe import load_recipe
from regard.text.labels import FIRST
from regard.text.tokenizer import Tokenizer
from regard.training.optim import OptimiserSettings, step_flops
from regard.viewing.costs import count
from tests.machines import CPU, GPU, SPEED
from tests.tiny import ENGLISH, GERMAN, generated_recipe, write_lines

pytestmark = pytest.mark.usefixtures("no_clock")


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
    assert measure(Labelled(str(table))) == CorpusSize(2, 0, 18)
    assert measure(Restoring(str(source))) == measure(Restoring(str(source), most=99)) == measure(Text(str(source)))
    assert measure(Restoring(str(table), most=1)) == CorpusSize(1, 0, 9)
    assert measure(Restoring(str(write_lines(tmp_path / "empty", [])), most=1)) == CorpusSize(0, 0, 0)
    assert measure(Tagged(str(table))) is None  # lines are words


def test_so_many_lines_of_each_file_are_counted_as_they_are_read(tmp_path: Path) -> None:
    for name in ("one.txt", "two.txt"):
        write_lines(tmp_path / name, ENGLISH)
    settings = Restoring(str(tmp_path), most=5)
    found = measure(settings)
    assert found is not None
    assert (
        found.pairs == sum(len(block.sources) for block in read_labels(settings, settings.text, True, Repairs())) == 10
    )


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
    tokens = planning.counted(recipe, size).tokens
    assert found.steps_per_epoch == round(tokens / (FILLED * recipe.batch.tokens))
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
    """A BERT costs what a GPT of its sizes does, and the layer before its output."""
    text = write_lines(tmp_path / "a.txt", ENGLISH)
    bert, gpt = (
        plan(load_recipe(name, [f"data.text={text}", "batch.tokens=768"]), CPU, measure(Text(str(text))))
        for name in ("bert-small", "lm-shakespeare-small")
    )
    assert bert.flops_per_token - gpt.flops_per_token == 6 * 128 * 128
    assert (bert.rows, bert.length, bert.vocabulary) == (gpt.rows, gpt.length, gpt.vocabulary)


def test_a_model_that_gives_labels_is_planned_too(tmp_path: Path) -> None:
    text = write_lines(tmp_path / "a.txt", ENGLISH)
    recipe = load_recipe("tag-restoring", [f"data.text={text}", "data.most=4"])
    found = plan(recipe, CPU, measure(recipe.data))
    assert (found.parameters, found.vocabulary) == (5_212_949, 8_000)  # with 21 labels
    each = planning.training_flops(recipe, FIRST + 21, 1_000, 1, 8_000) / 1_000
    assert found.flops_per_token == pytest.approx(each, rel=0.05)  # its lines are shorter than a sentence
    step = 16_384 * found.flops_per_token / (SHARE["cpu"] * SPEED)
    assert found.seconds == pytest.approx(6_000 * step)
    assert found.tokens_per_second == pytest.approx(FILLED * 16_384 / step)
    assert found.corpus is not None
    assert found.corpus.pairs == 4
    assert plan(load_recipe("classify-language"), CPU, None).length == 25


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


def test_the_cost_of_labels_is_that_of_reading_a_text_and_choosing_among_them() -> None:
    """A tagger chooses at each token, a classifier once a text: from the mean of its vectors, which is a product."""
    layer, attend, labels, tokens = (lambda d, f: 4 * d * d + 2 * d * f), (lambda d: 2 * 25 * d), 21, 1_000
    tagger, classifier = load_recipe("tag-restoring"), load_recipe("classify-language")
    each = 6 * (4 * layer(256, 1_024) + 256 * labels) + 7 * 4 * attend(256)
    assert planning.training_flops(tagger, FIRST + labels, tokens, 9, 8_000) == tokens * each
    text = 25 * (6 * 2 * layer(128, 512) + 7 * 2 * attend(128) + 4 * 128) + 6 * 128 * labels
    assert planning.training_flops(classifier, FIRST + labels, tokens, 9, 8_000) == tokens * (text // 25)


@pytest.mark.parametrize("body", ["transformer", "recurrent", "convolution"])
@pytest.mark.parametrize("preset", ["tag-columns", "classify-table"])
def test_the_cost_of_labels_is_counted_for_every_body(preset: str, body: str) -> None:
    recipe = load_recipe(preset, [f"model.body={{kind={body!r}}}"])
    few, many = (planning.training_flops(recipe, FIRST + labels, 1_000, 1, 100) for labels in (2, 50))
    assert 0 < few < many
    assert planning.training_flops(recipe, FIRST + 2, 1_000, 1, 10_000) == few  # tokens are looked up


@pytest.mark.parametrize("kind", ["gpt", "decoder-only"])
def test_what_it_took_is_counted_within_the_positions_there_are(kind: str) -> None:
    few = ["model.d_model=16", "model.d_ff=32", "model.heads=2", "model.layers=1", "model.max_positions=8"]
    recipe = load_recipe("lm-shakespeare-small" if kind == "gpt" else "decoder-only", [*few, "model.positions=learned"])
    assert planning.training_flops(recipe, 100, 1_000, 1) > 0


def test_rows_of_buckets_are_as_long_as_sentences() -> None:
    recipe = generated_recipe(["batch.layout=buckets", "tokenizer={kind='words'}"])
    assert plan(recipe, CPU, CorpusSize(100, 4_500, 4_500)).length == 11  # ten tokens and an end


def test_more_subwords_make_longer_tokens() -> None:
    def tokens(kind: str, vocabulary: int) -> int:
        recipe = generated_recipe([f"tokenizer={{kind='{kind}', vocabulary={vocabulary}}}"])
        found = plan(recipe, CPU, CorpusSize(100, 45_000, 45_000)).corpus
        assert found is not None
        return found.tokens

    # Multi30k en-de has 3.22, 4.52 and 6.15 bytes a token.
    measured = {1_000: 3.22, 4_000: 4.52, 32_000: 6.15}
    assert [tokens("bpe", vocabulary) for vocabulary in measured] == [
        pytest.approx(45_000 / bytes_each, rel=0.1) for bytes_each in measured.values()
    ]
    assert tokens("bpe", 100) == tokens("bpe", 250)  # fewer than were measured
    assert tokens("bpe", 500_000) == tokens("bpe", 32_000)
    assert tokens("words", 1_000) == tokens("words", 32_000) == 10_100


def test_epochs_are_said_in_words() -> None:
    recipe = generated_recipe()
    found = plan(recipe, CPU, CorpusSize(300, 9_000, 9_000))
    assert replace(found, steps=7, steps_per_epoch=7).epochs == "about 1.0 epoch of 7 steps"
    assert replace(found, steps=2_000, steps_per_epoch=1).epochs == "about 2,000 epochs of 1 step"
    assert plan(recipe, CPU, None).epochs == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0.00 "), (7, "7.00 "), (999, "999 "), (1_000, "1.00 k"), (82_542_592, "82.5 M"), (3.2e18, "3200 P")],
)
def test_short_numbers(value: float, text: str) -> None:
    assert planning._short(value) == text


def test_there_is_no_plan_for_what_cannot_be_trained() -> None:
    with pytest.raises(UsageError, match=r"model\.kind: must fit the corpus, which has sentence pairs, but is `gpt`"):
        plan(load_recipe("gpt2"), CPU, None)


@pytest.mark.parametrize("setting", ["r_drop", "simcut"])
def test_what_reads_each_row_twice_takes_twice_the_time_and_more_memory(setting: str) -> None:
    once, twice = (
        plan(generated_recipe(["training.optimiser.kind=adam", f"training.{setting}={strength}"]), CPU, None)
        for strength in (0, 3)
    )
    assert twice.seconds == pytest.approx(2 * once.seconds)
    assert twice.holdings[0].activations > 1.5 * once.holdings[0].activations
    assert (twice.rows, twice.batch_tokens) == (once.rows, once.batch_tokens)
