"""Linear maps for CPUs: packed ones give the same numbers, int8 ones nearly, and no row minds its neighbours."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from regard.layers import quantised
from regard.layers.quantised import Int8Linear, PackedLinear, can_pack, can_quantise, replace_linears

packs = pytest.mark.skipif(not can_pack(), reason="torch cannot lay out weights here")
quantises = pytest.mark.skipif(not can_quantise(), reason="torch cannot multiply in 8 bits here")


def linear() -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(48, 64).requires_grad_(False)


@packs
@pytest.mark.parametrize("shape", [(1, 48), (1, 1, 48), (3, 48), (2, 5, 48), (0, 48)])
def test_packed_weights_give_the_same(shape: tuple[int, ...]) -> None:
    plain, x = linear(), torch.randn(shape)
    torch.testing.assert_close(PackedLinear(plain.weight, plain.bias)(x), plain(x), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(PackedLinear(plain.weight, None)(x), plain(x) - plain.bias, atol=1e-5, rtol=1e-5)


@quantises
def test_int8_is_near_for_large_and_small_rows() -> None:
    plain = linear()
    x = torch.randn(4, 3, 48) * torch.tensor([1e-3, 1.0, 50.0, 1e4])[:, None, None]
    wanted, found = plain(x) - plain.bias, Int8Linear(plain.weight, None)(x)
    assert ((found - wanted).norm(dim=-1) / wanted.norm(dim=-1)).max() < 0.03
    torch.testing.assert_close(Int8Linear(plain.weight, plain.bias)(x), found + plain.bias)


@quantises
def test_rows_do_not_mind_their_neighbours() -> None:
    plain = linear()
    int8 = Int8Linear(plain.weight, plain.bias)
    x = torch.randn(6, 48) * torch.logspace(-2, 2, 6)[:, None]
    together = int8(x)
    for row in range(6):
        assert torch.equal(int8(x[row : row + 1])[0], together[row])


@quantises
def test_rows_of_zeros_and_outputs_without_weights_are_no_trouble() -> None:
    weight = torch.randn(64, 48)
    weight[3] = 0.0
    found = Int8Linear(weight, torch.ones(64))(torch.zeros(2, 48))
    torch.testing.assert_close(found, torch.ones(2, 64))
    assert Int8Linear(weight, None)(torch.randn(2, 48)).isfinite().all()


@quantises
def test_nothing_is_warned_of_and_the_engine_stays() -> None:
    before = torch.backends.quantized.engine
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Int8Linear(torch.randn(64, 48), None)
    assert torch.backends.quantized.engine == before


@quantises
def test_only_large_plain_linears_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantised, "WORTHWHILE", 100)
    model = nn.Sequential(nn.Linear(9, 9), nn.Sequential(nn.Linear(10, 10)), nn.LayerNorm(10))
    replace_linears(model, Int8Linear)
    assert [type(module) for module in model.modules()][1:] == [nn.Linear, nn.Sequential, Int8Linear, nn.LayerNorm]
