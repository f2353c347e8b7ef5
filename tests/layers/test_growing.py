"""Keys and values that are written into a room are those that were copied, for whoever holds them."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.layers.attention import KeyValue
from regard.layers.growing import GrowingKeyValue


def some(rows: int, size: int) -> KeyValue:
    return KeyValue(torch.randn(rows, 2, size, 3), torch.randn(rows, 2, size, 4))


def same(found: KeyValue, wanted: KeyValue) -> bool:
    return torch.equal(found.keys_BHKE, wanted.keys_BHKE) and torch.equal(found.values_BHKE, wanted.values_BHKE)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 3), st.integers(1, 3)), max_size=25), st.booleans())
def test_every_state_that_was_there_stays_as_it_was(steps: list[tuple[int, int, int]], infers: bool) -> None:
    """Each step goes on from any state before it, so that some go on from the same."""
    with torch.inference_mode(infers):
        first = some(2, 5)
        states = [(GrowingKeyValue(first.keys_BHKE, first.values_BHKE), first)]
        for number, (place, tokens, sharing) in enumerate(steps):
            found, wanted = states[place % len(states)]
            if number % 5 == 4:
                rows = torch.tensor([1, 0])
                found, wanted = found.select(rows), wanted.select(rows)
            new = some(2 * sharing, tokens)
            states.append((found.extend(new), wanted.extend(new)))
        assert all(same(found, wanted) for found, wanted in states)


@torch.inference_mode()
def test_most_steps_copy_nothing() -> None:
    first = some(2, 100)
    kept = GrowingKeyValue(first.keys_BHKE, first.values_BHKE)
    places = set()
    for _ in range(100):
        kept = kept.extend(some(2, 1))
        places.add(kept.keys_BHKE.data_ptr())
    assert kept.keys_BHKE.shape[2] == 200
    assert len(places) <= 4


def test_gradients_reach_what_was_kept() -> None:
    first = KeyValue(torch.randn(1, 1, 2, 3, requires_grad=True), torch.randn(1, 1, 2, 3, requires_grad=True))
    new = KeyValue(torch.randn(1, 1, 1, 3), torch.randn(1, 1, 1, 3))
    kept = GrowingKeyValue(first.keys_BHKE, first.values_BHKE).extend(new)
    kept.keys_BHKE.sum().backward()
    assert first.keys_BHKE.grad is not None
