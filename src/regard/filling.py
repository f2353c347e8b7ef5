"""Gaps in texts, and what stands in them, with chances.

Shapes: B rows, T tokens, G gaps, V vocabulary.

A gap is one token. Where it stands for a word of a text with spaces, the space before it is part of that token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regard.batch import Tokens
from regard.errors import UsageError
from regard.models.interface import FillsGaps, Learner
from regard.text.tokenizer import Tokenizer
from regard.text.words import SPACE

GAP = "_"
MOST = 5  # tokens that are told of a gap, unless asked for others
STAND_IN = "\N{OBJECT REPLACEMENT CHARACTER}"  # no vocabulary joins it to what stands beside it
DIGITS = 8  # behind the point of a probability


@dataclass(frozen=True)
class Gap:
    """The likeliest tokens of one gap with their probabilities, the likeliest first; ▁ marks a space."""

    tokens: tuple[str, ...]
    probabilities: tuple[float, ...]


@dataclass(frozen=True)
class Filled:
    """A text with the likeliest token in every gap, and what else could stand there."""

    text: str
    gaps: tuple[Gap, ...]

    def to_json(self) -> dict[str, object]:
        """As `regard fill --json` prints it."""
        gaps = [
            [[token, round(chance, DIGITS)] for token, chance in zip(gap.tokens, gap.probabilities, strict=True)]
            for gap in self.gaps
        ]
        return {"text": self.text, "gaps": gaps}


class Filler:
    """A model that fills gaps, and its vocabulary."""

    def __init__(self, network: Learner, tokenizer: Tokenizer, context: int | None) -> None:
        if not isinstance(network, FillsGaps):
            raise TypeError(f"Filler: needs a model that fills gaps, but has a {type(network).__name__}")
        self._network, self._fills, self._tokenizer, self._context = network, network, tokenizer, context
        specials, unknown = tokenizer.specials, tokenizer.unknown
        marks = {specials.padding, specials.start, specials.end, *tokenizer.languages.values()}
        self._no_text = sorted(marks | (set() if unknown is None else {unknown}))

    def fill(self, text: str, count: int = MOST, gap: str = GAP) -> Filled:
        """Find what stands in every gap of `text`, each by itself; `count` tokens are told of each.

        All but the gaps stays as it is written, even what the vocabulary does not cover.
        """
        pieces = cut(self._tokenizer, text, gap)
        if self._context is not None and len(pieces.ids) >= self._context:
            raise UsageError(
                f"fill: a text must have less than {self._context:,} tokens, which the model can read, but has "
                f"{len(pieces.ids):,}. Shorten it."
            )
        tokens, found = self._likeliest(pieces.ids, pieces.gaps, count)
        return Filled(pieces.put(tokens, self._tokenizer), found)

    def fill_tokens(self, ids: Sequence[int], gaps: Sequence[int], count: int = MOST) -> Filled:
        """The same for a text that is cut already, with gaps at these places."""
        tokens, found = self._likeliest(ids, gaps, count)
        filled = list(ids)
        for place, token in zip(gaps, tokens, strict=True):
            filled[place] = token
        return Filled(self._tokenizer.decode(filled), found)

    @torch.inference_mode()
    def _likeliest(self, ids: Sequence[int], gaps: Sequence[int], count: int) -> tuple[list[int], tuple[Gap, ...]]:
        """The likeliest token of each gap, and what is told of it. Only tokens that are text can stand in one."""
        specials, device = self._tokenizer.specials, next(self._network.parameters()).device
        read = Tokens.whole(torch.tensor([[*ids, specials.end]], device=device))
        hidden_BT = torch.zeros_like(read.ids_BT, dtype=torch.bool)
        hidden_BT[0, list(gaps)] = True
        self._network.eval()
        scores_GV = self._fills.in_gaps(read, hidden_BT, specials.start)[hidden_BT].float()
        scores_GV[:, self._no_text] = -torch.inf
        most = min(count, scores_GV.shape[1] - len(self._no_text))
        best = scores_GV.softmax(dim=-1).cpu().topk(most, dim=-1)
        found = (
            Gap(tuple(label.replace(" ", SPACE) for label in self._tokenizer.labels(tokens)), tuple(chances))
            for tokens, chances in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        )
        return best.indices[:, 0].tolist(), tuple(found)


@dataclass(frozen=True)
class Pieces:
    """The tokens of a text without its end, and which of them are gaps; what stands in these means nothing."""

    text: str
    """With a sign of one character for each gap."""
    ids: list[int]
    gaps: list[int]
    stretches: list[tuple[int, int]]
    """Which characters of `text` each gap stands for: the sign, and the space before it where that is its own."""

    def put(self, tokens: Sequence[int], tokenizer: Tokenizer) -> str:
        """The text with a token in each gap."""
        filled, written, done = list(self.ids), "", 0
        for place, token, (begin, end) in zip(self.gaps, tokens, self.stretches, strict=True):
            filled[place] = token
            before, after = tokenizer.decode(filled[:place]), tokenizer.decode(filled[: place + 1])
            written += self.text[done:begin] + after[len(before) :]
            done = end
        return written + self.text[done:]


def cut(tokenizer: Tokenizer, text: str, gap: str = GAP) -> Pieces:
    """A text as tokens, each `gap` of it as one."""
    if not gap:
        raise UsageError(f"fill: `gap` must be a sign that stands for a gap, but is empty. Leave it out for {GAP}.")
    if gap not in text:
        raise UsageError(f"fill: the text must have a gap, written {gap}, but {text[:40]!r} has none.")
    whole = text.replace(gap, STAND_IN)
    ids: list[int] = []
    gaps: list[int] = []
    stretches: list[tuple[int, int]] = []
    ends = [0]  # of what stands before each token of `ids`
    last = -1
    for token, (begin, end) in zip(tokenizer.encode(whole), tokenizer.spans([whole])[0], strict=True):
        place = whole.find(STAND_IN, begin, end)
        if place < 0:
            ids.append(token)
            ends.append(end)
        elif place != last:  # a character may be several tokens, as where they are bytes
            if ids and tokenizer.labels(ids[-1:]) == (SPACE,):
                ids.pop()
                ends.pop()
            gaps.append(len(ids))
            stretches.append((ends[-1], place + 1))
            ids.append(token)
            ends.append(place + 1)
            last = place
    if len(gaps) != text.count(gap):
        raise UsageError(
            f"fill: gaps must be told apart in the vocabulary of this model, but of {text.count(gap)} in "
            f"{text[:40]!r} only {len(gaps)} are. Put something between them."
        )
    return Pieces(whole, ids, gaps, stretches)
