"""The fused kernel against the parts it is made of; on a GPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from regard.layers.block import Residual
from regard.layers.dropout import Noise
from regard.models.transformer import TransformerSettings

pytestmark = pytest.mark.gpu


def distance(found: Tensor, expected: Tensor) -> float:
    return float((found.float() - expected.float()).norm() / expected.float().norm())


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-6), (torch.bfloat16, 5e-3)])
@pytest.mark.parametrize("width", [64, 192, 512, 1024])
def test_join_and_norm_is_dropout_sum_and_norm(width: int, dtype: torch.dtype, near: float, compiled: bool) -> None:
    torch.manual_seed(0)
    residual = Residual(TransformerSettings(d_model=width, d_k=4, dropout=0.1).layer_sizes()).cuda().train()
    for weight in (residual.norm.weight, residual.norm.bias):
        nn.init.normal_(weight)
    Noise(residual, seed=3).set(step=1, first_row=2)
    x, y = (torch.randn(7, 33, width, device="cuda", dtype=dtype, requires_grad=True) for _ in range(2))
    inputs = [x, y, residual.norm.weight, residual.norm.bias]
    gradient = torch.randn(7, 33, width, device="cuda", dtype=dtype)
    expected = residual.norm((x.float() + residual.dropout(y.float())).to(dtype))
    found = torch.compile(residual.leave, fullgraph=True)(x, y) if compiled else residual.leave(x, y)
    assert found.dtype == dtype
    assert distance(found, expected) < near
    for one, other in zip(
        torch.autograd.grad(found, inputs, gradient), torch.autograd.grad(expected, inputs, gradient), strict=True
    ):
        assert distance(one, other) < near


@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-6), (torch.bfloat16, 5e-3)])
@pytest.mark.parametrize(("rows", "width"), [(1, 64), (7, 192), (1_024, 512), (5_000, 512)])
@torch.inference_mode()
def test_without_dropout_it_is_the_same_kernel_for_few_rows_and_many(
    rows: int, width: int, dtype: torch.dtype, near: float
) -> None:
    torch.manual_seed(0)
    residual = Residual(TransformerSettings(d_model=width, d_k=4, dropout=0.1).layer_sizes()).cuda().eval().to(dtype)
    for weight in (residual.norm.weight, residual.norm.bias):
        nn.init.normal_(weight)
    x, y = (torch.randn(rows, 1, width, device="cuda", dtype=dtype) for _ in range(2))
    expected = nn.functional.layer_norm(
        (x + y).float(), (width,), residual.norm.weight.float(), residual.norm.bias.float(), residual.norm.eps
    )
    found = residual.leave(x, y)
    assert found.dtype == dtype
    assert distance(found, expected) < near
