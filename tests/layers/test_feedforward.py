"""The feed-forward network against its formula."""

from __future__ import annotations

import torch

from regard.layers.feedforward import FeedForward


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


def test_every_position_alike() -> None:
    network = FeedForward(d_model=3, d_ff=5)
    x_BTD = torch.randn(1, 1, 3).expand(2, 4, 3)
    assert (network(x_BTD) == network(x_BTD)[0, 0]).all()


def test_size() -> None:
    count = sum(parameter.numel() for parameter in FeedForward(512, 2048).parameters())
    assert count == 2 * 512 * 2048 + 2048 + 512
