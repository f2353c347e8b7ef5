"""Who failed, and who only failed because another did; tests/training/test_team.py does it with real processes."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from torch.distributed import HashStore

from regard.errors import DataError
from regard.training import watch
from regard.training.watch import Watch


class Shared(HashStore):
    """A store whose connections are all the same one."""

    def clone(self) -> Shared:
        return self


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Watch]]:
    monkeypatch.setattr(watch, "BEAT", 0.01)
    monkeypatch.setattr(watch, "GRACE", 60.0)  # they share this process, which must not end
    store = Shared()
    watches = [Watch(rank, 2, store) for rank in range(2)]
    yield watches
    for each in watches:
        each.close()


def test_an_error_of_its_own_names_rank_and_place(pair: list[Watch]) -> None:
    assert (
        pair[1]
        .report("step 3, batch 2", ValueError("the sky fell"))
        .endswith(", step 3, batch 2: ValueError: the sky fell")
    )
    assert pair[1].report("step 3", DataError("a batch must fit")).startswith("rank 1 of 2 on ")
    assert pair[1].report("step 3", DataError("a batch must fit")).endswith(", step 3: a batch must fit")


def test_whoever_lost_the_connection_names_the_one_who_failed_before(pair: list[Watch]) -> None:
    said = pair[1].report("step 3", ValueError("the sky fell"))
    assert pair[0].report("step 3", RuntimeError("Connection closed by peer")) == said


def test_whoever_lost_the_connection_names_the_one_who_is_silent(pair: list[Watch]) -> None:
    pair[1].close()
    said = pair[0].report("step 3, batch 2", RuntimeError("Connection closed by peer"))
    assert said.startswith("rank 1 of 2, step 3, batch 2: ended without a word.")


def test_an_error_while_all_are_alive_is_its_own(pair: list[Watch]) -> None:
    said = pair[0].report("step 3", RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert said.startswith("rank 0 of 2 on ")
    assert said.endswith("RuntimeError: mat1 and mat2 shapes cannot be multiplied")
    assert "rank 1" not in pair[0].report("step 3", torch.OutOfMemoryError("no room"))


def test_memory_that_ran_out_is_nobody_elses_fault(pair: list[Watch]) -> None:
    pair[1].close()
    said = pair[0].report("step 3", RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED"))
    assert said.startswith("rank 0 of 2 on ")


def test_a_silent_neighbour_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watch, "BEAT", 0.01)
    monkeypatch.setattr(watch, "GRACE", 0.01)
    monkeypatch.setattr(watch, "SILENCE", 0.2)
    codes: list[int] = []

    class Ended(BaseException):
        pass

    def end(code: int) -> None:
        codes.append(code)
        raise Ended

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(watch.threading, "excepthook", lambda _: None)
    store = Shared()
    gone = Watch(1, 2, store)
    gone.close()
    left = Watch(0, 2, store)
    left._thread.join(20)
    assert codes == [70]
    assert capsys.readouterr().err == "regard: rank 1 of 2: gave no sign of life for 0 s\n"
