"""What is hidden from a model that learns to find it: some tokens of a text, or all that come later in some order.

Shapes: B rows, T tokens, C numbers drawn for each token.

    Masking    BERT: some tokens become a mask, another token, or stay; those are to be said      (Devlin et al. 2018)
    Ordering   XLNet: the known tokens have the first turn, the others one each, in any order     (Yang et al. 2019)

Both make of a batch for a language model another one. What is drawn follows from the seed, the number of the batch and
the place in it alone, as all of a batch does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.batch import IGNORED, PADDING_SEGMENT, Batch, Places, Tokens

HIDING = 2**32 - 2  # sets these random numbers apart from those that order batches
MASK_SHARE, OTHER_SHARE = 0.8, 0.1  # of the tokens to be said; the rest stays as it is


@dataclass(frozen=True)
class Masking:
    """A share of the tokens is to be said; 80 % of them are read as `mask`, 10 % as any of the `vocabulary`."""

    share: float
    mask: int
    vocabulary: int
    padding: int
    draws: ClassVar[int] = 3

    def __call__(self, batch: Batch, drawn_BTC: Tensor) -> Batch:
        """The labels as a text to be read, with its end, some of it hidden; labels where something is to be said."""
        real_BT = batch.labels_BT != IGNORED
        chosen_BT = _turns(drawn_BTC[..., 0], real_BT) >= _known(real_BT, self.share)
        fate_BT, other_BT = drawn_BTC[..., 1], (drawn_BTC[..., 2] * self.vocabulary).long()
        ids_BT = torch.where(real_BT, batch.labels_BT, self.padding)
        read_BT = torch.where(fate_BT < MASK_SHARE + OTHER_SHARE, other_BT, ids_BT)
        read_BT = torch.where(fate_BT < MASK_SHARE, self.mask, read_BT)
        text = Tokens(torch.where(chosen_BT, read_BT, ids_BT), _only(batch.target.places, real_BT))
        return Batch(None, text, torch.where(chosen_BT, batch.labels_BT, IGNORED))


@dataclass(frozen=True)
class Ordering:
    """A share of the tokens is to be said, one after another in any order; all others are known before them."""

    share: float
    draws: ClassVar[int] = 1

    def __call__(self, batch: Batch, drawn_BTC: Tensor) -> Batch:
        """The same batch with turns, and with labels for those that have one of their own."""
        real_BT = batch.labels_BT != IGNORED
        later_BT = _turns(drawn_BTC[..., 0], real_BT) - _known(real_BT, self.share)
        labels_BT = torch.where(later_BT >= 0, batch.labels_BT, IGNORED)
        places = _only(batch.target.places, real_BT)
        return replace(
            batch, target=Tokens(batch.target.ids_BT, places), labels_BT=labels_BT, order_BT=(later_BT + 1).clamp(min=0)
        )


Lesson = Masking | Ordering
"""What a batch becomes before a model learns from it."""


def numbers(seed: int, step: int, first: int, rows: int, length: int, draws: int) -> Tensor:
    """For rows `first`, `first + 1`, … of batch `step`, `draws` numbers from 0 to below 1 for each token, [B, T, C]."""
    # Drawn for the rows before them, too: who reads which rows must not matter.
    raw = np.random.PCG64([seed, step, HIDING]).random_raw((first + rows) * length * draws)
    return torch.from_numpy((raw >> np.uint64(11)) * 2.0**-53).view(-1, length, draws)[first:]


def _turns(drawn_BT: Tensor, real_BT: Tensor) -> Tensor:
    """A random order of the real tokens of each row: the number of each, [B, T]; -1 where there is none."""
    order_BT = torch.where(real_BT, drawn_BT, 2.0).argsort(dim=1, stable=True).argsort(dim=1)
    return torch.where(real_BT, order_BT, -1)


def _known(real_BT: Tensor, share: float) -> Tensor:
    """How many tokens of each row are not to be said, [B, 1]; of any row that has tokens, one is."""
    count_B1 = real_BT.sum(dim=1, keepdim=True)
    said_B1 = torch.maximum((count_B1 * share).round().long(), torch.ones_like(count_B1))
    return (count_B1 - said_B1).clamp(min=0)


def _only(places: Places, real_BT: Tensor) -> Places:
    """The same places, where what is not real is padding: a model that looks ahead would see it."""
    if places.segments_BT is None and bool(real_BT.all()):
        return places
    return Places(places.positions_BT, torch.where(real_BT, places.segments_or_ones(), PADDING_SEGMENT))
