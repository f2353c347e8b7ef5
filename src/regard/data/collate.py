"""From numbered rows to tensors: whole arrays at a time, no loop over tokens.

Shapes: B rows, S source tokens, T target tokens.

The decoder reads <start> y and must answer y <end>. The store holds y <end>: that is the answer as it stands, and,
moved on by one with <start> in front, what is read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from regard.batch import IGNORED, PADDING_SEGMENT, Batch, Places, Specials, Tokens
from regard.data.packing import Lengths, Rows
from regard.data.store import Integers, Side, TokenStore

EMPTY = -1  # the number of a row that holds nothing: padding everywhere, and no labels


# ---- rows of whole sentences


@dataclass(frozen=True)
class _Sentences:
    """The sentences that a batch takes from one side, and where each goes."""

    ids: Integers
    """Their tokens, one sentence after another, each with its <end>."""
    within: Integers
    """For each token its place in its sentence."""
    segments: Integers
    """For each token the number of its sentence in its row, from 1."""
    slots: Integers
    """For each token its place in the batch, rows laid end to end."""
    begin: Integers
    """Where in `ids` each sentence begins."""


def sentence_rows(store: TokenStore, specials: Specials, rows: Rows, numbers: Integers) -> Batch:
    """The rows of these numbers as a batch; `EMPTY` is a row without sentences."""
    found = np.where(numbers == EMPTY, 0, numbers)
    counts = np.where(numbers == EMPTY, 0, rows.begin[found + 1] - rows.begin[found])
    # For each sentence its row, its number in the row, and the row's first sentence.
    row = np.repeat(np.arange(len(numbers)), counts)
    first = (counts.cumsum() - counts)[row]
    inside = np.arange(len(row)) - first
    members = rows.members[rows.begin[found][row] + inside]

    def take(side: Side, length: int) -> _Sentences:
        lengths = side.lengths[members]
        begin = lengths.cumsum(dtype=np.int64) - lengths
        within = np.arange(lengths.sum(dtype=np.int64)) - np.repeat(begin, lengths)
        ids = side.ids[np.repeat(side.begin[members], lengths) + within]
        place = row * length + begin - begin[first]
        return _Sentences(ids, within, np.repeat(inside + 1, lengths), np.repeat(place, lengths) + within, begin)

    source = None
    if store.source is not None:
        taken = take(store.source, rows.shape.source)
        shape = len(numbers), rows.shape.source
        source = _tokens(taken, taken.ids, shape, specials.padding)
    taken = take(store.target, rows.shape.target)
    shape = len(numbers), rows.shape.target
    if store.labels is not None:
        # The text is read as it is, with its end: nothing is written that a start could stand before.
        text = _tokens(taken, taken.ids, shape, specials.padding)
        if store.labels_tokens:
            labels_BT = _spread(take(store.labels, rows.shape.target).ids, taken.slots, shape, 0)
        else:
            labels_BT = _spread(store.labels.ids[members], row, (len(numbers), 1), 0)
        return Batch(None, text, torch.where(labels_BT > 0, labels_BT - 1, IGNORED))
    read = np.empty_like(taken.ids)
    read[1:] = taken.ids[:-1]
    read[taken.begin] = specials.start
    labels_BT = _spread(taken.ids, taken.slots, shape, IGNORED)
    return Batch(source, _tokens(taken, read, shape, specials.padding), labels_BT)


def _tokens(taken: _Sentences, ids: Integers, shape: tuple[int, int], padding: int) -> Tokens:
    positions_BT = _spread(taken.within, taken.slots, shape, 0)
    segments_BT = _spread(taken.segments, taken.slots, shape, PADDING_SEGMENT)
    return Tokens(_spread(ids, taken.slots, shape, padding), Places(positions_BT, segments_BT))


def _spread(values: Integers, slots: Integers, shape: tuple[int, int], rest: int) -> torch.Tensor:
    """`values` at their slots, `rest` elsewhere."""
    filled = np.full(shape[0] * shape[1], rest, dtype=np.int64)
    filled[slots] = values
    return torch.from_numpy(filled.reshape(shape))


# ---- rows of running text


def text_rows(store: TokenStore, specials: Specials, row: int, numbers: Integers, first: int) -> Batch:
    """Rows of `row` tokens from all texts joined in a ring; row 0 begins at token `first`.

    Every token of the ring is the label of one slot. What is read there is the token before it, and <start> where that
    is the <end> of another text. Rows carry no segments, though the last one may end in padding: nothing looks ahead
    at it, and it has no labels.
    """
    text = store.target.ids
    place_BT = np.where(numbers == EMPTY, len(text), numbers * row)[:, None] + np.arange(row)
    real_BT = place_BT < len(text)
    labels_BT = text[(first + place_BT) % len(text)].astype(np.int64)
    read_BT = text[(first + place_BT - 1) % len(text)].astype(np.int64)
    read_BT[read_BT == specials.end] = specials.start
    read_BT[~real_BT] = specials.padding
    labels_BT[~real_BT] = IGNORED
    return Batch(None, Tokens.whole(torch.from_numpy(read_BT)), torch.from_numpy(labels_BT))


def stream_rows(store: TokenStore, specials: Specials, row: int, numbers: Integers, place: int, rows: int) -> Batch:
    """Batch number `place` of a text that is read in so many `rows` side by side, each a stretch of it from end to end.

    Row r of one batch goes on where row r of the batch before ended. The stretches are equally long; where one ends,
    the rest of its row is padding, and so are rows numbered `EMPTY`.
    """
    text = store.target.ids
    stretch = -(-len(text) // rows)
    within_T = place * row + np.arange(row)
    place_BT = numbers[:, None] * stretch + within_T
    real_BT = (numbers != EMPTY)[:, None] & (within_T < stretch) & (place_BT < len(text))
    place_BT = np.where(real_BT, place_BT, 0)
    labels_BT = text[place_BT].astype(np.int64)
    read_BT = text[place_BT - 1].astype(np.int64)
    read_BT[read_BT == specials.end] = specials.start
    read_BT[~real_BT] = specials.padding
    labels_BT[~real_BT] = IGNORED
    return Batch(None, Tokens.whole(torch.from_numpy(read_BT)), torch.from_numpy(labels_BT))


def one_a_row(store: TokenStore) -> Rows:
    """Every example a row of its own, all as long as the longest."""
    source = 0 if store.source is None else int(store.source.lengths.max())
    numbers: NDArray[np.int64] = np.arange(len(store) + 1)
    return Rows(Lengths(source, int(store.target.lengths.max())), numbers[:-1], numbers)
