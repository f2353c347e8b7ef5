"""Batches: every example once an epoch, within the budget, in an order that is a function of (seed, step)."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.batch import IGNORED, Batch, Specials
from regard.data.batching import Batches, BatchSettings, Example, collate

SPECIALS = Specials(padding=0, start=1, end=2)


def examples(count: int, longest: int = 20, seed: int = 0) -> list[Example]:
    """Examples that can be told apart by their first source token, with text tokens from 10 on."""
    draw = random.Random(seed)

    def rest(least: int) -> list[int]:
        return [draw.randrange(10, 99) for _ in range(draw.randrange(least, longest))]

    return [([1_000 + number, *rest(0)], rest(0)) for number in range(count)]


def ids(batch: Batch) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
    assert batch.source is not None
    return batch.source.ids_BT.tolist(), batch.target.ids_BT.tolist(), batch.labels_BT.tolist()


def names(batch: Batch) -> list[int]:
    return [row[0] for row in ids(batch)[0]]


@given(st.integers(1, 60), st.integers(1, 200), st.integers(1, 9), st.integers(0, 5))
def test_every_example_once_an_epoch(count: int, tokens: int, multiple: int, seed: int) -> None:
    batches = Batches(examples(count), SPECIALS, BatchSettings(tokens, multiple), seed)
    for epoch in (0, 3):
        first = epoch * batches.per_epoch
        seen = Counter(name for step in range(first, first + batches.per_epoch) for name in names(batches[step]))
        assert seen == Counter(range(1_000, 1_000 + count))


@given(st.integers(1, 60), st.integers(1, 300), st.integers(1, 9))
def test_a_batch_keeps_to_its_budget_unless_one_sentence_alone_exceeds_it(
    count: int, tokens: int, multiple: int
) -> None:
    batches = Batches(examples(count), SPECIALS, BatchSettings(tokens, multiple), seed=1)
    for step in range(batches.per_epoch):
        source, target, labels = ids(batches[step])
        assert len(source) == len(target) == len(labels)
        for side in (source, target):
            assert len(side) == 1 or len(side) * len(side[0]) <= tokens


def test_little_is_padded_and_batches_are_full() -> None:
    batches = Batches(examples(800, longest=60), SPECIALS, BatchSettings(1_000, 8), seed=1)
    widest = [max(len(ids(batches[step])[0][0]), len(ids(batches[step])[1][0])) for step in range(batches.per_epoch)]
    rows = [len(names(batches[step])) for step in range(batches.per_epoch)]
    assert sum(rows) == 800
    # Of the places that the budget allows, most are used.
    assert sum(row * wide for row, wide in zip(rows, widest, strict=True)) > 0.8 * 1_000 * batches.per_epoch


def test_any_step_can_be_had_without_the_ones_before() -> None:
    data, settings = examples(50), BatchSettings(64, 4)
    one = Batches(data, SPECIALS, settings, seed=7)
    steps = range(3 * one.per_epoch)
    in_order = [ids(one[step]) for step in steps]
    shuffled = list(steps)
    random.Random(0).shuffle(shuffled)
    again = Batches(data, SPECIALS, settings, seed=7)
    for step in shuffled:
        assert ids(again[step]) == in_order[step]
    assert ids(Batches(data, SPECIALS, settings, seed=7)[steps[-1]]) == in_order[-1]


def test_epochs_and_seeds_differ() -> None:
    data, settings = examples(50), BatchSettings(64, 4)

    def order(seed: int, epoch: int) -> list[list[int]]:
        batches = Batches(data, SPECIALS, settings, seed)
        return [names(batches[epoch * batches.per_epoch + place]) for place in range(batches.per_epoch)]

    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)
    # Not only the batches change places: which sentences share one changes, too.
    assert {frozenset(batch) for batch in order(1, 0)} != {frozenset(batch) for batch in order(1, 1)}


def test_the_decoder_reads_start_and_y_and_must_answer_y_and_end() -> None:
    batch = collate([([11, 12], [21, 22, 23]), ([13], [])], SPECIALS)
    source, target, labels = ids(batch)
    assert source == [[11, 12, 2], [13, 2, 0]]
    assert target == [[1, 21, 22, 23], [1, 0, 0, 0]]
    assert labels == [[21, 22, 23, 2], [2, IGNORED, IGNORED, IGNORED]]
    assert batch.source is not None
    assert batch.source.places.segments_or_ones().tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch.target.places.segments_or_ones().tolist() == [[1, 1, 1, 1], [1, 0, 0, 0]]


@given(st.lists(st.tuples(st.lists(st.integers(10, 99)), st.lists(st.integers(10, 99))), min_size=1, max_size=5))
def test_each_label_is_the_next_token_and_padding_has_none(pairs: list[tuple[list[int], list[int]]]) -> None:
    batch = collate(pairs, SPECIALS)
    _, target, labels = ids(batch)
    real_BT = batch.target.places.segments_or_ones() != 0
    assert ((batch.labels_BT == IGNORED) == ~real_BT).all()
    for (_, y), read, answer in zip(pairs, target, labels, strict=True):
        assert read[: len(y) + 1] == [SPECIALS.start, *y]
        assert answer[: len(y) + 1] == [*y, SPECIALS.end]


def test_a_text_token_that_equals_padding_is_still_a_label() -> None:
    # Padding is known by its place, not by its id.
    batch = collate([([0], [0, 5]), ([3], [4, 4, 4])], SPECIALS)
    assert batch.labels_BT[0].tolist() == [0, 5, 2, IGNORED]
    assert batch.labels_BT.dtype == torch.long


@pytest.mark.parametrize("name", ["tokens", "multiple"])
def test_settings_must_be_positive(name: str) -> None:
    with pytest.raises(ValueError, match=f"`{name}` must be at least 1, but is 0"):
        BatchSettings(**{name: 0})
