"""What a text must begin with, must not say and must say, and how long it may be.

Shapes: B sentences, N beams, L longest text, V vocabulary, K phrases, M longest phrase, W windows.

A rule sets the log-probabilities of what may not come next to -inf. Search applies the rules it is given; without any
it does no work for them. Nothing here looks at values on the host, so a rule never makes an accelerator wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from regard.batch import Specials
from regard.errors import UsageError

ANY, NOTHING = -1, -2  # in a phrase: every token fits; in a text: no token is here, and none fits

Phrases = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Constraints:
    """What one sentence's text has to keep to, in tokens; by default nothing.

    The text begins with `prefix`, whatever the other rules say. After it, no phrase of `banned` is completed. When it
    ends, it contains one phrase at least of each group of `required`: the ways in which a word is cut, or just one.
    """

    prefix: tuple[int, ...] = ()
    banned: Phrases = ()
    required: tuple[Phrases, ...] = ()

    @property
    def wanted(self) -> tuple[Phrases, ...]:
        """The groups of `required` without the phrases that hold a banned one, and no group twice.

        A group is empty if each of its phrases holds a banned one.
        """
        allowed = (tuple(phrase for phrase in group if not self._bans(phrase)) for group in self.required)
        return tuple(dict.fromkeys(allowed))

    @property
    def needed(self) -> int:
        """The fewest tokens of a text that keeps to this, if no two phrases share one."""
        return len(self.prefix) + sum(min(map(len, group)) for group in self.wanted)

    def _bans(self, phrase: tuple[int, ...]) -> tuple[int, ...]:
        """What is banned and stands in this phrase; empty if nothing does."""
        stands = (some for some in self.banned for i in range(len(phrase)) if phrase[i : i + len(some)] == some)
        return next(stands, ())

    def check(self, row: int, specials: Specials, vocabulary: int, limit: int, context: int | None = None) -> None:
        """Raise UsageError for what nobody can keep to; `limit` is the most tokens before the end.

        `context` is the most that the model can read.
        """
        place = f"constraints of sentence {row}"
        phrases = (*self.banned, *(phrase for group in self.required for phrase in group))
        for phrase in (self.prefix, *phrases):
            for token in phrase:
                if not 0 <= token < vocabulary or token in (specials.padding, specials.start, specials.end):
                    raise UsageError(
                        f"{place}: a token must be a word, from 0 to {vocabulary - 1} and not the padding, start or "
                        f"end, but {token} is not; encode the text without special tokens"
                    )
        if not all((*phrases, *self.required)):
            raise UsageError(f"{place}: a phrase must have at least one token, but one has none; leave it out")
        for group in self.required:
            if all(self._bans(phrase) for phrase in group):
                raise UsageError(
                    f"{place}: a required phrase must not hold a banned one, but {list(group[0])} holds "
                    f"{list(self._bans(group[0]))}; drop one of them"
                )
        if self.needed > limit:
            raised = context is None or limit < context - 1
            raise UsageError(
                f"{place}: prefix and required phrases must fit into {limit} tokens, but have {self.needed}; "
                + ("raise `extra_length`, or ask for less" if raised else "the model reads no more, so ask for less")
            )


class Rule(Protocol):
    """Something that forbids next tokens."""

    def forbid(self, next_BNV: Tensor, written_BNL: Tensor, length: int) -> None:
        """Set to -inf, in place, what may not be token number `length`; `written_BNL` holds those before it."""
        ...

    def select(self, rows: Tensor) -> Rule:
        """The rule of these sentences, in this order."""
        ...


@dataclass(frozen=True)
class Lengths:
    """No end before `least` tokens, and nothing but the end after the limit; the limit has the last word.

    `limits_B` counts the end token.
    """

    limits_B: Tensor
    shortest: int  # of the limits, known to the host: before it there is nothing to do
    least: int
    end: int

    def forbid(self, next_BNV: Tensor, written_BNL: Tensor, length: int) -> None:
        """Forbid the end, or all else."""
        if self.least < length < self.shortest:
            return
        at_limit_B1 = (length >= self.limits_B)[:, None]
        if length <= self.least:
            next_BNV[:, :, self.end].masked_fill_(~at_limit_B1, -torch.inf)
        if length >= self.shortest:
            other_V = torch.arange(next_BNV.shape[2], device=next_BNV.device) != self.end
            next_BNV.masked_fill_(at_limit_B1[:, :, None] & other_V, -torch.inf)

    def select(self, rows: Tensor) -> Lengths:
        """The lengths of these sentences."""
        return Lengths(self.limits_B[rows], self.shortest, self.least, self.end)


@dataclass(frozen=True)
class NoRepeat:
    """No n tokens in a row are written twice."""

    size: int

    def forbid(self, next_BNV: Tensor, written_BNL: Tensor, length: int) -> None:
        """Forbid what followed the last n - 1 tokens when they were written before."""
        if length <= self.size:
            return
        windows_BNWM = written_BNL[:, :, : length - 1].unfold(2, self.size, 1)
        last_BNM = written_BNL[:, :, length - self.size : length - 1]
        again_BNW = (windows_BNWM[..., :-1] == last_BNM[:, :, None]).all(dim=-1)
        _forbid_where(next_BNV, windows_BNWM[..., -1], again_BNW)

    def select(self, rows: Tensor) -> NoRepeat:
        """The same rule: it is the same for all sentences."""
        return self


@dataclass(frozen=True)
class Banned:
    """No phrase of these is completed."""

    phrases_BKM: Tensor

    @classmethod
    def of(cls, phrases: Sequence[Phrases], device: torch.device) -> Banned:
        """One list of phrases a sentence."""
        return cls(flush_right(phrases, device))

    def forbid(self, next_BNV: Tensor, written_BNL: Tensor, length: int) -> None:
        """Forbid the last token of each phrase where the others stand."""
        begun_B1KM, last_BK = self.phrases_BKM[:, None, :, :-1], self.phrases_BKM[:, :, -1]
        tail_BNM = tail(written_BNL[:, :, : length - 1], begun_B1KM.shape[-1])
        stands_BNK = fits(tail_BNM[:, :, None], begun_B1KM) & (last_BK != NOTHING)[:, None]
        tokens_BNK = last_BK.clamp(min=0)[:, None].expand(-1, next_BNV.shape[1], -1)
        _forbid_where(next_BNV, tokens_BNK, stands_BNK)

    def select(self, rows: Tensor) -> Banned:
        """The phrases of these sentences."""
        return Banned(self.phrases_BKM[rows])


@dataclass(frozen=True)
class Prefixed:
    """The given beginnings first; the other rules have a say only after them."""

    prefixes_BL: Tensor
    lengths_B: Tensor
    rules: tuple[Rule, ...]

    @classmethod
    def of(cls, prefixes: Sequence[tuple[int, ...]], rules: Sequence[Rule], device: torch.device) -> Prefixed:
        """One beginning a sentence."""
        rows = torch.nn.utils.rnn.pad_sequence([torch.tensor(prefix, dtype=torch.long) for prefix in prefixes], True)
        lengths = torch.tensor([len(prefix) for prefix in prefixes])
        return cls(rows.to(device), lengths.to(device), tuple(rules))

    def forbid(self, next_BNV: Tensor, written_BNL: Tensor, length: int) -> None:
        """Forbid all but the prefix's next token."""
        within = length <= self.prefixes_BL.shape[1]
        if within:
            token_BN1 = self.prefixes_BL[:, length - 1, None, None].expand(-1, next_BNV.shape[1], 1)
            forced_B11 = (length <= self.lengths_B)[:, None, None]
            before_BN1 = next_BNV.gather(2, token_BN1)
        for rule in self.rules:
            rule.forbid(next_BNV, written_BNL, length)
        if within:
            allowed_BN1 = torch.where(forced_B11, before_BN1, next_BNV.gather(2, token_BN1))
            next_BNV.masked_fill_(forced_B11, -torch.inf).scatter_(2, token_BN1, allowed_BN1)

    def select(self, rows: Tensor) -> Prefixed:
        """The beginnings of these sentences."""
        rules = tuple(rule.select(rows) for rule in self.rules)
        return Prefixed(self.prefixes_BL[rows], self.lengths_B[rows], rules)


def _forbid_where(next_BNV: Tensor, tokens_BNK: Tensor, forbidden_BNK: Tensor) -> None:
    """Forbid the tokens for which it is said. A token may be named twice, so that the least of both counts."""
    worth_BNK = torch.where(forbidden_BNK, -torch.inf, torch.inf)
    next_BNV.scatter_reduce_(2, tokens_BNK, worth_BNK, "amin")


def flush_right(phrases: Sequence[Phrases], device: torch.device) -> Tensor:
    """Phrases that end together, [B, K, M]: ANY before them, NOTHING at the end of missing ones."""
    most = max(map(len, phrases))
    longest = max((len(phrase) for some in phrases for phrase in some), default=1)
    table = torch.full((len(phrases), most, longest), ANY)
    table[:, :, -1] = NOTHING
    for row, some in enumerate(phrases):
        for place, phrase in enumerate(some):
            table[row, place, longest - len(phrase) :] = torch.tensor(phrase)
    return table.to(device)


def tail(texts_BNL: Tensor, size: int) -> Tensor:
    """The last `size` tokens of each text, NOTHING where there are fewer: [B, N, size]."""
    missing = max(0, size - texts_BNL.shape[2])
    padded = torch.nn.functional.pad(texts_BNL, (missing, 0), value=NOTHING)
    return padded[:, :, padded.shape[2] - size :]


def fits(text: Tensor, phrase: Tensor) -> Tensor:
    """Whether the last dimension agrees, ANY in the phrase agreeing with all."""
    return ((text == phrase) | (phrase == ANY)).all(dim=-1)
