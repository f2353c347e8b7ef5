"""Beam search (Attention Is All You Need, section 6.1; the penalty is GNMT's, Wu et al. 2016, section 7).

Shapes: B sentences, N beams, C candidates, P hypotheses kept, L longest length, V vocabulary.

Search looks for the finished sequence y with the highest

    score(y) = log P(y | source) / penalty(|y|),     |y| counts the end token

among those of at most `source length + extra_length` tokens before the end. A beam of one is greedy search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from regard.batch import PADDING_SEGMENT, Specials, Tokens
from regard.errors import DataError
from regard.models.interface import SequenceModel

Penalty = Literal["gnmt", "length", "none"]


@dataclass(frozen=True)
class SearchSettings:
    """How to search; the defaults are the paper's."""

    beam: int = 4
    penalty: Penalty = "gnmt"
    alpha: float = 0.6
    extra_length: int = 50
    nbest: int = 1

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise ValueError(f"`beam` must be at least 1, but is {self.beam}")
        if not 1 <= self.nbest <= self.beam:
            raise ValueError(f"`nbest` must be between 1 and `beam` ({self.beam}), but is {self.nbest}")
        if not 0 <= self.alpha <= 10:
            raise ValueError(f"`alpha` must be from 0 (no penalty) to 10, but is {self.alpha}")
        if self.extra_length < 0:
            raise ValueError(f"`extra_length` must be at least 0, but is {self.extra_length}")

    def divisor(self, lengths: Tensor) -> Tensor:
        """What a log-probability is divided by: never smaller for a longer sequence.

        gnmt: ((5 + |y|) / 6)^alpha, the paper's · length: |y|^alpha · none: 1
        """
        match self.penalty:
            case "gnmt":
                return ((5 + lengths) / 6) ** self.alpha
            case "length":
                return lengths.float() ** self.alpha
            case "none":
                return torch.ones_like(lengths, dtype=torch.float)


@dataclass(frozen=True)
class Hypothesis:
    """One finished sequence, without the start and end tokens."""

    tokens: tuple[int, ...]
    log_probability: float
    score: float
    cut: bool  # ended because it reached the length limit


@dataclass(frozen=True)
class _Pool:
    """The best finished hypotheses of each sentence, best first; unused slots score -inf."""

    scores_BP: Tensor
    log_probabilities_BP: Tensor
    lengths_BP: Tensor
    tokens_BPL: Tensor

    @classmethod
    def empty(cls, sentences: int, size: int, longest: int, device: torch.device) -> _Pool:
        nothing = torch.full((sentences, size), -torch.inf, device=device)
        lengths = torch.zeros(sentences, size, dtype=torch.long, device=device)
        return cls(nothing, nothing, lengths, lengths.new_zeros(sentences, size, longest))

    def add(self, other: _Pool) -> _Pool:
        """The best of both, as many as this pool keeps."""
        scores_BC = torch.cat([self.scores_BP, other.scores_BP], dim=1)
        scores_BP, best_BP = scores_BC.topk(self.scores_BP.shape[1], dim=1)
        joined = torch.cat([self.log_probabilities_BP, other.log_probabilities_BP], dim=1)
        lengths = torch.cat([self.lengths_BP, other.lengths_BP], dim=1)
        tokens = torch.cat([self.tokens_BPL, other.tokens_BPL], dim=1)
        best_BPL = best_BP[:, :, None].expand(-1, -1, tokens.shape[2])
        return _Pool(scores_BP, joined.gather(1, best_BP), lengths.gather(1, best_BP), tokens.gather(1, best_BPL))

    def select(self, rows: Tensor) -> _Pool:
        return _Pool(*(part.index_select(0, rows) for part in vars(self).values()))

    def hypotheses(self, row: int, nbest: int, limit: int) -> list[Hypothesis]:
        """The sentence's hypotheses, best first. `limit` counts the end token."""
        found = []
        for slot in range(nbest):
            score, length = self.scores_BP[row, slot].item(), int(self.lengths_BP[row, slot])
            if score > -torch.inf:
                tokens = tuple(self.tokens_BPL[row, slot, : length - 1].tolist())
                log_probability = self.log_probabilities_BP[row, slot].item()
                found.append(Hypothesis(tokens, log_probability, score, cut=length == limit))
        return found


@torch.inference_mode()
def beam_search(
    model: SequenceModel[Any], source: Tokens, specials: Specials, settings: SearchSettings
) -> list[list[Hypothesis]]:
    """For each source row its `nbest` best hypotheses, best first.

    A sentence leaves the batch as soon as no unfinished beam can overtake what it has: log-probabilities
    only fall and `divisor` never shrinks, so a beam of log-probability s ends at most at
    s / divisor(limit).
    """
    device, sentences = source.ids_BT.device, source.ids_BT.shape[0]
    if not sentences:
        return []
    real_BS = source.places.segments_or_ones() != PADDING_SEGMENT
    limits_B = real_BS.sum(dim=1) + settings.extra_length + 1
    longest = int(limits_B.max())
    results: list[list[Hypothesis]] = [[] for _ in range(sentences)]

    which_B = torch.arange(sentences, device=device)  # the sentence each row of the batch works on
    pool = _Pool.empty(sentences, settings.beam, longest, device)
    scores_BN = torch.zeros(sentences, 1, device=device)
    written_BNL = torch.zeros(sentences, 1, longest, dtype=torch.long, device=device)
    last = torch.full((sentences, 1), specials.start, device=device)
    state = model.start(source, sentences)

    for length in range(1, longest + 1):
        logits, state = model.step(last, state)
        next_BNV = _next_log_probabilities(logits, specials, length >= limits_B, scores_BN.shape[1])
        candidates = _best_candidates(scores_BN, next_BNV, 2 * settings.beam)
        pool = pool.add(_finished(candidates, written_BNL, length, specials, settings))

        scores_BN, beam_BN, token_BN = _unfinished(candidates, specials, settings.beam)
        written_BNL = written_BNL.gather(1, beam_BN[:, :, None].expand(-1, -1, longest))
        written_BNL[:, :, length - 1] = token_BN

        if settings.beam == 1:
            done_B = pool.scores_BP[:, 0] > -torch.inf  # greedy ends where it first chooses to end
        else:
            reachable_B = scores_BN[:, 0] / settings.divisor(limits_B)
            done_B = pool.scores_BP[:, settings.nbest - 1] >= reachable_B
        for row in done_B.nonzero().flatten().tolist():
            results[int(which_B[row])] = pool.hypotheses(row, settings.nbest, int(limits_B[row]))
        stay = (~done_B).nonzero().flatten()
        if not len(stay):
            break
        width = logits.shape[0] // len(which_B)
        state = state.select((stay[:, None] * width + beam_BN[stay]).flatten())
        last = token_BN[stay].reshape(-1, 1)
        which_B, limits_B, pool = which_B[stay], limits_B[stay], pool.select(stay)
        scores_BN, written_BNL = scores_BN[stay], written_BNL[stay]
    if not all(results):
        raise DataError(
            f"search: a model must give every sentence a next token, but row {results.index([])} got none: its scores "
            "are not numbers. The weights are damaged, or training diverged; go back to an earlier checkpoint."
        )
    return results


def _next_log_probabilities(logits: Tensor, specials: Specials, at_limit_B: Tensor, beams: int) -> Tensor:
    """log P of each next token, [B, N, V]; text never holds padding or a start, and a limit forces the end."""
    log_probabilities = logits.float().log_softmax(dim=-1)
    forbidden = [token for token in {specials.padding, specials.start} if token != specials.end]
    log_probabilities[:, forbidden] = -torch.inf
    next_BNV = log_probabilities.unflatten(0, (-1, beams))
    ending = torch.full_like(next_BNV, -torch.inf)
    ending[..., specials.end] = next_BNV[..., specials.end]
    return torch.where(at_limit_B[:, None, None], ending, next_BNV)


@dataclass(frozen=True)
class _Candidates:
    """The best continuations of each sentence over all its beams, best first."""

    scores_BC: Tensor
    beam_BC: Tensor
    token_BC: Tensor


def _best_candidates(scores_BN: Tensor, next_BNV: Tensor, most: int) -> _Candidates:
    vocabulary = next_BNV.shape[2]
    totals = (scores_BN[:, :, None] + next_BNV).flatten(1)
    scores_BC, index_BC = totals.topk(min(most, totals.shape[1]), dim=1)
    return _Candidates(scores_BC, index_BC // vocabulary, index_BC % vocabulary)


def _finished(
    candidates: _Candidates, written_BNL: Tensor, length: int, specials: Specials, settings: SearchSettings
) -> _Pool:
    """The candidates that end, if they are among the `beam` best: to end must be a choice, not a leftover."""
    longest, first = written_BNL.shape[2], settings.beam
    scores_BC, beam_BC = candidates.scores_BC[:, :first], candidates.beam_BC[:, :first]
    ends_BC = candidates.token_BC[:, :first] == specials.end
    log_probabilities = torch.where(ends_BC, scores_BC, -torch.inf)
    lengths = torch.full_like(beam_BC, length)
    tokens = written_BNL.gather(1, beam_BC[:, :, None].expand(-1, -1, longest))
    return _Pool(log_probabilities / settings.divisor(lengths), log_probabilities, lengths, tokens)


def _unfinished(candidates: _Candidates, specials: Specials, beams: int) -> tuple[Tensor, Tensor, Tensor]:
    """The `beams` best candidates that go on: their scores, the beams they came from, their tokens."""
    going = torch.where(candidates.token_BC == specials.end, -torch.inf, candidates.scores_BC)
    scores_BN, best_BN = going.topk(min(beams, going.shape[1]), dim=1)
    return scores_BN, candidates.beam_BC.gather(1, best_BN), candidates.token_BC.gather(1, best_BN)
