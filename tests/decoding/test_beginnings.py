"""What a text must begin with is read in one go, and nothing else changes."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.batch import Tokens
from regard.decoding import beginnings, search
from regard.decoding.beginnings import chances, read_together
from regard.decoding.constraints import Constraints
from regard.decoding.scoring import score_texts
from regard.decoding.search import Hypothesis, SearchSettings, beam_search
from regard.models.transformer import Transformer, TransformerSettings
from tests.decoding.chain import SPECIALS, START, A, B, C, Story, sources

LONG = tuple(random.Random(0).choices([A, B, C], k=500))
SETTINGS = SearchSettings(beam=3, nbest=2, extra_length=5)


def transformer() -> Transformer:
    settings = TransformerSettings(encoder_layers=2, decoder_layers=2, d_model=16, heads=2, d_ff=32)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Transformer(settings, vocabulary=8).eval()


def agree(these: list[list[Hypothesis]], those: list[list[Hypothesis]]) -> None:
    """The same texts, and scores that differ by rounding at most."""
    one, other = ([each for row in rows for each in row] for rows in (these, those))
    assert [(each.tokens, each.cut) for each in one] == [(each.tokens, each.cut) for each in other]
    assert [each.score for each in one] == pytest.approx([each.score for each in other], abs=1e-4)


def test_a_long_beginning_takes_one_step() -> None:
    model = Story()
    (found,) = beam_search(model, None, SPECIALS, SETTINGS, [Constraints(LONG)])
    first, *others = model.reads
    assert first == [[START, *LONG]]
    assert len(others) <= SETTINGS.extra_length
    assert all(len(row) == 1 for step in others for row in step)
    for each in found:
        assert each.tokens[: len(LONG)] == LONG
        (scored,) = score_texts(model, None, [each.tokens], SPECIALS)
        assert each.log_probability == pytest.approx(scored.log_probability, abs=1e-3)


def test_beginnings_of_about_one_length_share_what_they_all_have() -> None:
    model = Story()
    asked = [Constraints(LONG[: 100 + number]) for number in (3, 0, 7)]
    together = beam_search(model, None, SPECIALS, SETTINGS, asked)
    assert [len(row) for row in model.reads[0]] == [101, 101, 101]
    assert len(model.reads) <= 1 + 7 + SETTINGS.extra_length
    agree(together, [beam_search(model, None, SPECIALS, SETTINGS, [each])[0] for each in asked])


def test_a_text_without_a_beginning_does_not_hold_up_one_with() -> None:
    model = Story()
    asked = [Constraints(LONG), Constraints(), Constraints(LONG, banned=((A,),))]
    together = beam_search(model, None, SPECIALS, SETTINGS, asked)
    assert len(model.reads) <= 2 * (1 + SETTINGS.extra_length)
    agree(together, [beam_search(model, None, SPECIALS, SETTINGS, [each])[0] for each in asked])


def test_the_row_without_a_text_is_named_by_its_own_number() -> None:
    asked = [Constraints(LONG), Constraints(banned=((A,), (B,), (C,)))]
    with pytest.raises(search.NothingFoundError) as caught:
        beam_search(Story(vocabulary=6, endless=True), None, SPECIALS, SETTINGS, asked[::-1])
    assert caught.value.row == 0
    with pytest.raises(search.NothingFoundError) as caught:
        beam_search(Story(vocabulary=6, endless=True), None, SPECIALS, SETTINGS, asked)
    assert caught.value.row == 1


@pytest.mark.parametrize("settings", [SETTINGS, SearchSettings(beam=4, nbest=2, groups=2, coverage=0.5)])
def test_many_tokens_are_read_in_pieces(settings: SearchSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    model = transformer()
    asked = [Constraints((A, B, C, A, A, B, *last)) for last in ((), (C,), (B, B))]
    source = sources(3, 5, 2)
    at_once = beam_search(model, source, SPECIALS, settings, asked)
    monkeypatch.setattr(beginnings, "TOKENS_AT_A_TIME", 7)
    monkeypatch.setattr(search, "TOKENS_AT_A_TIME", 7)
    agree(beam_search(model, source, SPECIALS, settings, asked), at_once)


def test_the_chance_of_a_beginning_is_that_of_its_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    model = transformer()
    texts, source = [(A, B), (C, C), (B, A)], Tokens.padded([(A,), (B, B, B), (C, A)], SPECIALS.padding)
    monkeypatch.setattr(beginnings, "TOKENS_AT_A_TIME", 4)  # two rows, and then one
    wanted = [sum(each.log_probabilities[:2]) for each in score_texts(model, source, texts, SPECIALS)]
    assert chances(model, source, texts, SPECIALS) == pytest.approx(wanted)


@given(st.lists(st.integers(0, 100), max_size=12), st.integers(1, 40))
def test_every_row_is_read_once_among_its_like(lengths: list[int], apart: int) -> None:
    batches = read_together(lengths, apart)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        assert batch == sorted(batch)
        assert max(lengths[row] for row in batch) - min(lengths[row] for row in batch) <= apart
    assert len(batches) <= 1 + max(lengths, default=0) // apart
