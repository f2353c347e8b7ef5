"""What texts are made to begin with: how likely it is, and which texts are read together for it.

A beginning is not searched for, so that a model can read it as it reads a source: in one go, where one token at a time
takes as many steps as it has tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from regard.batch import Specials, Tokens
from regard.decoding.ensemble import select_rows
from regard.decoding.scoring import score_texts
from regard.models.interface import SequenceModel

TOKENS_AT_A_TIME = 16_384  # read at once over all rows: what a model keeps for a moment grows with them


def read_together(lengths: Sequence[int], apart: int) -> list[list[int]]:
    """The rows of each batch, every row in one of them: those whose beginnings are at most so many tokens apart."""
    batches: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if not batches or lengths[row] > lengths[batches[-1][0]] + apart:
            batches.append([])
        batches[-1].append(row)
    return [sorted(batch) for batch in batches]


def chances(
    model: SequenceModel[Any], source: Tokens | None, beginnings: Sequence[Sequence[int]], specials: Specials
) -> list[float]:
    """log P(beginning | source) of each row; all of them have the same number of tokens."""
    device = next(model.parameters()).device
    size = max(1, TOKENS_AT_A_TIME // len(beginnings[0]))
    found: list[float] = []
    for first in range(0, len(beginnings), size):
        some = beginnings[first : first + size]
        rows = torch.arange(first, first + len(some), device=device)
        part = None if source is None else select_rows(source, rows)
        found += [each.log_probability for each in score_texts(model, part, some, specials, end=False)]
    return found
