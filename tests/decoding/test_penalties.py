"""Coverage, and the proof by trial that search never stops too early."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.batch import Tokens
from regard.decoding import search as module
from regard.decoding.constraints import Constraints
from regard.decoding.ensemble import Ensemble, Sources
from regard.decoding.penalties import LEAST_COVERED
from regard.decoding.scoring import score_texts
from regard.decoding.search import Hypothesis, SearchSettings, beam_search
from regard.errors import InternalError, UsageError
from regard.models.interface import SequenceModel
from tests.contracts.zoo import ZOO
from tests.decoding.chain import SPECIALS, Chain, Story, sources

Model = SequenceModel[module.Any]
SOURCE = Tokens.padded([[3, 4], [4, 3, 3], [4]], SPECIALS.padding)
LENGTHS = (2, 3, 1)


def watched_coverage(model: Model, source: list[int], text: tuple[int, ...]) -> float:
    """Σ_i log min(1, Σ_j a_ij) by the formula, a_ij the mean over attentions and heads, one step after another."""
    weights: list[Tensor] = []
    modules = [part for name, part in model.named_modules()
               if hasattr(part, "watcher") and name.split(".")[-1] in ("cross_attention", "attention")
               and not (name.endswith(".attention"))]  # fmt: skip
    for part in modules:
        part.watcher = lambda seen_BHQK: weights.append(seen_BHQK[0].mean(dim=0).sum(dim=0))  # type: ignore[assignment]
    with torch.no_grad():
        state = model.start(Tokens.whole(torch.tensor([source])), 1)
        weights.clear()
        for token in (SPECIALS.start, *text):
            _, state = model.step(torch.tensor([[token]]), state)
    for part in modules:
        part.watcher = None  # type: ignore[assignment]
    covered = (torch.stack(weights).sum(dim=0) / len(modules)).tolist()
    assert len(covered) == len(source)
    return sum(math.log(max(LEAST_COVERED, min(1.0, share))) for share in covered)


@pytest.mark.parametrize(
    "name", ["transformer", "convs2s", "recurrent", "recurrent-input-feeding", "recurrent-hard-before"]
)
@pytest.mark.parametrize(("penalty", "alpha"), [("gnmt", 0.6), ("length", 1.0), ("none", 0.0)])
def test_coverage_against_all_texts(name: str, penalty: module.Penalty, alpha: float) -> None:
    """A beam as wide as the space finds the best text by the whole formula, whatever the stop rule thinks."""
    model, beta = ZOO[name].model(vocabulary=5, seed=1), 0.7
    settings = SearchSettings(beam=64, nbest=4, penalty=penalty, alpha=alpha, coverage=beta, extra_length=1)
    answers = beam_search(model, SOURCE, SPECIALS, settings)
    for row, (length, answer) in enumerate(zip(LENGTHS, answers, strict=True)):
        sentence = SOURCE.ids_BT[row, :length].tolist()
        texts = [text for size in range(length + 2) for text in product((3, 4), repeat=size)]
        alone = Tokens.whole(torch.tensor([sentence] * len(texts)))
        scores = {}
        for scored in score_texts(model, alone, texts, SPECIALS):
            divisor = settings.divisor(torch.tensor(len(scored.tokens) + 1)).item()
            coverage = beta * watched_coverage(model, sentence, scored.tokens)
            scores[scored.tokens] = scored.log_probability / divisor + coverage
        best = sorted(scores.values(), reverse=True)[:4]
        assert [each.score for each in answer] == pytest.approx(best, abs=1e-4)
        assert all(each.score == pytest.approx(scores[each.tokens], abs=1e-4) for each in answer)


def test_every_token_of_a_beginning_covers_as_it_would_alone() -> None:
    """The start and what is given are read in one step, each token with attention of its own."""
    model, beginning = ZOO["transformer"].model(vocabulary=5, seed=1), (4, 3)
    settings = SearchSettings(beam=4, nbest=2, penalty="none", coverage=0.7, extra_length=1)
    answers = beam_search(model, SOURCE, SPECIALS, settings, [Constraints(beginning)] * len(LENGTHS))
    for row, (length, answer) in enumerate(zip(LENGTHS, answers, strict=True)):
        for each in answer:
            coverage = watched_coverage(model, SOURCE.ids_BT[row, :length].tolist(), each.tokens)
            assert each.score == pytest.approx(each.log_probability + 0.7 * coverage, abs=1e-4)


def test_watchers_are_taken_off_again() -> None:
    model = ZOO["transformer"].model(vocabulary=8, seed=1)
    beam_search(model, SOURCE, SPECIALS, SearchSettings(coverage=0.2, extra_length=2))
    assert all(getattr(part, "watcher", None) is None for part in model.modules())


def test_coverage_needs_attention_to_one_source() -> None:
    settings = SearchSettings(coverage=0.2)
    with pytest.raises(UsageError, match="needs a model with attention to its source, but Chain has none"):
        beam_search(Chain({}), sources(1), SPECIALS, settings)
    with pytest.raises(UsageError, match="needs one source, but the model reads none"):
        beam_search(Story(), None, SPECIALS, settings, [Constraints()])
    ensemble = Ensemble([ZOO["transformer"].model(8, 1), ZOO["recurrent"].model(8, 1)])
    with pytest.raises(UsageError, match="there is one for each model of an ensemble"):
        beam_search(ensemble, Sources.of([SOURCE, SOURCE]), SPECIALS, settings)


def test_an_attention_that_does_not_show_itself_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ZOO["transformer"].model(vocabulary=8, seed=1)
    monkeypatch.setattr(module.Coverage, "__enter__", lambda self: self)
    with pytest.raises(InternalError, match="each of 2 attentions must show its weights once a step, but 0 came"):
        beam_search(model, SOURCE, SPECIALS, SearchSettings(coverage=0.2))


# ---- the stop rule


def never(self: module._Search) -> Tensor:
    """Stop only when nothing is left to go on with."""
    return (self.scores_BN == -torch.inf).all(dim=1)


def both(search: Callable[[], list[list[Hypothesis]]]) -> tuple[list[list[Hypothesis]], list[list[Hypothesis]]]:
    with pytest.MonkeyPatch.context() as patch:
        early = search()
        patch.setattr(module._Search, "_done", never)
        return early, search()


@given(
    st.integers(2, 5),
    st.integers(1, 5),
    st.sampled_from(["gnmt", "length", "none"]),
    st.sampled_from([0.0, 0.6, 1.0, 3.0]),
    st.floats(0.5, 6),
)
def test_to_go_on_to_the_limit_finds_nothing_better(
    beam: int, nbest: int, penalty: module.Penalty, alpha: float, sharpness: float
) -> None:
    model = Story(vocabulary=6, sharpness=sharpness)
    settings = SearchSettings(beam, penalty, alpha, extra_length=9, nbest=min(nbest, beam))
    asked = [Constraints(), Constraints((4,)), Constraints((3, 5))]
    early, late = both(lambda: beam_search(model, None, SPECIALS, settings, asked))
    assert early == late


@pytest.mark.parametrize("name", ["transformer", "convs2s", "recurrent"])
@pytest.mark.parametrize("penalty", ["gnmt", "length", "none"])
def test_nor_with_coverage(name: str, penalty: module.Penalty) -> None:
    model = ZOO[name].model(vocabulary=8, seed=1)
    settings = SearchSettings(3, penalty, 0.6, coverage=0.4, extra_length=6, nbest=2)
    early, late = both(lambda: beam_search(model, SOURCE, SPECIALS, settings))
    assert [[each.tokens for each in some] for some in early] == [[each.tokens for each in some] for some in late]
