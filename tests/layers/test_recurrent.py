"""Recurrent layers: rows of different lengths, links, and what attention to states computes.

Shapes: B rows, T tokens, S source tokens, Q queries, K keys, D model, X input.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.batch import Places, Tokens
from regard.errors import UsageError
from regard.layers.recurrent import (
    Cell,
    ReadingLayer,
    RecurrentEncoder,
    RecurrentLayer,
    RecurrentStack,
    Score,
    StackSizes,
    StateAttention,
    end_of_rows,
    initialise,
    readable,
    reverse_rows,
    row_lengths,
)

CELLS: list[Cell] = ["rnn", "gru", "lstm"]
SCORES: list[Score] = ["additive", "general", "dot", "scaled"]
SIZES = StackSizes("gru", layers=2, d_input=5, d_model=6, dropout=0)
LENGTHS = [7, 2, 5]


# ---- rows of different lengths


@given(st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=6), min_size=1, max_size=4))
def test_rows_are_reversed_and_ended_within_their_lengths(sentences: list[list[int]]) -> None:
    tokens = Tokens.padded(sentences, padding=-1, length=7)
    lengths_B = row_lengths(tokens.places, "here")
    x_BT1 = tokens.ids_BT[:, :, None]
    backwards = Tokens.padded([sentence[::-1] for sentence in sentences], padding=-1, length=7)
    assert reverse_rows(x_BT1, lengths_B).equal(backwards.ids_BT[:, :, None])
    assert end_of_rows(x_BT1, lengths_B).flatten().tolist() == [sentence[-1] for sentence in sentences]


def test_whole_rows_need_no_lengths() -> None:
    x_BTX = torch.randn(2, 4, 3)
    assert row_lengths(Places.whole(torch.zeros(2, 4)), "here") is None
    lengths_B = torch.tensor([4, 4])
    assert reverse_rows(x_BTX, None).equal(reverse_rows(x_BTX, lengths_B))
    assert end_of_rows(x_BTX, None).equal(end_of_rows(x_BTX, lengths_B))


def test_two_sentences_in_a_row_are_refused() -> None:
    places = Places(torch.tensor([[0, 1, 0], [0, 1, 0]]), torch.tensor([[1, 1, 0], [1, 1, 2]]))
    with pytest.raises(
        UsageError, match=r"the source: .* one sentence a row, but row 1 holds 2; batch without packing"
    ):
        row_lengths(places, "the source")


@pytest.mark.parametrize(("cell", "keep_cells"), [*product(CELLS, [False]), ("lstm", True)])
def test_padding_never_reaches_a_real_state(cell: Cell, keep_cells: bool) -> None:
    torch.manual_seed(0)
    encoder = RecurrentEncoder(replace(SIZES, cell=cell, bidirectional=True), keep_cells)
    x_BSX = torch.randn(3, 9, 5)
    for row, length in enumerate(LENGTHS):
        x_BSX[row, length:] = torch.nan
    states_BSD, ends = encoder(x_BSX, torch.tensor(LENGTHS))
    for row, length in enumerate(LENGTHS):
        alone_1SD, alone = encoder(x_BSX[row : row + 1, :length], None)
        torch.testing.assert_close(states_BSD[row, :length], alone_1SD[0])
        for found, wanted in zip(ends, alone, strict=True):
            torch.testing.assert_close(found.output_BD[row], wanted.output_BD[0])
            if keep_cells:
                assert found.cell_BD is not None
                assert wanted.cell_BD is not None
                torch.testing.assert_close(found.cell_BD[row], wanted.cell_BD[0])


# ---- layers and stacks


@pytest.mark.parametrize("bidirectional", [False, True])
def test_only_a_bidirectional_layer_knows_what_comes(bidirectional: bool) -> None:
    layer = ReadingLayer(replace(SIZES, bidirectional=bidirectional), 5, keep_cell=False)
    x_BSX = torch.randn(1, 4, 5)
    states_BSD, _ = layer(x_BSX, None)
    x_BSX[0, -1] += 1
    changed_BSD, _ = layer(x_BSX, None)
    assert states_BSD.shape == (1, 4, 6)
    assert (not states_BSD[0, 0].equal(changed_BSD[0, 0])) == bidirectional


def test_residual_links_add_and_fast_forward_links_are_linear_roads() -> None:
    torch.manual_seed(0)
    x_BTX = torch.randn(2, 3, 5)
    stack = RecurrentStack(replace(SIZES, links="residual"))
    plain = RecurrentStack(SIZES)
    plain.load_state_dict(stack.state_dict())
    lowest_BTD, _ = stack.layers[0](x_BTX, stack.zero(2)[0])
    torch.testing.assert_close(stack(x_BTX, stack.zero(2))[0], plain(x_BTX, plain.zero(2))[0] + lowest_BTD)

    road = RecurrentStack(replace(SIZES, links="fast-forward"))
    silent = road.state_dict()
    silent.update({name: torch.zeros_like(weight) for name, weight in silent.items() if "kernel" in name})
    road.load_state_dict(silent)  # layers that say nothing leave only the road
    once_BTD, twice_BTD, none_BTD = (road(x, road.zero(2))[0] for x in (x_BTX, 2 * x_BTX, 0 * x_BTX))
    assert not once_BTD.equal(none_BTD)
    torch.testing.assert_close(twice_BTD - none_BTD, 2 * (once_BTD - none_BTD))


@pytest.mark.parametrize("cell", CELLS)
def test_dropout_is_on_what_goes_up_and_not_on_what_goes_through_time(cell: Cell) -> None:
    torch.manual_seed(0)
    stack = RecurrentStack(StackSizes(cell, layers=1, d_input=5, d_model=6, dropout=0.5)).train()
    x_BTX, hidden = torch.randn(2, 4, 5), RecurrentLayer(cell, 5, 6).zero(2)
    begun = [replace(hidden, output_BD=torch.randn(2, 6))]
    assert not stack(x_BTX, begun)[0].equal(stack(x_BTX, begun)[0])
    deaf = stack.state_dict()
    deaf["layers.0.kernel.weight_ih_l0"].zero_()
    assert stack(x_BTX, begun)[0].equal(stack(x_BTX, begun)[0])


def test_fresh_kernels_keep_lengths_through_time_and_lstms_remember() -> None:
    layer = RecurrentLayer("lstm", 5, 6)
    initialise(layer)
    _, through, b_ih, b_hh = layer.kernel.all_weights[0]
    for gate in through.split(6):
        torch.testing.assert_close(gate @ gate.T, torch.eye(6), atol=1e-5, rtol=0)
    assert (b_ih + b_hh).split(6)[1].tolist() == [1.0] * 6
    assert not torch.cat([(b_ih + b_hh)[:6], (b_ih + b_hh)[12:]]).any()


# ---- attention


def score_of(attention: StateAttention, s_D: Tensor, h_D: Tensor) -> Tensor:
    """The formula of the class, for one state and one state."""
    if attention.score == "dot":
        return s_D @ h_D
    if attention.score == "scaled":
        return s_D @ h_D / math.sqrt(len(s_D))
    assert isinstance(attention.key, nn.Linear)
    if attention.score == "general":
        return s_D @ attention.key.weight @ h_D
    assert isinstance(attention.query, nn.Linear)
    assert attention.vector is not None
    inner_D = attention.query.weight @ s_D + attention.query.bias + attention.key.weight @ h_D
    return attention.vector.weight[0] @ inner_D.tanh()


@pytest.mark.parametrize("score", SCORES)
def test_attention_is_its_formula_watched_or_not(score: Score) -> None:
    torch.manual_seed(0)
    attention = StateAttention(6, score)
    memory_BKD, states_BQD = torch.randn(2, 4, 6), torch.randn(2, 3, 6)
    real_BK = readable(Tokens.padded([[1, 1, 1, 1], [1, 1]], padding=0).places)
    seen = attention(states_BQD, attention.keys_values(memory_BKD), real_BK)
    attention.watcher = lambda _: None
    watched = attention(states_BQD, attention.keys_values(memory_BKD), real_BK)
    torch.testing.assert_close(watched.context_BQD, seen.context_BQD)
    assert watched.weights_BQK is not None
    assert not watched.weights_BQK[1, :, 2:].any()
    for row, keys in enumerate([4, 2]):
        for query in range(3):
            scores = [score_of(attention, states_BQD[row, query], memory_BKD[row, key]) for key in range(keys)]
            weights_K = torch.stack(scores).softmax(dim=0)
            torch.testing.assert_close(watched.weights_BQK[row, query, :keys], weights_K)
            torch.testing.assert_close(seen.context_BQD[row, query], weights_K @ memory_BKD[row, :keys])


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("hard", [False, True])
def test_a_row_of_padding_gives_numbers(score: Score, hard: bool) -> None:
    attention, padding = StateAttention(6, score, hard), Places(torch.zeros(2, 4), torch.zeros(2, 4))
    kv = attention.keys_values(torch.randn(2, 4, 6))
    assert attention(torch.randn(2, 3, 6), kv, readable(padding)).context_BQD.isfinite().all()


def test_hard_attention_takes_one_state_drawn_in_training_and_the_likeliest_in_evaluation() -> None:
    torch.manual_seed(0)
    attention = StateAttention(6, "general", hard=True)
    memory_BKD, state_BQD = torch.randn(1, 3, 6), torch.randn(1, 1, 6)
    weights_K = (state_BQD @ attention.key(memory_BKD).transpose(1, 2)).softmax(dim=-1)[0, 0]
    kv = attention.keys_values(memory_BKD)

    drawn = attention(state_BQD.expand(1, 20_000, 6), kv, None)
    torch.testing.assert_close(drawn.weights_BQK[0].mean(dim=0), weights_K, atol=0.01, rtol=0)
    chosen_Q = drawn.weights_BQK[0].argmax(dim=-1)
    assert drawn.context_BQD[0].equal(memory_BKD[0, chosen_Q])
    torch.testing.assert_close(drawn.log_chance_BQ[0].exp(), weights_K[chosen_Q])

    best = attention.eval()(state_BQD, kv, None)
    assert best.context_BQD[0, 0].equal(memory_BKD[0, weights_K.argmax()])
