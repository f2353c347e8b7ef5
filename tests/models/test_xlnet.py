"""XLNet: a prediction depends on what comes earlier in the order, on nothing that comes later, and not on itself."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.batch import Batch, Places, Tokens
from regard.models.xlnet import XLNet, XLNetSettings

VOCABULARY, START = 11, 1
SMALL = XLNetSettings(layers=2, d_model=16, d_ff=24, heads=2)


@cache
@torch.inference_mode(False)  # whoever asks first
def model() -> XLNet:
    torch.manual_seed(3)
    found = XLNet(SMALL, VOCABULARY).eval()
    with torch.no_grad():
        for weight in found.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return found


@torch.inference_mode()
def scores(text: Tensor, order: Tensor) -> Tensor:
    """Of each token of a text, [T, V], by its turn."""
    read = torch.cat([torch.tensor([START]), text[:-1]])[None]
    return model()(Batch(None, Tokens.whole(read), text[None], order[None]))[0]


@given(st.integers(2, 9), st.integers(0, 10**6))
def test_only_what_comes_earlier_counts(length: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    text, order = torch.randint(2, VOCABULARY, (length,), generator=draw), torch.randperm(length, generator=draw)
    changed = int(torch.randint(length, (1,), generator=draw))
    other = text.clone()
    other[changed] = 2 + (text[changed] - 1) % (VOCABULARY - 2)
    apart = (scores(text, order) - scores(other, order)).abs().amax(dim=1)
    later = order > order[changed]
    assert (apart[~later] == 0).all(), "a prediction depends on its own token, or on a later one"
    # The last token of a row is nobody's to read: it stands in the labels alone.
    assert (apart[later] > 1e-6).all() == (changed < length - 1 or not later.any())


@given(st.integers(2, 9), st.integers(0, 10**6))
def test_those_of_one_turn_know_nothing_of_each_other(length: int, seed: int) -> None:
    """But what is known first sees both of its sides."""
    draw = torch.Generator().manual_seed(seed)
    text = torch.randint(2, VOCABULARY, (length,), generator=draw)
    gaps = torch.rand(length, generator=draw) < 0.5
    other = torch.where(gaps, 2 + (text - 1) % (VOCABULARY - 2), text)
    found = [scores(each, gaps.long())[gaps] for each in (text, other)]
    torch.testing.assert_close(found[0], found[1], atol=0, rtol=0)
    with torch.inference_mode():
        filled = model().in_gaps(Tokens.whole(text[None]), gaps[None], START)[0]
    torch.testing.assert_close(filled[gaps], found[0], atol=1e-6, rtol=0)


@torch.inference_mode()
def test_left_to_right_is_an_order() -> None:
    read, labels = torch.randint(VOCABULARY, (2, 3, 8)).unbind()
    batch = Batch(None, Tokens.whole(read), labels)
    ordered = replace(batch, order_BT=torch.arange(8).expand(3, -1))
    torch.testing.assert_close(model()(ordered), model()(batch), atol=1e-6, rtol=0)


@torch.inference_mode()
def test_sentences_in_one_row_have_orders_of_their_own() -> None:
    one, two = torch.randint(2, VOCABULARY, (5,)), torch.randint(2, VOCABULARY, (4,))
    orders = torch.randperm(5), torch.randperm(4)
    read = torch.cat([torch.tensor([START]), one[:-1], torch.tensor([START]), two[:-1], torch.tensor([0, 0])])
    places = Places(torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3, 0, 0]]), torch.tensor([[1] * 5 + [2] * 4 + [0] * 2]))
    order = torch.cat([*orders, torch.tensor([0, 0])])
    found = model()(Batch(None, Tokens(read[None], places), read[None], order[None]))[0]
    torch.testing.assert_close(found[:5], scores(one, orders[0]), atol=1e-5, rtol=0)
    torch.testing.assert_close(found[5:9], scores(two, orders[1]), atol=1e-5, rtol=0)
    assert found.isfinite().all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"predicted": 0.0}, "`predicted` must be above 0"),
        ({"positions": "sinusoidal"}, "told inside attention"),
        ({"window": 3}, "`window` must be left out"),
        ({"layers": 0}, "`layers` must be at least 1"),
    ],
)
def test_settings_that_cannot_be(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replace(SMALL, **changes)  # type: ignore[arg-type]
