"""Transformer-XL: a text is the same text in whatever pieces it is read."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.batch import Batch, Tokens
from regard.errors import UsageError
from regard.layers.positions import PositionKind
from regard.models.interface import Carried
from regard.models.transformer_xl import DISTANCES, TransformerXL, TransformerXLSettings

VOCABULARY = 11
SMALL = TransformerXLSettings(layers=3, d_model=16, d_ff=24, heads=2, memory=4)


@cache
@torch.inference_mode(False)  # whoever asks first
def model(positions: PositionKind = "relative-waves", memory: int = 4) -> TransformerXL:
    torch.manual_seed(3)
    found = TransformerXL(replace(SMALL, positions=positions, memory=memory), VOCABULARY).eval()
    with torch.no_grad():
        for weight in found.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return found


def batch(ids_BT: Tensor) -> Batch:
    return Batch(None, Tokens.whole(ids_BT), ids_BT)


@torch.inference_mode()
def in_pieces(network: TransformerXL, ids_BT: Tensor, ends: list[int]) -> tuple[Tensor, Carried]:
    found, carried = [], Carried()
    for begin, end in pairwise([0, *ends, ids_BT.shape[1]]):
        features, carried = network.read_on(batch(ids_BT[:, begin:end]), carried)
        found.append(features)
    return torch.cat(found, dim=1), carried


@given(st.data(), st.sampled_from(DISTANCES), st.integers(1, 9))
def test_pieces_with_memory_are_the_text_in_one(data: st.DataObject, positions: PositionKind, memory: int) -> None:
    network = model(positions, memory)
    length = data.draw(st.integers(2, 24))
    ends = sorted(data.draw(st.sets(st.integers(1, length - 1), max_size=5)))
    ids = torch.randint(VOCABULARY, (2, length), generator=torch.Generator().manual_seed(length))
    found, carried = in_pieces(network, ids, ends)
    with torch.inference_mode():
        torch.testing.assert_close(found, network.features(batch(ids)), atol=2e-5, rtol=0)
    assert all(kept.shape == (2, min(memory, length), 16) for kept in carried.values())


@torch.inference_mode()
def test_without_memory_pieces_know_less() -> None:
    network, ids = model(), torch.randint(VOCABULARY, (1, 12))
    alone, _ = network.read_on(batch(ids[:, 6:]), {})
    whole = network.features(batch(ids))[:, 6:]
    assert not torch.allclose(alone[:, 0], whole[:, 0], atol=1e-3)


@torch.inference_mode()
def test_memory_reaches_beyond_itself_layer_by_layer() -> None:
    """Three layers of a memory of 4 tokens: what stands 12 before counts, what stands 13 before does not."""
    network = model()
    one = torch.randint(VOCABULARY, (1, 20))
    for back, counts in ((12, True), (13, False)):
        other = one.clone()
        other[0, 19 - back] = (other[0, 19 - back] + 1) % VOCABULARY
        last = [in_pieces(network, ids, [5, 10, 15])[0][0, -1] for ids in (one, other)]
        assert torch.equal(*last) != counts


@torch.inference_mode()
def test_the_state_does_not_grow_beyond_the_memory() -> None:
    network, ids = model(), torch.randint(VOCABULARY, (2, 15))
    wanted = network(batch(ids))
    state = network.start(None, 2)
    for place in range(15):
        scores, state = network.step(ids[:, place : place + 1], state)
        torch.testing.assert_close(scores, wanted[:, place], atol=2e-5, rtol=0)
    assert state.layers[0].keys_BHKE.shape[2] == 4


def test_no_gradient_flows_into_the_row_before() -> None:
    network, ids = model(), torch.randint(VOCABULARY, (1, 8))
    _, carried = network.read_on(batch(ids), {})
    assert carried
    assert not any(kept.requires_grad for kept in carried.values())


def test_a_source_is_refused() -> None:
    ids = torch.zeros(1, 3, dtype=torch.long)
    with pytest.raises(UsageError, match="reads no source"):
        model().read_on(Batch(Tokens.whole(ids), Tokens.whole(ids), ids), {})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"memory": 0}, "`memory` must be at least 1, but is 0"),
        ({"positions": "learned"}, 'told by distances .* but are "learned"'),
        ({"window": 3}, "`window` must be left out"),
    ],
)
def test_settings_that_cannot_be(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replace(SMALL, **changes)  # type: ignore[arg-type]
