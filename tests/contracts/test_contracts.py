"""Every model of the zoo keeps every contract that speaks of it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from . import contracts, search_contracts
from .cases import Case, cases
from .contracts import Contract
from .zoo import ZOO, Deaf, Entry

OF_ALL: list[Contract] = [
    contracts.step_by_step_is_all_at_once,
    contracts.a_prefix_is_its_steps,
    contracts.the_future_never_leaks,
    contracts.padding_is_invisible,
    contracts.padding_is_invisible_to_steps,
    contracts.padding_in_front_is_invisible_or_refused,
    contracts.select_takes_rows,
    contracts.a_state_is_a_value,
    contracts.a_wrong_source_is_refused,
    contracts.nothing_is_no_surprise,
]
OF_SEARCH: list[Contract] = [
    search_contracts.neighbours_do_not_matter,
    search_contracts.greedy_is_argmax,
]

# Models times contracts is many tests; the profile, not the test, says how hard to look (tests/conftest.py).
few = settings(max_examples=settings().max_examples // 5)
fewer = settings(max_examples=settings().max_examples // 8)


def entries(*flags: str) -> pytest.MarkDecorator:
    """The models of the zoo that have all `flags`."""
    chosen = {name: entry for name, entry in ZOO.items() if all(getattr(entry, flag) for flag in flags)}
    return pytest.mark.parametrize("entry", chosen.values(), ids=chosen.keys())


def each(keep: list[Contract]) -> pytest.MarkDecorator:
    """Each of the contracts, by name."""
    return pytest.mark.parametrize("contract", keep, ids=lambda contract: contract.__name__)


def check(contract: Contract, entry: Entry, case: Case) -> None:
    contract(entry.model(case.vocabulary, seed=case.seed % 3), case)


def check_search(contract: Contract, entry: Entry, case: Case) -> None:
    model = entry.model(case.vocabulary, seed=case.seed % 3)
    contract(model if entry.reads_source else Deaf(model), case)


@entries()
@each(OF_ALL)
@few
@given(st.data())
def test_a_model_keeps(contract: Contract, entry: Entry, data: st.DataObject) -> None:
    check(contract, entry, data.draw(cases(entry.reads_source)))


@entries()
def test_a_model_says_whether_it_packs(entry: Entry) -> None:
    assert entry.model(vocabulary=8, seed=0).packs_sentences == entry.packs


@entries("packs")
@few
@given(st.data())
def test_packed_is_alone(entry: Entry, data: st.DataObject) -> None:
    check(contracts.packed_is_alone, entry, data.draw(cases(entry.reads_source)))


@entries("watched")
@few
@given(st.data())
def test_watched_is_fused(entry: Entry, data: st.DataObject) -> None:
    check(contracts.watched_is_fused, entry, data.draw(cases(entry.reads_source)))


@entries()
@few
@given(st.data())
def test_gradients_reach_everything(entry: Entry, data: st.DataObject) -> None:
    # A sentence of one word has nothing to choose between, and so nothing to learn about choosing.
    check(contracts.gradients_reach_everything, entry, data.draw(cases(entry.reads_source, shortest=4)))


@entries()
@each(OF_SEARCH)
@fewer
@given(st.data())
def test_search_keeps(contract: Contract, entry: Entry, data: st.DataObject) -> None:
    check_search(contract, entry, data.draw(cases(True, longest=5)))


@entries()
@fewer
@given(st.data())
def test_a_wide_beam_is_exhaustive(entry: Entry, data: st.DataObject) -> None:
    case = data.draw(cases(True, words=(1, 2, 3), longest=2))
    check_search(search_contracts.a_wide_beam_is_exhaustive, entry, case)


@entries()
@torch.no_grad()
def test_the_output_matrix_is_the_output(entry: Entry) -> None:
    """A loss that works with the matrix sees the scores that everybody else sees."""
    model = entry.model(vocabulary=8, seed=0)
    found = model.output_matrix()
    assert found is not None
    features_BTD = torch.randn(2, 3, model.width)
    contracts.same([F.linear(features_BTD, *found)], [model.logits(features_BTD)])
