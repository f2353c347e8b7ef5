"""Runs that are killed, run out of disk or lose a process go on, and end as if nothing had happened."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

from regard import folder, settings
from regard.training import checkpoint
from tests.tiny import failed, generated_recipe, regard

ROOT = Path(__file__).parents[2]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def recipe_file(place: Path, *overrides: str) -> Path:
    file = place / "mine.toml"
    file.write_text(settings.to_toml(generated_recipe(overrides)), encoding="utf-8")
    return file


def test_a_full_disk_stops_a_run_which_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out = recipe_file(tmp_path), tmp_path / "model"
    save_file = checkpoint.save_file

    def full(tensors: dict[str, Tensor], place: Path) -> None:
        if ".00000020." in str(place) and place.name.startswith("optimiser"):
            place.write_bytes(b"as much as fits")
            raise OSError(errno.ENOSPC, "No space left on device", str(place))
        save_file(tensors, place)

    with torch.random.fork_rng():
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "save_file", full)
            ran = regard("train", file, "--out", out)
        failed(ran, 66, "00000020: the disk must have room for a checkpoint", "The one of step 10 is whole")
        assert sorted(place.name for place in (out / folder.CHECKPOINTS).iterdir()) == ["00000000", "00000010"]
        assert regard("train", "--resume", "--out", out).code == 0
        assert regard("train", file, "--out", tmp_path / "unbroken").code == 0
    assert (out / folder.WEIGHTS).read_bytes() == (tmp_path / "unbroken" / folder.WEIGHTS).read_bytes()


@pytest.mark.slow
def test_a_killed_run_loses_nothing_and_a_flipped_byte_is_noticed() -> None:
    line = [sys.executable, "-m", "benchmarks.kills", "--kills", "3", "--flips", "5"]
    ran = subprocess.run(line, cwd=ROOT, env=ONE_THREAD, capture_output=True, text=True, check=True)
    rows = [[cell.strip() for cell in row.split("|")[2:-1]] for row in ran.stdout.split("\n")[2:5]]
    assert rows == [["2", "0", "2"], ["1", "0", "1"], ["5", "noticed: 5", "the one before used: 5"]]


@pytest.mark.slow
def test_torchrun_starts_a_team_again_that_lost_a_member_and_it_goes_on_by_itself(tmp_path: Path) -> None:
    file = recipe_file(tmp_path, "training={steps=200, validate_every=200, save_every=20, keep=2, average=1}")
    places = [tmp_path / "killed", tmp_path / "unbroken"]
    for out in places:
        line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        line += ["--max-restarts", "1", "-m", "regard", "train", str(file), "--out", str(out)]
        with (tmp_path / "log").open("w") as log, subprocess.Popen(line, env=ONE_THREAD, stderr=log) as launcher:
            if out == places[0]:
                wait_for(out / folder.CHECKPOINTS / "00000060")
                os.kill(members_of(launcher.pid)[1], signal.SIGKILL)
            assert launcher.wait(300) == 0, (tmp_path / "log").read_text()
    metrics = (places[0] / folder.METRICS).read_text()
    assert len(re.findall(r'"event": "start"', metrics)) == 2
    assert (places[0] / folder.WEIGHTS).read_bytes() == (places[1] / folder.WEIGHTS).read_bytes()


def wait_for(place: Path) -> None:
    end = time.monotonic() + 200
    while not place.exists():
        assert time.monotonic() < end, f"{place} never came"
        time.sleep(0.02)


def members_of(launcher: int) -> list[int]:
    """The processes that torchrun started."""
    return [int(number) for number in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()]
