"""Constrained search against the list of all texts, on a model whose next token depends on all before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.decoding.constraints import Constraints
from regard.decoding.scoring import score_texts
from regard.decoding.search import Hypothesis, SearchSettings, beam_search
from regard.errors import UsageError
from tests.decoding.chain import END, SPECIALS, A, B, C, Chain, Story, sources

MODEL = Story(vocabulary=6)
LIMIT = 4
WIDE = SearchSettings(beam=256, nbest=5, extra_length=LIMIT)
TEXTS = [text for length in range(LIMIT + 1) for text in product((A, B, C), repeat=length)]
CHANCES = dict(zip(TEXTS, (each.log_probability for each in score_texts(MODEL, None, TEXTS, SPECIALS)), strict=True))

Text = tuple[int, ...]


def holds(text: Text, phrase: Text) -> bool:
    return any(text[i : i + len(phrase)] == phrase for i in range(len(text)))


def keeps(text: Text, asked: Constraints, settings: SearchSettings) -> bool:
    """The rules in plain words, for texts of any length up to the limit."""
    known = len(asked.prefix)
    ends = range(known + 1, len(text) + 1)  # what is written after the prefix must complete nothing forbidden
    return (
        text[:known] == asked.prefix
        and not any(text[:stop][-len(phrase) :] == phrase for stop in ends for phrase in asked.banned)
        and all(any(holds(text, phrase) for phrase in group) for group in asked.required)
        and (not settings.no_repeat or not any(_ends_again(text[:stop], settings.no_repeat) for stop in ends))
        and len(text) >= settings.min_length
    )


def _ends_again(text: Text, size: int) -> bool:
    return len(text) >= size and holds(text[:-1], text[-size:])


def best(asked: Constraints, settings: SearchSettings) -> list[tuple[Text, float]]:
    """The best of all texts that keep to the rules."""
    limit = replace(settings, extra_length=LIMIT - len(asked.prefix))
    divisors = limit.divisor(torch.arange(1, LIMIT + 2)).tolist()
    scores = {text: total / divisors[len(text)] for text, total in CHANCES.items() if keeps(text, asked, settings)}
    return sorted(scores.items(), key=lambda each: -each[1])[: settings.nbest]


def found(asked: Sequence[Constraints], settings: SearchSettings) -> list[list[Hypothesis]]:
    """What search finds, every text limited to LIMIT tokens whatever its prefix."""
    answers = []
    for each in asked:
        answers += beam_search(MODEL, None, SPECIALS, replace(settings, extra_length=LIMIT - len(each.prefix)), [each])
    return answers


phrase = st.lists(st.sampled_from([A, B, C]), min_size=1, max_size=3).map(tuple)
search_settings = st.builds(
    replace,
    st.just(WIDE),
    penalty=st.sampled_from(["gnmt", "length", "none"]),
    alpha=st.sampled_from([0.6, 1.5]),
    no_repeat=st.integers(0, 3),
    min_length=st.integers(0, 3),
)


phrases = st.lists(phrase, min_size=1, max_size=3).map(tuple)


@given(
    st.lists(phrase, max_size=2).map(tuple),
    st.lists(phrases, max_size=3).map(tuple),
    st.lists(st.sampled_from([A, B, C]), max_size=2).map(tuple),
    search_settings,
)
def test_a_wide_beam_finds_the_best_text_that_keeps_to_the_rules(
    banned: tuple[Text, ...],
    required: tuple[tuple[Text, ...], ...],
    prefix: Text,
    settings: SearchSettings,
) -> None:
    asked = Constraints(prefix, banned, required)
    left = [[need for need in group if not any(holds(need, taboo) for taboo in banned)] for group in required]
    contradicts = not all(left)
    too_long = not contradicts and asked.needed > LIMIT
    wanted = best(asked, settings)
    if contradicts or too_long or not wanted:
        with pytest.raises(UsageError):
            found([asked], settings)
        return
    [answer] = found([asked], settings)
    assert [each.score for each in answer] == pytest.approx([score for _, score in wanted], abs=1e-4)
    assert all(keeps(each.tokens, asked, settings) for each in answer)
    assert all(each.log_probability == pytest.approx(CHANCES[each.tokens], abs=1e-4) for each in answer)


@given(st.lists(st.lists(phrase, max_size=2).map(tuple), min_size=2, max_size=4), st.integers(1, 6))
def test_each_sentence_has_its_own_constraints(of_rows: list[tuple[Text, ...]], beam: int) -> None:
    """In one batch as alone; the phrases of a row are banned for it, and its first one is the next row's prefix."""
    asked = [Constraints(before[0] if before else (), banned)
             for before, banned in zip([(), *of_rows], of_rows, strict=False)]  # fmt: skip
    settings = SearchSettings(beam=beam, nbest=beam, extra_length=3)
    together = beam_search(MODEL, None, SPECIALS, settings, asked)
    alone = [beam_search(MODEL, None, SPECIALS, settings, [each])[0] for each in asked]
    assert [[(each.tokens, each.cut) for each in some] for some in together] == [
        [(each.tokens, each.cut) for each in some] for some in alone
    ]


@given(st.lists(st.lists(phrases, max_size=3).map(tuple), min_size=1, max_size=3), st.integers(1, 9))
def test_required_phrases_are_there_however_narrow_the_beam(
    of_rows: list[tuple[tuple[Text, ...], ...]], beam: int
) -> None:
    asked = [Constraints(required=groups) for groups in of_rows]
    answers = beam_search(MODEL, None, SPECIALS, SearchSettings(beam=beam, extra_length=9), asked)
    for groups, (answer, *_) in zip(of_rows, answers, strict=True):
        assert all(any(holds(answer.tokens, needed) for needed in group) for group in groups)


def test_of_several_phrases_the_likelier_is_written() -> None:
    """Here A is followed by B for sure, and A at the end costs much."""
    chain = Chain({1: {A: 0.9, C: 0.1}, A: {B: 0.9, END: 0.1}, B: {END: 1.0}, C: {A: 1.0}})
    asked = [Constraints(required=(((C, A), (A, B)),))]
    [[answer]] = beam_search(chain, sources(1), SPECIALS, SearchSettings(penalty="none", extra_length=4), asked)
    assert answer.tokens == (A, B)


def test_a_required_word_costs_no_more_than_it_must() -> None:
    """Where the word fits best is where search puts it, given some beams."""
    chain = Chain({1: {A: 0.9, B: 0.1}, A: {B: 0.5, END: 0.5}, B: {END: 0.9, A: 0.1}})
    asked = [Constraints(required=(((B,),),))]
    settings = SearchSettings(beam=4, penalty="none", extra_length=3)
    [[answer]] = beam_search(chain, sources(1), SPECIALS, settings, asked)
    assert answer.tokens == (A, B)


def test_an_empty_constraint_changes_nothing() -> None:
    settings = SearchSettings(beam=3, nbest=3, extra_length=4)
    mixed = [Constraints(), Constraints(required=(((C, B),),)), Constraints(banned=((A,),)), Constraints((B, B))]
    [plain] = beam_search(MODEL, None, SPECIALS, settings, [Constraints()])
    assert [each.tokens for each in beam_search(MODEL, None, SPECIALS, settings, mixed)[0]] == [
        each.tokens for each in plain
    ]


def test_the_prefix_has_the_last_word() -> None:
    asked = Constraints(prefix=(A, A, A), banned=((A,),))
    settings = SearchSettings(extra_length=3, no_repeat=1, min_length=2)
    [[answer]] = beam_search(MODEL, None, SPECIALS, settings, [asked])
    assert answer.tokens[:3] == (A, A, A)
    assert A not in answer.tokens[3:]


def test_a_prefix_longer_than_the_source_leaves_the_extra_length() -> None:
    chain = Chain({1: {A: 1.0}, A: {A: 1 - 1e-6, END: 1e-6}, B: {A: 1.0}})
    [[answer]] = beam_search(chain, sources(1), SPECIALS, SearchSettings(extra_length=2), [Constraints((A,) * 4)])
    assert (len(answer.tokens), answer.cut) == (6, True)


def test_the_limit_is_stronger_than_the_least_length() -> None:
    [[answer]] = beam_search(MODEL, None, SPECIALS, SearchSettings(extra_length=2, min_length=9), [Constraints()])
    assert (len(answer.tokens), answer.cut) == (2, True)


def test_a_text_never_outgrows_the_model() -> None:
    """Start and text are read, so one token less than the context can be written."""
    model = Story(context=4)
    [[answer]] = beam_search(model, None, SPECIALS, SearchSettings(min_length=50), [Constraints()])
    assert (len(answer.tokens), answer.cut) == (3, True)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (Constraints(prefix=(END,)), "sentence 1: a token must be a word, from 0 to 5"),
        (Constraints(banned=((6,),)), "but 6 is not"),
        (Constraints(banned=((),)), "at least one token"),
        (Constraints(required=(((A, B, C),),), banned=((B, C),)), r"\[3, 4, 5\] holds \[4, 5\]"),
        (Constraints(required=(((A, B), (B,)),), banned=((B,),)), r"\[3, 4\] holds \[4\]"),
        (Constraints(required=(((A,), ()),)), "at least one token"),
        (Constraints(required=((),)), "at least one token"),
        (Constraints((A,) * 3, required=(((A, B), (B, C, A)),)), "must fit into 4 tokens, but have 5"),
        (Constraints((A,), required=(((B, C),), ((A, B),))), "must fit into 4 tokens, but have 5"),
        (Constraints((A, A, A), required=(((A, A, A),), ((B,),))), "must fit into"),
    ],
)  # fmt: skip
def test_what_nobody_can_keep_to_is_named(asked: Constraints, message: str) -> None:
    settings = SearchSettings(extra_length=4 - len(asked.prefix))
    with pytest.raises(UsageError, match=message):
        beam_search(MODEL, None, SPECIALS, settings, [Constraints(), asked])


def test_rules_that_leave_nothing_are_named() -> None:
    settings = SearchSettings(extra_length=9, no_repeat=1, min_length=6)
    with pytest.raises(UsageError, match=r"none does for sentence 0; ask for less"):
        beam_search(MODEL, None, SPECIALS, settings, [Constraints()])


def test_rows_must_be_told_and_agree() -> None:
    with pytest.raises(UsageError, match="needs `constraints`, one a row"):
        beam_search(MODEL, None, SPECIALS, SearchSettings())
    with pytest.raises(UsageError, match=r"one entry a source row \(2\), but has 1"):
        beam_search(Chain({}), sources(1, 2), SPECIALS, SearchSettings(), [Constraints()])
    with pytest.raises(UsageError, match="need `groups` = 1, but it is 2"):
        beam_search(MODEL, None, SPECIALS, SearchSettings(groups=2), [Constraints(required=(((A,),),))])
