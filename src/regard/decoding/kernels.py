"""The likeliest tokens of a large vocabulary in one reading of their scores, for GPUs.

Shapes: R rows, V vocabulary, P pieces of a row, K blocks of a row, C tokens wanted.

    survey   reads each score once: of each piece the largest and the sum of exponentials, of each block the largest
    pick     the C largest of a row stand in the C blocks with the largest maxima: reads those, and puts them in order

The usual way, a softmax over all scores and then their largest, moves the scores through memory six times, and in fp32.
Of equal scores the lower token comes first, so that a choice does not depend on how a kernel is scheduled.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64
PIECE = 32  # blocks that a program of the survey reads
MOST = 64
WIDEST = 4096 * BLOCK


@triton.jit
def _survey(  # type: ignore[no-untyped-def]
    logits, tops, sums, maxima, stride, vocabulary, blocks, pieces, never, other, size: tl.constexpr,
    block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    piece = tl.program_id(1)
    number = piece * size + tl.arange(0, size)
    token = number[:, None] * block + tl.arange(0, block)[None, :]
    x = tl.load(logits + row * stride + token, mask=token < vocabulary, other=-float("inf")).to(tl.float32)
    top = tl.max(tl.max(x, axis=1), axis=0)
    # Where all scores are -inf, their distances to the largest would be no numbers.
    level = tl.where(top == -float("inf"), 0.0, top)
    tl.store(tops + row * pieces + piece, top)
    tl.store(sums + row * pieces + piece, tl.sum(tl.sum(tl.exp(x - level), axis=1), axis=0))
    x = tl.where((token == never) | (token == other), -float("inf"), x)
    tl.store(maxima + row * blocks + number, tl.max(x, axis=1), mask=number < blocks)


@triton.jit
def _pick(  # type: ignore[no-untyped-def]
    logits, tops, sums, maxima, values, tokens, normalisers, stride, vocabulary, blocks, pieces, never, other,
    most: tl.constexpr, room: tl.constexpr, block: tl.constexpr, all_blocks: tl.constexpr, all_pieces: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    piece = tl.arange(0, all_pieces)
    top = tl.load(tops + row * pieces + piece, mask=piece < pieces, other=-float("inf"))
    total = tl.load(sums + row * pieces + piece, mask=piece < pieces, other=0.0)
    highest = tl.max(top, axis=0)
    level = tl.where(highest == -float("inf"), 0.0, highest)
    normaliser = level + tl.log(tl.sum(total * tl.exp(top - level), axis=0))
    tl.store(normalisers + row, normaliser)

    number = tl.arange(0, all_blocks)
    left = tl.load(maxima + row * blocks + number, mask=number < blocks, other=-float("inf"))
    left = tl.where(number < blocks, tl.maximum(left, -3e38), left)  # lower still: taken, or not there
    place = tl.arange(0, room)
    chosen = tl.zeros([room], tl.int32)
    for turn in range(most):
        best = tl.min(tl.where(left == tl.max(left, axis=0), number, all_blocks), axis=0)
        chosen = tl.where(place == turn, best, chosen)
        left = tl.where(number == best, -float("inf"), left)

    token = chosen[:, None] * block + tl.arange(0, block)[None, :]
    inside = (place[:, None] < most) & (token < vocabulary)
    x = tl.load(logits + row * stride + token, mask=inside, other=-float("inf")).to(tl.float32)
    x = tl.where((token == never) | (token == other), -float("inf"), x)
    x = tl.reshape(x, [room * block])
    token = tl.reshape(token, [room * block])
    for turn in range(most):
        value = tl.max(x, axis=0)
        best = tl.min(tl.where(x == value, token, vocabulary - 1), axis=0)
        tl.store(values + row * most + turn, value - normaliser)
        # Scores that are no numbers are like nothing, not even themselves: the token must exist all the same.
        tl.store(tokens + row * most + turn, best.to(tl.int64))
        x = tl.where(token == best, -float("inf"), x)


def serves(logits_RV: Tensor, most: int) -> bool:
    """Whether `likeliest` takes these sizes."""
    vocabulary = logits_RV.shape[1]
    return most <= MOST and most * BLOCK <= vocabulary <= WIDEST and logits_RV.stride(1) == 1


def likeliest(logits_RV: Tensor, most: int, never: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """See `regard.decoding.likeliest`; `never` are two tokens, -1 for none."""
    rows, vocabulary = logits_RV.shape
    blocks = triton.cdiv(vocabulary, BLOCK)
    pieces = triton.cdiv(blocks, PIECE)
    tops_RP, sums_RP = logits_RV.new_empty(2, rows, pieces, dtype=torch.float32)
    maxima_RK = logits_RV.new_empty(rows, blocks, dtype=torch.float32)
    values_RC = logits_RV.new_empty(rows, most, dtype=torch.float32)
    tokens_RC = logits_RV.new_empty(rows, most, dtype=torch.long)
    normalisers_R = logits_RV.new_empty(rows, dtype=torch.float32)
    found = (tops_RP, sums_RP, maxima_RK)
    sizes = (logits_RV.stride(0), vocabulary, blocks, pieces, *never)
    _survey[(rows, pieces)](logits_RV, *found, *sizes, PIECE, BLOCK, num_warps=4)
    room = max(2, triton.next_power_of_2(most))
    _pick[(rows,)](
        logits_RV, *found, values_RC, tokens_RC, normalisers_R, *sizes, most, room, BLOCK,
        triton.next_power_of_2(blocks), triton.next_power_of_2(pieces), num_warps=8 if room > 16 else 4,
    )  # fmt: skip
    return values_RC, tokens_RC, normalisers_R
