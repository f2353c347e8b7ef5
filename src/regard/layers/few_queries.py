"""Attention of a few queries to many keys in one kernel, for decoding on GPUs.

Shapes: B rows, Q queries, K keys, H heads, E size of one head's key and value.

    output = softmax(Q·Kᵀ / √d_k)·V over the allowed keys

A step of decoding asks little: one query a row, or one for each beam of a sentence. Kernels made for whole sentences
leave most of a tile empty then, and read every key. Here one program serves one head of one row. It looks at the mask
first, and reads only keys that some query sees: of the memory that beams share (`regard.layers.fixed`) most slots are
not written yet, or were written by beams that nobody continued.

The softmax is summed up block by block (Milakov and Gimelshein, 2018): with a new largest score, what was found so
far is scaled down to it.
"""

from __future__ import annotations

import math
from functools import cache

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from regard.memory import ran_out

QUERIES = 16  # the rows of the smallest product that tensor cores do
SIZES = (16, 32, 64, 128)
KEYS = 64  # read at a time, at most
A_WARP = {2: 8192, 4: 4096}  # bytes of a block of keys that one warp reads, as its registers allow, by bytes a number
MOST_WARPS = 4
STAGES = 1  # blocks of keys under way at a time
# Each program reads its keys alone, one block after another. Where there are too few programs to fill a GPU, many keys
# take longer than in kernels that divide them.
MANY_PROGRAMS = 128
MANY_KEYS = 512
TOLERANCE = 0.02  # of what torch finds; bf16 keeps 8 bits


@triton.jit(do_not_specialize=["queries", "count", "heads"])
def _attend(  # type: ignore[no-untyped-def]
    query, keys, values, allowed, output, scale, queries, count, heads, q_b, q_h, q_q, k_b, k_h, k_k, v_b, v_h, v_k,
    a_b, a_q, a_k, masked: tl.constexpr, even: tl.constexpr, few: tl.constexpr, block: tl.constexpr, size: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    if even:
        count = count // 16 * 16  # the same number, and the compiler sees that masks can be read 16 at a time
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    ask = tl.arange(0, few)
    asked = ask < queries
    inner = tl.arange(0, size)
    q = tl.load(query + row * q_b + head * q_h + ask[:, None] * q_q + inner[None, :], mask=asked[:, None], other=0.0)
    keys += row * k_b + head * k_h
    values += row * v_b + head * v_h
    best = tl.full([few], -float("inf"), tl.float32)
    total = tl.zeros([few], tl.float32)
    found = tl.zeros([few, size], tl.float32)
    for first in range(0, count, block):
        key = first + tl.arange(0, block)
        needed = key < count
        seen = asked[:, None] & needed[None, :]
        if masked:
            seen = tl.load(allowed + row * a_b + ask[:, None] * a_q + key[None, :] * a_k, mask=seen, other=0) != 0
            needed = tl.max(seen.to(tl.int32), axis=0) > 0
        # Both are read before either is used, so that the second is not waited for.
        k = tl.load(keys + key[:, None] * k_k + inner[None, :], mask=needed[:, None], other=0.0)
        v = tl.load(values + key[:, None] * v_k + inner[None, :], mask=needed[:, None], other=0.0)
        score = tl.where(seen, tl.dot(q, tl.trans(k), input_precision=precision) * scale, -float("inf"))
        higher = tl.maximum(best, tl.max(score, axis=1))
        level = tl.where(higher == -float("inf"), 0.0, higher)  # nothing seen yet: -inf less itself is no number
        weight = tl.exp2(score - level[:, None])
        kept = tl.exp2(best - level)
        total = total * kept + tl.sum(weight, axis=1)
        found = found * kept[:, None] + tl.dot(weight.to(v.dtype), v, input_precision=precision)
        best = higher
    found = found / tl.where(total == 0, 1.0, total)[:, None]
    place = ((row * queries + ask[:, None]) * heads + head) * size + inner[None, :]
    tl.store(output + place, found.to(output.dtype.element_ty), mask=asked[:, None])


def serves(query_BHQE: Tensor, keys_BHKE: Tensor, values_BHKE: Tensor) -> bool:
    """Whether `attend` takes these, is the faster way, and is right on this device."""
    rows, heads, queries, size = query_BHQE.shape
    alike = query_BHQE.dtype == keys_BHKE.dtype == values_BHKE.dtype and keys_BHKE.shape == values_BHKE.shape
    return (
        queries <= QUERIES
        and size in SIZES
        and alike
        and keys_BHKE.shape[:2] == (rows, heads)
        and query_BHQE.dtype in (torch.float32, torch.bfloat16, torch.float16)
        and query_BHQE.stride(3) == keys_BHKE.stride(3) == values_BHKE.stride(3) == 1
        and (rows * heads >= MANY_PROGRAMS or keys_BHKE.shape[2] <= MANY_KEYS)
        # Triton works on the current device, and tensor cores know bf16 since Ampere.
        and query_BHQE.get_device() == torch.cuda.current_device()
        and torch.cuda.get_device_capability() >= (8, 0)
        and _works(query_BHQE.get_device(), query_BHQE.dtype, size)
    )


@cache
def _works(device: int, dtype: torch.dtype, size: int) -> bool:
    """Whether the kernel can be compiled for a device, and finds there what torch finds; with a mask and without."""
    draw = torch.Generator().manual_seed(1)
    query, keys, values = (torch.randn(3, 2, count, size, generator=draw).to(device, dtype) for count in (4, 80, 80))
    for allowed_BQK in (None, (torch.rand(3, 4, 80, generator=draw) > 0.5).to(device)):
        try:
            found = attend(query, keys, values, allowed_BQK).float()
        except Exception as error:  # whatever a compiler may say: torch's own kernel is there
            if ran_out(error):
                raise  # that says nothing of the kernel
            return False
        mask = None if allowed_BQK is None else allowed_BQK[:, None]
        wanted = F.scaled_dot_product_attention(query.float(), keys.float(), values.float(), mask)
        if not (found - wanted).norm() <= TOLERANCE * wanted.norm():
            return False
    return True


def attend(query_BHQE: Tensor, keys_BHKE: Tensor, values_BHKE: Tensor, allowed_BQK: Tensor | None = None) -> Tensor:
    """softmax(Q·Kᵀ / √d_k)·V over the allowed keys, [B, H, Q, E]; zeros where there are none.

    `allowed_BQK` is boolean and broadcasts to this shape; None allows all.
    """
    number = keys_BHKE.element_size()
    a_key, a_warp = keys_BHKE.shape[3] * number, A_WARP[number]
    block = min(max(16, triton.next_power_of_2(keys_BHKE.shape[2])), KEYS, MOST_WARPS * a_warp // a_key)
    warps = max(1, block * a_key // a_warp)
    return launch(query_BHQE, keys_BHKE, values_BHKE, allowed_BQK, block, warps, STAGES)


def launch(
    query_BHQE: Tensor, keys_BHKE: Tensor, values_BHKE: Tensor, allowed_BQK: Tensor | None, block: int, warps: int,
    stages: int,
) -> Tensor:  # fmt: skip
    """`attend`, by so many `warps` and `block` keys at a time, of which `stages` blocks are under way."""
    rows, heads, queries, size = query_BHQE.shape
    count = keys_BHKE.shape[2]
    # Laid out as the output's projection reads it: the heads of a token side by side.
    output_BQHE = query_BHQE.new_empty(rows, queries, heads, size)
    masked = allowed_BQK is not None
    allowed = output_BQHE if allowed_BQK is None else allowed_BQK.expand(rows, queries, count).view(torch.uint8)
    strides = allowed.stride() if masked else (0, 0, 0)  # where there is no mask, nothing is read of it
    # fp32 as three products of its upper and lower halves: as exact as fp32, and still on tensor cores.
    precision = "tf32x3" if query_BHQE.dtype == torch.float32 else "tf32"
    _attend[(rows, heads)](
        query_BHQE, keys_BHKE, values_BHKE, allowed, output_BQHE, math.log2(math.e) / math.sqrt(size), queries, count,
        heads, *query_BHQE.stride()[:3], *keys_BHKE.stride()[:3], *values_BHKE.stride()[:3], *strides, masked,
        masked and count % 16 == 0, QUERIES, block, size, precision, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return output_BQHE.transpose(1, 2)
