"""Noise that follows from names is as good as noise that does not."""

from __future__ import annotations

import math

import pytest
import torch

from regard.decoding.noise import Noise
from regard.errors import UsageError

CPU = torch.device("cpu")
FIXED = [-0.716374, 2.815679, 2.073948, -0.171809, -0.835037, -0.5852, -0.824634, -0.419158]


def numbers(seeds: list[int], steps: list[int], vocabulary: int = 50) -> torch.Tensor:
    """Gumbel noise of each seed at each step, [seeds, steps, V]."""
    noise = Noise(seeds, vocabulary, CPU)
    return torch.stack([noise.gumbel(torch.full((len(seeds),), step), max(steps)) for step in steps], dim=1)


def test_a_number_has_a_name() -> None:
    """The same for any neighbours, any order of steps, any choice of tokens and any reserve."""
    all_of_them = numbers([5, 6, 7], [0, 1, 900])
    assert torch.equal(numbers([7], [0, 1, 900])[0], all_of_them[2])
    assert torch.equal(numbers([6, 5], [900, 0])[0, 0], all_of_them[1, 2])
    tokens = torch.tensor([[4, 40], [0, 1], [9, 9]])
    some = Noise([5, 6, 7], 50, CPU)
    assert torch.equal(some.gumbel(torch.zeros(3).long(), 0, tokens), all_of_them[:, 0].gather(1, tokens))
    some.select([2, 0])
    assert torch.equal(some.gumbel(torch.tensor([900, 1]), 900)[0], all_of_them[2, 2])
    assert torch.equal(some.gumbel(torch.tensor([900, 1]), 900)[1], all_of_them[0, 1])


def test_the_numbers_stay_the_same_for_ever() -> None:
    """A text can be drawn again in a year: these were the numbers when this was written."""
    found = numbers([0, 2**63 - 1], [0, 300], vocabulary=2).flatten().tolist()
    assert found == pytest.approx(FIXED, abs=1e-5)


def test_uniform_and_independent() -> None:
    """exp(-exp(-g)) is uniform, in every direction: over tokens, over steps and over seeds."""
    uniform = torch.exp(-torch.exp(-numbers(list(range(40)), list(range(40)), vocabulary=40)))
    assert uniform.isfinite().all()
    for dims in ((0, 1), (0, 2), (1, 2)):
        n = uniform.shape[0] ** 2
        assert (uniform.mean(dim=dims) - 0.5).abs().max() < 5 / math.sqrt(12 * n)
    counts = torch.histc(uniform, bins=16, min=0, max=1)
    expected = uniform.numel() / 16
    assert ((counts - expected) ** 2 / expected).sum() < 45  # chi-square, 15 degrees of freedom: 1 in 10,000
    centred = uniform - 0.5
    for dim in range(3):
        neighbours = (centred * centred.roll(1, dim)).mean() * 12
        assert neighbours.abs() < 5 / math.sqrt(uniform.numel())


def test_large_noise_is_fine_grained() -> None:
    """Among many tokens the largest noise decides; it must not come in steps."""
    largest = numbers(list(range(60)), [0], vocabulary=50_000)[:, 0].amax(dim=1)
    assert len(set(largest.tolist())) == 60
    assert largest.mean().item() == pytest.approx(math.log(50_000) + 0.5772, abs=0.8)


def test_a_seed_out_of_range_is_named() -> None:
    for seed in (-1, 2**63):
        with pytest.raises(UsageError, match="a seed must be from 0"):
            Noise([seed], 5, CPU)
