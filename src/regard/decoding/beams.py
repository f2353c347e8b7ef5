"""The bookkeeping of a beam: which continuations are best, and which texts have ended.

Shapes: B sentences, N beams, C candidates, G groups, P texts kept, L longest text, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 64
WIDE = 64 * BLOCK  # from here on blocks pay


@dataclass(frozen=True)
class Candidates:
    """The continuations of each sentence that search chooses from, over all its beams, the first choice first."""

    scores_BC: Tensor
    beam_BC: Tensor
    token_BC: Tensor

    def take(self, order_BC: Tensor) -> Candidates:
        """The candidates in another order."""
        return Candidates(*(part.gather(1, order_BC) for part in vars(self).values()))

    def going_on(self, end: int, beams: int) -> Candidates:
        """The first `beams` candidates that do not end."""
        places_C = torch.arange(self.token_BC.shape[1], device=self.token_BC.device)
        # Those that end go behind all others; where nothing else is left, they are dead beams.
        order_BC = torch.where(self.token_BC == end, places_C + len(places_C), places_C)
        first_BN = order_BC.topk(min(beams, len(places_C)), dim=1, largest=False).indices
        kept = self.take(first_BN)
        return Candidates(torch.where(kept.token_BC == end, -torch.inf, kept.scores_BC), kept.beam_BC, kept.token_BC)


def continuations(scores_BN: Tensor, next_BNV: Tensor, most: int) -> Candidates:
    """The `most` likeliest continuations of each sentence, best first."""
    values_BNC, tokens_BNC = largest(next_BNV, most)
    totals = (scores_BN[:, :, None] + values_BNC).flatten(1)
    scores_BC, index_BC = totals.topk(min(most, totals.shape[1]), dim=1)
    return Candidates(scores_BC, index_BC // values_BNC.shape[2], tokens_BNC.flatten(1).gather(1, index_BC))


def diverse_continuations(
    scores_BN: Tensor, next_BNV: Tensor, beams: int, groups: int, strength: float, end: int
) -> Candidates:
    """Like `continuations`, for rows that come `groups` to a sentence (Vijayakumar et al. 2018, algorithm 1).

    The groups choose one after the other. For each beam of an earlier group that has just chosen a token, the token
    counts `strength` less in this step; the scores stay log-probabilities.
    """
    of_groups = []
    scores_GBN, next_GBNV = (part.unflatten(0, (-1, groups)).transpose(0, 1) for part in (scores_BN, next_BNV))
    taken_BV = torch.zeros_like(next_GBNV[0, :, 0])
    for scores, following in zip(scores_GBN, next_GBNV, strict=True):
        found = continuations(scores, following - strength * taken_BV[:, None], 2 * beams)
        discount_BC = strength * taken_BV.gather(1, found.token_BC)
        found = Candidates(found.scores_BC + discount_BC, found.beam_BC, found.token_BC)
        chosen = found.going_on(end, beams)
        taken_BV = taken_BV.scatter_add(1, chosen.token_BC, (chosen.scores_BC > -torch.inf).float())
        of_groups.append(found)
    parts = zip(*(vars(found).values() for found in of_groups), strict=True)
    return Candidates(*(torch.stack(part, dim=1).flatten(0, 1) for part in parts))


def largest(x: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """`topk` over the last dimension, on a CPU several times faster for a large vocabulary.

    The k largest of all stand in the k blocks with the largest maxima, or behind the last whole block.
    """
    size = x.shape[-1]
    if x.device.type != "cpu" or size < WIDE or most > size // BLOCK // 4:
        return x.topk(min(most, size), dim=-1)
    return largest_by_blocks(x, most)


def largest_by_blocks(x: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """`largest` for a dimension of at least `most` blocks."""
    size = x.shape[-1]
    blocks = size // BLOCK
    whole = x[..., : blocks * BLOCK].unflatten(-1, (BLOCK, blocks))  # a block is a column: maxima are then fast
    chosen = whole.amax(dim=-2).topk(most, dim=-1).indices
    values = whole.gather(-1, chosen.unsqueeze(-2).expand(*whole.shape[:-1], most)).flatten(-2)
    places = torch.arange(BLOCK, device=x.device)[:, None] * blocks + chosen.unsqueeze(-2)
    rest = torch.arange(blocks * BLOCK, size, device=x.device).expand(*x.shape[:-1], -1)
    values, index = torch.cat([values, x[..., blocks * BLOCK :]], dim=-1).topk(most, dim=-1)
    return values, torch.cat([places.flatten(-2), rest], dim=-1).gather(-1, index)


@dataclass(frozen=True)
class Ended:
    """One text that ended, as plain numbers. `length` counts the end token, `tokens` does not hold it."""

    tokens: tuple[int, ...]
    log_probability: float
    score: float
    length: int


@dataclass(frozen=True)
class Pool:
    """The best texts of each sentence that ended, best first; unused places score -inf."""

    scores_BP: Tensor
    log_probabilities_BP: Tensor
    lengths_BP: Tensor
    tokens_BPL: Tensor

    @classmethod
    def empty(cls, sentences: int, size: int, longest: int, device: torch.device) -> Pool:
        """Room for `size` texts of each sentence."""
        nothing = torch.full((sentences, size), -torch.inf, device=device)
        lengths = torch.zeros(sentences, size, dtype=torch.long, device=device)
        return cls(nothing, nothing, lengths, lengths.new_zeros(sentences, size, longest))

    def add(self, other: Pool) -> Pool:
        """The best of both, as many as this pool keeps."""
        scores_BC = torch.cat([self.scores_BP, other.scores_BP], dim=1)
        scores_BP, best_BP = scores_BC.topk(self.scores_BP.shape[1], dim=1)
        joined = torch.cat([self.log_probabilities_BP, other.log_probabilities_BP], dim=1)
        lengths = torch.cat([self.lengths_BP, other.lengths_BP], dim=1)
        tokens = torch.cat([self.tokens_BPL, other.tokens_BPL], dim=1)
        best_BPL = best_BP[:, :, None].expand(-1, -1, tokens.shape[2])
        return Pool(scores_BP, joined.gather(1, best_BP), lengths.gather(1, best_BP), tokens.gather(1, best_BPL))

    def select(self, rows: Tensor) -> Pool:
        """The texts of these sentences."""
        return Pool(*(part.index_select(0, rows) for part in vars(self).values()))

    def texts(self) -> list[list[Ended]]:
        """The texts of each sentence, best first, brought to the host."""
        rows = zip(*(part.tolist() for part in vars(self).values()), strict=True)
        return [
            [
                Ended(tuple(tokens[: length - 1]), log_probability, score, length)
                for score, log_probability, length, tokens in zip(*row, strict=True)
                if score > -torch.inf
            ]
            for row in rows
        ]
