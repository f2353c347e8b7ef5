"""Several models that write as one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from regard.batch import Tokens
from regard.decoding.constraints import Constraints
from regard.decoding.ensemble import Average, Ensemble, Sources, select_rows
from regard.decoding.sampling import SamplingSettings, sample
from regard.decoding.scoring import score_texts
from regard.decoding.search import SearchSettings, beam_search
from regard.errors import UsageError
from tests.contracts.zoo import ZOO
from tests.decoding.chain import END, SPECIALS, START, A, B, C, Chain, Story, sources

SOURCE = Tokens.padded([[3, 4, 5], [5, 3], [4, 4, 7, 6]], SPECIALS.padding)
TEXTS = [[3, 5], [], [6, 6, 4]]
HALF = SearchSettings(beam=3, nbest=3, extra_length=3)


def mixed(average: Average = "log") -> Ensemble:
    names = ("transformer", "convs2s", "recurrent-general", "gpt")
    return Ensemble([ZOO[name].model(vocabulary=8, seed=1) for name in names], average).eval()


def means(of_models: list[Tensor], average: Average) -> Tensor:
    chances = torch.stack([logits.softmax(dim=-1) for logits in of_models])
    if average == "probability":
        return chances.mean(dim=0).log()
    product = chances.prod(dim=0) ** (1 / len(of_models))
    return (product / product.sum(dim=-1, keepdim=True)).log()


@pytest.mark.parametrize("average", ["log", "probability"])
@torch.no_grad()
def test_averages_by_the_formula(average: Average) -> None:
    ensemble, tokens = mixed(average), torch.tensor([[START], [START], [START]])
    found, _ = ensemble.step(tokens, ensemble.start(SOURCE, 3))
    each = []
    for model in ensemble.members:
        logits, _ = model.step(tokens, model.start(SOURCE if model.reads_source else None, 3))
        each.append(logits)
    torch.testing.assert_close(found, means(each, average), atol=1e-5, rtol=1e-5)


def test_one_pleases_all_or_one() -> None:
    """A is fair to both chains, B is one's favourite: a geometric mean prefers A, an arithmetic one B."""
    ends = {A: {END: 1.0}, B: {END: 1.0}, C: {END: 1.0}}
    chains = [
        Chain({START: {A: 0.3, B: 0.69, C: 0.01}, **ends}),
        Chain({START: {A: 0.3, B: 0.01, C: 0.69}, **ends}),
    ]
    best = {}
    for average in ("log", "probability"):
        for chain in chains:
            chain.width = 1
        [[found]] = beam_search(Ensemble(chains, average), sources(1), SPECIALS, SearchSettings())  # type: ignore[arg-type]
        best[average] = found
    assert best["log"].tokens == (A,)
    assert best["probability"].tokens in ((B,), (C,))
    assert best["probability"].log_probability == pytest.approx(torch.tensor(0.35).log().item(), abs=1e-5)


@pytest.mark.parametrize("average", ["log", "probability"])
@pytest.mark.parametrize("name", ["transformer", "recurrent"])
def test_a_model_with_itself_is_itself(name: str, average: Average) -> None:
    model = ZOO[name].model(vocabulary=8, seed=1)
    twice = Ensemble([model, model], average)
    alone, together = (beam_search(each, SOURCE, SPECIALS, HALF) for each in (model, twice))
    assert [[each.tokens for each in some] for some in alone] == [[each.tokens for each in some] for some in together]
    for some, other in zip(alone, together, strict=True):
        assert [each.score for each in some] == pytest.approx([each.score for each in other], abs=1e-4)


@pytest.mark.parametrize("average", ["log", "probability"])
def test_search_sampling_and_scoring_agree(average: Average) -> None:
    ensemble = mixed(average)
    for found, scored in zip(
        beam_search(ensemble, SOURCE, SPECIALS, HALF), score_texts(ensemble, SOURCE, TEXTS, SPECIALS), strict=True
    ):
        again = score_texts(ensemble, select_rows(SOURCE, torch.tensor([0])), [found[0].tokens], SPECIALS)
        assert len(scored.log_probabilities) == len(scored.tokens) + 1
        assert len(again[0].tokens) == len(found[0].tokens)
    [first, *_] = beam_search(ensemble, SOURCE, SPECIALS, HALF)
    [again, *_] = score_texts(ensemble, SOURCE, [first[0].tokens, [], []], SPECIALS)
    assert first[0].log_probability == pytest.approx(again.log_probability, abs=1e-4)
    drawn = sample(ensemble, [[]] * 3, SPECIALS, SamplingSettings(max_tokens=4), [1, 2, 3], source=SOURCE)
    scored = score_texts(ensemble, SOURCE, [each.tokens for each in drawn], SPECIALS, end=False)
    for each, known in zip(drawn, scored, strict=True):
        assert [one.log_probability for one in each.drawn] == pytest.approx(list(known.log_probabilities), abs=1e-4)


def test_each_model_may_read_its_own_tokens() -> None:
    """The second model reads the sentence in other tokens, and more of them; its words are chosen by its weights."""
    models = [ZOO["transformer"].model(8, 1), ZOO["recurrent"].model(8, 2)]
    longer = Tokens.padded([[3, 3, 3, 4, 5], [5], [4, 4]], SPECIALS.padding)
    ensemble, both = Ensemble(models), Sources.of([SOURCE, longer])
    tokens = torch.full((3, 1), START)
    with torch.no_grad():
        found, _ = ensemble.step(tokens, ensemble.start(both, 3))
        each = [model.step(tokens, model.start(own, 3))[0] for model, own in zip(models, (SOURCE, longer), strict=True)]
    torch.testing.assert_close(found, means(each, "log"), atol=1e-5, rtol=1e-5)

    answers = beam_search(ensemble, both, SPECIALS, HALF)
    assert len(answers) == 3
    moved = both.to(torch.device("cpu"))
    assert isinstance(moved, Sources)
    backwards = beam_search(ensemble, select_rows(moved, torch.tensor([2, 1, 0])), SPECIALS, HALF)
    assert [some[0].tokens for some in backwards[::-1]] == [some[0].tokens for some in answers]


def test_facts_are_those_of_all_members() -> None:
    ensemble = mixed()
    assert (ensemble.reads_source, ensemble.packs_sentences) == (True, False)
    assert ensemble.context == ensemble.members[-1].context is not None
    stories = Ensemble([Story(), Story(context=5)])
    assert (stories.reads_source, stories.context) == (False, 5)
    [[found]] = beam_search(stories, None, SPECIALS, SearchSettings(min_length=9), [Constraints()])
    assert len(found.tokens) == 4


def test_what_cannot_be_joined_is_named() -> None:
    with pytest.raises(UsageError, match="there must be at least one model"):
        Ensemble([])
    with pytest.raises(UsageError, match=r"must share a target vocabulary, but they have \[8, 9\] tokens"):
        Ensemble([Story(8), Story(9)])
    with pytest.raises(UsageError, match=r"one source a model \(4\), but there are 1"):
        mixed().start(Sources.of([SOURCE]), 3)
    with pytest.raises(UsageError, match="at least one model must have a source"):
        Sources.of([None])
