"""Residual connection, dropout and layer normalisation in one kernel, for GPUs.

Shapes: N tokens, D model, P programs of a kernel.

    joined = x + Dropout(y),    output = LayerNorm(joined)

Each of x, y, joined and output passes through memory once. A compiler that fuses single operations does not find
this: to it the sums over D and over N, the random numbers and the casts are separate matters, and the whole takes three
times as long. What is dropped is what `regard.layers.dropout` says.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

ROWS = 4  # tokens a program works on at a time
PROGRAMS = 132 * 8  # of the backward pass, each of which adds up gradients of gain and bias for itself


@triton.jit
def _kept(noise, first_place, places, limit):  # type: ignore[no-untyped-def]
    """Which of these places of the batch are not dropped; the same numbers as `dropout.hashed`."""
    seed = tl.load(noise)
    first_row = tl.load(noise + 1)
    numbers = places + first_row * first_place
    numbers = numbers * -1640531535 + seed
    numbers = (numbers ^ ((numbers >> 16) & 0xFFFF)) * -2048144789
    numbers = (numbers ^ ((numbers >> 13) & 0x7FFFF)) * -1028477387
    return numbers >= limit


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    x, y, joined, output, means, scales, gain, bias, noise, a_row, limit, upscale, epsilon, tokens,
    width: tl.constexpr, block: tl.constexpr, rows: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    column = tl.arange(0, block)
    inside = (row[:, None] < tokens) & (column[None, :] < width)
    place = row[:, None] * width + column[None, :]
    kept = _kept(noise, a_row, place, limit)
    y_ = tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
    x_ = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    sum_ = (x_ + tl.where(kept, y_ * upscale, 0.0)).to(joined.dtype.element_ty)
    tl.store(joined + place, sum_, mask=inside)
    value = sum_.to(tl.float32)
    mean = tl.sum(value, axis=1) / width
    centred = tl.where(inside, value - mean[:, None], 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, axis=1) / width + epsilon)
    tl.store(means + row, mean, mask=row < tokens)
    tl.store(scales + row, scale, mask=row < tokens)
    gain_ = tl.load(gain + column, mask=column < width, other=0.0).to(tl.float32)
    bias_ = tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)
    normed = centred * scale[:, None] * gain_[None, :] + bias_[None, :]
    tl.store(output + place, normed, mask=inside)


@triton.jit
def _join(  # type: ignore[no-untyped-def]
    x, y, output, gain, bias, epsilon, tokens, width: tl.constexpr, block: tl.constexpr, rows: tl.constexpr
):
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    column = tl.arange(0, block)
    inside = (row[:, None] < tokens) & (column[None, :] < width)
    place = row[:, None] * width + column[None, :]
    x_ = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    y_ = tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
    value = (x_ + y_).to(x.dtype.element_ty).to(tl.float32)
    mean = tl.sum(value, axis=1) / width
    centred = tl.where(inside, value - mean[:, None], 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, axis=1) / width + epsilon)
    gain_ = tl.load(gain + column, mask=column < width, other=0.0).to(tl.float32)
    bias_ = tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)
    tl.store(output + place, centred * scale[:, None] * gain_[None, :] + bias_[None, :], mask=inside)


def join_and_norm(x: Tensor, y: Tensor, gain_D: Tensor, bias_D: Tensor, epsilon: float) -> Tensor:
    """LayerNorm(x + y), [B, T, D], of x's type, for inference: nothing is dropped, and nothing kept."""
    x, y = x.contiguous(), y.contiguous()
    output, width = torch.empty_like(x), x.shape[-1]
    tokens = x.numel() // width
    rows = 1 if tokens < PROGRAMS * ROWS else ROWS  # few tokens are to keep as many processors busy as there are
    _join[(triton.cdiv(tokens, rows),)](
        x, y, output, gain_D, bias_D, epsilon, tokens, width, triton.next_power_of_2(width), rows, num_warps=4
    )
    return output


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    d_output, joined, means, scales, gain, d_x, d_y, d_gains, d_biases, noise, a_row, limit, upscale,
    tokens, width: tl.constexpr, block: tl.constexpr, rows: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, block)
    gain_ = tl.load(gain + column, mask=column < width, other=0.0).to(tl.float32)
    d_gain = tl.zeros([rows, block], tl.float32)
    d_bias = tl.zeros([rows, block], tl.float32)
    for first in range(tl.program_id(0) * rows, tokens, tl.num_programs(0) * rows):
        row = first + tl.arange(0, rows)
        inside = (row[:, None] < tokens) & (column[None, :] < width)
        place = row[:, None] * width + column[None, :]
        gradient = tl.load(d_output + place, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(joined + place, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(means + row, mask=row < tokens, other=0.0)
        scale = tl.load(scales + row, mask=row < tokens, other=0.0)
        normed = tl.where(inside, (value - mean[:, None]) * scale[:, None], 0.0)
        d_gain += gradient * normed
        d_bias += gradient
        inner = gradient * gain_[None, :]
        along = tl.sum(inner * normed, axis=1) / width
        level = tl.sum(inner, axis=1) / width
        d_joined = (inner - level[:, None] - normed * along[:, None]) * scale[:, None]
        tl.store(d_x + place, d_joined, mask=inside)
        kept = _kept(noise, a_row, place, limit)
        tl.store(d_y + place, tl.where(kept, d_joined * upscale, 0.0), mask=inside)
    here = tl.program_id(0) * width + column
    tl.store(d_gains + here, tl.sum(d_gain, axis=0), mask=column < width)
    tl.store(d_biases + here, tl.sum(d_bias, axis=0), mask=column < width)


class JoinAndNorm(torch.autograd.Function):
    """(x, y) → LayerNorm(x + Dropout(y)); `noise` is the dropout's, `limit` its threshold."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, gain_D: Tensor, bias_D: Tensor, noise: Tensor, limit: int, rate: float,
        epsilon: float,
    ) -> Tensor:  # fmt: skip
        """[B, T, D] twice → [B, T, D], of x's type."""
        x, y = x.contiguous(), y.contiguous()
        width = x.shape[-1]
        tokens, a_row = x.numel() // width, x.numel() // x.shape[0]
        joined, output = torch.empty_like(x), torch.empty_like(x)
        means_N = torch.empty(tokens, dtype=torch.float32, device=x.device)
        scales_N = torch.empty_like(means_N)
        block = triton.next_power_of_2(width)
        _forward[(triton.cdiv(tokens, ROWS),)](
            x, y, joined, output, means_N, scales_N, gain_D, bias_D, noise, a_row, limit,
            1 / (1 - rate), epsilon, tokens, width, block, ROWS, num_warps=4,
        )  # fmt: skip
        ctx.save_for_backward(joined, means_N, scales_N, gain_D, noise)
        ctx.limit, ctx.rate = limit, rate
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of x, y, gain and bias."""
        joined, means_N, scales_N, gain_D, noise = ctx.saved_tensors
        d_output = d_output.contiguous()
        width = joined.shape[-1]
        tokens, a_row = joined.numel() // width, joined.numel() // joined.shape[0]
        d_x, d_y = torch.empty_like(joined), torch.empty_like(joined)
        d_gain_PD = torch.empty(PROGRAMS, width, dtype=torch.float32, device=joined.device)
        d_bias_PD = torch.empty_like(d_gain_PD)
        block = triton.next_power_of_2(width)
        _backward[(PROGRAMS,)](
            d_output, joined, means_N, scales_N, gain_D, d_x, d_y, d_gain_PD, d_bias_PD, noise, a_row,
            ctx.limit, 1 / (1 - ctx.rate), tokens, width, block, ROWS, num_warps=4,
        )  # fmt: skip
        return d_x, d_y, d_gain_PD.sum(0), d_bias_PD.sum(0), None, None, None, None
