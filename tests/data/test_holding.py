"""What is held out, and that it stays so."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.filters import keys_of
from regard.data.generated import Pair
from regard.data.holding import HELD_OUT_LABELLED, HeldAtEnd, HeldBySource, HeldShare, held_out_share


@pytest.mark.parametrize(("lines", "held"), [(20, 2), (199, 19.9), (5_000, 500), (20_000, 1_000)])
def test_what_docs_say_is_held_out_of_a_table(lines: int, held: float) -> None:
    assert held_out_share(lines, HELD_OUT_LABELLED) * lines == pytest.approx(held)


def stream(count: int, size: int, hold_out: HeldBySource | HeldAtEnd) -> tuple[list[Pair], list[Pair]]:
    pairs = [Pair(f"sentence {number // 2}", f"Satz {number}") for number in range(count)]
    train = []
    for at in range(0, count, size):
        some = pairs[at : at + size]
        train += list(hold_out.pass_on(some, keys_of(pair.source for pair in some)))
    late, held = hold_out.finish()
    assert sorted([*train, *late, *held], key=str) == sorted(pairs, key=str)
    return train + late, held


@pytest.mark.parametrize("count", [2, 30, 900, 6_000])
def test_sources_stand_on_one_side_however_the_stream_is_cut(count: int) -> None:
    by_size = [stream(count, size, HeldBySource()) for size in (7, 100, count)]
    assert len({frozenset(pair.target for pair in held) for _, held in by_size}) == 1
    train, held = by_size[0]
    assert {pair.source for pair in train}.isdisjoint({pair.source for pair in held})


@pytest.mark.parametrize("count", [2, 4, 12, 24, 60, 199])
def test_of_a_tiny_corpus_a_tenth_is_held_out_and_at_least_one_sentence(count: int) -> None:
    for corpus in range(20):
        hold_out = HeldBySource()
        pairs = [Pair(f"{corpus} {number}", "") for number in range(count)]
        train = list(hold_out.pass_on(pairs, keys_of(pair.source for pair in pairs)))
        late, held = hold_out.finish()
        assert len(held) == max(1, count // 10)
        assert [*train, *late] == [pair for pair in pairs if pair not in held]


def test_of_a_tiny_corpus_no_sentence_stands_on_both_sides() -> None:
    _, held = stream(30, 7, HeldBySource())  # of each sentence there are two pairs, and three may be held out
    assert len(held) == 2
    assert len({pair.source for pair in held}) == 1


@pytest.mark.parametrize("count", [12, 4_000])
def test_what_is_held_out_can_be_asked_for_afterwards(count: int) -> None:
    hold_out = HeldBySource()
    train, held = stream(count, 500, hold_out)
    assert hold_out.holds(keys_of(pair.source for pair in held)).all()
    assert not hold_out.holds(keys_of(pair.source for pair in train)).any()


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (9, 1), (25, 2), (500, 20), (3_000, 60), (51_200, 1_000)])
def test_running_text_loses_its_end(count: int, expected: int) -> None:
    train, held = stream(count, 512, HeldAtEnd())
    assert len(held) == expected
    assert [pair.target for pair in train + held] == [f"Satz {number}" for number in range(count)]


def test_the_share_never_grows() -> None:
    shares = [held_out_share(count) for count in range(0, 200_000, 37)]
    assert shares == sorted(shares, reverse=True)
    assert (shares[0], held_out_share(10_000), held_out_share(10_000_000)) == (0.1, 0.02, 0.0001)
    assert [held_out_share(count, 0.1) for count in (20, 100, 1_000, 100_000)] == [0.1, 0.1, 0.1, 0.01]


@given(st.lists(st.text("ab", max_size=9), min_size=1, max_size=60), st.floats(0.01, 0.99), st.integers(1, 20))
def test_a_share_of_the_text_is_held_out_from_its_end(lines: list[str], share: float, size: int) -> None:
    held_out, passed = HeldShare(share), []
    for first in range(0, len(lines), size):
        some = [Pair("", line) for line in lines[first : first + size]]
        passed += held_out.pass_on(some, np.zeros(len(some), dtype=np.uint64))
    late, held = held_out.finish()
    assert [pair.target for pair in [*passed, *late, *held]] == lines
    text = "".join(f"{line}\n" for line in lines)
    border = (1 - share) * len(text)
    trained = sum(len(pair.target) + 1 for pair in [*passed, *late])
    # All lines before the border, and no other: the line across it is held out.
    assert trained <= border
    assert trained + len(held[0].target) + 1 > border
    assert not held_out.holds(np.zeros(3, dtype=np.uint64)).any()
