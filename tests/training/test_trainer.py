"""One step, and that to stop and go on is the same as never to have stopped, to the bit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.batch import IGNORED, Specials
from regard.data.batching import Batches, BatchSettings
from regard.data.store import Example
from regard.errors import DataError, UsageError
from regard.models.build import build
from regard.models.transformer import TransformerSettings
from regard.training import checkpoint
from regard.training.optim import OptimiserSettings
from regard.training.trainer import Trainer, TrainingSettings, Validation

SPECIALS = Specials(padding=0, start=1, end=2)
MODEL = TransformerSettings(encoder_layers=1, decoder_layers=1, d_model=16, d_ff=32, heads=2, dropout=0.3)
EXAMPLES: list[Example] = [
    ([4 + (number * step) % 16 for step in range(1, 2 + number % 4)], [4 + number % 16, 5, 6][: 1 + number % 3])
    for number in range(40)
]
SETTINGS = TrainingSettings(steps=20, optimiser=OptimiserSettings(warmup=5, clip=1.0))


@pytest.fixture(autouse=True)
def own_randomness() -> Iterator[None]:
    with torch.random.fork_rng():
        yield


def trainer(seed: int = 0, settings: TrainingSettings = SETTINGS, model: TransformerSettings = MODEL) -> Trainer:
    torch.manual_seed(seed)
    batches = Batches(EXAMPLES, SPECIALS, BatchSettings(tokens=24, shapes=4), seed=3)
    return Trainer(build(model, 20), batches, settings)


def everything(run: Trainer) -> dict[str, torch.Tensor]:
    snapshot = run.snapshot()
    return snapshot.weights | snapshot.optimiser | {f"random/{name}": state for name, state in snapshot.random.items()}


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


def test_ten_steps_a_checkpoint_and_ten_more_are_twenty_to_the_bit(tmp_path: Path) -> None:
    unbroken = trainer()
    reports = [unbroken.advance() for _ in range(20)]
    expected = everything(unbroken)

    broken = trainer()
    for _ in range(10):
        broken.advance()
    checkpoint.save(tmp_path, broken.snapshot(), keep=1)
    # Another model, other random numbers, other moments: all of it must come from the checkpoint.
    resumed = trainer(seed=99)
    resumed.advance()
    torch.manual_seed(4)
    snapshot, damaged = checkpoint.newest(tmp_path)
    resumed.restore(snapshot)
    assert [resumed.advance() for _ in range(10)] == reports[10:]
    assert damaged == []
    assert resumed.step == 20
    assert_same(everything(resumed), expected)


def test_validation_in_between_changes_nothing() -> None:
    runs = []
    for validates in (False, True):
        run = trainer()
        for _ in range(4):
            run.advance()
            if validates:
                run.validate([run.batches[0]])
        runs.append(everything(run))
    assert_same(*runs)


def test_going_back_to_the_very_beginning_forgets_what_was_learned() -> None:
    run = trainer()
    beginning = run.snapshot()
    first = [run.advance() for _ in range(3)]
    run.restore(beginning)
    assert [run.advance() for _ in range(3)] == first


def test_dropout_was_on_in_these_tests() -> None:
    assert trainer().advance().loss != trainer(model=replace(MODEL, dropout=0.0)).advance().loss


def test_a_report_says_what_the_step_did() -> None:
    run = trainer()
    batch = run.batches[0]
    assert batch.source is not None
    report = run.advance()
    assert (report.step, run.step) == (1, 1)
    assert report.learning_rate == SETTINGS.optimiser.learning_rate(1, 16)
    assert {group["lr"] for group in run.optimiser.param_groups} == {report.learning_rate}
    real = (batch.source.ids_BT != SPECIALS.padding).sum() + (batch.labels_BT != IGNORED).sum()
    assert report.tokens == real
    assert report.gradient_norm > 0


def test_the_loss_is_the_mean_over_real_tokens() -> None:
    run = trainer(model=replace(MODEL, dropout=0.0))
    batch = run.batches[0]
    log_probabilities = run.model(batch).log_softmax(-1)
    total, tokens = 0.0, 0
    for row, place in (batch.labels_BT != IGNORED).nonzero().tolist():
        scores = log_probabilities[row, place]
        total -= 0.9 * scores[batch.labels_BT[row, place]].item() + 0.1 * scores.mean().item()
        tokens += 1
    assert (batch.labels_BT == IGNORED).any()
    assert run.advance().loss == pytest.approx(total / tokens, rel=1e-4)


def test_validation_is_the_likelihood_over_all_tokens_of_all_batches() -> None:
    run = trainer()
    batches = [run.batches[step] for step in range(run.batches.per_epoch)]
    validation = run.validate(batches)
    total, tokens = 0.0, 0
    for batch in batches:
        log_probabilities = run.model(batch).log_softmax(-1)
        for row, place in (batch.labels_BT != IGNORED).nonzero().tolist():
            total -= log_probabilities[row, place, batch.labels_BT[row, place]].item()
            tokens += 1
    assert validation.tokens == tokens == sum(len(target) + 1 for _, target in EXAMPLES)
    assert validation.nll == pytest.approx(total / tokens, rel=1e-5)
    assert validation.perplexity == pytest.approx(math.exp(total / tokens), rel=1e-4)
    assert not run.model.training


def test_perplexity_does_not_overflow() -> None:
    assert math.isfinite(Validation(1e6, 1).perplexity)


def test_clipping_bounds_the_gradient_and_none_does_not() -> None:
    norms = {}
    for clip in (None, 0.01):
        run = trainer(settings=TrainingSettings(optimiser=OptimiserSettings(clip=clip)))
        report = run.advance()
        squares = sum(weight.grad.square().sum() for weight in run.model.parameters() if weight.grad is not None)
        norms[clip] = report.gradient_norm, math.sqrt(float(squares))
    assert norms[None] == pytest.approx((norms[None][0],) * 2, rel=1e-4)
    assert norms[0.01][0] == pytest.approx(norms[None][0], rel=1e-4)  # the report has the norm before clipping
    assert norms[0.01][1] == pytest.approx(0.01, rel=1e-3)


def spoil_weight(run: Trainer) -> None:
    with torch.no_grad():
        next(run.model.parameters()).fill_(math.nan)


def spoil_gradient(run: Trainer) -> None:
    next(run.model.parameters()).register_hook(lambda gradient: gradient * math.inf)


@pytest.mark.parametrize("spoil", [spoil_weight, spoil_gradient])
def test_a_loss_or_gradient_that_is_no_number_stops_before_any_weight_changes(spoil: Callable[[Trainer], None]) -> None:
    run = trainer()
    run.advance()
    spoil(run)
    before = everything(run)
    with pytest.raises(DataError) as caught:
        run.advance()
    for words in ("step 2: the loss and its gradient must be finite", "training.optimiser.factor", "warmup"):
        assert words in str(caught.value)
    assert run.step == 1
    for name, value in everything(run).items():
        if not name.startswith("random/"):
            assert torch.equal(value, before[name]) or bool(value.isnan().any())


def test_a_checkpoint_of_another_model_is_refused_in_a_sentence() -> None:
    run = trainer(model=replace(MODEL, encoder_layers=2))
    with pytest.raises(UsageError, match=r"weights must fit the model of the recipe, but do not\. Leave"):
        run.restore(trainer().snapshot())


def test_training_learns() -> None:
    run = trainer(settings=TrainingSettings(label_smoothing=0.0, optimiser=OptimiserSettings(warmup=10)))
    batches = [run.batches[step] for step in range(run.batches.per_epoch)]
    before = run.validate(batches).nll
    for _ in range(40):
        run.advance()
    assert run.validate(batches).nll < 0.6 * before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "`steps` must be at least 1, but is 0"),
        ({"save_every": 0}, "`save_every` must be at least 1"),
        ({"validate_every": -1}, "`validate_every` must be at least 1"),
        ({"keep": 0}, "`keep` must be at least 1"),
        ({"average": 6}, "`average` must be at most `keep` \\(5\\), but is 6"),
        ({"label_smoothing": 1.0}, "`label_smoothing` must be at least 0 and below 1, but is 1.0"),
        ({"label_smoothing": math.nan}, "`label_smoothing` must be at least 0 and below 1, but is nan"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainingSettings(**changes)
