"""Beam search on small chains of words whose every probability is known.

What search promises for real models is in tests/contracts. Shapes: B rows, T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.batch import Specials, Tokens
from regard.decoding.penalties import Penalty
from regard.decoding.search import Hypothesis, SearchSettings, beam_search
from regard.errors import DataError
from regard.models.transformer import Transformer, TransformerSettings
from tests.decoding.chain import END, SPECIALS, START, A, B, C, Chain, Chances, sources

PLAIN = SearchSettings(penalty="none")
BY_LENGTH = SearchSettings(penalty="length", alpha=1.0)


def search(model: Chain, settings: SearchSettings, *lengths: int) -> list[list[Hypothesis]]:
    return beam_search(model, sources(*lengths), SPECIALS, settings)


def texts(hypotheses: list[Hypothesis]) -> list[tuple[int, ...]]:
    return [each.tokens for each in hypotheses]


MISLEADING: Chances = {START: {A: 0.6, B: 0.4}, A: {END: 0.4, A: 0.3, B: 0.3}, B: {END: 0.9, A: 0.1}}
ENDLESS: Chances = {START: {A: 1.0}, A: {A: 1 - 1e-6, END: 1e-6}}


# ---- settings


@pytest.mark.parametrize(
    ("penalty", "alpha", "length", "expected"),
    [
        ("gnmt", 0.6, 1, 1.0),
        ("gnmt", 0.6, 7, 2**0.6),
        ("gnmt", 1.0, 13, 3.0),
        ("gnmt", 0.0, 40, 1.0),
        ("length", 1.0, 5, 5.0),
        ("length", 0.5, 9, 3.0),
        ("length", 0.0, 9, 1.0),
        ("none", 0.6, 30, 1.0),
    ],
)
def test_penalty_by_hand(penalty: Penalty, alpha: float, length: int, expected: float) -> None:
    divisor = SearchSettings(penalty=penalty, alpha=alpha).divisor(torch.tensor([length]))
    assert divisor.tolist() == pytest.approx([expected])


@given(st.sampled_from(["gnmt", "length", "none"]), st.floats(0, 3), st.integers(1, 200))
def test_a_longer_text_never_has_a_smaller_divisor(penalty: Penalty, alpha: float, length: int) -> None:
    """The stop rule stands on this."""
    shorter, longer = SearchSettings(penalty=penalty, alpha=alpha).divisor(torch.tensor([length, length + 1]))
    assert shorter <= longer


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"beam": 0}, "`beam` must be at least 1, but is 0; 4 are usual, and many rarely find better texts"),
        ({"beam": 4, "nbest": 5}, "`nbest` must be between 1 and `beam` (4), but is 5; ask for fewer, or raise `beam`"),
        ({"nbest": 0}, "`nbest` must be between 1 and `beam` (4), but is 0; give 1 or more"),
        ({"alpha": -0.5}, "`alpha` must be from 0 (no penalty) to 10, but is -0.5; 0.6 is usual"),
        ({"extra_length": -1}, "`extra_length` must be at least 0, but is -1; give 0 or more"),
        ({"beam": 1001}, "`beam` must be at most 1,000, but is 1001; 4 are usual, and many rarely find better texts"),
        ({"coverage": -1.0}, "`coverage` must be from 0 (no penalty) to 10, but is -1.0; 0 is without it"),
        ({"min_length": -1}, "`min_length` must be at least 0, but is -1; give 0 or more"),
        ({"no_repeat": -1}, "`no_repeat` must be at least 0, but is -1; give 0 or more"),
        ({"diversity": float("nan")}, "`diversity` must be at least 0, but is nan; give 0 or more"),
        ({"groups": 0}, "`groups` must divide `beam` (4), but is 0; give 1 or `beam`"),
        ({"groups": 3}, "`groups` must divide `beam` (4), but is 3; give 1 or `beam`"),
    ],
)
def test_wrong_settings_say_what_is_wrong(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 (the message is compared whole)
        SearchSettings(**wrong)
    assert str(raised.value) == message


def test_the_defaults_are_the_papers_and_all_else_is_neutral() -> None:
    papers = SearchSettings(beam=4, penalty="gnmt", alpha=0.6, extra_length=50, nbest=1)
    assert SearchSettings() == replace(papers, coverage=0.0, min_length=0, no_repeat=0, groups=1)


# ---- what is found


def test_greedy_takes_the_first_good_word_and_a_beam_thinks_twice() -> None:
    [[greedy]] = search(Chain(MISLEADING), replace(PLAIN, beam=1), 2)
    [[better]] = search(Chain(MISLEADING), replace(PLAIN, beam=2), 2)
    assert (greedy.tokens, better.tokens) == ((A,), (B,))
    assert math.exp(greedy.log_probability) == pytest.approx(0.6 * 0.4)
    assert math.exp(better.log_probability) == pytest.approx(0.4 * 0.9)


def test_greedy_ends_where_it_first_chooses_to() -> None:
    """A penalty may favour longer texts, but greedy search does not look back."""
    chances: Chances = {START: {END: 0.55, A: 0.45}, A: {B: 1.0}, B: {END: 1.0}}
    assert texts(search(Chain(chances), replace(BY_LENGTH, beam=1), 2)[0]) == [()]


def test_a_text_that_ends_takes_no_beam_from_those_that_go_on() -> None:
    chances: Chances = {START: {END: 0.4, A: 0.35, B: 0.25}, A: {A: 0.99, END: 0.01}, B: {END: 1.0}}
    [hypotheses] = search(Chain(chances), replace(PLAIN, beam=2, nbest=2), 2)
    assert texts(hypotheses) == [(), (B,)]


def test_nbest_comes_best_first() -> None:
    [hypotheses] = search(Chain(MISLEADING), replace(PLAIN, beam=8, nbest=4, extra_length=1), 1)
    assert texts(hypotheses) == [(B,), (A,), (A, B), (A, A)]
    chances = [math.exp(each.log_probability) for each in hypotheses]
    assert chances == pytest.approx([0.36, 0.24, 0.6 * 0.3 * 0.9, 0.6 * 0.3 * 0.4])


@pytest.mark.parametrize("settings", [SearchSettings(), BY_LENGTH, PLAIN])
def test_score_is_log_probability_over_divisor_and_counts_the_end(settings: SearchSettings) -> None:
    [hypotheses] = search(Chain(MISLEADING), replace(settings, nbest=3, extra_length=2), 2)
    for each in hypotheses:
        divisor = settings.divisor(torch.tensor([len(each.tokens) + 1])).item()
        assert each.score == pytest.approx(each.log_probability / divisor)


def test_to_end_must_be_a_choice() -> None:
    """The empty text is likelier than what search returns, but two words were likelier than to end at once."""
    chances: Chances = {START: {A: 0.5, B: 0.4, END: 0.1}, A: {A: 0.99, END: 0.01}, B: {B: 0.99, END: 0.01}}
    [hypotheses] = search(Chain(chances), replace(PLAIN, beam=2, extra_length=0), 1)
    assert texts(hypotheses) == [(A,)]


def test_a_penalty_lets_a_longer_text_overtake() -> None:
    """The short text is finished first; search must not stop there."""
    chances: Chances = {START: {END: 0.55, A: 0.45}, A: {B: 1.0}, B: {END: 1.0}}
    assert texts(search(Chain(chances), replace(BY_LENGTH, extra_length=3), 2)[0]) == [(A, B)]
    assert texts(search(Chain(chances), replace(PLAIN, extra_length=3), 2)[0]) == [()]


@given(st.integers(0, 9999), st.integers(1, 4), st.sampled_from(["gnmt", "length", "none"]))
def test_what_is_reported_is_what_the_chain_says(seed: int, beam: int, penalty: Penalty) -> None:
    chance = torch.rand(6, 6, generator=torch.Generator().manual_seed(seed)) ** 3
    chance = chance / chance.sum(dim=1, keepdim=True)
    model = Chain(dict(enumerate({token: p.item() for token, p in enumerate(row)} for row in chance)))
    settings = SearchSettings(beam, penalty, extra_length=3, nbest=beam)
    for length, hypotheses in zip((1, 3), search(model, settings, 1, 3), strict=True):
        assert 1 <= len(set(texts(hypotheses))) == len(hypotheses) <= beam
        assert [each.score for each in hypotheses] == sorted((each.score for each in hypotheses), reverse=True)
        for each in hypotheses:
            path = (START, *each.tokens, END)
            steps = [model.scores_VV[a, b].item() for a, b in pairwise(path)]
            assert each.log_probability == pytest.approx(sum(steps), abs=1e-4)
            assert each.cut == (len(each.tokens) == length + 3)
            assert not {SPECIALS.padding, START, END} & set(each.tokens)


# ---- when it stops


def test_search_stops_when_nothing_can_overtake() -> None:
    chances: Chances = {START: {END: 0.9, A: 0.1}, A: {A: 0.9, END: 0.1}}
    model = Chain(chances)
    search(model, SearchSettings(), 3)
    assert len(model.rows_read) == 1


def test_search_goes_on_while_something_can_overtake() -> None:
    """After the first step `()` leads with log 0.5, and A^n could still reach log 0.5 / divisor(limit)."""
    chances: Chances = {START: {END: 0.5, A: 0.5}, A: {A: 0.5, END: 0.5}}
    for settings, steps in [(replace(PLAIN, extra_length=2), 1), (SearchSettings(extra_length=2), 2)]:
        model = Chain(chances)
        assert texts(search(model, settings, 1)[0]) == [()]
        assert len(model.rows_read) == steps


def test_a_text_of_the_full_length_may_still_overtake() -> None:
    """`()` scores log 0.62; `(A, B)` and its end are as long as allowed, and score log 0.38 / 3."""
    chances: Chances = {START: {END: 0.62, A: 0.38}, A: {B: 1.0}, B: {END: 1.0}}
    assert texts(search(Chain(chances), replace(BY_LENGTH, beam=2, extra_length=0), 2)[0]) == [(A, B)]


def test_a_sentence_leaves_the_batch_when_it_is_done() -> None:
    model = Chain(ENDLESS)
    search(model, replace(PLAIN, beam=1, extra_length=0), 1, 3, 2)
    assert model.rows_read == [3, 3, 2, 1]


def test_answers_come_in_the_order_of_the_sources() -> None:
    found = search(Chain(ENDLESS), replace(BY_LENGTH, beam=2, extra_length=1), 4, 1, 3)
    assert [len(each.tokens) for (each,) in found] == [5, 2, 4]


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize(("length", "extra"), [(1, 0), (3, 0), (2, 5)])
def test_the_limit_is_the_source_and_some_more(beam: int, length: int, extra: int) -> None:
    """The padding of the source is no part of its length; the second row is there to cause some."""
    found = search(Chain(ENDLESS), replace(BY_LENGTH, beam=beam, extra_length=extra), length, length + 4)
    [[cut], [longer]] = found
    assert cut.tokens == (A,) * (length + extra)
    assert longer.tokens == (A,) * (length + 4 + extra)
    assert cut.cut
    assert longer.cut


def test_an_end_of_its_own_is_not_cut() -> None:
    [[free]] = search(Chain({START: {A: 1.0}, A: {END: 1.0}}), replace(PLAIN, extra_length=1), 1)
    [[forced]] = search(Chain({START: {A: 1.0}, A: {END: 1.0}}), replace(PLAIN, extra_length=0), 1)
    assert (free.tokens, free.cut) == ((A,), False)
    assert (forced.tokens, forced.cut) == ((A,), True)


# ---- narrow places


def test_no_more_hypotheses_than_there_are_texts() -> None:
    [hypotheses] = search(Chain({START: {A: 1.0}, A: {END: 1.0}}), replace(PLAIN, beam=5, nbest=5), 2)
    assert texts(hypotheses) == [(A,)]
    assert hypotheses[0].log_probability == 0.0


@pytest.mark.parametrize("beam", [1, 2, 10])
def test_a_vocabulary_smaller_than_the_beam(beam: int) -> None:
    model = Chain({START: {A: 0.6, END: 0.4}, A: {A: 0.6, END: 0.4}}, vocabulary=4)
    [hypotheses] = search(model, replace(PLAIN, beam=beam, nbest=beam, extra_length=1), 1)
    assert texts(hypotheses)[0] == ((A, A) if beam == 1 else ())
    assert all(math.isfinite(each.score) for each in hypotheses)
    assert len(hypotheses) == min(beam, 3)


def test_texts_that_tie_are_all_found_once() -> None:
    even = {END: 0.25, A: 0.25, B: 0.25, C: 0.25}
    [hypotheses] = search(
        Chain(dict.fromkeys((START, A, B, C), even)), replace(PLAIN, beam=16, nbest=13, extra_length=1), 1
    )
    assert set(texts(hypotheses)) == {(), (A,), (B,), (C,), *((x, y) for x in (A, B, C) for y in (A, B, C))}
    assert [each.score for each in hypotheses] == pytest.approx(
        [math.log(0.25) * (len(t) + 1) for t in texts(hypotheses)]
    )


def test_padding_and_start_are_never_written() -> None:
    likely = {SPECIALS.padding: 0.5, START: 0.3, A: 0.15, END: 0.05}
    [hypotheses] = search(Chain({START: likely, A: likely}), replace(PLAIN, beam=3, nbest=3, extra_length=1), 1)
    assert {token for text in texts(hypotheses) for token in text} == {A}
    assert math.exp(hypotheses[0].log_probability) == pytest.approx(0.05)


def test_start_and_end_may_be_one_token() -> None:
    model = Chain({END: {A: 0.7, END: 0.3}, A: {END: 1.0}})
    [[found]] = beam_search(model, sources(2), Specials(padding=0, start=END, end=END), PLAIN)
    assert found.tokens == (A,)


def test_scores_of_low_precision_are_added_in_full_and_left_as_they_were() -> None:
    model = Chain(MISLEADING)
    model.scores_VV = model.scores_VV.bfloat16()
    before_VV = model.scores_VV.clone()
    [[found]] = search(model, replace(PLAIN, beam=2), 2)
    rounded_VV = before_VV.float().log_softmax(dim=-1)
    assert found.log_probability == pytest.approx((rounded_VV[START, B] + rounded_VV[B, END]).item(), rel=1e-6)
    assert torch.equal(model.scores_VV, before_VV)


def test_scores_that_are_not_numbers_are_named() -> None:
    model = Transformer(TransformerSettings(encoder_layers=1, decoder_layers=1, d_model=8, d_ff=8, heads=2), 9).eval()
    torch.nn.init.constant_(model.embedding.weight_VD, torch.nan)
    with pytest.raises(DataError, match="row 0 got none"):
        beam_search(model, Tokens.padded([[4, 5]], 0), Specials(0, 1, 2), SearchSettings())


def test_no_sentences_give_no_results() -> None:
    model = Transformer(TransformerSettings(encoder_layers=1, decoder_layers=1, d_model=8, d_ff=8, heads=2), 9).eval()
    nothing = Tokens.whole(torch.zeros(0, 3, dtype=torch.long))
    assert beam_search(model, nothing, Specials(0, 1, 2), SearchSettings()) == []
