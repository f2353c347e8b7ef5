"""The loss against sums written out by hand."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.batch import IGNORED
from regard.training import loss
from regard.training.loss import scores_to_gradient, smoothed_cross_entropy, total_likelihood, total_loss


def by_hand(logits: list[float], label: int, smoothing: float) -> float:
    """-Σ_k q(k)·log p(k), with q(k) = (1 - ε)·[k = label] + ε / V."""
    if label == IGNORED:
        return 0.0
    total = math.log(sum(math.exp(value) for value in logits))
    loss = 0.0
    for token, value in enumerate(logits):
        wanted = smoothing / len(logits) + (1 - smoothing if token == label else 0.0)
        loss -= wanted * (value - total)
    return loss


@pytest.fixture
def features_BTD() -> Tensor:
    return torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))


LABELS = torch.tensor([[0, 1, 2, 3, 4], [5, 6, IGNORED, IGNORED, IGNORED], [IGNORED, 2, 2, IGNORED, 0]])
OUTPUT_VD = torch.randn(7, 4, generator=torch.Generator().manual_seed(1))


def project(features: Tensor) -> Tensor:
    return features @ OUTPUT_VD.T


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_every_token_costs_what_the_formula_says(features_BTD: Tensor, smoothing: float) -> None:
    losses = smoothed_cross_entropy(smoothing)(project, features_BTD, LABELS)
    logits = project(features_BTD).tolist()
    assert losses.shape == LABELS.shape
    for row in range(3):
        for place in range(5):
            expected = by_hand(logits[row][place], int(LABELS[row, place]), smoothing)
            assert losses[row, place].item() == pytest.approx(expected, abs=1e-5)


def test_without_smoothing_it_is_the_negative_log_likelihood(features_BTD: Tensor) -> None:
    losses = smoothed_cross_entropy(0.0)(project, features_BTD, LABELS)
    log_probabilities = project(features_BTD).log_softmax(-1)
    for row, place in (LABELS != IGNORED).nonzero().tolist():
        assert torch.allclose(losses[row, place], -log_probabilities[row, place, LABELS[row, place]])


def test_what_fills_up_a_row_has_no_part_in_it() -> None:
    """Rows are rounded up on GPUs, and not all of those have our kernel."""
    scores_NV, labels_N = torch.randn(4, 5), torch.tensor([0, 4, IGNORED, 2])
    rounded_NW = F.pad(scores_NV, (0, 3), value=9.0)
    losses_N = scores_to_gradient(scores_NV, labels_N, 0.1, vocabulary=5)
    assert torch.equal(scores_to_gradient(rounded_NW, labels_N, 0.1, vocabulary=5), losses_N)
    assert torch.equal(rounded_NW, F.pad(scores_NV, (0, 3)))


def test_a_token_without_label_costs_nothing_and_teaches_nothing(features_BTD: Tensor) -> None:
    features_BTD.requires_grad_()
    losses = smoothed_cross_entropy(0.1)(project, features_BTD, LABELS)
    assert (losses[LABELS == IGNORED] == 0).all()
    losses.sum().backward()
    assert features_BTD.grad is not None
    assert (features_BTD.grad[LABELS == IGNORED] == 0).all()
    assert (features_BTD.grad[LABELS != IGNORED].abs().sum(-1) > 0).all()


def test_smoothing_has_its_minimum_at_the_smoothed_distribution() -> None:
    wanted = torch.full((1, 1, 7), 0.1 / 7)
    wanted[0, 0, 3] += 0.9
    criterion, label = smoothed_cross_entropy(0.1), torch.tensor([[3]])
    best = criterion(lambda x: x, wanted.log(), label).item()
    for change in (-0.1, 0.1):
        other = wanted.log()
        other[0, 0, 3] += change
        assert criterion(lambda x: x, other, label).item() > best


def test_half_precision_logits_are_summed_in_full(features_BTD: Tensor) -> None:
    losses = smoothed_cross_entropy(0.1)(lambda x: project(x).bfloat16(), features_BTD, LABELS)
    assert losses.dtype == torch.float32


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("piece", [1, 90, 10**9])
def test_the_total_piece_by_piece_is_the_sum_of_all_losses_and_so_are_its_gradients(
    smoothing: float, bias: bool, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(loss.PIECE, "cpu", piece)
    draw = torch.Generator().manual_seed(0)
    features = torch.randn(3, 5, 8, generator=draw, requires_grad=True)
    weight = torch.randn(30, 8, generator=draw, requires_grad=True)
    bias_V = torch.randn(30, generator=draw, requires_grad=True) if bias else None
    labels = torch.randint(0, 30, (3, 5), generator=draw)
    labels[0, 1], labels[2] = IGNORED, IGNORED
    inputs = [tensor for tensor in (features, weight, bias_V) if tensor is not None]
    expected = smoothed_cross_entropy(smoothing)(lambda x: F.linear(x, weight, bias_V), features, labels).sum()
    found = total_loss(features, weight, bias_V, labels, smoothing)
    torch.testing.assert_close(found, expected)
    for one, other in zip(
        torch.autograd.grad(0.3 * found, inputs), torch.autograd.grad(0.3 * expected, inputs), strict=True
    ):
        torch.testing.assert_close(one, other, atol=2e-6, rtol=1e-5)
    if not smoothing:
        torch.testing.assert_close(total_likelihood(features, weight, bias_V, labels).float(), expected.detach())
