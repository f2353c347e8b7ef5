"""Sampling from chains whose probabilities are known, and from stories that remember all."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.batch import Specials
from regard.decoding.constraints import Constraints
from regard.decoding.sampling import SPREAD, Drawn, Sample, SamplingSettings, drawing, narrow, sample
from regard.decoding.search import SearchSettings, beam_search
from regard.errors import DataError, UsageError
from tests.decoding.chain import END, SPECIALS, START, A, B, C, Chain, Story, sources

ONE = SamplingSettings(max_tokens=1)
EIGHT = SamplingSettings(max_tokens=8)
ODDS = {A: 0.5, B: 0.3, C: 0.15, END: 0.05}


def draws(settings: SamplingSettings, count: int = 2000, odds: dict[int, float] = ODDS) -> Counter[int]:
    """How often each token comes first, END counted, over as many seeds."""
    found = sample(Chain({START: odds}), [[]] * count, SPECIALS, settings, list(range(count)))
    return Counter(each.tokens[0] if each.tokens else END for each in found)


def expect(found: Counter[int], odds: dict[int, float]) -> None:
    """Each count within five standard deviations of what is expected."""
    count = found.total()
    assert set(found) <= set(odds)
    for token, chance in odds.items():
        assert abs(found[token] - count * chance) <= 5 * math.sqrt(count * chance * (1 - chance)), (token, found)


# ---- what is drawn


@pytest.mark.parametrize(
    ("settings", "odds"),
    [
        (ONE, ODDS),
        (replace(ONE, temperature=0.5), {A: 0.25 / 0.365, B: 0.09 / 0.365, C: 0.0225 / 0.365, END: 0.0025 / 0.365}),
        (replace(ONE, temperature=0.0), {A: 1.0}),
        (replace(ONE, top_p=1e-300), {A: 1.0}),
        (replace(ONE, temperature=1e-40), {A: 1.0}),
        (replace(ONE, temperature=5e-324, top_p=0.9), {A: 1.0}),
        (replace(ONE, temperature=1e-40, top_k=3, min_p=0.5), {A: 1.0}),
        (replace(ONE, top_k=2), {A: 5 / 8, B: 3 / 8}),
        (replace(ONE, top_k=1), {A: 1.0}),
        (replace(ONE, top_k=99), ODDS),
        (replace(ONE, top_p=0.5), {A: 1.0}),
        (replace(ONE, top_p=0.51), {A: 5 / 8, B: 3 / 8}),
        (replace(ONE, top_p=0.9), {A: 10 / 19, B: 6 / 19, C: 3 / 19}),
        (replace(ONE, top_k=2, top_p=0.6), {A: 1.0}),  # of what top-k leaves, A holds 5/8
        (replace(ONE, min_p=0.25), {A: 10 / 19, B: 6 / 19, C: 3 / 19}),
        (replace(ONE, min_p=1.0), {A: 1.0}),
        (replace(ONE, temperature=0.5, min_p=0.35), {A: 25 / 34, B: 9 / 34}),  # 0.3² / 0.5² = 0.36
    ],
)
def test_tokens_come_as_often_as_they_should(settings: SamplingSettings, odds: dict[int, float]) -> None:
    expect(draws(settings), odds)


def test_all_that_is_neutral_together_is_neutral() -> None:
    loud = SamplingSettings(1.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0, max_tokens=1)
    assert draws(loud, 300) == draws(ONE, 300)


def test_a_filter_changes_no_draw_it_does_not_forbid() -> None:
    """The noise of a token does not depend on which others may be chosen."""
    free, narrowed = (
        [each.tokens for each in sample(Chain({START: ODDS}), [[]] * 200, SPECIALS, settings, range(200))]
        for settings in (ONE, replace(ONE, top_k=2))
    )
    assert all(few == many for many, few in zip(free, narrowed, strict=True) if many in ((A,), (B,)))


def test_padding_and_start_are_never_drawn() -> None:
    assert set(draws(ONE, 300, {SPECIALS.padding: 0.5, START: 0.4, A: 0.1})) == {A}


def test_start_and_end_may_be_one_token() -> None:
    specials = replace(SPECIALS, start=END)
    found = sample(Chain({END: {A: 0.5, END: 0.5}}), [[]] * 100, specials, ONE, list(range(100)))
    assert {each.finish_reason for each in found} == {"end", "length"}


def test_repetition_penalty_by_hand() -> None:
    """Scores above zero are divided, those below multiplied; the prompt counts, the start does not."""
    story = Story(vocabulary=6)
    story.logits = lambda features: torch.tensor([[0.0, 0.0, -9.0, 2.0, 1.9, -1.0]]).expand(len(features), -1)  # type: ignore[method-assign]
    settings = SamplingSettings(0.0, repetition_penalty=4.0, max_tokens=3)
    [found] = sample(story, [[]], SPECIALS, settings, [0])
    assert found.tokens == (A, B, A)  # 2 → 0.5, then 1.9 → 0.475
    [found] = sample(story, [[A]], SPECIALS, settings, [0])
    assert found.tokens == (B, A, A)


def test_a_start_that_is_also_the_end_may_end_a_text() -> None:
    """It was read, but is no repetition."""
    story = Story(vocabulary=6)
    story.logits = lambda features: torch.tensor([[0.0, 0.0, 2.0, 1.0, 0.0, 0.0]]).expand(len(features), -1)  # type: ignore[method-assign]
    [found] = sample(story, [[]], Specials(0, END, END), SamplingSettings(0.0, repetition_penalty=4.0), [0])
    assert (found.tokens, found.finish_reason) == ((), "end")


def test_narrow_shows_what_is_left() -> None:
    scores, tokens = narrow(torch.tensor([[0.1, 0.6, 0.3]]).log(), SamplingSettings(top_p=0.7))
    assert tokens is not None
    assert tokens.tolist() == [[1, 2, 0]]
    assert scores.isfinite().tolist() == [[True, True, False]]
    assert narrow(torch.zeros(1, 3), SamplingSettings())[1] is None


# ---- when it ends


def test_reasons_to_finish() -> None:
    chain = Chain({START: {A: 1.0}, A: {B: 1.0}, B: {END: 1.0}})
    [ended] = sample(chain, [[]], SPECIALS, EIGHT, [0])
    [cut] = sample(chain, [[]], SPECIALS, replace(EIGHT, max_tokens=2), [0])
    assert (ended.tokens, ended.finish_reason) == ((A, B), "end")
    assert (cut.tokens, cut.finish_reason) == ((A, B), "length")


def test_a_row_that_is_done_leaves_the_batch() -> None:
    chain = Chain({START: {A: 1.0}, A: {A: 1.0}, B: {C: 1.0}, C: {END: 1.0}})
    found = sample(chain, [[B], [A], [C]], SPECIALS, replace(EIGHT, max_tokens=3), [0, 1, 2])
    assert [each.tokens for each in found] == [(C,), (A, A, A), ()]
    assert chain.rows_read == [3, 2, 1]


# ---- prompts


def test_prompts_of_any_length_share_a_batch() -> None:
    story = Story()
    prompts = [[3, 4, 5, 6], [], [7], [4, 4]]
    together = sample(story, prompts, SPECIALS, EIGHT, [1, 2, 3, 4])
    assert story.reads[0] == [[START]] * 4
    assert together == [sample(Story(), [prompt], SPECIALS, EIGHT, [seed])[0]
                        for prompt, seed in zip(prompts, [1, 2, 3, 4], strict=True)]  # fmt: skip


def test_prompts_of_very_different_length_do_not() -> None:
    story = Story()
    prompts = [[3] * (SPREAD + 2), [4], [5] * SPREAD]
    found = sample(story, prompts, SPECIALS, ONE, [1, 2, 3])
    assert [len(rows) for rows in story.reads if len(rows[0]) > 1] == [2, 1]
    assert found == [sample(Story(), [prompt], SPECIALS, ONE, [seed])[0]
                     for prompt, seed in zip(prompts, [1, 2, 3], strict=True)]  # fmt: skip


def test_the_start_can_be_left_out() -> None:
    story = Story()
    sample(story, [[5, 6], []], SPECIALS, replace(ONE, start=False), [0, 0])
    assert story.reads[0] == [[5], [START]]
    sample(with_source := Chain({START: {A: 1.0}}), [[]], SPECIALS, replace(ONE, start=False), [0], source=sources(2))
    assert with_source.rows_read == [1]


def test_a_long_prompt_keeps_its_last_tokens() -> None:
    story, prompt = Story(context=5), [3, 4, 5, 6, 7, 6, 5]
    [found] = sample(story, [prompt], SPECIALS, ONE, [0])
    assert story.reads == [[[5, 6, 7, 6, 5]]]
    assert (found.prompt_cut, found.slid) == (3, False)  # the start and two words


def test_a_full_context_goes_on_from_its_later_half() -> None:
    story = Story(context=6, endless=True)
    [found] = sample(story, [[3, 4]], SPECIALS, replace(EIGHT, temperature=0.0), [0])
    text = [START, 3, 4, *found.tokens]
    assert found.slid
    assert len(found.tokens) == 8
    assert story.reads[:4] == [[text[:3]], [text[3:4]], [text[4:5]], [text[5:6]]]
    assert story.reads[4] == [text[4:7]]
    assert [len(rows[0]) for rows in story.reads] == [3, 1, 1, 1, 3, 1, 1, 1, 3][: len(story.reads)]


@pytest.mark.parametrize("context", [1, 2, 3, 7])
@given(st.lists(st.lists(st.integers(3, 7), max_size=9), min_size=1, max_size=4))
def test_sliding_does_not_depend_on_neighbours(context: int, prompts: list[list[int]]) -> None:
    seeds = list(range(len(prompts)))
    together = sample(Story(context=context, endless=True), prompts, SPECIALS, EIGHT, seeds)
    for prompt, seed, found in zip(prompts, seeds, together, strict=True):
        assert sample(Story(context=context, endless=True), [prompt], SPECIALS, EIGHT, [seed]) == [found]
        assert found.prompt_cut == max(0, len(prompt) + 1 - context)


def test_a_model_with_a_source_ends_where_its_context_does() -> None:
    chain = Chain({START: {A: 1.0}, A: {A: 1.0}})
    chain.context = 3
    [found] = sample(chain, [[]], SPECIALS, EIGHT, [0], source=sources(2))
    assert (found.tokens, found.finish_reason, found.slid) == ((A, A, A), "length", False)


# ---- what is told


@given(st.integers(0, 99), st.sampled_from([0.0, 0.7, 1.3]))
def test_log_probabilities_are_the_models_own(seed: int, temperature: float) -> None:
    settings = SamplingSettings(temperature, top_k=3, repetition_penalty=1.3, max_tokens=5, alternatives=3)
    [found] = sample(Story(), [[4]], SPECIALS, settings, [seed])
    text = [START, 4]
    for each in found.drawn:
        story = Story()
        logits, _ = story.step(torch.tensor([text]), story.start(None, 1))
        wanted = logits.log_softmax(dim=-1)[0]
        assert each.log_probability == pytest.approx(wanted[each.token].item(), abs=1e-5)
        best = wanted.topk(3)
        assert [token for token, _ in each.alternatives] == best.indices.tolist()
        assert [value for _, value in each.alternatives] == pytest.approx(best.values.tolist(), abs=1e-5)
        text.append(each.token)
    assert found.log_probability == pytest.approx(sum(each.log_probability for each in found.drawn))


def test_tokens_are_told_as_they_come() -> None:
    told: list[tuple[int, Drawn]] = []
    prompts = [[3], [4] * (SPREAD + 5), []]
    found = sample(Story(), prompts, SPECIALS, EIGHT, [1, 2, 3], lambda row, drawn: told.append((row, drawn)))
    for row, each in enumerate(found):
        assert [drawn for number, drawn in told if number == row] == list(each.drawn)
    rows = [row for row, _ in told if row != 1]
    assert rows[:2] in ([0, 2], [2, 0])  # in turn, not one after the other


def test_without_chance_sampling_is_greedy_search() -> None:
    prompts = [(3, 4), (5, 5), (7, 3)]
    settings = SearchSettings(beam=1, extra_length=6)
    greedy = beam_search(Story(), None, SPECIALS, settings, [Constraints(prompt) for prompt in prompts])
    cold = sample(Story(), prompts, SPECIALS, SamplingSettings(0.0, max_tokens=6), [0] * 3)
    assert [each.tokens[2:] for (each,) in greedy] == [each.tokens for each in cold]


# ---- seeds


@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.lists(st.integers(3, 7), max_size=6)), min_size=1, max_size=6))
def test_a_seed_and_a_prompt_make_a_text(rows: list[tuple[int, list[int]]]) -> None:
    seeds, prompts = [seed for seed, _ in rows], [prompt for _, prompt in rows]
    settings = replace(EIGHT, top_p=0.9, repetition_penalty=1.2)
    together = sample(Story(), prompts, SPECIALS, settings, seeds)
    assert sample(Story(), prompts[::-1], SPECIALS, settings, seeds[::-1])[::-1] == together
    for seed, prompt, found in zip(seeds, prompts, together, strict=True):
        assert sample(Story(), [prompt], SPECIALS, settings, [seed]) == [found]


def test_other_seeds_make_other_texts() -> None:
    found = sample(Story(), [[]] * 50, SPECIALS, EIGHT, list(range(50)))
    assert len({each.tokens for each in found}) > 25


# ---- mistakes


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"temperature": -0.1}, "`temperature` must be at least 0 (no chance) and finite, but is -0.1"),
        ({"temperature": math.inf}, "`temperature` must be at least 0 (no chance) and finite, but is inf"),
        ({"top_k": -1}, "`top_k` must be at least 0, but is -1"),
        ({"top_p": 0.0}, "`top_p` must be above 0 and at most 1 (all tokens), but is 0.0"),
        ({"min_p": 1.1}, "`min_p` must be from 0 (all tokens) to 1, but is 1.1"),
        ({"repetition_penalty": 0.0}, "`repetition_penalty` must be above 0 and finite, but is 0.0"),
        ({"max_tokens": 0}, "`max_tokens` must be at least 1, but is 0"),
        ({"alternatives": -1}, "`alternatives` must be at least 0, but is -1"),
    ],
)
def test_wrong_settings_say_what_is_wrong(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 (the message is compared whole)
        SamplingSettings(**wrong)
    assert str(raised.value) == message


def test_rows_must_agree() -> None:
    with pytest.raises(UsageError, match=r"one seed a prompt \(2\), but there are 1"):
        sample(Story(), [[], []], SPECIALS, ONE, [0])
    with pytest.raises(UsageError, match=r"one source row a prompt \(1\), but there are 2"):
        sample(Chain({}), [[]], SPECIALS, ONE, [0], source=sources(1, 1))
    assert sample(Story(), [], SPECIALS, ONE, []) == []


def test_scores_that_are_not_numbers_are_named() -> None:
    story = Story(sharpness=math.nan)
    with pytest.raises(DataError, match="row 0 got none"):
        sample(story, [[]], SPECIALS, ONE, [0])


def test_a_sample_knows_its_tokens() -> None:
    assert Sample((Drawn(3, -0.5), Drawn(4, -1.0)), "end").tokens == (3, 4)


# ---- lines


def test_a_text_of_several_lines() -> None:
    """A, the end of the line, then B after a new start: what is fed is the start, what is told is the end."""
    chain = Chain({START: {A: 1.0}, A: {END: 1.0}, END: {C: 1.0}})
    settings = replace(EIGHT, temperature=0.0, lines=3)
    (found,) = sample(chain, [[]], SPECIALS, settings, [1])
    assert (found.tokens, found.finish_reason) == ((A, END, A, END, A), "end")
    (cut,) = sample(chain, [[]], SPECIALS, replace(settings, max_tokens=2), [1])
    assert (cut.tokens, cut.finish_reason) == ((A, END), "length")
    (one,) = sample(chain, [[]], SPECIALS, replace(settings, lines=1), [1])
    assert (one.tokens, one.finish_reason) == ((A,), "end")
    with pytest.raises(ValueError, match="`lines` must be at least 1, but is 0"):
        replace(EIGHT, lines=0)


def test_in_running_text_lines_that_end_before_any_text_do_not_count() -> None:
    """After A the line ends; after the start of the next comes B, then the end."""
    chain = Chain({A: {END: 1.0}, START: {B: 1.0}, B: {END: 1.0}, END: {C: 1.0}})
    settings = replace(EIGHT, temperature=0.0)
    (empty,) = sample(chain, [[A]], SPECIALS, settings, [1])
    assert (empty.tokens, empty.finish_reason) == ((), "end")
    for lines, tokens in ((1, (END, B)), (2, (END, B, END, B))):
        (found,) = sample(chain, [[A]], SPECIALS, replace(settings, lines=lines), [1], running=True)
        assert (found.tokens, found.finish_reason) == (tokens, "end")
    ending = Chain({A: {END: 1.0}, START: {END: 1.0}})
    (cut,) = sample(ending, [[A]], SPECIALS, replace(settings, max_tokens=3), [1], running=True)
    assert (cut.tokens, cut.finish_reason) == ((END, END, END), "length")


# ---- step by step


def test_a_text_ends_where_whoever_is_told_says_so() -> None:
    def three(row: int, _: Drawn) -> bool:
        told[row] += 1
        return row == 1 and told[row] == 3

    told: Counter[int] = Counter()
    plain = sample(Story(), [[], [], []], SPECIALS, EIGHT, [1, 2, 3])
    first, stopped, last = sample(Story(), [[], [], []], SPECIALS, EIGHT, [1, 2, 3], three)
    assert (first, last) == (plain[0], plain[2])
    assert stopped.tokens == plain[1].tokens[:3]
    assert stopped.finish_reason == "stop"


def test_drawing_stops_between_steps_and_goes_on_as_if_nothing_had_been() -> None:
    walks = [drawing(Story(), [[]], SPECIALS, EIGHT, [seed]) for seed in (4, 5)]
    found: dict[int, list[Sample]] = {}
    while len(found) < 2:  # in turns
        for number, walk in enumerate(walks):
            try:
                next(walk)
            except StopIteration as end:
                found.setdefault(number, end.value)
    assert [found[0][0], found[1][0]] == sample(Story(), [[], []], SPECIALS, EIGHT, [4, 5])
