"""Rows: every sentence in one of them, none too long for its row, few shapes, and little room lost."""

from __future__ import annotations

import os
import re
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from regard.data.corpus import lines_of, open_text
from regard.data.packing import Rows, bucketed, packed

Lengths = NDArray[np.int64]


def drawn(count: int, ratio: float = 1.0, seed: int = 0) -> tuple[Lengths, Lengths]:
    """Lengths like those of a corpus: log-normal, and a translation about as long as its source."""
    draw = np.random.default_rng(seed)
    source = draw.lognormal(3.2, 0.6, count)
    target = ratio * source * draw.lognormal(0.0, 0.2, count)
    return source.astype(np.int64) + 1, target.astype(np.int64) + 1


def padding(found: list[Rows], *sides: Lengths) -> float:
    return 1 - sum(int(side.sum()) for side in sides) / sum(len(rows) * sum(rows.shape) for rows in found)


def check(found: list[Rows], source: Lengths | None, target: Lengths) -> None:
    """Every sentence once, and no row over its size."""
    assert sorted(np.concatenate([rows.members for rows in found]).tolist()) == list(range(len(target)))
    for rows in found:
        assert len(rows) > 0
        for side, size in ((source, rows.shape.source), (target, rows.shape.target)):
            if side is not None:
                assert np.add.reduceat(side[rows.members], rows.begin[:-1]).max() <= size


SIDE = st.lists(st.integers(1, 60), min_size=1, max_size=40)


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=40), st.integers(1, 70))
def test_any_sentences_can_be_packed(pairs: list[tuple[int, int]], row: int) -> None:
    source, target = np.array(pairs).T
    found = packed(source, target, row)
    check(found, source, target)
    # A sentence is at most 60 times as long as a row: rows double six times at most.
    assert len(found) <= 8
    assert len({rows.shape for rows in found}) == len(found)


@given(SIDE, st.integers(1, 70))
def test_texts_without_a_source_can_be_packed(lengths: list[int], row: int) -> None:
    target = np.array(lengths)
    found = packed(None, target, row)
    check(found, None, target)
    assert all(rows.shape.source == 0 for rows in found)


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=60),
    st.integers(1, 300),
    st.integers(1, 9),
)
def test_any_sentences_have_a_bucket_of_their_size(pairs: list[tuple[int, int]], tokens: int, shapes: int) -> None:
    source, target = np.array(pairs).T
    found = bucketed(source, target, tokens, shapes)
    check(found, source, target)
    assert len(found) <= shapes
    assert all(np.array_equal(np.diff(rows.begin), np.ones(len(rows))) for rows in found)
    # No bucket is larger than its largest sentences, or too small for two batches, if there is more than one.
    for rows in found:
        assert rows.shape == (source[rows.members].max(), target[rows.members].max())
        assert len(found) == 1 or len(rows) * max(rows.shape) >= 2 * tokens


@pytest.mark.parametrize(("ratio", "lost"), [(1.0, 0.025), (0.75, 0.035), (1.4, 0.035)])
def test_packed_rows_lose_little_whatever_the_ratio_of_the_sides(ratio: float, lost: float) -> None:
    source, target = drawn(20_000, ratio)
    found = packed(source, target, 128)
    check(found, source, target)
    assert padding(found, source, target) < lost
    assert max(found[0].shape) == 128
    # The rule for what is too long: rows of twice the size, and twice that, as long as anything needs it.
    assert [max(rows.shape) for rows in found[:-1]] == [128 * 2**level for level in range(len(found) - 1)]
    assert len(found[0]) > 0.9 * sum(map(len, found))


def test_packed_texts_lose_next_to_nothing() -> None:
    _, target = drawn(20_000)
    assert padding(packed(None, target, 128), target) < 0.01


def test_one_endless_sentence_costs_one_row() -> None:
    source, target = (np.append(side, 50_000) for side in drawn(2_000))
    found = packed(source, target, 128)
    check(found, source, target)
    assert len(found[-1]) == 1
    assert found[-1].shape == (50_000, 50_000)


def test_a_long_row_is_filled_up_with_short_sentences() -> None:
    usual, long = packed(None, np.array([61, 100, *[7] * 20]), 60)
    assert (usual.shape.target, len(usual)) == (60, 2)
    # Beside the sentence of 61 there is room for six of 7.
    assert (long.shape.target, len(long), sorted(np.diff(long.begin))) == (104, 2, [1, 7])


def test_buckets_pad_little_where_there_is_enough_to_choose_from() -> None:
    source, target = drawn(20_000)
    found = bucketed(source, target, tokens=1_024, shapes=128)
    check(found, source, target)
    assert padding(found, source, target) < 0.06
    # Fewer shapes cost more padding; all that may be used are.
    few = bucketed(source, target, tokens=1_024, shapes=16)
    assert len(few) == 16
    assert padding(found, source, target) < padding(few, source, target) < 0.25
    # And no more are used than are needed to pad little.
    many = bucketed(source, target, tokens=512, shapes=1_000)
    assert len(many) < 200
    assert 0.04 < padding(many, source, target) < 0.05


def test_rows_do_not_depend_on_anything_but_lengths() -> None:
    source, target = drawn(3_000)
    for one, again in (
        [packed(source, target, 64) for _ in range(2)],
        [bucketed(source, target, 512, 32) for _ in range(2)],
    ):
        assert [rows.shape for rows in one] == [rows.shape for rows in again]
        assert all(np.array_equal(a.members, b.members) for a, b in zip(one, again, strict=True))


@pytest.mark.data
def test_europarl_wastes_at_most_one_slot_in_twenty() -> None:
    folder = Path(os.environ.get("REGARD_DATA", "nowhere")) / "europarl-ende"
    if not folder.is_dir():
        pytest.skip("REGARD_DATA has no europarl-ende")
    sides = []
    for name in ("train.en.bz2", "train.de.xz"):
        with open_text(folder / name) as stream:
            lines = islice(lines_of(stream, name), 50_000)
            # Words and marks instead of subwords: quick to count, and about as many.
            sides.append(np.array([len(re.findall(r"\w+|[^\w\s]", line)) + 1 for line in lines]))
    source, target = sides
    for found in (packed(source, target, 128), bucketed(source, target, 4_096, 128)):
        check(found, source, target)
        assert padding(found, source, target) < 0.05
