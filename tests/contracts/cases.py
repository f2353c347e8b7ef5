"""What the contracts are tried on: a few short sentences, drawn by hypothesis.

Shapes: B rows, T tokens.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st
from torch import Tensor

from regard.batch import IGNORED, Batch, Places, Specials, Tokens

SPECIALS = Specials(padding=0, start=1, end=2)
FIRST_WORD = 3

Sentence = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """Sentences for a model over `vocabulary` tokens; what else a contract has to choose follows from `seed`."""

    vocabulary: int
    seed: int
    targets: tuple[Sentence, ...]
    sources: tuple[Sentence, ...] | None = None
    filler: int = SPECIALS.padding  # the token in padded places; any must do, since it is not to be seen

    @property
    def rows(self) -> int:
        """How many sentences there are."""
        return len(self.targets)

    @property
    def chance(self) -> random.Random:
        """The same incidental choices for the same case."""
        return random.Random(self.seed)

    def source(self, extra: int = 0) -> Tokens | None:
        """The sources, one a row, with at least `extra` columns of padding."""
        return None if self.sources is None else pad(self.sources, self.filler, extra)

    def target(self, extra: int = 0) -> Tokens:
        """The targets, one a row, with at least `extra` columns of padding."""
        return pad(self.targets, self.filler, extra)

    def batch(self, extra: int = 0) -> Batch:
        """Sources and targets, padded, and the labels a language model would have."""
        return with_labels(self.source(extra), self.target(extra))

    def select(self, rows: Sequence[int]) -> Case:
        """The given sentences, in the given order."""
        sources = None if self.sources is None else tuple(self.sources[row] for row in rows)
        return replace(self, targets=tuple(self.targets[row] for row in rows), sources=sources)

    def whole(self, row: int) -> Batch:
        """One sentence alone, said to be whole: no segments, no padding."""
        source = None if self.sources is None else Tokens.whole(torch.tensor([self.sources[row]]))
        return with_labels(source, Tokens.whole(torch.tensor([self.targets[row]])))

    def packed(self) -> Batch:
        """All sentences in the first row, and the first one alone, with padding, in the second."""
        source = None if self.sources is None else pack([self.sources, self.sources[:1]], self.filler)
        return with_labels(source, pack([self.targets, self.targets[:1]], self.filler))


def pad(sentences: Sequence[Sentence], filler: int, extra: int = 0) -> Tokens:
    """One sentence a row, and at least `extra` columns of padding."""
    return Tokens.padded(sentences, filler, max(map(len, sentences)) + extra)


def pack(rows: Sequence[Sequence[Sentence]], filler: int) -> Tokens:
    """Several sentences a row, one after the other, and padding behind."""
    length = max(sum(map(len, sentences)) for sentences in rows) + 2
    ids, positions, segments = [], [], []
    for sentences in rows:
        missing = length - sum(map(len, sentences))
        ids.append([token for sentence in sentences for token in sentence] + [filler] * missing)
        positions.append([place for sentence in sentences for place in range(len(sentence))] + [0] * missing)
        named = [number for number, sentence in enumerate(sentences, 1) for _ in sentence]
        segments.append(named + [0] * missing)
    return Tokens(torch.tensor(ids), Places(torch.tensor(positions), torch.tensor(segments)))


def in_front(tokens: Tokens) -> Tokens:
    """The same sentences, one a row, with their padding in front of them."""
    segments_BT = tokens.places.segments_or_ones()
    missing_B = (segments_BT == 0).sum(dim=1).tolist()
    ids_BT, positions_BT, segments_BT = (
        torch.stack([row.roll(missing) for row, missing in zip(part_BT, missing_B, strict=True)])
        for part_BT in (tokens.ids_BT, tokens.places.positions_BT, segments_BT)
    )
    return Tokens(ids_BT, Places(positions_BT, segments_BT))


def with_labels(source: Tokens | None, target: Tokens) -> Batch:
    """A batch whose labels are the next tokens of the same sentence."""
    segments_BT = target.places.segments_or_ones()
    labels_BT = torch.full_like(target.ids_BT, IGNORED)
    goes_on = (segments_BT[:, 1:] == segments_BT[:, :-1]) & (segments_BT[:, 1:] != 0)
    labels_BT[:, :-1] = torch.where(goes_on, target.ids_BT[:, 1:], IGNORED)
    return Batch(source, target, labels_BT)


def real(values_BT: Tensor, sentences: Sequence[Sentence]) -> list[Tensor]:
    """What stands at the real places of each row, one sentence a row."""
    return [row[: len(sentence)] for row, sentence in zip(values_BT, sentences, strict=True)]


@st.composite
def cases(
    draw: st.DrawFn, reads_source: bool, words: Sequence[int] = (2, 4, 9), shortest: int = 1, longest: int = 6
) -> Case:
    """One to four sentences of `shortest` to `longest` tokens, over a vocabulary of as many words as `words` says.

    Few vocabularies, so that few models have to be built.
    """
    vocabulary = FIRST_WORD + draw(st.sampled_from(words))
    word = st.integers(FIRST_WORD, vocabulary - 1)
    rows = draw(st.integers(1, 4))

    def sentences(first: Sentence) -> tuple[Sentence, ...]:
        rest = st.lists(word, min_size=shortest - len(first), max_size=longest - len(first))
        return tuple(first + tuple(draw(rest)) for _ in range(rows))

    return Case(
        vocabulary,
        seed=draw(st.integers(0, 999)),
        targets=sentences((SPECIALS.start,)),
        sources=sentences(()) if reads_source else None,
        filler=draw(st.sampled_from([SPECIALS.padding, vocabulary - 1])),
    )
