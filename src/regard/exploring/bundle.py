"""What all of exploring needs to know of a loaded model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from regard.batch import Tokens
from regard.decoding.ensemble import Ensemble
from regard.decoding.fast import search as find
from regard.decoding.search import Hypothesis, SearchSettings
from regard.errors import UsageError
from regard.models.interface import SequenceModel
from regard.recipe import Recipe
from regard.text.sentences import sentences
from regard.text.tokenizer import Tokenizer


class Bundle(Protocol):
    """A model with its vocabulary and its settings."""

    @property
    def recipe(self) -> Recipe:
        """All settings of its training."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """Its vocabulary."""
        ...

    @property
    def network(self) -> SequenceModel[Any]:
        """Its weights."""
        ...


def device_of(bundle: Bundle) -> torch.device:
    """Where the model computes."""
    return next(bundle.network.parameters()).device


def must_translate(bundle: Bundle, what: str) -> None:
    """Raise UsageError for a language model."""
    if not bundle.network.reads_source:
        raise UsageError(
            f"{what}: needs a model that translates, but `{bundle.recipe.name}` is a language model of kind "
            f"`{bundle.recipe.model.kind}`. Choose a translating one."
        )


def must_be_one(bundle: Bundle, what: str) -> None:
    """Raise UsageError for an ensemble: its members have no layer in common."""
    if isinstance(bundle.network, Ensemble):
        raise UsageError(f"{what}: needs one model, but this is an ensemble. Look at its models one by one.")


def must_hold_words(what: str, text: str) -> None:
    """Raise UsageError for a text in which there is nothing to look at."""
    if not text.strip():
        raise UsageError(f"{what}: the text must hold at least one word to look at, but is empty. Give a sentence.")


def read_as_one(bundle: Bundle, text: str, target: str | None = None, search: SearchSettings | None = None) -> str:
    """What of a text a model reads as one: the first sentence, where it translates each by itself, else all of it.

    Whoever gives a translation of the whole wants to see the whole.
    """
    by_sentence = (search or bundle.recipe.search).each_sentence
    if target is not None or not bundle.network.reads_source or not by_sentence:
        return text
    first, *others = filter(str.strip, sentences(text))
    return first.strip() if others else text


def must_fit(what: str, bundle: Bundle, ids: Sequence[int]) -> None:
    """Raise UsageError for a target text that is longer than the model can read, its start among the tokens."""
    context = bundle.network.context
    if context is not None and len(ids) >= context:
        raise UsageError(
            f"{what}: the text must have less than {context:,} tokens, which the model can read, but has "
            f"{len(ids):,}. Shorten it."
        )


def source_ids(bundle: Bundle, text: str, language: str | None = None) -> list[int]:
    """The tokens of a text to be translated, with the end token."""
    read = bundle.tokenizer.source.readable([text])
    return [*bundle.tokenizer.encode_sources(read, language)[0], bundle.tokenizer.specials.end]


def read_ids(bundle: Bundle, text: str) -> list[int]:
    """The tokens of a text as a language model reads it, without the start before it."""
    tokenizer = bundle.tokenizer
    return tokenizer.encode_lines(text) if bundle.recipe.running else tokenizer.encode(text)


def as_row(bundle: Bundle, ids: Sequence[int], rows: int = 1) -> Tokens:
    """Tokens as the model reads them: the same row, so many times."""
    return Tokens.padded([ids] * rows, bundle.tokenizer.specials.padding).to(device_of(bundle))


def best(bundle: Bundle, source: Sequence[int], search: SearchSettings | None = None) -> Hypothesis:
    """What the model writes for a source, which ends in the end token."""
    settings = search or bundle.recipe.search
    return find(bundle.network, as_row(bundle, source), bundle.tokenizer.specials, settings)[0][0]
