"""The waves against the paper's formula, and the linear relation they were chosen for.

Shapes: B rows, T tokens, D model.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.layers.positions import SinusoidalPositions


def wave(position: int, place: int, d_model: int) -> float:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d))."""
    angle = position / 10000 ** ((place - place % 2) / d_model)
    return math.cos(angle) if place % 2 else math.sin(angle)


@given(st.integers(1, 9), st.lists(st.integers(0, 2000), min_size=1, max_size=4))
def test_formula(d_model: int, positions: list[int]) -> None:
    found_BTD = SinusoidalPositions(d_model)(torch.tensor([positions]))
    wanted = [[[wave(position, place, d_model) for place in range(d_model)] for position in positions]]
    # An angle near 2000 has an error of 6e-5 in single precision, and so has its wave.
    torch.testing.assert_close(found_BTD, torch.tensor(wanted), rtol=0, atol=2e-4)


def rotation(k: int, d_model: int) -> Tensor:
    """M_k: for each pair of places the rotation by k times their frequency."""
    matrix = torch.zeros(d_model, d_model)
    for i in range(0, d_model, 2):
        angle = k / 10000 ** (i / d_model)
        # sin(a+b) = sin(a)·cos(b) + cos(a)·sin(b),  cos(a+b) = cos(a)·cos(b) - sin(a)·sin(b)
        matrix[i, i], matrix[i, i + 1] = math.cos(angle), math.sin(angle)
        matrix[i + 1, i], matrix[i + 1, i + 1] = -math.sin(angle), math.cos(angle)
    return matrix


@given(st.integers(0, 300), st.integers(0, 300), st.sampled_from([2, 8, 64]))
def test_a_step_of_k_is_one_matrix_wherever_it_is_taken(position: int, k: int, d_model: int) -> None:
    waves = SinusoidalPositions(d_model)
    here_D, there_D = waves(torch.tensor([[position, position + k]]))[0]
    torch.testing.assert_close(rotation(k, d_model) @ here_D, there_D, rtol=0, atol=1e-4)


def test_each_position_is_told_from_each_other() -> None:
    waves_TD = SinusoidalPositions(16)(torch.arange(500)[None])[0]
    distances = torch.cdist(waves_TD, waves_TD) + 10 * torch.eye(500)
    assert distances.min() > 0.1


def test_positions_may_restart_inside_a_row() -> None:
    waves = SinusoidalPositions(8)
    packed_BTD = waves(torch.tensor([[0, 1, 2, 0, 1]]))
    assert torch.equal(packed_BTD[:, :2], packed_BTD[:, 3:])


def test_nothing_to_learn_and_nothing_to_save() -> None:
    waves = SinusoidalPositions(8)
    assert list(waves.parameters()) == []
    assert waves.state_dict() == {}


@pytest.mark.parametrize("d_model", [1, 7])
def test_an_odd_size_ends_in_a_sine(d_model: int) -> None:
    assert SinusoidalPositions(d_model)(torch.zeros(1, 1, dtype=torch.long)).flatten()[-1] == 0.0
