"""Keys and values that are written into a room are those that were copied, for whoever holds them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.batch import Tokens
from regard.layers.attention import KeyValue, side_by_side
from regard.models.decoder_only import DecoderOnlySettings, decoder_only
from regard.models.gpt import GPT, GPTSettings
from regard.models.interface import SequenceModel
from regard.models.transformer import Transformer, TransformerSettings
from regard.models.xlnet import XLNet, XLNetSettings

SIZES: dict[str, Any] = {"d_model": 8, "d_ff": 8, "heads": 2, "dropout": 0.0}
MODELS: dict[str, SequenceModel[Any]] = {
    "transformer": Transformer(TransformerSettings(encoder_layers=1, decoder_layers=2, **SIZES), 9),
    "gpt": GPT(GPTSettings(layers=2, **SIZES), 9),
    "decoder-only": decoder_only(DecoderOnlySettings(layers=2, **SIZES), 9),
    "xlnet": XLNet(XLNetSettings(layers=2, **SIZES), 9),
}


def some(rows: int, size: int) -> KeyValue:
    return KeyValue(torch.randn(rows, 2, size, 3), torch.randn(rows, 2, size, 4))


def copied(kept: KeyValue, new: KeyValue) -> KeyValue:
    """What is to come of `extend`, each time in memory of its own."""
    parts = ((kept.keys_BHKE, new.keys_BHKE), (kept.values_BHKE, new.values_BHKE))
    return KeyValue(*(torch.cat([old, side_by_side(more, old.shape[0])], dim=2) for old, more in parts))


def same(found: KeyValue, wanted: KeyValue) -> bool:
    return torch.equal(found.keys_BHKE, wanted.keys_BHKE) and torch.equal(found.values_BHKE, wanted.values_BHKE)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 3), st.integers(1, 3)), max_size=25), st.booleans())
def test_every_state_that_was_there_stays_as_it_was(steps: list[tuple[int, int, int]], infers: bool) -> None:
    """Each step goes on from any state before it, so that some go on from the same."""
    with torch.inference_mode(infers):
        first = some(2, 5)
        states = [(first, first)]
        for number, (place, tokens, sharing) in enumerate(steps):
            found, wanted = states[place % len(states)]
            if number % 5 == 4:
                rows = torch.tensor([1, 0])
                found, wanted = found.select(rows), KeyValue(wanted.keys_BHKE[rows], wanted.values_BHKE[rows])
            new = some(2 * sharing, tokens)
            states.append((found.extend(new), copied(wanted, new)))
        assert all(same(found, wanted) for found, wanted in states)


@torch.inference_mode()
def test_rows_of_an_old_state_know_nothing_of_what_was_written_behind_it() -> None:
    old, rows = some(2, 5).extend(some(2, 1)), torch.tensor([1, 0])
    assert old.extend(some(2, 1)).room is old.room
    assert same(old.select(rows), KeyValue(old.keys_BHKE[rows], old.values_BHKE[rows]))


@torch.inference_mode()
def test_most_steps_copy_nothing() -> None:
    kept, places = some(2, 100), set()
    for _ in range(100):
        kept = kept.extend(some(2, 1))
        places.add(kept.keys_BHKE.data_ptr())
    assert kept.keys_BHKE.shape[2] == 200
    assert len(places) <= 4


@torch.inference_mode()
def test_after_beams_changed_places_a_step_copies_nothing() -> None:
    kept = some(2, 100).extend(some(2, 1)).select(torch.tensor([1, 1]))
    assert kept.extend(some(2, 1)).keys_BHKE.data_ptr() == kept.keys_BHKE.data_ptr()


@pytest.mark.parametrize("kind", MODELS)
@torch.inference_mode()
def test_every_model_that_keeps_keys_and_values_lets_them_grow(kind: str) -> None:
    model, tokens_BT = MODELS[kind].eval(), torch.ones(2, 1, dtype=torch.long)
    state = model.start(Tokens.whole(torch.full((2, 5), 3)) if model.reads_source else None, 2)
    places = []
    for _ in range(100):
        _, state = model.step(tokens_BT, state)
        kept = state.layers[-1]
        places.append((kept if isinstance(kept, KeyValue) else kept.past).keys_BHKE.data_ptr())
    assert sum(before != after for before, after in pairwise(places[20:])) <= 9


def test_gradients_reach_what_was_kept() -> None:
    first = KeyValue(torch.randn(1, 1, 2, 3, requires_grad=True), torch.randn(1, 1, 2, 3, requires_grad=True))
    first.extend(KeyValue(torch.randn(1, 1, 1, 3), torch.randn(1, 1, 1, 3))).keys_BHKE.sum().backward()
    assert first.keys_BHKE.grad is not None
