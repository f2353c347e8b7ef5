"""The tree of a search: what was considered, what was kept, and the results of the search itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.decoding.scoring import score_texts
from regard.decoding.search import beam_search
from regard.errors import UsageError
from regard.exploring.beam import BeamTree, Node, grow
from regard.exploring.bundle import as_row, source_ids
from regard.text.tokenizer import Tokenizer
from tests.exploring.bundles import by_sentence, tiny

MODELS = st.sampled_from(["transformer", "recurrent", "convs2s", "decoder-only"])


def nodes_of(tree: BeamTree) -> dict[int, Node]:
    return {node.id: node for nodes in tree.rounds for node in nodes}


@given(MODELS, st.integers(1, 5), st.floats(0, 2))
def test_the_first_result_is_what_search_answers(name: str, beam: int, alpha: float) -> None:
    bundle = tiny(name)
    tree = grow(bundle, "one two", beam, alpha)
    settings = replace(bundle.recipe.search, beam=beam, alpha=alpha)
    ((best,),) = beam_search(
        bundle.network, as_row(bundle, source_ids(bundle, "one two")), bundle.tokenizer.specials, settings
    )
    assert tree.results[0].text == bundle.tokenizer.decode(best.tokens)
    assert tree.results[0].score == pytest.approx(best.score, abs=1e-4)
    assert 1 <= len(tree.results) <= beam
    assert [each.score for each in tree.results] == sorted((each.score for each in tree.results), reverse=True)
    for result in tree.results:
        way = [nodes_of(tree)[number] for number in result.nodes]
        assert way[-1].ended
        assert [node.parent for node in way] == [None, *result.nodes[:-1]]
        assert "".join(node.token for node in way[:-1]).strip() == result.text
        assert way[-1].score == pytest.approx(result.score, abs=1e-4)


def test_every_round_holds_the_best_and_keeps_a_beam_of_them() -> None:
    bundle = tiny("transformer")
    tree = grow(bundle, "one two", beam=3)
    assert len(tree.rounds) > 2
    for number, nodes in enumerate(tree.rounds):
        last = number == len(tree.rounds) - 1  # where nothing but the end may come
        assert last or len(nodes) == 6
        values = [node.log_probability for node in nodes]
        assert values == sorted(values, reverse=True)
        assert last or sum(node.kept for node in nodes) == 3
        assert all(not (node.kept and node.ended) for node in nodes)
        parents = {node.parent for node in nodes}
        before = {None} if number == 0 else {node.id for node in tree.rounds[number - 1] if node.kept}
        assert parents <= before


def test_a_node_tells_the_probability_of_its_text() -> None:
    bundle = tiny("transformer")
    tree = grow(bundle, "one two", beam=2)
    result = tree.results[0]
    source = as_row(bundle, source_ids(bundle, "one two"))
    found = beam_search(bundle.network, source, bundle.tokenizer.specials, replace(bundle.recipe.search, beam=2))
    (scored,) = score_texts(bundle.network, source, [found[0][0].tokens], bundle.tokenizer.specials)
    way = [nodes_of(tree)[number].log_probability for number in result.nodes]
    so_far = [sum(scored.log_probabilities[: length + 1]) for length in range(len(way))]
    assert way == pytest.approx(so_far, abs=1e-3)


def test_it_is_plain_json() -> None:
    told = json.loads(json.dumps(grow(tiny("recurrent"), "one", 2, 0.6).to_json(), allow_nan=False))
    assert set(told) == {"source", "rounds", "results"}
    assert set(told["rounds"][0][0]) == {"id", "parent", "token", "log_probability", "score", "kept", "ended"}
    assert set(told["results"][0]) == {"text", "score", "nodes"}


def test_what_cannot_be_searched_is_said() -> None:
    with pytest.raises(UsageError, match="needs a model that translates"):
        grow(tiny("gpt"), "one")
    with pytest.raises(UsageError, match="beam: `beam` must be at least 1, but is 0"):
        grow(tiny("transformer"), "one", beam=0)
    with pytest.raises(UsageError, match="`alpha` must be from 0"):
        grow(tiny("transformer"), "one", alpha=-1)


def test_a_text_that_is_spelled_twice_is_a_result_once() -> None:
    """A text may be written with other pieces: `zu` and `z`, `u`."""
    bundle = tiny("transformer")
    spelled = replace(bundle, tokenizer=_Blind(bundle.tokenizer))
    tree, all_alike = grow(bundle, "one two", 4), grow(spelled, "one two", 4)
    assert len(tree.results) == 4
    assert [each.score for each in all_alike.results] == [tree.results[0].score]


def test_of_several_sentences_the_first_is_searched_where_each_is_translated_by_itself() -> None:
    bundle = by_sentence(tiny("transformer"))
    assert grow(bundle, "One two. Three!") == grow(bundle, "One two.")
    assert grow(tiny("transformer"), "One two. Three!").source == "One two. Three!"


class _Blind:
    """A tokenizer to which all texts look alike."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def decode(self, ids: Sequence[int]) -> str:
        return "a" * bool(ids)
