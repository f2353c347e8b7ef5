"""Dropout: as often as asked for, never the same, and a function of seed, step, module and place alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard.layers.dropout import Dropout, Noise


def kept(module: Dropout, shape: tuple[int, ...] = (400, 500)) -> torch.Tensor:
    return (module(torch.ones(shape)) > 0).float()


def model(rate: float, seed: int = 1) -> tuple[Dropout, Dropout, Noise]:
    both = nn.Sequential(nn.Linear(1, 1), Dropout(rate), Dropout(rate)).train()
    noise = Noise(both, seed)
    first, second = (module for module in both if isinstance(module, Dropout))
    return first, second, noise


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_so_much_is_left_out_everywhere_and_the_rest_made_larger(rate: float) -> None:
    first, _, noise = model(rate)
    for step in range(3):
        noise.set(step)
        output = first(torch.ones(400, 500))
        dropped = (output == 0).float()
        assert dropped.mean().item() == pytest.approx(rate, abs=0.005)
        # Rows and columns as well: five standard deviations of so many draws.
        for dimension, count in ((0, 400), (1, 500)):
            spread = 5 * (rate * (1 - rate) / count) ** 0.5
            assert (dropped.mean(dimension) - rate).abs().max() < spread
        assert output[output > 0].unique().tolist() == pytest.approx([1 / (1 - rate)])


def test_neighbours_modules_steps_and_seeds_have_nothing_to_do_with_each_other() -> None:
    first, second, noise = model(0.5)
    other, _, other_noise = model(0.5, seed=2)
    noise.set(0)
    other_noise.set(0)
    draws = [kept(first), kept(second), kept(other)]
    noise.set(1)
    draws.append(kept(first))
    draws += [draws[0].roll(1, 0), draws[0].roll(1, 1)]
    correlation = torch.corrcoef(torch.stack([draw.flatten() for draw in draws]))
    assert (correlation - torch.eye(len(draws))).abs().max() < 0.015


def test_the_same_place_drops_the_same_however_the_batch_is_divided() -> None:
    first, _, noise = model(0.3)
    noise.set(4)
    whole = kept(first, (6, 5, 7))
    assert torch.equal(kept(first, (6, 5, 7)), whole)
    for begin, end in ((0, 2), (2, 3), (3, 6)):
        noise.set(4, first_row=begin)
        assert torch.equal(kept(first, (end - begin, 5, 7)), whole[begin:end])


def test_outside_of_training_and_without_a_rate_nothing_is_dropped() -> None:
    first, second, noise = model(0.5)
    noise.set(0)
    first.eval()
    second.p = 0.0
    x = torch.randn(3, 4)
    assert torch.equal(first(x), x)
    assert torch.equal(second(x), x)


def test_without_noise_it_draws_from_torchs_generator() -> None:
    module = Dropout(0.5).train()
    with torch.random.fork_rng():
        torch.manual_seed(1)
        one = kept(module)
        torch.manual_seed(1)
        assert torch.equal(kept(module), one)
        assert not torch.equal(kept(module), one)
