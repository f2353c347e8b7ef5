"""Rows of tokens and their places."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.batch import IGNORED, Batch, Places, Tokens
from regard.errors import UsageError

sentences = st.lists(st.lists(st.integers(1, 99), max_size=6), min_size=1, max_size=4)


@given(sentences, st.integers(0, 3))
def test_padded_holds_each_sentence_and_nothing_else(rows: list[list[int]], extra: int) -> None:
    tokens = Tokens.padded(rows, padding=0, length=max(map(len, rows)) + extra)
    assert tokens.places.segments_BT is not None
    for row, sentence in enumerate(rows):
        missing = tokens.ids_BT.shape[1] - len(sentence)
        assert missing >= extra
        assert tokens.ids_BT[row].tolist() == sentence + [0] * missing
        assert tokens.places.positions_BT[row].tolist() == list(range(len(sentence))) + [0] * missing
        assert tokens.places.segments_BT[row].tolist() == [1] * len(sentence) + [0] * missing
    assert tokens.ids_BT.dtype == tokens.places.positions_BT.dtype == tokens.places.segments_BT.dtype == torch.long


def test_padded_is_as_wide_as_the_longest_unless_told() -> None:
    tokens = Tokens.padded([[5], [6, 7, 8]], padding=9)
    assert tokens.ids_BT.tolist() == [[5, 9, 9], [6, 7, 8]]
    assert Tokens.padded([[5]], padding=9, length=2).ids_BT.tolist() == [[5, 9]]


def test_whole_rows_have_no_segments() -> None:
    tokens = Tokens.whole(torch.tensor([[4, 5, 6], [7, 8, 9]]))
    assert tokens.places.segments_BT is None
    assert tokens.places.positions_BT.tolist() == [[0, 1, 2], [0, 1, 2]]
    assert tokens.places.segments_or_ones().tolist() == [[1, 1, 1], [1, 1, 1]]


def test_whole_places_may_start_later() -> None:
    assert Places.whole(torch.zeros(2, 2), first=5).positions_BT.tolist() == [[5, 6], [5, 6]]


def test_whole_places_followed_by_whole_places_stay_whole() -> None:
    places = Places.whole(torch.zeros(2, 2)).extend(Places.whole(torch.zeros(2, 1), first=2))
    assert places.segments_BT is None
    assert places.positions_BT.tolist() == [[0, 1, 2], [0, 1, 2]]


def test_beams_that_share_a_row_stand_side_by_side() -> None:
    """What is in the next column is then not at the next position."""
    beams = Places.whole(torch.zeros(4, 1), first=5).select(torch.arange(4))
    shared = beams.share(Places.whole(torch.zeros(2, 3)))
    assert (shared.positions_BT.tolist(), shared.unbroken) == ([[5, 5], [5, 5]], False)
    assert beams.share(Places.whole(torch.zeros(4, 3))) is beams


@pytest.mark.parametrize("padded_first", [True, False])
def test_extend_spells_out_segments_where_one_side_has_them(padded_first: bool) -> None:
    padded = Places(torch.tensor([[0, 0]]), torch.tensor([[1, 0]]))
    whole = Places.whole(torch.zeros(1, 2))
    extended = padded.extend(whole) if padded_first else whole.extend(padded)
    assert extended.segments_BT is not None
    assert extended.segments_BT.tolist() == ([[1, 0, 1, 1]] if padded_first else [[1, 1, 1, 0]])
    assert extended.positions_BT.tolist() == ([[0, 0, 0, 1]] if padded_first else [[0, 1, 0, 0]])


@pytest.mark.parametrize("segments", [[[1, 1, 0], [0, 1, 1]], [[1, 1, 1], [1, 0, 1]]])
def test_padding_before_a_token_is_refused_where_order_counts(segments: list[list[int]]) -> None:
    places = Places(torch.zeros(2, 3, dtype=torch.long), torch.tensor(segments))
    with pytest.raises(
        UsageError, match="target: needs padding on the right of a row, but in row 1 some stands before"
    ):
        places.check_one_sentence("target")


def test_padding_behind_is_fine_and_several_sentences_are_not() -> None:
    positions = torch.zeros(2, 3, dtype=torch.long)
    Places(positions, torch.tensor([[1, 1, 0], [0, 0, 0]])).check_one_sentence("target")
    with pytest.raises(UsageError, match="needs one sentence a row, but row 1 holds 2"):
        Places(positions, torch.tensor([[1, 1, 0], [1, 2, 0]])).check_one_sentence("target")


@given(st.lists(st.integers(0, 2), min_size=1, max_size=5), st.booleans())
def test_select_reorders_copies_and_drops(rows: list[int], whole: bool) -> None:
    positions_BT = torch.tensor([[0, 1], [2, 3], [4, 5]])
    segments_BT = None if whole else torch.tensor([[1, 1], [1, 2], [1, 0]])
    chosen = Places(positions_BT, segments_BT).select(torch.tensor(rows))
    assert chosen.positions_BT.tolist() == [positions_BT[row].tolist() for row in rows]
    if segments_BT is None:
        assert chosen.segments_BT is None
    else:
        assert chosen.segments_BT is not None
        assert chosen.segments_BT.tolist() == [segments_BT[row].tolist() for row in rows]


@pytest.mark.parametrize("with_source", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_a_batch_moves_as_one(with_source: bool, whole: bool) -> None:
    tokens = Tokens.whole(torch.tensor([[4, 5]])) if whole else Tokens.padded([[4]], padding=0, length=2)
    batch = Batch(tokens if with_source else None, tokens, torch.tensor([[5, IGNORED]]))
    moved = batch.to(torch.device("meta"))
    assert (moved.source is not None) == with_source
    parts = [moved.target, *([moved.source] if moved.source else [])]
    assert moved.labels_BT.is_meta
    for part in parts:
        assert part.ids_BT.is_meta
        assert part.places.positions_BT.is_meta
        assert (part.places.segments_BT is None) == whole
        assert part.places.segments_BT is None or part.places.segments_BT.is_meta
    assert not batch.labels_BT.is_meta


def test_ignored_labels_carry_no_loss() -> None:
    logits_BTV = torch.randn(3, 7)
    labels = torch.tensor([2, IGNORED, 4])
    loss = torch.nn.functional.cross_entropy(logits_BTV, labels)
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(logits_BTV[[0, 2]], labels[[0, 2]]))
