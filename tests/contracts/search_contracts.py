"""What beam search promises for every model that reads a source.

Shapes: B rows, T tokens, D model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.batch import Batch, Specials, Tokens
from regard.decoding.search import Hypothesis, SearchSettings, beam_search

from .cases import FIRST_WORD, SPECIALS, Case, Sentence, with_labels
from .zoo import Model

Search = Callable[[Model, Tokens, Specials, SearchSettings], list[list[Hypothesis]]]

TOLERANCE = 1e-3  # the waves over the scores amplify rounding, too
PENALTIES = (
    SearchSettings(penalty="none"),
    SearchSettings(penalty="gnmt"),
    SearchSettings(penalty="gnmt", alpha=2.0),
    SearchSettings(penalty="length", alpha=1.0),
)


class Lively(Model):
    """The same model with its scores thrown about.

    Untrained, a model mostly repeats its last token, whatever stood before; search could forget the rest and
    nobody would notice. Waves over the scores make each token depend on all that was read.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def features(self, batch: Batch) -> Tensor:
        return self.model.features(batch)

    def logits(self, features_BTD: Tensor) -> Tensor:
        return self._waves(self.model.logits(features_BTD))

    def start(self, source: Tokens | None, rows: int) -> Any:
        return self.model.start(source, rows)

    def step(self, tokens_BT: Tensor, state: Any) -> tuple[Tensor, Any]:
        scores_BV, state = self.model.step(tokens_BT, state)
        return self._waves(scores_BV), state

    @staticmethod
    def _waves(scores: Tensor) -> Tensor:
        return 2 * (4 * scores).sin()


def found(model: Model, case: Case, settings: SearchSettings, extra: int = 0) -> list[list[Hypothesis]]:
    """What search answers for the sources of a case, padded by `extra` columns."""
    source = case.source(extra)
    assert source is not None
    return beam_search(model, source, SPECIALS, settings)


@torch.no_grad()
def log_probabilities(model: Model, source: Sentence, texts: list[Sentence]) -> list[float]:
    """log P(text, end | source) of each text, by `forward` alone."""
    sources = Tokens.padded([source] * len(texts), SPECIALS.padding)
    targets = Tokens.padded([(SPECIALS.start, *text) for text in texts], SPECIALS.padding)
    scores_BTV = model(with_labels(sources, targets)).log_softmax(dim=-1).tolist()
    return [
        sum(scores_BTV[row][t][token] for t, token in enumerate((*text, SPECIALS.end)))
        for row, text in enumerate(texts)
    ]


def a_wide_beam_is_exhaustive(model: Model, case: Case, search: Search = beam_search) -> None:
    """A beam as wide as the space finds the best of all texts, and the next best after it."""
    model = Lively(model)
    assert case.sources is not None
    words = range(FIRST_WORD, case.vocabulary)
    extra = case.seed % 2
    chances: list[dict[Sentence, float]] = []
    for sentence in case.sources:
        lengths = range(len(sentence) + extra + 1)
        texts = [text for length in lengths for text in product(words, repeat=length)]
        chances.append(dict(zip(texts, log_probabilities(model, sentence, texts), strict=True)))
    source = case.source(extra=1)
    assert source is not None
    for penalty in PENALTIES:
        settings = replace(penalty, beam=128, nbest=6, extra_length=extra)
        for totals, hypotheses in zip(chances, search(model, source, SPECIALS, settings), strict=True):
            divisors = settings.divisor(torch.tensor([len(text) + 1 for text in totals])).tolist()
            scores = {text: total / by for (text, total), by in zip(totals.items(), divisors, strict=True)}
            best = sorted(scores.values(), reverse=True)[: settings.nbest]
            assert [each.score for each in hypotheses] == pytest.approx(best, abs=TOLERANCE)
            # Texts that tie may come in either order, so each is held to the score of its own text.
            for each in hypotheses:
                assert each.log_probability == pytest.approx(totals[each.tokens], abs=TOLERANCE)
                assert each.score == pytest.approx(scores[each.tokens], abs=TOLERANCE)
            assert len({each.tokens for each in hypotheses}) == len(hypotheses)


def neighbours_do_not_matter(model: Model, case: Case) -> None:
    """A sentence's answer does not depend on its neighbours, on their order or on padding."""
    model = Lively(model)
    settings = SearchSettings(beam=3, nbest=2, extra_length=3)
    together = found(model, case, settings)
    backwards = list(range(case.rows))[::-1]
    agree(found(model, case.select(backwards), settings), together[::-1])
    agree(found(model, replace(case, filler=FIRST_WORD), settings, extra=2), together)
    for row in range(case.rows):
        source = case.whole(row).source
        assert source is not None
        agree(beam_search(model, source, SPECIALS, settings), together[row : row + 1])


def agree(these: list[list[Hypothesis]], those: list[list[Hypothesis]]) -> None:
    """Assert that two answers have the same texts and, to rounding, the same scores."""
    flat, other = ([each for hypotheses in answer for each in hypotheses] for answer in (these, those))
    assert [(each.tokens, each.cut) for each in flat] == [(each.tokens, each.cut) for each in other]
    assert [each.score for each in flat] == pytest.approx([each.score for each in other], abs=TOLERANCE)


@torch.no_grad()
def greedy_is_argmax(model: Model, case: Case) -> None:
    """A beam of one writes what taking the likeliest token of `forward`, again and again, writes."""
    model = Lively(model)
    assert case.sources is not None
    settings = SearchSettings(beam=1, alpha=2.0, extra_length=2)  # a penalty must make no difference
    for (answer,), source in zip(found(model, case, settings), case.sources, strict=True):
        text: Sentence = ()
        while len(text) < len(source) + settings.extra_length:
            batch = with_labels(
                Tokens.whole(torch.tensor([source])), Tokens.whole(torch.tensor([[SPECIALS.start, *text]]))
            )
            scores_V = model(batch)[0, -1]
            scores_V[[SPECIALS.padding, SPECIALS.start]] = -torch.inf
            token = int(scores_V.argmax())
            if token == SPECIALS.end:
                break
            text = (*text, token)
        assert answer.tokens == text
