"""What everything that a model can do shares: its parts, and the rules for what is asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard import folder
from regard.counts import so_many
from regard.errors import UsageError
from regard.exploring import inside
from regard.models.interface import SequenceModel
from regard.models.labelling import LabelModel
from regard.text.labels import labels_of
from regard.text.tokenizer import Tokenizer
from regard.translation.translator import TextError, Translator


class Base:
    """A loaded model with its vocabulary, its settings and its place.

    An ensemble has `readers`: one tokenizer a member, to cut the sources.
    """

    def __init__(self, loaded: folder.Loaded, readers: Sequence[Tokenizer] = ()) -> None:
        self.recipe, self.tokenizer, self._loaded = loaded.recipe, loaded.tokenizer, loaded
        self.device, self.place = next(loaded.network.parameters()).device, loaded.place
        self.labels: tuple[str, ...] = ()
        """Those that it gives, if it does."""
        if isinstance(loaded.network, LabelModel):
            self.labels = labels_of(self.tokenizer)
        elif isinstance(loaded.network, SequenceModel):
            self._translator = Translator(self.network, self.tokenizer, self.network.context, readers)

    @property
    def network(self) -> SequenceModel[Any]:
        """Its weights, where it writes text; others are refused, with what they are for."""
        return self._loaded.model

    @property
    def task(self) -> inside.Task:
        """What it is for."""
        return inside.task_of(self._loaded.network)

    @property
    def running(self) -> bool:
        """Whether it learned from running text, in which the end of a line is a token like any other."""
        return self.recipe.running

    def must_translate(self, what: str) -> None:
        """Raise UsageError for a language model, in the name of what was asked of it."""
        if not self.network.reads_source:
            raise UsageError(
                f"{what}: needs a model that translates, but `{self.recipe.name}` is a language model of kind "
                f"`{self.recipe.model.kind}`. Use `generate`."
            )

    def _must_be_short(self, what: str, encoded: Sequence[Sequence[int]]) -> None:
        """Texts that are read as one need room for themselves and their start or end."""
        limit = self._translator.limit
        for place, ids in enumerate(encoded):
            if limit is not None and len(ids) >= limit:
                reason = (
                    f"must have less than {limit:,} tokens, which the model can read, but has {len(ids):,}. Split it."
                )
                raise TextError(place, reason, what)

    def _must_read_alike(self, what: str) -> None:
        cuts = [reader.source.to_json() for reader in self._translator.readers]
        if any(cut != cuts[0] for cut in cuts):
            raise UsageError(
                f"{what}: the models of an ensemble must cut sources alike, but these have different source "
                "vocabularies. Ask each of them by itself."
            )


def must_be_texts(what: str, texts: Sequence[str]) -> None:
    """Raise UsageError for anything but a list of texts; one text is a mistake often made."""
    if isinstance(texts, str):
        raise UsageError(f"{what}: needs a list of texts, but has one, {texts[:40]!r}. Write [text].")
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise UsageError(f"{what}: needs a list of texts, but number {number} is a {type(text).__name__}.")


def must_be_pairs(what: str, sources: Sequence[str], targets: Sequence[str]) -> None:
    """Raise UsageError for anything but two lists of texts of one length."""
    must_be_texts(what, sources)
    must_be_texts(what, targets)
    if len(sources) != len(targets):
        raise UsageError(
            f"{what}: needs one text on the other side for each source, but got {so_many(len(sources), 'source')} and "
            f"{so_many(len(targets), 'other')}. Give two lists of one length."
        )
