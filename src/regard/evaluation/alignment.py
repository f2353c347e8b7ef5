"""Word alignments from the attention between decoder and source, and how good they are.

Shapes: A attentions to choose from, T target tokens or words, S source tokens or words, B rows, H heads.

While the model reads a given translation, every head of every layer says for each token it is about to write how much
it looks at each token of the source. Summed over the subwords of a source word and averaged over those of a target
word, that is a matrix of words. Each target word is linked to the source word with the most weight, or to none if the
most weight lies on what is no word (the end of the sentence). An arbitrary head aligns badly, so one is chosen:

- with alignments made by people for some lines, the one with the lowest alignment error rate (Och and Ney 2003),

      AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|),     S ⊆ P: sure and possible links, A: those found

- without, the one whose links help most to guess the words that are written: the mean over target words t, linked to
  s, of log(p(t | s) / p(t)), where p(t | s) is counted over all other links. A head that looks at the wrong words, or
  always at the same one, gains nothing by it. Nor does any head on a few lines, in which hardly a word comes twice:
  where none gains, the mean of the layer that usually aligns is taken.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.counts import so_many
from regard.data.batching import collate
from regard.decoding.penalties import aligning_layer, attentions_to_source
from regard.errors import DataError, UsageError
from regard.evaluation.likelihood import in_batches
from regard.memory import Halves, NoRoomError
from regard.models.interface import SequenceModel
from regard.text.tokenizer import Tokenizer

SLOTS = 1_024  # target tokens and padding read at a time; their attention to the source has to fit the memory
MEAN = "mean"
LINK = re.compile(r"(\d+)([-?p])(\d+)")

Weights = NDArray[np.float32]


@dataclass(frozen=True)
class Link:
    """Word `source` and word `target` belong together, both counted from 0; `weight` is how much was looked there."""

    source: int
    target: int
    weight: float = 1.0


@dataclass(frozen=True)
class Gold:
    """What people say about one line: links that are sure, and all that are possible."""

    sure: frozenset[tuple[int, int]]
    possible: frozenset[tuple[int, int]]


@dataclass(frozen=True)
class Quality:
    """How well links agree with those of people."""

    error_rate: float
    precision: float
    recall: float


@dataclass(frozen=True)
class Choice:
    """The attention to align with, as LAYER.HEAD counted from 1, and why, to be said after its name."""

    name: str
    reason: str


@dataclass(frozen=True)
class WordAttention:
    """How much each target word looks at each source word by every attention, [A, T, S + 1].

    The last column is what lies on no word.
    """

    names: tuple[str, ...]
    weights_ATS: Weights

    def links(self, name: str) -> list[Link]:
        """The links of one attention: at most one for each target word, in the order of the target."""
        weights_TS = self.weights_ATS[self._place(name)]
        words = weights_TS.shape[1] - 1
        best_T = weights_TS.argmax(axis=1) if words else np.zeros(len(weights_TS), dtype=np.int64)
        return [
            Link(int(source), target, float(weights_TS[target, source]))
            for target, source in enumerate(best_T) if source < words
        ]  # fmt: skip

    def _place(self, name: str) -> int:
        if name not in self.names:
            raise UsageError(
                f"align: the attention must be one of {', '.join(self.names)}, but is `{name}`. Choose one of them."
            )
        return self.names.index(name)


# ---- from the model


@torch.inference_mode()
def word_attention(
    model: SequenceModel[Any], tokenizer: Tokenizer, sources: Sequence[str], targets: Sequence[str]
) -> list[WordAttention]:
    """The attention between the words of each pair of texts."""
    source_ids, target_ids = tokenizer.encode_sources(sources), tokenizer.encode_all(targets)
    source_words, target_words = _words(tokenizer.source, sources), _words(tokenizer, targets)
    device = next(model.parameters()).device
    found: dict[int, WordAttention] = {}

    def look(places: Sequence[int]) -> list[WordAttention]:
        batch = collate([(source_ids[place], target_ids[place]) for place in places], tokenizer.specials)
        seen.clear()
        model.features(batch.to(device))
        if not seen:
            raise UsageError(
                f"align: needs a model that attends to its source, but {type(model).__name__} does not. "
                "Choose a Transformer, ConvS2S, or a recurrent model with attention."
            )
        names, weights_BATS = _stacked(seen)
        return [
            WordAttention(names, _by_word(weights_BATS[row], target_words[place], source_words[place]))
            for row, place in enumerate(places)
        ]

    def no_room(place: int) -> NoRoomError:
        size = f"{len(source_ids[place]):,} and {len(target_ids[place]):,} tokens"
        return NoRoomError(f"align: pair {place + 1:,}", size)

    halves = Halves()
    with _watching(model.eval()) as seen:
        for places in in_batches([len(ids) + 1 for ids in target_ids], SLOTS):
            found |= zip(places, halves.each(places, look, no_room), strict=True)
    return [found[place] for place in range(len(sources))]


@contextmanager
def _watching(model: nn.Module) -> Iterator[dict[int, Tensor]]:
    """Collect the weights of every attention to the source, by layer: [B, H, T, S] each. All else runs fused."""
    seen: dict[int, Tensor] = {}
    watched = attentions_to_source(model)
    for layer, module in enumerate(watched):
        setattr(module, "watcher", lambda weights, layer=layer: seen.__setitem__(layer, weights))  # noqa: B010
    try:
        yield seen
    finally:
        for module in watched:
            setattr(module, "watcher", None)  # noqa: B010


def _stacked(seen: dict[int, Tensor]) -> tuple[tuple[str, ...], Weights]:
    """All heads of all layers, and for layers with several heads their mean: names, and [B, A, T, S]."""
    names, parts = [], []
    for layer, weights_BHTS in sorted(seen.items()):
        heads = weights_BHTS.shape[1]
        names += [f"{layer + 1}.{head + 1}" for head in range(heads)]
        parts.append(weights_BHTS)
        if heads > 1:
            names.append(f"{layer + 1}.{MEAN}")
            parts.append(weights_BHTS.mean(dim=1, keepdim=True))
    return tuple(names), torch.cat(parts, dim=1).float().cpu().numpy()


def _words(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """For each token of each text the number of the word it is in: −1 for a space."""
    return [_word_numbers(text, spans) for text, spans in zip(texts, tokenizer.spans(texts), strict=True)]


def _word_numbers(text: str, spans: Sequence[tuple[int, int]]) -> list[int]:
    """For each token, given by where it stands in the text, the number of its white-space separated word."""
    begins = [found.start() for found in re.finditer(r"\S+", text)]
    numbers = []
    for start, end in spans:
        letter = next((place for place in range(start, end) if not text[place].isspace()), None)
        numbers.append(-1 if letter is None else int(np.searchsorted(begins, letter, side="right")) - 1)
    return numbers


def _by_word(weights_ATS: Weights, target_words: Sequence[int], source_words: Sequence[int]) -> Weights:
    """From tokens to words: summed over the tokens of a source word, averaged over those of a target word.

    The source ends in its end token and perhaps padding; all of that, and spaces, goes to the last column.
    """
    targets, sources = max(target_words, default=-1) + 1, max(source_words, default=-1) + 1
    columns = np.full(weights_ATS.shape[2], sources)
    columns[: len(source_words)] = [sources if word < 0 else word for word in source_words]
    join_SW = np.eye(sources + 1, dtype=np.float32)[columns]
    rows_WT = np.zeros((targets, weights_ATS.shape[1]), np.float32)
    for token, word in enumerate(target_words):
        if word >= 0:
            rows_WT[word, token] = 1
    rows_WT /= np.maximum(rows_WT.sum(axis=1, keepdims=True), 1)
    return np.asarray(rows_WT @ weights_ATS @ join_SW)


# ---- Pharaoh's format


def to_pharaoh(links: Sequence[Link]) -> str:
    """Links as one line of text: `0-0 1-2`, source first, counted from 0, in the order of the source."""
    return " ".join(f"{i}-{j}" for i, j in sorted((link.source, link.target) for link in links))


def read_pharaoh(line: str, place: str) -> Gold:
    """One line of links that people made: `0-0` is sure, `0?0` or `0p0` only possible. `place` is named in errors."""
    sure, possible = set(), set()
    for word in line.split():
        found = LINK.fullmatch(word)
        if found is None:
            raise DataError(f"{place}: must hold links such as 0-0 (sure) or 0?0 (possible), but holds `{word}`.")
        link = int(found[1]), int(found[3])
        possible.add(link)
        if found[2] == "-":
            sure.add(link)
    return Gold(frozenset(sure), frozenset(possible))


# ---- quality, and choosing


def quality(found: Sequence[Sequence[Link]], gold: Sequence[Gold]) -> Quality:
    """The alignment error rate, precision and recall of all lines together."""
    if len(found) != len(gold):
        raise DataError(
            f"align: there must be one gold line for each pair, but there are {len(gold):,} for {len(found):,}."
        )
    linked = right = certain = sure = 0
    for links, wanted in zip(found, gold, strict=True):
        pairs = {(link.source, link.target) for link in links}
        linked += len(pairs)
        right += len(pairs & wanted.possible)
        certain += len(pairs & wanted.sure)
        sure += len(wanted.sure)
    rate = 1 - (certain + right) / (linked + sure) if linked + sure else 0.0
    return Quality(rate, right / linked if linked else 1.0, certain / sure if sure else 1.0)


def choose(
    attention: Sequence[WordAttention],
    sources: Sequence[str],
    targets: Sequence[str],
    gold: Sequence[Gold] | None = None,
) -> Choice:
    """The best attention for these lines: by alignment error rate if there is gold, else by how well words predict."""
    if not attention:
        raise DataError("align: there must be at least one pair of lines to choose a head by, but there is none.")
    names = attention[0].names
    links = {name: [pair.links(name) for pair in attention] for name in names}
    if gold is not None:
        rates = {name: quality(found, gold).error_rate for name, found in links.items()}
        best = min(rates, key=lambda name: rates[name])
        return Choice(
            best,
            f"which has the lowest alignment error rate of {so_many(len(names), 'attention')}: {rates[best]:.3f} on "
            f"{so_many(len(gold), 'line')}",
        )
    gains = {name: prediction_gain(found, sources, targets) for name, found in links.items()}
    best = max(gains, key=lambda name: gains[name])
    if round(gains[best], 3) <= 0:
        return Choice(
            usual(names),
            f"the usual one: {so_many(len(sources), 'line')} cannot tell which of {so_many(len(names), 'attention')} "
            "aligns best. Give more lines, or name one with --head",
        )
    return Choice(
        best,
        f"which has the highest prediction gain of {so_many(len(names), 'attention')}: {gains[best]:.3f} nats a word "
        f"on {so_many(len(sources), 'line')}",
    )


def usual(names: Sequence[str]) -> str:
    """Of all attentions, the mean of the layer that usually aligns, or its only head; see `aligning_layer`."""
    layer = aligning_layer(max(int(name.partition(".")[0]) for name in names)) + 1
    return f"{layer}.{MEAN}" if f"{layer}.{MEAN}" in names else f"{layer}.1"


def prediction_gain(links: Sequence[Sequence[Link]], sources: Sequence[str], targets: Sequence[str]) -> float:
    """How much easier the linked source word makes it to guess a target word, in nats a word.

    p(t | s) = (c(s, t) − 1 + p(t)) / (c(s) − 1 + 1): counted without the link itself, with p(t) as a prior that weighs
    as much as one link. A word that is linked to none is guessed from that.
    """
    pairs: list[tuple[str | None, str]] = []
    for found, source, target in zip(links, sources, targets, strict=True):
        read, written = source.lower().split(), target.lower().split()
        partner = {link.target: read[link.source] for link in found}
        pairs += [(partner.get(place), word) for place, word in enumerate(written)]
    together, alone, words = Counter(pairs), Counter(source for source, _ in pairs), Counter(word for _, word in pairs)
    gain = 0.0
    for (source_word, word), count in together.items():
        chance = words[word] / len(pairs)
        gain += count * math.log((count - 1 + chance) / alone[source_word] / chance)
    return gain / max(len(pairs), 1)
