"""Checkpoints are written while training goes on, one at a time, and what goes wrong is not lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from regard.errors import MissingError
from regard.training import checkpoint, saving
from regard.training.checkpoint import Snapshot
from regard.training.saving import Saver


def snapshot(step: int) -> Snapshot:
    return Snapshot(step, {"w": torch.full((3,), float(step))}, {}, checkpoint.random_state())


class Gate:
    """A disk that writes only when it is let, or never again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.asked, self.error = threading.Event(), threading.Event(), False
        self._save = checkpoint.save
        monkeypatch.setattr(saving.checkpoint, "save", self.save)

    def save(self, folder: Path, taken: Snapshot, keep: int, spare: object) -> Path:
        self.asked.set()
        assert self.open.wait(20)
        if self.error:
            raise MissingError("the disk is full")
        return self._save(folder, taken, keep)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


def steps(folder: Path) -> list[int]:
    return [int(place.name) for place in checkpoint.found(folder)]


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path: Path, gate: Gate) -> None:
    with Saver(tmp_path) as saver:
        saver.save(snapshot(1), keep=5)
        assert gate.asked.wait(20)
        saver.check()  # nothing has gone wrong, and nothing has been waited for
        assert steps(tmp_path) == []
        gate.open.set()
        saver.save(snapshot(2), keep=5)
        assert steps(tmp_path)[0] == 1
    assert steps(tmp_path) == [1, 2]


def test_waiting_waits(tmp_path: Path) -> None:
    with Saver(tmp_path) as saver:
        for step in (1, 2, 3):
            saver.save(snapshot(step), keep=2)
            saver.wait()
            assert steps(tmp_path)[-1] == step
    assert steps(tmp_path) == [2, 3]


def leave(saver: Saver) -> None:
    with saver:
        pass


def finished(saver: Saver) -> Saver:
    """Once its thread has ended."""
    for thread in threading.enumerate():
        if thread.name == "checkpoint":
            thread.join()
    return saver


@pytest.mark.parametrize(
    "call",
    [Saver.check, Saver.wait, lambda saver: saver.save(snapshot(2), keep=5), leave],
    ids=lambda call: call.__name__,
)
def test_what_goes_wrong_in_the_background_is_raised_by_the_next_call(
    tmp_path: Path, gate: Gate, call: Callable[[Saver], None]
) -> None:
    saver = Saver(tmp_path)
    gate.error = True
    gate.open.set()
    saver.save(snapshot(1), keep=5)
    with pytest.raises(MissingError, match="the disk is full"):
        call(finished(saver))
    saver.wait()  # said once


def failing(saver: Saver) -> None:
    with saver:
        saver.save(snapshot(1), keep=5)
        raise ValueError("the sky fell")


def test_another_error_is_not_hidden_by_one_of_the_disk(tmp_path: Path, gate: Gate) -> None:
    gate.error = True
    gate.open.set()
    with pytest.raises(ValueError, match="the sky fell"):
        failing(Saver(tmp_path))


def test_what_a_killed_run_left_is_no_checkpoint_and_is_cleared_away(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, snapshot(1), keep=5)
    for name in (".00000002.writing", ".00000001.removing"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(b"half")
    assert steps(tmp_path) == [1]
    Saver(tmp_path)
    assert [place.name for place in tmp_path.iterdir()] == ["00000001"]
