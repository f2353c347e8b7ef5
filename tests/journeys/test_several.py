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


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_processes_end_with_one_model(tmp_path: Path, parallel: str) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(settings.to_toml(generated_recipe(["training.steps=6", "training.validate_every=4"])))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    out = tmp_path / "model"
    command = [sys.executable, "-m", "regard", "train", str(recipe), f"training.parallel={parallel}", "--out", str(out)]
    processes = [
        subprocess.Popen(
            command, env=os.environ | meeting | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        said = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], said
    assert "All 6 steps done." in said[0][1]
    assert said[1] == ("", "")
    assert len(load(out).translate(["one"])) == 1
