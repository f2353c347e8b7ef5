"""What another thread makes arrives in order, with its mistakes, and the thread never outlives its use."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.batch import IGNORED, Batch, Specials
from regard.data.ahead import Ahead
from regard.data.batching import Batches, BatchSettings
from regard.data.prefetch import Prefetch, real_tokens

SPECIALS = Specials(padding=0, start=1, end=2)
BATCHES = Batches([([number], [number] * (number % 7)) for number in range(10, 90)], SPECIALS, BatchSettings(40), 1)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() == before


def same(one: Batch, other: Batch) -> bool:
    assert one.source is not None
    assert other.source is not None
    pairs = [(one.source.ids_BT, other.source.ids_BT), (one.target.ids_BT, other.target.ids_BT)]
    return all(torch.equal(*pair) for pair in pairs) and torch.equal(one.labels_BT, other.labels_BT)


@given(st.lists(st.integers()), st.integers(1, 5))
def test_items_arrive_in_order_and_end(items: list[int], depth: int) -> None:
    with Ahead(items, depth) as ahead:
        assert list(ahead) == items
        assert list(ahead) == []


def test_it_is_ahead_but_not_too_far() -> None:
    made: list[int] = []

    def make() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number

    with Ahead(make(), 3) as ahead:
        assert next(ahead) == 0
        deadline = time.monotonic() + 5
        while len(made) < 5 and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.02)
        assert made == [0, 1, 2, 3, 4]  # one taken, three ready, one in hand


@pytest.mark.parametrize("depth", [1, 3])
def test_a_mistake_arrives_in_its_place(depth: int) -> None:
    def make() -> Iterator[int]:
        yield 1
        raise RuntimeError("the third one")

    with Ahead(make(), depth) as ahead:
        assert next(ahead) == 1
        with pytest.raises(RuntimeError, match="the third one"):
            next(ahead)
        assert list(ahead) == []


@pytest.mark.parametrize("taken", [0, 1, 4])
def test_closing_early_closes_what_is_behind(taken: int) -> None:
    closed = threading.Event()

    def make() -> Iterator[int]:
        try:
            yield from range(1_000)
        finally:
            closed.set()

    def longer() -> Iterator[int]:
        with Ahead(make(), 1) as inner:
            yield from inner

    ahead = Ahead(longer(), 1)
    assert [next(ahead) for _ in range(taken)] == list(range(taken))
    ahead.close()
    ahead.close()
    # A generator that was never begun has nothing to close.
    assert closed.is_set() or taken == 0


def test_closing_at_any_moment_never_hangs() -> None:
    def make() -> Iterator[int]:
        yield from range(3)
        raise RuntimeError("nobody waits for this")

    for number in range(300):
        ahead = Ahead(range(3) if number % 2 else make(), 1)
        for _ in range(number % 4):
            next(ahead, None) if number % 8 < 4 else time.sleep(0)
        ahead.close()


@pytest.mark.parametrize("first", [0, 7, 23])
def test_batches_are_those_of_their_steps(first: int) -> None:
    with Prefetch(BATCHES, first, "cpu") as prefetch:
        for step in range(first, first + 2 * BATCHES.per_epoch):
            assert same(next(prefetch).batch, BATCHES[step])


def test_each_process_has_its_share() -> None:
    with Prefetch(BATCHES, 3, torch.device("cpu"), rank=1, ranks=2) as prefetch:
        assert same(next(prefetch).batch, BATCHES.share(3, 1, 2))


def test_portions_are_counted() -> None:
    with Prefetch(BATCHES, 0, "cpu") as prefetch:
        for batch, tokens, slots, labels in (next(prefetch) for _ in range(BATCHES.per_epoch)):
            assert batch.source is not None
            assert tokens == real_tokens(batch.source) + real_tokens(batch.target) <= slots
            assert slots == batch.source.ids_BT.numel() + batch.target.ids_BT.numel()
            assert labels == (batch.labels_BT != IGNORED).sum() > 0


def test_a_mistake_in_a_batch_is_raised() -> None:
    with Prefetch(BATCHES, 0, "cpu", rank=2, ranks=2) as prefetch, pytest.raises(Exception, match="process 2 of 2"):
        next(prefetch)


@pytest.mark.gpu
def test_batches_arrive_on_the_gpu_as_they_are() -> None:
    with Prefetch(BATCHES, 0, "cuda") as prefetch:
        for step in range(50):
            batch = next(prefetch).batch
            assert batch.labels_BT.is_cuda
            assert same(batch.to(torch.device("cpu")), BATCHES[step])
