"""The labels of a model as a vocabulary of their own: they take the target's place in `tokenizer.json`.

The special tokens come first, as in every vocabulary, so that label number n is token FIRST + n.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import tokenizers
from tokenizers import models, pre_tokenizers

from regard.errors import DataError
from regard.text.learning import SPECIALS, UNKNOWN
from regard.text.tokenizer import Tokenizer

FIRST = len(SPECIALS)
KEPT = 200_000  # words whose tokens are remembered


def with_labels(text: Tokenizer, labels: Iterable[str], several: bool) -> Tokenizer:
    """A tokenizer that reads texts as `text` does, and whose tokens are these labels.

    `several` of them stand side by side with spaces between them; otherwise a label may have spaces in it.
    """
    known = sorted(set(labels))
    if taken := set(known) & set(SPECIALS):
        raise DataError(f"labels: must not be the names of special tokens, but {taken.pop()!r} is one. Rename it.")
    if len(known) < 2:
        raise DataError(
            f"labels: there must be at least 2 to choose between, but the training examples have {len(known)}"
            f"{': ' + repr(known[0]) if known else ''}. Give examples of each label."
        )
    vocabulary = {token: number for number, token in enumerate([*SPECIALS, *known])}
    inner = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    if several:
        inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens(SPECIALS)
    return Tokenizer(inner, text)


def labels_of(tokenizer: Tokenizer) -> tuple[str, ...]:
    """The labels, by number."""
    return tokenizer.tokens[FIRST:]


def numbers_of(tokenizer: Tokenizer, labels: Sequence[str]) -> list[int]:
    """The number of each label."""
    known = {label: number for number, label in enumerate(labels_of(tokenizer))}
    for label in labels:
        if label not in known:
            some = ", ".join(list(known)[:8]) + (", …" if len(known) > 8 else "")
            raise DataError(
                f"labels: must be among those that the model knows ({some}), but {label!r} is not. Correct it, or take "
                "its examples out. A model with labels learns no others, so for new ones train without `init`, or let "
                "`init` name a `bert`, which has none yet."
            )
    return [known[label] for label in labels]


class WordCutter:
    """Words → their tokens, each word for itself, so that it is known which tokens are whose.

    What was cut is remembered, up to so many words: a server reads new ones for as long as it runs.
    """

    def __init__(self, reader: Tokenizer) -> None:
        self._reader = reader
        self._known: dict[str, list[int]] = {}
        # A word of which nothing is left, as of an invisible character, still needs a token to be labelled at.
        self._nothing = [reader.specials.start if reader.unknown is None else reader.unknown]

    def cut(self, sentences: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        """For each sentence the tokens of each of its words."""
        words = {word for sentence in sentences for word in sentence}
        if len(self._known) > KEPT:
            self._known.clear()
        new = list(words - self._known.keys())
        # With a space before it, as in a text: vocabularies of bytes have other tokens for that.
        for word, ids in zip(new, self._reader.encode_all([f" {word}" for word in new]), strict=True):
            self._known[word] = ids or self._nothing
        return [[self._known[word] for word in sentence] for sentence in sentences]
