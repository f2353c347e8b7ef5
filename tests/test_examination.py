"""What is told of a model while it learns: in a line for people, and in values for `metrics.jsonl`."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from regard.assembly import new_trainer
from regard.data.dataset import read_dataset
from regard.evaluation.metrics import Score
from regard.examination import SAMPLES, Examination, Examiner
from regard.memory import NoRoomError
from regard.recipe import build_recipe
from regard.training.team import ALONE
from regard.training.validation import Validation
from tests.tight import tight
from tests.tiny import ENGLISH, generated_recipe, write_lines

VALIDATION = Validation(nll=math.log(4), tokens=10, bytes=20)


def test_text_is_told_by_its_perplexity_and_bleu() -> None:
    found = Examination(1_500, VALIDATION, (), Score("BLEU (greedy, 4 lines)", 12.345, "sig"), (), gives_labels=False)
    assert str(found) == "step 1,500: validation perplexity 4.000 per token, BLEU (greedy, 4 lines) 12.35"
    assert found.to_json() == {
        "step": 1_500, "nll": math.log(4), "perplexity": pytest.approx(4.0), "perplexity_per_byte": pytest.approx(2.0),
        "bleu": 12.345,
    }  # fmt: skip
    assert found.likelihood_alone == "4.000"


def test_labels_are_told_by_their_loss_and_their_own_scores() -> None:
    scores = (Score("accuracy", 90.0, "sig"), Score("macro F1", 80.0, "sig"))
    found = Examination(7, VALIDATION, scores, None, (), gives_labels=True)
    assert str(found) == "step 7: validation loss 1.3863 a label, accuracy 90.00, macro F1 80.00"
    assert (found.to_json()["accuracy"], found.to_json()["macro_F1"]) == (90.0, 80.0)
    assert found.scores == scores
    assert found.likelihood_alone == "1.3863"


@pytest.mark.parametrize("lines", [0, 5])
def test_a_model_is_examined_on_the_same_examples_each_time_and_stays_as_it_is(lines: int) -> None:
    recipe = generated_recipe([f"training.bleu_lines={lines}", "device=cpu"])
    with torch.random.fork_rng():
        data = read_dataset(recipe.data, recipe.tokenizer, recipe.seed)
        trainer = new_trainer(recipe, data, ALONE)
        examiner, before = (
            Examiner(recipe, data, trainer),
            {k: v.clone() for k, v in trainer.model.state_dict().items()},
        )
        first, second = examiner.examine(), examiner.examine()
    assert first == second
    assert len(first.samples) == SAMPLES
    assert [sample.source for sample in first.samples] == [pair.source for pair in data.valid_pairs[:SAMPLES]]
    assert (first.bleu is not None) == (lines > 0)
    assert all(torch.equal(before[name], value) for name, value in trainer.model.state_dict().items())


def test_where_memory_is_short_an_examination_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = generated_recipe(["training.bleu_lines=6", "device=cpu"])
    with torch.random.fork_rng():
        data = read_dataset(recipe.data, recipe.tokenizer, recipe.seed)
        examiner = Examiner(recipe, data, new_trainer(recipe, data, ALONE))
        wanted = examiner.examine()
        tried = tight(monkeypatch, examiner.trainer.model, 2)
        found = examiner.examine()
    assert max(tried) > 2
    assert (found.samples, found.bleu) == (wanted.samples, wanted.bleu)
    assert found.validation.nll == pytest.approx(wanted.validation.nll, rel=1e-6)
    tight(monkeypatch, examiner.trainer.model, 0)
    with pytest.raises(NoRoomError, match=r"validation after step 0: a row: must fit"):
        examiner.examine()
    with pytest.raises(NoRoomError, match=r"validation after step 0: example 1: must fit .* go on with --resume"):
        examiner._samples(2)


def test_a_bert_of_few_positions_shows_what_it_fills_in(tmp_path: Path) -> None:
    """The rows of its batches fit, and so must the lines that its samples are made of."""
    text = write_lines(tmp_path / "long.txt", [" ".join(ENGLISH)] * 5)
    recipe = build_recipe({}, [
        f"data={{kind='text', text='{text}', valid='{text}'}}", "tokenizer={kind='words', vocabulary=40}",
        "model={kind='bert', layers=1, d_model=8, d_ff=8, heads=2, max_positions=12}", "device=cpu",
        "batch={tokens=96, layout='blocks', row=12}",
    ], "short rows")  # fmt: skip
    with torch.random.fork_rng():
        data = read_dataset(recipe.data, recipe.tokenizer, recipe.seed)
        found = Examiner(recipe, data, new_trainer(recipe, data, ALONE)).examine()
    assert [sample.source.count("_") for sample in found.samples] == [1] * SAMPLES
