"""What search, sampling and scoring promise for every model.

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
from regard.decoding.beams import Candidates
from regard.decoding.constraints import Constraints
from regard.decoding.ensemble import Ensemble
from regard.decoding.penalties import attentions_to_source
from regard.decoding.sampling import Sample, SamplingSettings, sample
from regard.decoding.scoring import score_texts
from regard.decoding.search import Hypothesis, SearchSettings, beam_search

from .cases import FIRST_WORD, SPECIALS, Case, Sentence, with_labels
from .zoo import Model

Search = Callable[[Model, Tokens, Specials, SearchSettings], list[list[Hypothesis]]]

# Models agree with themselves to 1e-5 (contracts.py). Here scores go through waves that amplify rounding, too.
TOLERANCE = 1e-3
ROUNDING = 5e-6  # of a sum of some log-probabilities in fp32
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
        self.model, self.vocabulary, self.context = model, model.vocabulary, model.context

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


# ---- every way to write, for models with and without a source

EXACT = 1e-4  # scores of fp32 models agree to this whatever the company
PLAIN = SearchSettings(beam=3, nbest=2, extra_length=4)
GREEDY = SearchSettings(beam=1, extra_length=4)
BUSY = SearchSettings(beam=4, nbest=3, extra_length=4, no_repeat=2, min_length=2, groups=2, diversity=0.7)
FREE = SamplingSettings(max_tokens=5, alternatives=2)
NARROW = SamplingSettings(temperature=0.8, top_k=5, top_p=0.9, repetition_penalty=1.2, max_tokens=5)


def searched(model: Model, case: Case, settings: SearchSettings, extra: int = 0) -> list[list[Hypothesis]]:
    """What search writes: after a source, or after the targets of a case without any."""
    if case.sources is not None:
        return beam_search(model, case.source(extra), SPECIALS, settings)
    return beam_search(model, None, SPECIALS, settings, [Constraints(target[1:]) for target in case.targets])


def sampled(model: Model, case: Case, settings: SamplingSettings, seeds: list[int], extra: int = 0) -> list[Sample]:
    """What sampling writes, each row with the target as its prompt."""
    prompts = [target[1:] for target in case.targets]
    return sample(model, prompts, SPECIALS, settings, seeds, source=case.source(extra))


def company_does_not_matter(model: Model, case: Case) -> None:
    """The texts of search and of sampling are the same in any batch and order and with any padding."""
    # One way of each kind a case: the next case tries another.
    settings, drawing = (PLAIN, GREEDY, BUSY)[case.seed % 3], (FREE, NARROW)[case.seed % 2]
    seeds = [case.seed + 7 * row for row in range(case.rows)]
    found, drawn = searched(model, case, settings), sampled(model, case, drawing, seeds)
    for rows, extra in _companies(case):
        part = case.select(rows)
        same_hypotheses(searched(model, part, settings, extra), [found[row] for row in rows])
        again = sampled(model, part, drawing, [seeds[row] for row in rows], extra)
        same_samples(again, [drawn[row] for row in rows])


def is_a_draw(model: Model, case: Case) -> bool:
    """Whether two candidates of some sentence, searched alone, are as near as rounding: then either may go on."""
    nearest = [torch.inf]

    def look(candidates: Candidates) -> None:
        gaps = (candidates.scores_BC[:, :-1] - candidates.scores_BC[:, 1:]).abs()
        nearest.append(float(gaps.nan_to_num(torch.inf).min()))  # both -inf: neither goes on

    settings = (PLAIN, GREEDY, BUSY)[case.seed % 3]
    for row in range(case.rows):
        alone = case.select([row])
        asked = None if case.sources is not None else [Constraints(alone.targets[0][1:])]
        beam_search(model, alone.source(), SPECIALS, settings, asked, look)
    return min(nearest) < ROUNDING


def a_beginning_is_read_in_one_go_or_token_by_token(model: Model, case: Case) -> None:
    """A text is the same whether its beginning is read at once or, beside a text that begins freely, bit by bit."""
    settings = (PLAIN, GREEDY, BUSY)[case.seed % 3]
    if attentions_to_source(model) and case.seed % 2:
        settings = replace(settings, coverage=0.4)
    for row, target in enumerate(case.targets):
        asked = Constraints(prefix=target[1:])
        (at_once,) = beam_search(model, case.select([row]).source(), SPECIALS, settings, [asked])
        beside = beam_search(model, case.select([row, row]).source(), SPECIALS, settings, [asked, Constraints()])
        same_hypotheses([at_once], beside[:1])
        assert all(each.tokens[: len(asked.prefix)] == asked.prefix for each in at_once)


def _companies(case: Case) -> list[tuple[list[int], int]]:
    """Backwards and padded; twice; and one row alone."""
    rows = list(range(case.rows))
    return [(rows[::-1], 2), (rows + rows, 0), ([case.seed % case.rows], 0)]


def same_hypotheses(these: list[list[Hypothesis]], those: list[list[Hypothesis]]) -> None:
    """Assert the same texts, and scores that agree to EXACT."""
    flat, other = ([each for hypotheses in answer for each in hypotheses] for answer in (these, those))
    assert [(each.tokens, each.cut) for each in flat] == [(each.tokens, each.cut) for each in other]
    assert [each.score for each in flat] == pytest.approx([each.score for each in other], abs=EXACT)


def same_samples(these: list[Sample], those: list[Sample]) -> None:
    """Assert the same texts for the same reasons, and log-probabilities that agree to EXACT."""
    for one, other in zip(these, those, strict=True):
        assert (one.tokens, one.finish_reason, one.slid) == (other.tokens, other.finish_reason, other.slid)
        chances = [[each.log_probability for each in sample.drawn] for sample in (one, other)]
        assert chances[0] == pytest.approx(chances[1], abs=EXACT)


def what_is_written_scores_what_was_said(model: Model, case: Case) -> None:
    """`score_texts`, in one pass over whole texts, gives search's log-probabilities and sampling's, token by token."""
    source = case.source(extra=1)
    best = [answer[0] for answer in searched(model, case, PLAIN)]
    for found, scored in zip(best, score_texts(model, source, [each.tokens for each in best], SPECIALS), strict=True):
        assert found.log_probability == pytest.approx(scored.log_probability, abs=EXACT)
    drawn = sampled(model, case, FREE, [case.seed] * case.rows)
    # A text that outgrew the context was not read as a whole.
    whole = [row for row, each in enumerate(drawn) if not each.slid and not each.prompt_cut]
    part = case.select(whole)
    texts = [(*target[1:], *drawn[row].tokens) for target, row in zip(part.targets, whole, strict=True)]
    for row, scored in zip(whole, score_texts(model, part.source(), texts, SPECIALS, end=False), strict=True):
        known = [each.log_probability for each in drawn[row].drawn]
        assert known == pytest.approx(scored.log_probabilities[len(scored.tokens) - len(known) :], abs=EXACT)


def a_model_with_itself_is_itself(model: Model, case: Case) -> None:
    """An ensemble of one model twice writes what the model writes."""
    twice = Ensemble([model, model], "probability" if case.seed % 2 else "log")
    same_hypotheses(searched(twice, case, PLAIN), searched(model, case, PLAIN))
