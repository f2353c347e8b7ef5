"""Training on a GPU: the loss's kernel, recorded steps, and that a run can be repeated to the bit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from regard.batch import IGNORED, Specials
from regard.data.batching import Batches, BatchSettings
from regard.data.store import Example
from regard.models.build import build
from regard.models.transformer import TransformerSettings
from regard.training import checkpoint
from regard.training.loss import smoothed_cross_entropy, total_loss
from regard.training.muon import orthogonal
from regard.training.optim import OptimiserSettings
from regard.training.trainer import Trainer, TrainingSettings

pytestmark = pytest.mark.gpu
SPECIALS = Specials(padding=0, start=1, end=2)
MODEL = TransformerSettings(encoder_layers=2, decoder_layers=2, d_model=64, d_ff=128, heads=2, dropout=0.1)
SETTINGS = TrainingSettings(steps=100, optimiser=OptimiserSettings(warmup=20, clip=1.0))
EXAMPLES: list[Example] = [
    ([4 + (number * step) % 900 for step in range(1, 5 + number % 20)], [4 + (number + k) % 900 for k in range(9)])
    for number in range(600)
]


@pytest.fixture(autouse=True)
def exact_sums() -> Iterator[None]:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    yield
    torch.use_deterministic_algorithms(False)


def trainer(settings: TrainingSettings = SETTINGS) -> Trainer:
    torch.manual_seed(0)
    batches = Batches(EXAMPLES, SPECIALS, BatchSettings(tokens=2_048, layout="packed", row=64), seed=3)
    return Trainer(build(MODEL, 1_001).cuda(), batches, settings)


def weights(run: Trainer) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in run.model.parameters()])


MUON = replace(SETTINGS, optimiser=replace(SETTINGS.optimiser, kind="muon", weight_decay=0.1))
BOTH = pytest.mark.parametrize("settings", [SETTINGS, MUON], ids=["adam", "muon"])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("vocabulary", [64, 1_001, 32_000, 50_257])
def test_the_kernel_gives_the_loss_and_its_gradient(vocabulary: int, smoothing: float) -> None:
    torch.manual_seed(0)
    features = torch.randn(4, 100, 64, device="cuda", requires_grad=True)
    weight = (0.2 * torch.randn(vocabulary, 64, device="cuda")).requires_grad_()
    bias = torch.randn(vocabulary, device="cuda", requires_grad=True)
    labels = torch.randint(0, vocabulary, (4, 100), device="cuda")
    labels[0, :50] = IGNORED
    expected = smoothed_cross_entropy(smoothing)(lambda x: F.linear(x, weight, bias), features, labels).sum()
    found = total_loss(features, weight, bias, labels, smoothing)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-2)
    inputs = [features, weight, bias]
    for one, other in zip(torch.autograd.grad(found, inputs), torch.autograd.grad(expected, inputs), strict=True):
        assert (one - other).norm() < 1e-3 * other.norm()


@BOTH
def test_recorded_steps_are_the_steps(settings: TrainingSettings) -> None:
    recorded, plain = trainer(settings), trainer(settings)
    assert recorded._graphs is not None
    plain._graphs = None
    for run in (recorded, plain):
        for _ in range(12):
            run.advance()
        run.close()
    assert torch.equal(weights(recorded), weights(plain))
    one, other = recorded.report(), plain.report()
    assert replace(one, seconds=0.0) == replace(other, seconds=0.0)


@BOTH
def test_recorded_steps_take_the_rate_of_the_clock(settings: TrainingSettings) -> None:
    falling = replace(settings.optimiser, schedule="linear", warmup=0)
    run = trainer(replace(settings, minutes=1.0, by_clock=True, optimiser=falling))
    assert run._graphs is not None
    start = weights(run)
    for _ in range(6):
        run.advance()
    before = weights(run)
    assert not torch.equal(before, start)
    run.stopwatch.go_on_from(60.0, 0.0)  # the time is up, and the rate nothing
    run.advance()
    assert run.report().learning_rate == 0
    run.close()
    assert torch.equal(weights(run), before)


@BOTH
def test_a_stop_in_the_middle_changes_no_bit(tmp_path: Path, settings: TrainingSettings) -> None:
    unbroken, broken, resumed = trainer(settings), trainer(settings), trainer(replace(settings, report_every=1))
    for _ in range(16):
        unbroken.advance()
    for _ in range(8):
        broken.advance()
    checkpoint.save(tmp_path, broken.snapshot(), keep=1)
    resumed.restore(checkpoint.newest(tmp_path)[0])
    for _ in range(8):
        resumed.advance()
    for run in (unbroken, broken, resumed):
        run.close()
    assert torch.equal(weights(unbroken), weights(resumed))


def test_a_run_that_needs_parts_records_no_steps() -> None:
    run = trainer()
    assert run._graphs is not None
    run.restore(replace(run.snapshot(), batch_parts=2))
    assert run._graphs is None


@BOTH
def test_a_bad_gradient_is_skipped_in_a_recorded_step_too(settings: TrainingSettings) -> None:
    run = trainer(settings)
    for _ in range(6):
        run.advance()
    assert run.report().skipped == 0
    with torch.no_grad():
        run.model.embedding.table.weight[5, 0] = float("nan")  # type: ignore[union-attr, index]
    before = weights(run)[64 * 10 :].clone()
    run.advance()
    assert run.report().skipped == 1
    run.close()
    assert torch.equal(weights(run)[64 * 10 :], before)


@pytest.mark.parametrize("wish", [{"r_drop": 5.0}, {"simcut": 3.0}, {"compile": "layers"}])
def test_recorded_steps_are_as_good_as_plain_ones(wish: dict[str, Any]) -> None:
    run, plain = trainer(replace(SETTINGS, **wish)), trainer(replace(SETTINGS, **{**wish, "compile": "no"}))
    for _ in range(8):
        run.advance()
        plain.advance()
    assert run._graphs is not None
    assert run._graphs._recordings
    assert run.report().loss == pytest.approx(plain.report().loss, rel=0.02)


def test_orthogonal_in_bf16_is_near_enough_to_fp32() -> None:
    torch.manual_seed(0)
    for size in ((64, 64), (64, 256), (256, 64)):
        x_NRC = torch.randn(5, *size)
        apart_NRC = orthogonal(x_NRC.cuda()).cpu().float() - orthogonal(x_NRC)
        assert apart_NRC.square().mean().sqrt() < 0.05 / max(size) ** 0.5
