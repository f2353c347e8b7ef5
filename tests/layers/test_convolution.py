from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.batch import Places
from regard.layers.convolution import (
    CausalConvolution,
    CentredConvolution,
    check_kernel,
    receptive_field,
    select_pasts,
)

kernels, dilations = st.integers(1, 4), st.integers(1, 4)


@given(kernel=kernels, dilation=dilations, pieces=st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_pieces_are_the_whole(kernel: int, dilation: int, pieces: list[int]) -> None:
    layer = CausalConvolution(3, 2, kernel, dilation)
    x_BTC = torch.randn(2, sum(pieces), 3)
    wanted, _ = layer(x_BTC, Places.whole(x_BTC[:, :, 0]))
    found, past, first = [], None, 0
    for piece_BTC in x_BTC.split(pieces, dim=1):
        y_BTD, past = layer(piece_BTC, Places.whole(piece_BTC[:, :, 0], first), past)
        found.append(y_BTD)
        first += piece_BTC.shape[1]
        assert past.shape == (2, (kernel - 1) * dilation, 3), "a step keeps what the next needs, no more"
    torch.testing.assert_close(torch.cat(found, dim=1), wanted)


@given(kernel=kernels, dilation=dilations, lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_causal_sentences_of_one_row_are_alone(kernel: int, dilation: int, lengths: list[int]) -> None:
    layer = CausalConvolution(3, 2, kernel, dilation)
    x_BTC = torch.randn(1, sum(lengths), 3)
    segments = torch.tensor([[number for number, length in enumerate(lengths, 1) for _ in range(length)]])
    positions = torch.tensor([[place for length in lengths for place in range(length)]])
    found, _ = layer(x_BTC, Places(positions, segments))
    for sentence_BTD, alone_BTC in zip(found.split(lengths, dim=1), x_BTC.split(lengths, dim=1), strict=True):
        wanted, _ = layer(alone_BTC, Places.whole(alone_BTC[:, :, 0]))
        torch.testing.assert_close(sentence_BTD, wanted)


def test_nothing_of_another_sentence_reaches_a_centred_tap() -> None:
    layer = CentredConvolution(1, 1, kernel=5, dilation=2)
    places = Places(torch.tensor([[0, 1, 2, 0, 1, 0]]), torch.tensor([[1, 1, 1, 2, 2, 0]]))
    x_BTC = torch.randn(1, 6, 1, requires_grad=True)
    y_BTD = layer(x_BTC, places)
    for t, sentence in enumerate([{0, 2}, {1}, {0, 2}, {3}, {4}]):
        (gradient,) = torch.autograd.grad(y_BTD[0, t, 0], x_BTC, retain_graph=True)
        assert set(gradient.flatten().nonzero().flatten().tolist()) == sentence


@given(layers=st.lists(st.tuples(kernels, dilations), min_size=1, max_size=4))
def test_the_receptive_field_is_what_gradients_say(layers: list[tuple[int, int]]) -> None:
    field = receptive_field(layers)
    x = start = torch.randn(1, field + 3, 1, requires_grad=True)
    for kernel, dilation in layers:
        layer = CausalConvolution(1, 1, kernel, dilation)
        torch.nn.init.ones_(layer.taps.weight)
        x, _ = layer(x, Places.whole(x[:, :, 0]))
    x[0, -1].sum().backward()
    assert start.grad is not None
    reached = start.grad.flatten().nonzero().flatten()
    assert field + 3 - reached.min() == field
    assert reached.max() == field + 2


def test_select_copies_reorders_and_drops() -> None:
    pasts = (torch.arange(6.0).reshape(3, 2, 1), None)
    selected, nothing = select_pasts(pasts, torch.tensor([2, 0, 2]))
    assert selected is not None
    assert selected[:, 0, 0].tolist() == [4, 0, 4]
    assert nothing is None


@pytest.mark.parametrize(("kernel", "centred", "rule"), [(0, False, "at least 1"), (2, True, "odd"), (-1, True, "odd")])
def test_impossible_kernels_are_named(kernel: int, centred: bool, rule: str) -> None:
    with pytest.raises(ValueError, match=rf"`width` must be {rule}.* but is {kernel}"):
        check_kernel("width", kernel, centred)


def test_possible_kernels_pass() -> None:
    check_kernel("width", 2, centred=False)
    check_kernel("width", 3, centred=True)
