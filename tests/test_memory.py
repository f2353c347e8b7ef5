"""What does not fit at once is done in halves; what does not fit alone has a name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from regard import memory
from regard.errors import DataError
from regard.memory import Halves, NoRoomError, ran_out, weight


def doubling(most: int, seen: list[int]) -> Callable[[Sequence[int]], list[int]]:
    """Work on no more than so many at a time; `seen` are the sizes that were tried."""

    def work(numbers: Sequence[int]) -> list[int]:
        seen.append(len(numbers))
        if len(numbers) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return [2 * number for number in numbers]

    return work


def no_room(number: int) -> NoRoomError:
    return NoRoomError(f"text {number}", "3 tokens")


@pytest.mark.parametrize("most", [1, 2, 3, 5, 10, 11, 99])
def test_every_thing_has_its_result_in_order(most: int) -> None:
    assert Halves().each(range(11), doubling(most, []), no_room) == [2 * number for number in range(11)]


def test_later_batches_begin_smaller_and_what_was_done_is_not_done_again() -> None:
    halves, seen = Halves(), list[int]()
    halves.each(range(8), doubling(2, seen), no_room)
    assert seen == [8, 4, 2, 2, 2, 2]
    seen.clear()
    halves.each(range(20), doubling(5, seen), no_room)
    assert seen == [5, 5, 5, 5]


def tries(halves: Halves, most: int, batches: int) -> list[int]:
    """Which of so many batches of eight were tried in larger parts than fit."""
    found = []
    for batch in range(batches):
        seen: list[int] = []
        halves.each(range(8), doubling(most, seen), no_room)
        found += [batch] * (max(seen) > most)
    return found


def test_all_at_once_is_tried_again_soon_after_a_spike() -> None:
    halves = Halves()
    assert tries(halves, 1, 1) == [0]
    assert halves.parts == 8
    assert tries(halves, 8, memory.SOON) == []
    assert halves.parts == 1


def test_tries_that_were_too_soon_get_rare() -> None:
    found = tries(Halves(), 2, 500)
    assert [after - before for before, after in pairwise(found)] == [4, 8, 16, 32, 64, 100, 100, 100]


def test_after_a_long_time_without_a_shortage_the_next_one_is_new() -> None:
    halves = Halves()
    tries(halves, 2, 200)
    tries(halves, 8, 2 * memory.LATE)
    assert tries(halves, 2, 6) == [0, memory.SOON]


def test_what_does_not_fit_alone_is_named() -> None:
    seen: list[int] = []
    with pytest.raises(DataError, match=r"text 0: must fit into the memory .*, even alone \(3 tokens\)\. See whether"):
        Halves().each(range(4), doubling(0, seen), no_room)
    assert seen == [4, 2, 1, 1]  # once more after everything was released


def test_what_was_released_may_let_the_last_one_fit() -> None:
    turns = iter([False, True])

    def work(numbers: Sequence[int]) -> Sequence[int]:
        if not next(turns):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return numbers

    assert Halves().each([7], work, no_room) == [7]


def test_nothing_of_the_failed_try_is_held_while_the_next_one_runs() -> None:
    alive: list[bool] = []

    class Large:
        count = 0

        def __init__(self) -> None:
            Large.count += 1

        def __del__(self) -> None:
            Large.count -= 1

    def work(numbers: Sequence[int]) -> Sequence[int]:
        alive.append(Large.count > 0)
        large = Large()
        if len(numbers) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        del large
        return numbers

    Halves().each(range(4), work, no_room)
    assert not any(alive)


def test_other_errors_are_not_tried_again() -> None:
    def work(_: Sequence[int]) -> Sequence[int]:
        raise RuntimeError("sizes do not match")

    with pytest.raises(RuntimeError, match="sizes do not match"):
        Halves().each([1, 2], work, no_room)
    assert not ran_out(RuntimeError("sizes do not match"))
    assert not ran_out(ValueError("out of memory"))


def test_libraries_that_have_only_words_are_understood() -> None:
    assert ran_out(torch.OutOfMemoryError())
    assert ran_out(MemoryError())
    assert ran_out(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"))
    assert ran_out(RuntimeError("CUDA failed with error out of memory"))  # CTranslate2
    assert ran_out(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes"))


def test_each_piece_of_memory_is_weighed_once() -> None:
    @dataclass(frozen=True)
    class State:
        layers: tuple[Tensor, ...]
        named: dict[str, list[Tensor]]
        other: int = 3

    whole = torch.zeros(10, 4)  # 160 bytes
    state = State((whole, whole[:2], whole.view(-1)), {"last": [torch.zeros(3, dtype=torch.long)]})
    assert weight(state) == 160 + 24
    assert weight([state, whole]) == 184


def test_what_has_no_room_is_made_once_more_when_others_have_made_some() -> None:
    class Kept:
        forgot = 0

        def forget(self) -> None:
            self.forgot += 1

    kept, let_go = Kept(), list[str]()
    memory.keeps(kept)

    def make() -> str:
        if not (kept.forgot and let_go):
            raise torch.OutOfMemoryError
        return "made"

    assert memory.made(make, lambda: let_go.append("own")) == "made"
    assert (kept.forgot, let_go) == (1, ["own"])
    with pytest.raises(torch.OutOfMemoryError):  # the second time it is not tried again
        memory.made(no_memory)
    with pytest.raises(RuntimeError, match="another mistake"):
        memory.made(mistaken)
    assert kept.forgot == 2


def no_memory() -> bool:
    raise torch.OutOfMemoryError


def mistaken() -> bool:
    raise RuntimeError("another mistake")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_within_reach_is_what_is_free_and_what_we_have() -> None:
    device = torch.device("cuda")
    before = memory.within_reach(device)
    held = torch.empty(2**28, dtype=torch.uint8, device=device)
    assert memory.within_reach(device) == pytest.approx(before, rel=0.05)
    assert before <= torch.cuda.get_device_properties(device).total_memory
    del held
