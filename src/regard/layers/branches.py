"""Texts that branch: what the beams of a search have in common is kept once a sentence.

Shapes: B sentences, N beams, R = B·N rows, T new tokens a row, Q = N·T queries, K keys, S source tokens.

A model that reads its source as the beginning of its own text has it among its keys and values. With a copy of it for
each beam, a search would do little else than copy, since beams change places after every step. So the rows of a
sentence write into one memory, side by side, and a table says what of it is whose:

    read[r, k]   whether key k of its sentence stands in the text that row r goes on with

To follow a beam is to take its row of the table; keys and values stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.batch import PADDING_SEGMENT, Places
from regard.layers.mask import Mask, Visible


@dataclass(frozen=True)
class Branches:
    """Where the keys of each sentence stand, and which of them each row has read."""

    positions_BK: Tensor
    read_RK: Tensor

    @classmethod
    def of(cls, source: Places) -> Branches:
        """One row a sentence, which has read all of it but the padding."""
        return cls(source.positions_BT, source.segments_or_ones() != PADDING_SEGMENT)

    def select(self, rows: Tensor, sentences: Tensor | None) -> Branches:
        """The given rows, and the keys of the given sentences; None leaves them as they are."""
        positions_BK = self.positions_BK if sentences is None else self.positions_BK.index_select(0, sentences)
        return Branches(positions_BK, self.read_RK.index_select(0, rows))

    def following(self, tokens_RT: Tensor) -> Places:
        """Where the next tokens of each row stand."""
        step_T = torch.arange(tokens_RT.shape[1], device=tokens_RT.device)
        return Places(self.read_RK.sum(dim=1, keepdim=True) + step_T, torch.ones_like(tokens_RT))

    def extend(self, new: Places) -> Branches:
        """These keys followed by those of `new` tokens, [R, T], each of which its own row has read."""
        sentences, (rows, tokens) = self.positions_BK.shape[0], new.positions_BT.shape
        own_NQ = torch.eye(rows // max(sentences, 1), dtype=torch.bool, device=self.read_RK.device)
        own_RQ = own_NQ.repeat_interleave(tokens, dim=1).repeat(sentences, 1)
        positions_BQ = new.share(Places(self.positions_BK)).positions_BT
        return Branches(
            torch.cat([self.positions_BK, positions_BQ], dim=1),
            torch.cat([self.read_RK, own_RQ], dim=1),
        )

    def visible(self, mask: Mask, new: Places) -> Visible:
        """What the `new` tokens, the newest of these keys, see of their sentence's: [B, Q, K]."""
        # Segments that are spelled out keep the mask from taking whole rows for granted.
        keys = Places(self.positions_BK, torch.ones_like(self.positions_BK))
        visible = mask.visible(new.share(keys), keys)
        read_RTK = self.read_RK[:, None].expand(-1, new.positions_BT.shape[1], -1)
        assert visible.allowed_BQK is not None
        return replace(visible, allowed_BQK=visible.allowed_BQK & read_RTK.reshape(visible.allowed_BQK.shape))


def sentences_of(rows: Tensor, before: int, sentences: int) -> Tensor | None:
    """The sentences that the given ones of `before` rows belong to, if equally many neighbours share each.

    They are named once for each run of equally many rows, else once a row; None if they are all there, in their order.
    """
    of_rows = rows // max(before // max(sentences, 1), 1)
    kept, counts = torch.unique_consecutive(of_rows, return_counts=True)
    if not (len(kept) and bool((counts == counts[0]).all())):
        kept = of_rows
    unchanged = len(kept) == sentences and torch.equal(kept, torch.arange(sentences, device=kept.device))
    return None if unchanged else kept
