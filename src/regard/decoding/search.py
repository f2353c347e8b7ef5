"""Greedy and beam search (Attention Is All You Need, section 6.1; the penalties are of Wu et al. 2016, section 7).

Shapes: B rows, N beams, R = B·N rows that the model reads, T tokens, C candidates, P texts kept, L longest length,
S source tokens, V vocabulary. One of the B is a sentence, or with `groups` one of a sentence's groups of beams.

Search looks for the finished text y with the highest

    score(y) = log P(y | source) / divisor(|y|) + coverage(source, y),     |y| counts the end token

among those of at most `source length + extra_length` tokens before the end. A beam of one is greedy search.

It stops when no unfinished beam can overtake what is finished: log-probabilities only fall, `divisor` never shrinks
and coverage is at most 0, so a beam of log-probability s ends at most at s / divisor(limit).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal

import torch
from torch import Tensor

from regard.batch import PADDING_SEGMENT, Specials, Tokens
from regard.decoding import penalties
from regard.decoding.beams import Candidates, Ended, Pool, continuations, diverse_continuations
from regard.decoding.beginnings import TOKENS_AT_A_TIME, chances, read_together
from regard.decoding.constraints import Banned, Constraints, Lengths, NoRepeat, Prefixed, Rule
from regard.decoding.ensemble import Sources, select_rows
from regard.decoding.penalties import Coverage, Penalty
from regard.decoding.required import Required
from regard.errors import DataError, UsageError
from regard.models.interface import SequenceModel
from regard.settings import check_words
from regard.settings.bounds import check_at_least

MOST_BEAMS = 1000
NEARLY = 16  # by so many tokens beginnings in a batch may differ; what one has more than another is read one by one

OnRound = Callable[[Candidates], None]
"""Called in every round with what each sentence chooses from, before it does."""


@dataclass(frozen=True)
class SearchSettings:
    """How to search; the defaults are the paper's."""

    beam: int = 4
    penalty: Penalty = "gnmt"
    alpha: float = 0.6
    coverage: float = 0.0
    """β of the coverage penalty; 0 is neutral."""
    extra_length: int = 50
    min_length: int = 0
    nbest: int = 1
    no_repeat: int = 0
    """No so many tokens in a row are written twice; 0 is neutral."""
    groups: int = 1
    """The beams choose in so many groups, each avoiding what those before it chose; 1 is neutral."""
    diversity: float = 0.5
    """By how much, in log-probability, with `groups` of more than 1."""
    too_long: Literal["split", "begin"] = "split"
    """Of a source that is too long, translate piece after piece, or read the beginning alone, as for summaries."""
    each_sentence: bool = False
    """Translate each sentence of a source by itself: for models that have learned from single sentences."""

    def __post_init__(self) -> None:
        check_words(self)
        if not 1 <= self.beam <= MOST_BEAMS:
            rule = "at least 1" if self.beam < 1 else f"at most {MOST_BEAMS:,}"
            raise ValueError(
                f"`beam` must be {rule}, but is {self.beam}; 4 are usual, and many rarely find better texts"
            )
        if not 1 <= self.nbest <= self.beam:
            fix = "give 1 or more" if self.nbest < 1 else "ask for fewer, or raise `beam`"
            raise ValueError(f"`nbest` must be between 1 and `beam` ({self.beam}), but is {self.nbest}; {fix}")
        if not 0 <= self.alpha <= 10:
            raise ValueError(f"`alpha` must be from 0 (no penalty) to 10, but is {self.alpha}; 0.6 is usual")
        if not 0 <= self.coverage <= 10:
            raise ValueError(f"`coverage` must be from 0 (no penalty) to 10, but is {self.coverage}; 0 is without it")
        check_at_least(0, self, "extra_length", "min_length", "no_repeat", "diversity")
        if self.groups < 1 or self.beam % self.groups:
            raise ValueError(f"`groups` must divide `beam` ({self.beam}), but is {self.groups}; give 1 or `beam`")

    def divisor(self, lengths: Tensor) -> Tensor:
        """What the log-probability of a text of so many tokens, the end among them, is divided by."""
        return penalties.divisor(self.penalty, self.alpha, lengths)


class NothingFoundError(UsageError):
    """No text of a sentence keeps to all that is asked for. `row` is the sentence's number, from 0."""

    def __init__(self, row: int) -> None:
        super().__init__(
            f"search: some text must keep to all that is asked for, but none does for sentence {row}; ask for less: "
            "constraints, `no_repeat`, `min_length`"
        )
        self.row = row


@dataclass(frozen=True)
class Hypothesis:
    """One finished sequence, without the start and end tokens."""

    tokens: tuple[int, ...]
    log_probability: float
    score: float
    cut: bool  # ended because it reached the length limit


@torch.inference_mode()
def beam_search(
    model: SequenceModel[Any],
    source: Tokens | None,
    specials: Specials,
    settings: SearchSettings,
    constraints: Sequence[Constraints] | None = None,
    watch: OnRound | None = None,
) -> list[list[Hypothesis]]:
    """For each source row its `nbest` best hypotheses, best first.

    `constraints` has one entry a row. A language model has no source: there `constraints` says how many rows there
    are, and a text has at most `extra_length` tokens after its prefix. `watch` sees every round; what all texts of a
    batch begin with takes none, since the model reads it in one go.
    """
    if source is None and constraints is None:
        raise UsageError(
            "search: a model without a source needs `constraints`, one a row, to say how many texts to look for, "
            "but there are none; write [Constraints(prefix=…)]"
        )
    sentences = len(constraints or ()) if source is None else source.ids_BT.shape[0]
    if constraints is not None and len(constraints) != sentences:
        raise UsageError(
            f"search: `constraints` must have one entry a source row ({sentences}), but has {len(constraints)}; "
            "write Constraints() where there is nothing to ask for"
        )
    if not sentences:
        return []
    asked = constraints or [Constraints()] * sentences
    limits = _limits(model, source, specials, settings, asked)
    results: list[list[Hypothesis]] = [[] for _ in asked]
    for rows in read_together([len(each.prefix) for each in asked], NEARLY):
        part = source
        if source is not None and len(rows) < sentences:
            part = select_rows(source, torch.tensor(rows, device=source.ids_BT.device))
        search = _Search(model, part, specials, settings, [asked[row] for row in rows], [limits[row] for row in rows])
        for row, found in zip(rows, search.run(watch), strict=True):
            results[row] = found
            if not found:
                raise search.nothing_found(row)
    return results


class _Search:
    """A batch on its way. What belongs to a row is dropped when its sentence is done."""

    def __init__(
        self,
        model: SequenceModel[Any],
        source: Tokens | None,
        specials: Specials,
        settings: SearchSettings,
        constraints: Sequence[Constraints],
        limits: list[int],
    ) -> None:
        self.model, self.specials, self.settings = model, specials, settings
        self.groups, self.beams = settings.groups, settings.beam // settings.groups
        device = next(model.parameters()).device
        self.limits, self.longest, self.sentences = limits, max(limits), list(range(len(limits)))
        self.limits_B = torch.tensor(self.limits, device=device).repeat_interleave(self.groups)
        rows = len(self.limits_B)

        self.rules, self.required = self._rules([each for each in constraints for _ in range(self.groups)])
        self.state = model.start(source, len(constraints))
        if self.groups > 1:
            self.state = self.state.select(torch.arange(len(constraints), device=device).repeat_interleave(self.groups))
        self.coverage = self._coverage(source) if settings.coverage else None
        self.pool = Pool.empty(rows, self.beams, self.longest, device)
        self.scores_BN = torch.zeros(rows, 1, device=device)
        self.written_BNL = torch.zeros(rows, 1, self.longest, dtype=torch.long, device=device)
        self.unread_RT = torch.full((rows, 1), specials.start, device=device)
        self.results: list[list[Hypothesis]] = [[] for _ in constraints]
        self.known = min(len(each.prefix) for each in constraints)
        if self.known:
            self._begin(source, [each.prefix[: self.known] for each in constraints])

    def run(self, watch: OnRound | None = None) -> list[list[Hypothesis]]:
        """The hypotheses of every sentence; of one that has none, `nothing_found` says why."""
        with self.coverage or nullcontext():
            for length in range(self.known + 1, self.longest + 1):
                candidates = self._candidates(self._read(), length)
                if watch is not None:
                    watch(candidates)
                self.pool = self.pool.add(self._ended(candidates, length))
                rows = self._go_on(candidates, length)
                if not self._leave(rows):
                    break
        return self.results

    def _begin(self, source: Tokens | None, beginnings: list[tuple[int, ...]]) -> None:
        """Write what the text of each sentence begins with, of one length for all."""
        device = self.scores_BN.device
        beginning_BT = torch.tensor(beginnings, device=device).repeat_interleave(self.groups, dim=0)
        self.written_BNL[:, 0, : self.known] = beginning_BT
        self.unread_RT = torch.cat([self.unread_RT, beginning_BT], dim=1)
        scores_B = torch.tensor(chances(self.model, source, beginnings, self.specials), device=device)
        self.scores_BN = scores_B.repeat_interleave(self.groups)[:, None]

    def _read(self) -> Tensor:
        """Let the model read what is written; the scores of what comes next, [R, V]."""
        *before, last_RT = self.unread_RT.split(max(1, TOKENS_AT_A_TIME // len(self.unread_RT)), dim=1)
        for tokens_RT in before:
            _, self.state = self.model.step(tokens_RT, self.state)
            if self.coverage is not None:
                self.coverage.read()
        logits_RV, self.state = self.model.step(last_RT, self.state)
        return logits_RV

    def _candidates(self, logits_RV: Tensor, length: int) -> Candidates:
        """What each sentence chooses from: the best continuations that no rule forbids."""
        end = self.specials.end
        log_probabilities_RV = logits_RV.float().log_softmax(dim=-1)
        for token in self.specials.unwritten:
            log_probabilities_RV[:, token] = -torch.inf
        next_BNV = log_probabilities_RV.unflatten(0, (-1, self.scores_BN.shape[1]))
        for rule in self.rules:
            rule.forbid(next_BNV, self.written_BNL, length)
        if self.groups > 1:
            strength = self.settings.diversity
            return diverse_continuations(self.scores_BN, next_BNV, self.beams, self.groups, strength, end)
        candidates = continuations(self.scores_BN, next_BNV, 2 * self.beams)
        if self.required is not None:
            return self.required.arrange(candidates, self.scores_BN, next_BNV, self.written_BNL, length)
        return candidates

    def _ended(self, candidates: Candidates, length: int) -> Pool:
        """The candidates that end, if they are among the first `beams`: to end must be a choice, not a leftover."""
        scores_BC, beam_BC, token_BC = (part[:, : self.beams] for part in vars(candidates).values())
        log_probabilities = torch.where(token_BC == self.specials.end, scores_BC, -torch.inf)
        lengths = torch.full_like(beam_BC, length)
        scores = log_probabilities / self.settings.divisor(lengths)
        if self.coverage is not None:
            scores = scores + self.coverage.read().gather(1, beam_BC)
        tokens = self.written_BNL.gather(1, beam_BC[:, :, None].expand(-1, -1, self.longest))
        return Pool(scores, log_probabilities, lengths, tokens)

    def _go_on(self, candidates: Candidates, length: int) -> Tensor | None:
        """Write the next token of each beam. Gives the old beam that each new one goes on from, [B, N]; None if
        each goes on from itself."""
        width = self.scores_BN.shape[1]
        chosen = candidates.going_on(self.specials.end, self.beams)
        self.scores_BN = chosen.scores_BC
        self.unread_RT = chosen.token_BC.view(-1, 1)
        if width > 1 or chosen.beam_BC.shape[1] > 1:
            self.written_BNL = self.written_BNL.gather(1, chosen.beam_BC[:, :, None].expand(-1, -1, self.longest))
            if self.coverage is not None:
                self.coverage.follow(chosen.beam_BC)
        self.written_BNL[:, :, length - 1] = chosen.token_BC
        if width == chosen.beam_BC.shape[1] == 1:
            return None
        first_B1 = torch.arange(len(chosen.beam_BC), device=chosen.beam_BC.device)[:, None] * width
        return first_B1 + chosen.beam_BC

    def _leave(self, rows_BN: Tensor | None) -> bool:
        """Take the sentences that are done out of the batch; whether any are left."""
        done_B = self._done()
        if self.groups > 1:
            # A group that is done waits for the others of its sentence, and finds nothing more.
            self.scores_BN = self.scores_BN.masked_fill(done_B[:, None], -torch.inf)
        # The only place of a step where the host looks at values, and an accelerator has to catch up.
        done = done_B.view(-1, self.groups).all(dim=1).tolist()
        if any(done):
            self._collect([place for place, it_is in enumerate(done) if it_is])
            stay = [place for place, it_is in enumerate(done) if not it_is]
            if not stay:
                return False
            self.sentences = [self.sentences[place] for place in stay]
            kept_B = self._rows(stay)
            self._keep(kept_B)
            rows_BN = kept_B[:, None] if rows_BN is None else rows_BN[kept_B]
        if rows_BN is not None:
            self.state = self.state.select(rows_BN.flatten())
        return True

    def _done(self) -> Tensor:
        if self.beams == 1:
            return self.pool.scores_BP[:, 0] > -torch.inf  # greedy ends where it first chooses to end
        reachable_B = self.scores_BN.amax(dim=1) / self.settings.divisor(self.limits_B)
        wanted = min(self.settings.nbest, self.beams)
        return self.pool.scores_BP[:, wanted - 1] >= reachable_B

    def _collect(self, done: list[int]) -> None:
        """Write down the hypotheses of the sentences at these places of the batch."""
        texts = self.pool.select(self._rows(done)).texts()
        for place, first in zip(done, range(0, len(texts), self.groups), strict=True):
            sentence = self.sentences[place]
            best = _joined(texts[first : first + self.groups])[: self.settings.nbest]
            self.results[sentence] = [
                Hypothesis(each.tokens, each.log_probability, each.score, cut=each.length == self.limits[sentence])
                for each in sorted(best, key=lambda each: -each.score)
            ]

    def _keep(self, rows_B: Tensor) -> None:
        """Drop all other rows; the model's state follows when it is reordered."""
        width = self.scores_BN.shape[1]
        self.limits_B, self.pool = self.limits_B[rows_B], self.pool.select(rows_B)
        self.scores_BN, self.written_BNL = self.scores_BN[rows_B], self.written_BNL[rows_B]
        self.unread_RT = self.unread_RT.view(-1, width)[rows_B].view(-1, 1)
        self.rules = [rule.select(rows_B) for rule in self.rules]
        if self.required is not None:
            self.required = self.required.select(rows_B)
        if self.coverage is not None:
            self.coverage.select(rows_B)

    def _rows(self, places: list[int]) -> Tensor:
        """The rows of the sentences at these places: one a group."""
        rows = [place * self.groups + group for place in places for group in range(self.groups)]
        return torch.tensor(rows, device=self.limits_B.device)

    def _rules(self, constraints: list[Constraints]) -> tuple[list[Rule], Required | None]:
        """What is forbidden in each row, and what is required; nothing that is not asked for."""
        device, settings, end = self.limits_B.device, self.settings, self.specials.end
        rules: list[Rule] = []
        required = None
        if any(each.banned for each in constraints):
            rules.append(Banned.of([each.banned for each in constraints], device))
        if settings.no_repeat:
            rules.append(NoRepeat(settings.no_repeat))
        if any(each.wanted for each in constraints):
            required = Required.of([each.wanted for each in constraints], end, device)
            rules.append(required)
        rules.append(Lengths(self.limits_B, min(self.limits), settings.min_length, end))
        if any(each.prefix for each in constraints):
            rules = [Prefixed.of([each.prefix for each in constraints], rules, device)]
        if required is not None and self.groups > 1:
            raise UsageError(
                f"search: required phrases need `groups` = 1, but it is {self.groups}; both share out the beams, "
                "and only one can"
            )
        return rules, required

    def _coverage(self, source: Tokens | None) -> Coverage:
        if source is None or isinstance(source, Sources):
            found = "the model reads none" if source is None else "there is one for each model of an ensemble"
            raise UsageError(f"search: `coverage` needs one source, but {found}; set `coverage` to 0")
        real_BS = source.places.segments_or_ones() != PADDING_SEGMENT
        return Coverage(self.model, self.settings.coverage, real_BS.repeat_interleave(self.groups, dim=0))

    def nothing_found(self, row: int) -> Exception:
        """Why there is no text for a sentence, which the caller knows by this number."""
        if self.scores_BN.isnan().any():
            return DataError(
                f"search: a model must give every sentence a next token, but row {row} got none: its scores "
                "are not numbers. The weights are damaged, or training diverged; go back to an earlier checkpoint."
            )
        return NothingFoundError(row)


def _joined(groups: list[list[Ended]]) -> list[Ended]:
    """The best of each group, then the second best of each, …; a text that several found counts once."""
    turns = (each for turn in zip_longest(*groups) for each in turn if each is not None)
    return list({each.tokens: each for each in turns}.values())


def _limits(
    model: SequenceModel[Any],
    source: Tokens | None,
    specials: Specials,
    settings: SearchSettings,
    constraints: Sequence[Constraints],
) -> list[int]:
    """The most tokens of each text, the end among them: as many as are asked for, and as the model can read."""
    lengths = [0] * len(constraints)
    if source is not None:
        lengths = (source.places.segments_or_ones() != PADDING_SEGMENT).sum(dim=1).tolist()
    limits = []
    for row, (length, each) in enumerate(zip(lengths, constraints, strict=True)):
        limit = max(length, len(each.prefix)) + settings.extra_length
        if model.context is not None:
            limit = min(limit, model.context - 1)
        each.check(row, specials, model.vocabulary, limit, model.context)
        limits.append(limit + 1)
    return limits
