"""Whatever writes with a model of the zoo, the answer to a sentence is its own."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.models.transformer import Transformer

from . import search_contracts
from .cases import FIRST_WORD, SPECIALS, Case, cases
from .contracts import Contract
from .test_contracts_can_fail import IgnoresRows, SeesPadding, build
from .zoo import ZOO, Entry

DECODING: list[Contract] = [
    search_contracts.company_does_not_matter,
    search_contracts.a_beginning_is_read_in_one_go_or_token_by_token,
    search_contracts.what_is_written_scores_what_was_said,
    search_contracts.a_model_with_itself_is_itself,
]
MANY = 500

few = settings(max_examples=max(2, settings().max_examples // 10))
zoo = pytest.mark.parametrize("entry", ZOO.values(), ids=ZOO.keys())


@zoo
@pytest.mark.parametrize("contract", DECODING, ids=lambda contract: contract.__name__)
@few
@given(st.data())
def test_decoding_keeps(contract: Contract, entry: Entry, data: st.DataObject) -> None:
    case = data.draw(cases(entry.reads_source, words=(4, 9), longest=5))
    contract(entry.model(case.vocabulary, seed=case.seed % 3), case)


def drawn_case(number: int, reads_source: bool) -> Case:
    """Case `number` of many: one to eight sentences over 20 words."""
    chance = random.Random(number)
    rows = chance.randint(1, 8)

    def sentence(first: tuple[int, ...]) -> tuple[int, ...]:
        return (*first, *(chance.randrange(FIRST_WORD, 23) for _ in range(chance.randint(1 - len(first), 6))))

    targets = tuple(sentence((SPECIALS.start,)) for _ in range(rows))
    sources = tuple(sentence(()) for _ in range(rows)) if reads_source else None
    return Case(23, number, targets, sources, filler=chance.choice([SPECIALS.padding, 22]))


@pytest.mark.parametrize("kind", [SeesPadding, IgnoresRows])
def test_a_wrong_model_breaks(kind: type[Transformer]) -> None:
    case = drawn_case(number=3, reads_source=True)
    search_contracts.company_does_not_matter(build(Transformer, case.vocabulary), case)
    with pytest.raises(AssertionError):
        search_contracts.company_does_not_matter(build(kind, case.vocabulary), case)


@pytest.mark.slow
@zoo
def test_company_does_not_matter_in_many_cases(entry: Entry) -> None:
    draws = 0
    for number in range(MANY):
        case = drawn_case(number, entry.reads_source)
        model = entry.model(case.vocabulary, seed=number % 3)
        try:
            search_contracts.company_does_not_matter(model, case)
        except AssertionError:
            if not search_contracts.is_a_draw(model, case):
                raise
            draws += 1
    assert draws <= MANY // 100
