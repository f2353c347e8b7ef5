"""A finished model folder judged as `regard evaluate` judges it: its translations scored, its references weighed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard import folder
from regard.counts import so_many
from regard.decoding.ensemble import Ensemble
from regard.errors import DataError
from regard.evaluation import catalogue, metrics
from regard.evaluation.catalogue import Scoring
from regard.evaluation.likelihood import Likelihood, likelihood
from regard.evaluation.metrics import Lines, Score, Tally
from regard.evaluation.running import text_likelihood
from regard.folder import Loaded
from regard.layers.positions import TooLongError
from regard.machine import choose_device
from regard.models.precision import convert
from regard.reproduce.outcome import Stretch
from regard.status import StatusLine
from regard.translation.result import one_line
from regard.translation.translator import Translator

Figures = Callable[[Lines, Scoring], list[Tally]]
FEWEST = 20  # lines: the BLEU of fewer jumps about too much to be drawn


@dataclass(frozen=True)
class Judgement:
    """The scores of one set of pairs by their names, and the translations they are of."""

    scores: dict[str, Score]
    translations: list[str]
    tokens: int
    """Of the translations."""
    seconds: float
    """That the search took."""


class Judge:
    """A model, loaded once to be judged on several sets; with `others` they write as one, and search as it does."""

    def __init__(self, first: Path | Loaded, device: str = "auto", others: Sequence[Path] = ()) -> None:
        loaded = first if isinstance(first, Loaded) else folder.load_folder(first, choose_device(device))
        everyone = [loaded, *(folder.load_folder(each, choose_device(device)) for each in others)]
        networks = [each.model for each in everyone]
        if strange := [each.place for each in everyone if each.tokenizer.to_json() != loaded.tokenizer.to_json()]:
            raise DataError(
                f"{strange[0]}: models that write as one must share a vocabulary, but its is not that of "
                f"{loaded.place}. Train them on one corpus."
            )
        self.recipe, self.tokenizer = loaded.recipe, loaded.tokenizer
        # Counted first: what is laid out anew for speed may count twice.
        self.parameters = sum(weight.numel() for network in networks for weight in network.parameters())
        for network in networks:
            convert(network, "fp32")
        self.network = Ensemble(networks).eval() if others else networks[0]
        self._translator = Translator(self.network, self.tokenizer, self.network.context)

    def pairs(
        self, sources: Sequence[str], references: Sequence[str], scoring: Scoring, figures: Figures = catalogue.tallies
    ) -> Judgement:
        """Translate with the search of the model's own recipe, and score; `figures` are all there are, unless given."""
        began, status, done = time.perf_counter(), StatusLine(), 0

        def count(lines: int, _tokens: int) -> None:
            nonlocal done
            done += lines
            status.show(lambda: f"translated {done:,} of {so_many(len(sources), 'line')}")

        found = self._translator.translations(sources, self.recipe.search, progress=count)
        seconds = time.perf_counter() - began
        status.close()
        texts = [one_line(best.text) for best, *_ in found]
        tallies = figures(Lines(texts, [references]), scoring)
        probable = self._likelihood(sources, references)
        tallies += probable.tallies() if probable is not None else []
        scores = {tally.name: tally.score() for tally in tallies}
        return Judgement(scores, texts, sum(len(best.tokens) for best, *_ in found), seconds)

    def text(self, lines: Sequence[str]) -> Judgement:
        """How probable a language model finds a text."""
        began, status = time.perf_counter(), StatusLine()

        def count(what: str, so_far: int) -> None:
            status.show(lambda: f"read {so_far:,} {what}")

        found = text_likelihood(self.network, self.tokenizer, lines, self.recipe.batch.window, progress=count)
        status.close()
        return Judgement({tally.name: tally.score() for tally in found.tallies()}, [], 0, time.perf_counter() - began)

    def _likelihood(self, sources: Sequence[str], references: Sequence[str]) -> Likelihood | None:
        try:
            return likelihood(self.network, self.tokenizer, sources, references)
        except TooLongError:  # a reference longer than the positions it has learned
            return None


def by_length(
    sources: Sequence[str], texts: Sequence[str], references: Sequence[str], ends: Sequence[int], lowercase: bool
) -> list[Stretch]:
    """BLEU of the lines whose source has up to so many words, then of those with more, and so on."""
    if not ends:
        return []
    words_L = np.array([len(source.split()) for source in sources])
    tally = metrics.bleu(Lines(texts, [references]), lowercase=lowercase)
    found = []
    for first, last in zip((-1, *ends), (*ends, np.inf), strict=True):
        inside_L = (words_L > first) & (words_L <= last)
        if inside_L.sum() >= FEWEST:
            found.append(Stretch(int(inside_L.sum()), float(words_L[inside_L].mean()), tally.of(inside_L)))
    return found
