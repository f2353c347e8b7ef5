"""Masks against the sentence that defines them, read aloud for every pair of query and key.

Shapes: B rows, Q queries, K keys.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.batch import Places
from regard.layers import mask as mask_module
from regard.layers.mask import Mask, Visible

Row = list[tuple[int, int]]  # (segment, position) of each token


@st.composite
def rows(draw: st.DrawFn, length: int) -> Row:
    """Sentences one after the other, and padding behind them."""
    row: Row = []
    segment = 1
    while len(row) < length and draw(st.booleans()):
        size = draw(st.integers(1, length - len(row)))
        row += [(segment, position) for position in range(size)]
        segment += 1
    return row + [(0, 0)] * (length - len(row))


def places_of(table: list[Row]) -> Places:
    whole = torch.tensor(table)
    return Places(whole[..., 1], whole[..., 0])


def dense(visible: Visible, queries: Places, keys: Places) -> torch.Tensor:
    shape = (queries.positions_BT.shape[0], queries.positions_BT.shape[1], keys.positions_BT.shape[1])
    return visible.dense(torch.zeros(shape[0], 3, *shape[1:])).expand(shape)


def sees(query: tuple[int, int], key: tuple[int, int], mask: Mask) -> bool:
    (query_segment, here), (key_segment, there) = query, key
    in_order = not mask.causal or there <= here
    near = mask.window is None or abs(here - there) < mask.window
    return query_segment == key_segment and in_order and near


masks = st.builds(Mask, causal=st.booleans(), window=st.none() | st.integers(1, 4))


@given(st.integers(1, 7).flatmap(lambda length: st.lists(rows(length), min_size=1, max_size=3)), masks, st.data())
def test_mask_says_what_it_says(table: list[Row], mask: Mask, data: st.DataObject) -> None:
    keys = places_of(table)
    newest = data.draw(st.integers(1, len(table[0])))
    queries = places_of([row[-newest:] for row in table])
    visible_BQK = dense(mask.visible(queries, keys), queries, keys)
    for b, row in enumerate(table):
        for i, query in enumerate(row[-newest:]):
            if query[0] == 0:
                assert visible_BQK[b, i].any(), "padding must see something, or its softmax is NaN"
                continue
            for j, key in enumerate(row):
                assert visible_BQK[b, i, j].item() == sees(query, key, mask)


@given(st.integers(1, 2), st.integers(1, 6), masks, st.data())
def test_rows_without_segments_are_one_sentence_each(count: int, length: int, mask: Mask, data: st.DataObject) -> None:
    newest = data.draw(st.integers(1, length))
    keys = Places.whole(torch.zeros(count, length))
    queries = Places.whole(torch.zeros(count, newest), first=length - newest)
    visible_BQK = dense(mask.visible(queries, keys), queries, keys)
    for i in range(newest):
        for j in range(length):
            expected = sees((1, length - newest + i), (1, j), mask)
            assert visible_BQK[:, i, j].tolist() == [expected] * count


def test_the_target_sees_the_source_sentence_of_its_own_segment() -> None:
    target = places_of([[(1, 0), (2, 0), (2, 1), (0, 0)]])
    source = places_of([[(1, 0), (1, 1), (2, 0), (0, 0)]])
    visible_BQK = dense(Mask().visible(target, source), target, source)
    assert visible_BQK[0, :3].int().tolist() == [[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0]]


def test_padding_sees_something_even_where_no_key_is_padding() -> None:
    target, source = places_of([[(1, 0), (0, 0)]]), places_of([[(1, 0), (1, 1)]])
    assert dense(Mask().visible(target, source), target, source)[0, 1].any()


def test_whole_queries_do_not_see_padded_keys() -> None:
    queries, keys = Places.whole(torch.zeros(1, 2)), places_of([[(1, 0), (1, 1), (0, 0)]])
    assert dense(Mask().visible(queries, keys), queries, keys).int().tolist() == [[[1, 1, 0], [1, 1, 0]]]


@pytest.mark.parametrize(
    ("mask", "queries", "keys", "expected"),
    [
        (Mask(), 4, 4, Visible()),
        (Mask(), 2, 4, Visible()),
        (Mask(causal=True), 4, 4, Visible(is_causal=True)),
        (Mask(causal=True), 1, 1, Visible()),
        (Mask(causal=True), 1, 4, Visible()),
    ],
)
def test_no_matrix_where_none_is_needed(mask: Mask, queries: int, keys: int, expected: Visible) -> None:
    """Fused kernels are fastest without a matrix."""
    newest = Places.whole(torch.zeros(2, queries), first=keys - queries)
    assert mask.visible(newest, Places.whole(torch.zeros(2, keys))) == expected


def test_causal_order_is_spelled_out_where_queries_are_fewer_than_keys() -> None:
    """Kernels align a causal corner at the top left, which is wrong for the newest of many keys."""
    visible = Mask(causal=True).visible(Places.whole(torch.zeros(1, 2), first=2), Places.whole(torch.zeros(1, 4)))
    assert not visible.is_causal
    assert visible.allowed_BQK is not None
    assert visible.allowed_BQK.int().tolist() == [[[1, 1, 1, 0], [1, 1, 1, 1]]]


def test_an_answer_knows_how_far_apart_queries_and_keys_are() -> None:
    queries, keys = Places(torch.tensor([[2, 0]])), Places(torch.tensor([[0, 1, 2]]))
    visible = Mask(window=2).visible(queries, keys)
    assert visible.ahead().tolist() == [[[-2, -1, 0], [0, 1, 2]]]
    assert [positions.tolist() for positions in visible.positions()] == [[[2, 0]], [[0, 1, 2]]]
    with pytest.raises(ValueError, match="made without places"):
        Visible().positions()


def test_an_answer_can_be_given_in_numbers() -> None:
    assert Visible(is_causal=True).in_numbers(torch.float32) == Visible(is_causal=True)
    visible = Visible(torch.tensor([[[True, False]]])).in_numbers(torch.bfloat16)
    assert visible.added_BQK is not None
    assert visible.added_BQK.dtype == torch.bfloat16
    assert visible.added_BQK.tolist() == [[[0.0, -torch.inf]]]


def test_the_module_draws_its_masks(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(Path(mask_module.__file__)), run_name="__main__")
    printed = capsys.readouterr().out
    causal = printed.split("causal\n")[1].splitlines()[:2]
    assert causal == ["  ■ · · · · ·", "  ■ ■ · · · ·"]
    assert printed.count("\n\n") == 5
