"""Scores of given texts against a model read token by token."""

from __future__ import annotations

import math

import pytest
import torch

from regard.batch import Tokens
from regard.decoding import scoring
from regard.decoding.scoring import Scored, score_texts
from regard.errors import UsageError
from tests.contracts.zoo import ZOO
from tests.decoding.chain import END, SPECIALS, START, A, B, Chain, Story, sources

CHAIN = Chain({START: {A: 0.6, B: 0.4}, A: {END: 0.4, A: 0.3, B: 0.3}, B: {END: 0.9, A: 0.1}})


def test_by_hand() -> None:
    [scored, empty] = score_texts(CHAIN, sources(2, 1), [[A, B], [B]], SPECIALS)
    assert [math.exp(each) for each in scored.log_probabilities] == pytest.approx([0.6, 0.3, 0.9])
    assert math.exp(scored.log_probability) == pytest.approx(0.6 * 0.3 * 0.9)
    assert [math.exp(each) for each in empty.log_probabilities] == pytest.approx([0.4, 0.9])


def test_without_the_end() -> None:
    found = score_texts(CHAIN, sources(1, 1), [[A, B], []], SPECIALS, end=False)
    assert math.exp(found[0].log_probability) == pytest.approx(0.18)
    assert found[1] == Scored((), ())


@pytest.mark.parametrize("at_a_time", [1, 20, 10**6])
def test_the_size_of_pieces_makes_no_difference(at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "SCORES_AT_A_TIME", at_a_time)
    model, texts = Story(), [[3, 4, 5], [], [7] * 6]
    for text, found in zip(texts, score_texts(model, None, texts, SPECIALS), strict=True):
        state = model.start(None, 1)
        wanted = []
        for token, following in zip([START, *text], [*text, END], strict=True):
            logits, state = model.step(torch.tensor([[token]]), state)
            wanted.append(logits.log_softmax(dim=-1)[0, following].item())
        assert list(found.log_probabilities) == pytest.approx(wanted, abs=1e-5)


def test_low_precision_is_added_in_full() -> None:
    model = ZOO["transformer"].build(8).eval().bfloat16()
    source = Tokens.padded([[3, 4]], SPECIALS.padding)
    [found] = score_texts(model, source, [[5, 6]], SPECIALS)
    assert any(torch.tensor(each).bfloat16().item() != each for each in found.log_probabilities)


def test_texts_and_sources_must_agree() -> None:
    with pytest.raises(UsageError, match=r"one text a source row \(2\), but there are 1"):
        score_texts(CHAIN, sources(1, 1), [[A]], SPECIALS)
    assert score_texts(CHAIN, None, [], SPECIALS) == []
