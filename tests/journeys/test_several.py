"""A whole run of two processes, from the command line to the model folder."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from regard import settings
from regard.api import load
from tests.tiny import generated_recipe

LATE = """
import sys, torch
from regard.training.team import join
with join(torch.device("cpu")):
    torch.distributed.all_reduce(torch.ones(int(sys.argv[1])), async_op=True)
"""


def two(*arguments: str) -> tuple[list[int], list[tuple[str, str]]]:
    """How two Pythons that meet end, and what each of them says."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, *arguments], env=os.environ | meeting | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        said = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [process.returncode for process in processes], said


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_processes_end_with_one_model(tmp_path: Path, parallel: str) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(settings.to_toml(generated_recipe(["training.steps=6", "training.validate_every=4"])))
    out = tmp_path / "model"
    codes, said = two("-m", "regard", "train", str(recipe), f"training.parallel={parallel}", "--out", str(out))
    assert codes == [0, 0], said
    assert "All 6 steps done." in said[0][1]
    assert said[1] == ("", "")
    assert len(load(out).translate(["one"])) == 1


@pytest.mark.parametrize("numbers", [300_000, 1_000_000, 3_000_000])
def test_python_ends_after_the_threads_that_hold_tensors_of_a_team(numbers: int) -> None:
    """These are still summing when the team is done; a thread that outlives Python ends the process with SIGABRT."""
    assert two("-c", LATE, str(numbers)) == ([0, 0], [("", "")] * 2)
