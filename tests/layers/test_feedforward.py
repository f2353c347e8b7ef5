"""The feed-forward network against its formula."""

from __future__ import annotations

import math

import pytest
import torch

from regard.layers.feedforward import Activation, FeedForward, activate


def test_formula() -> None:
    torch.manual_seed(0)
    network = FeedForward(d_model=3, d_ff=5)
    x_BTD = torch.randn(2, 4, 3)
    for row, found_TD in zip(x_BTD, network(x_BTD), strict=True):
        for x_D, found_D in zip(row, found_TD, strict=True):
            inner = [
                max(0.0, sum(w * x for w, x in zip(weights, x_D.tolist(), strict=True)) + bias)
                for weights, bias in zip(network.inner.weight.tolist(), network.inner.bias.tolist(), strict=True)
            ]
            wanted_D = torch.tensor(inner) @ network.outer.weight.T + network.outer.bias
            torch.testing.assert_close(found_D, wanted_D)


def normal_below(x: float) -> float:
    """The chance that a standard normal number is below x."""
    return (1 + math.erf(x / math.sqrt(2))) / 2


@pytest.mark.parametrize("x", [-2.0, -0.5, 0.0, 0.3, 1.7])
def test_activations_by_hand(x: float) -> None:
    def found(activation: Activation, *values: float) -> float:
        return activate(torch.tensor(values), activation).item()

    assert found("relu", x) == pytest.approx(max(x, 0.0))
    assert found("relu2", x) == pytest.approx(max(x, 0.0) ** 2)
    assert found("gelu", x) == pytest.approx(x * normal_below(x), abs=1e-6)
    tanh = math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    assert found("gelu-tanh", x) == pytest.approx(x * (1 + tanh) / 2, abs=1e-6)
    assert found("swiglu", x, 3.0) == pytest.approx(x / (1 + math.exp(-x)) * 3.0, abs=1e-6)


def test_a_gate_doubles_the_first_map_only() -> None:
    network = FeedForward(d_model=3, d_ff=5, activation="swiglu")
    assert network.inner.weight.shape == (10, 3)
    assert network.outer.weight.shape == (3, 5)
    x_D = torch.randn(3)
    gate, value = network.inner(x_D).split(5)
    torch.testing.assert_close(network(x_D), network.outer(gate * gate.sigmoid() * value))


def test_every_position_alike() -> None:
    network = FeedForward(d_model=3, d_ff=5)
    x_BTD = torch.randn(1, 1, 3).expand(2, 4, 3)
    assert (network(x_BTD) == network(x_BTD)[0, 0]).all()


def test_size() -> None:
    count = sum(parameter.numel() for parameter in FeedForward(512, 2048).parameters())
    assert count == 2 * 512 * 2048 + 2048 + 512
