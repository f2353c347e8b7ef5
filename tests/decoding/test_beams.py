"""Choosing the best of many, and groups that avoid each other."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.decoding.beams import BLOCK, WIDE, largest
from regard.decoding.constraints import Constraints
from regard.decoding.search import SearchSettings, beam_search
from tests.decoding.chain import END, SPECIALS, START, A, B, C, Chain, Story, sources

EVEN = SearchSettings(beam=3, nbest=3, groups=3, diversity=1.0, penalty="none", extra_length=3)
MODEL = Story(vocabulary=8)


@given(st.integers(0, 999), st.integers(1, 40), st.sampled_from([5, WIDE - 1, WIDE, WIDE + 3, WIDE + BLOCK + 63]))
def test_the_largest_are_those_of_topk(seed: int, most: int, size: int) -> None:
    x = torch.randn(3, 2, size, generator=torch.Generator().manual_seed(seed))
    x[0, 0, seed % size :] = -torch.inf
    wanted, _ = x.topk(min(most, size), dim=-1)
    values, places = largest(x, most)
    assert torch.equal(values, wanted)
    assert torch.equal(x.gather(-1, places), wanted)
    assert all(len(set(row)) == len(row) for row in places.flatten(0, 1).tolist())


def test_largest_passes_on_what_is_no_number() -> None:
    x = torch.zeros(1, WIDE)
    x[0, 7] = torch.nan
    assert largest(x, 2)[0].isnan().any()


# ---- groups


def test_groups_choose_by_hand() -> None:
    """A is likeliest; the second group pays 1 for A and takes B, the third pays for both and takes C."""
    chain = Chain({START: {A: 0.5, B: 0.3, C: 0.2}, A: {END: 1.0}, B: {END: 1.0}, C: {END: 1.0}})
    [answers] = beam_search(chain, sources(1), SPECIALS, EVEN)
    assert [each.tokens for each in answers] == [(A,), (B,), (C,)]
    assert [each.score for each in answers] == pytest.approx(torch.tensor([0.5, 0.3, 0.2]).log().tolist())


def test_a_group_that_pays_for_a_token_reports_its_probability_without_the_price() -> None:
    """A is so likely that the second group takes it, too, and pays 1; then it pays for B, and takes C."""
    chain = Chain({START: {A: 0.9, B: 0.1}, A: {B: 0.6, C: 0.4}, B: {END: 1.0}, C: {END: 1.0}})
    [answers] = beam_search(chain, sources(1), SPECIALS, replace(EVEN, beam=2, nbest=2, groups=2))
    assert [each.tokens for each in answers] == [(A, B), (A, C)]
    wanted = torch.tensor([0.54, 0.36]).log().tolist()
    assert [each.log_probability for each in answers] == pytest.approx(wanted)
    assert [each.score for each in answers] == pytest.approx(wanted)


def test_groups_without_strength_choose_alike() -> None:
    [answers] = beam_search(MODEL, None, SPECIALS, replace(EVEN, diversity=0.0), [Constraints()])
    [[greedy]] = beam_search(MODEL, None, SPECIALS, replace(EVEN, beam=1, nbest=1, groups=1), [Constraints()])
    assert [each.tokens for each in answers] == [greedy.tokens]


@given(st.sampled_from([(2, 1), (4, 2), (6, 3), (6, 2)]), st.floats(0, 4), st.sampled_from(["gnmt", "length", "none"]))
def test_the_first_group_is_a_search_of_its_own(sizes: tuple[int, int], strength: float, penalty: str) -> None:
    """Nobody chooses before it, so its best text is among the answers."""
    beam, groups = sizes
    settings = SearchSettings(beam, penalty, extra_length=4, nbest=beam, groups=groups, diversity=strength)  # type: ignore[arg-type]
    asked = [Constraints(), Constraints((B, B))]
    narrow = replace(settings, beam=beam // groups, nbest=1, groups=1)
    for answers, [alone] in zip(
        beam_search(MODEL, None, SPECIALS, settings, asked),
        beam_search(MODEL, None, SPECIALS, narrow, asked),
        strict=True,
    ):
        assert alone.tokens in [each.tokens for each in answers]
        assert len({each.tokens for each in answers}) == len(answers)
        assert [each.score for each in answers] == sorted((each.score for each in answers), reverse=True)


def test_stronger_groups_say_more_different_things() -> None:
    asked = [Constraints((first,)) for first in range(3, 8)]
    settings = SearchSettings(beam=4, nbest=4, groups=4, extra_length=6)
    counts = [
        sum(len({each.tokens[1:2] for each in some}) for some in beam_search(MODEL, None, SPECIALS, chosen, asked))
        for chosen in (replace(settings, diversity=0.0), replace(settings, diversity=9.0))
    ]
    assert counts[0] == len(asked) < counts[1]
