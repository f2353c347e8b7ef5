"""Texts that get labels: one for each text, or one for each of its words, with the chances of all.

Shapes: B rows, T tokens, C labels, N answers of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.batch import Tokens
from regard.data.labelled import Answers
from regard.errors import UsageError
from regard.memory import Halves, NoRoomError
from regard.models.labelling import LabelModel
from regard.text.labels import WordCutter, labels_of
from regard.text.restoring import bare
from regard.text.tokenizer import Tokenizer

SLOTS = 8_192  # tokens of a batch, padding among them
DIGITS = 8  # behind the point of a probability

Counting = Callable[[int], None]
"""Called with how many texts are done since the last call."""


@dataclass(frozen=True)
class Choice:
    """The likeliest label, and the chance of every label by its number."""

    label: str
    probability: float
    labels: tuple[str, ...]
    probabilities: tuple[float, ...]

    def to_json(self, most: int | None = None) -> dict[str, object]:
        """As `regard classify --json` prints it: the likeliest label first, and `most` of them, or all."""
        ranked = sorted(zip(self.labels, self.probabilities, strict=True), key=lambda found: -found[1])
        rounded = {label: round(probability, DIGITS) for label, probability in ranked[:most]}
        return {"label": self.label, "probability": round(self.probability, DIGITS), "probabilities": rounded}


@dataclass(frozen=True)
class TaggedText:
    """The words of a text and the label of each."""

    words: tuple[str, ...]
    choices: tuple[Choice, ...]

    @property
    def tags(self) -> tuple[str, ...]:
        """The likeliest label of each word."""
        return tuple(choice.label for choice in self.choices)

    def to_json(self, most: int | None = None) -> dict[str, object]:
        """As `regard tag --json` prints it; `most` limits the labels of each word that are told."""
        both = zip(self.words, self.choices, strict=True)
        return {"words": [{"word": word, **choice.to_json(most)} for word, choice in both]}


class Labeller:
    """A model that labels, its vocabulary, and what is to become of a text before it is read.

    `restores` is for a model that puts capitals and punctuation back: it was trained on words without any.
    """

    def __init__(self, network: LabelModel, tokenizer: Tokenizer, restores: bool = False) -> None:
        self.network, self.tokenizer, self.restores = network, tokenizer, restores
        self.labels = labels_of(tokenizer)
        self._cutter = WordCutter(tokenizer.source)
        self._halves = Halves()

    @property
    def answers(self) -> Answers:
        """What gets a label."""
        return "text" if self.network.task == "classify" else "words"

    def classify(self, texts: Sequence[str], hear: Counting | None = None) -> list[Choice]:
        """The label of each text."""
        rows = self.tokenizer.source.encode_all(texts)
        found: list[Choice | None] = [None] * len(texts)
        for place, chances_NC in self._read(rows, hear):
            (found[place],) = self._choices(chances_NC)
        return [choice for choice in found if choice is not None]

    def words(self, text: str) -> list[str]:
        """The words of a text that get labels."""
        return bare(text)[0] if self.restores else text.split()

    def tag(self, texts: Sequence[str], hear: Counting | None = None) -> list[TaggedText]:
        """The label of each word of each text; a text without words has none."""
        words = [self.words(text) for text in texts]
        cut = self._cutter.cut(words)
        found = [TaggedText((), ())] * len(texts)
        for place, chances_TC in self._read([[token for word in text for token in word] for text in cut], hear):
            lengths = torch.tensor([len(word) for word in cut[place]], dtype=torch.long)
            first_W = lengths.cumsum(0) - lengths  # where each word begins
            found[place] = TaggedText(tuple(words[place]), tuple(self._choices(chances_TC[first_W])))
        return found

    def _choices(self, chances_NC: Tensor) -> Iterator[Choice]:
        best_N = chances_NC.argmax(dim=-1).tolist()
        for best, chances in zip(best_N, chances_NC.tolist(), strict=True):
            yield Choice(self.labels[best], chances[best], self.labels, tuple(chances))

    def _read(self, rows: Sequence[Sequence[int]], hear: Counting | None) -> Iterator[tuple[int, Tensor]]:
        """For each text its number, and the chances of the labels of its answers, [N, C]."""
        specials = self.tokenizer.specials
        self._check_lengths(rows)

        def judge(places: Sequence[int]) -> Tensor:
            text = Tokens.padded([[*rows[place], specials.end] for place in places], specials.padding)
            return chances(self.network, text)

        def no_room(place: int) -> NoRoomError:
            return NoRoomError(f"{self.network.task}: text {place + 1:,}", f"{len(rows[place]):,} tokens")

        for places in _batches([len(row) + 1 for row in rows]):
            yield from zip(places, self._halves.each(places, judge, no_room), strict=True)
            if hear is not None:
                hear(len(places))

    def _check_lengths(self, rows: Sequence[Sequence[int]]) -> None:
        limit = self.network.context
        for number, row in enumerate(rows, 1):
            if limit is not None and len(row) >= limit:
                raise UsageError(
                    f"{self.network.task}: a text must have less than {limit:,} tokens, which the model can read, but "
                    f"number {number:,} has {len(row):,}. Shorten it."
                )


@torch.inference_mode()
def chances(network: LabelModel, text: Tokens) -> Tensor:
    """The probability of each label of each answer, [B, N, C]; on the CPU."""
    device = next(network.parameters()).device
    return network.eval()(text.to(device)).float().softmax(dim=-1).cpu()


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """The numbers of texts that share a batch: those of about one length, so many that it does not get too large."""
    some: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: lengths[place]):
        if some and (len(some) + 1) * lengths[place] > SLOTS:
            yield some
            some = []
        some.append(place)
    if some:
        yield some
