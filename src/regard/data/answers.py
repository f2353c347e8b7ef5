"""Texts and labels as numbers: the vocabulary of both, and the store that batches are made from.

A store keeps the tokens of a text as its target, and its labels beside them: number n as n + 1, and 0 where there is
none. A tag stands at the first token of its word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from regard.data.generated import Pair
from regard.data.labelled import Answers
from regard.data.reading import Corpus
from regard.data.store import Side, TokenStore
from regard.text.labels import WordCutter, numbers_of, with_labels
from regard.text.ragged import Ragged
from regard.text.tokenizer import TextsOf, Tokenizer, VocabularySettings

CHUNK = 8_192  # examples


def learn_with_labels(pairs: Iterable[Pair], corpus: Corpus, settings: VocabularySettings) -> Tokenizer:
    """A vocabulary of the texts of training pairs, and one of all labels of their corpus."""
    return add_labels(Tokenizer.learn(TextsOf(pairs, ("source",)), settings), pairs, corpus)


def add_labels(text: Tokenizer, pairs: Iterable[Pair], corpus: Corpus) -> Tokenizer:
    """A vocabulary of texts that is there already, and one of all labels of a corpus."""
    answers = corpus.answers
    assert answers is not None, "asked only where there are labels"
    labels = set(corpus.known_labels)
    # Also those that happen to be held out: a rare one must not end a run, but be counted as missed.
    for pair in chain(pairs, corpus.valid(), corpus.test()):
        labels.update(_labels(pair, answers))
    return with_labels(text, labels, several=answers == "words")


def encode_labelled(pairs: Iterable[Pair], tokenizer: Tokenizer, answers: Answers) -> TokenStore:
    """Texts and their labels, in memory."""
    texts, labels = [], []
    for text, label in _encoded(iter(pairs), tokenizer, answers):
        texts.append(text.ending_with(tokenizer.specials.end))
        labels.append(label)
    return TokenStore(Side.of_parts(texts), labels=Side.of_parts(labels))


def _encoded(pairs: Iterator[Pair], tokenizer: Tokenizer, answers: Answers) -> Iterator[tuple[Ragged, Ragged]]:
    cutter = WordCutter(tokenizer.source)
    while some := list(islice(pairs, CHUNK)):
        numbers = iter(numbers_of(tokenizer, [label for pair in some for label in _labels(pair, answers)]))
        if answers == "text":
            texts = tokenizer.source.encode_flat([pair.source for pair in some])
            yield texts, Ragged.of([[number + 1] for number in numbers])
            continue
        tokens: list[list[int]] = []
        labels: list[list[int]] = []
        for words in cutter.cut([pair.source.split() for pair in some]):
            tokens.append([token for word in words for token in word])
            # The last is for the end of the text.
            labels.append([number for word in words for number in _first(next(numbers) + 1, len(word))] + [0])
        yield Ragged.of(tokens), Ragged.of(labels)


def _first(number: int, tokens: int) -> Sequence[int]:
    return (number, *([0] * (tokens - 1)))


def _labels(pair: Pair, answers: Answers) -> list[str]:
    return [pair.target] if answers == "text" else pair.target.split()
