"""Who is told to stop, by Ctrl-C, a cluster or a closing laptop, loses nothing: real processes, real signals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import torch

from regard import experiment, folder, settings, signals
from regard.training import checkpoint
from tests.tiny import generated_recipe, regard

TRAINING = "training={{steps={steps}, validate_every=1000, save_every=1000, keep=2, average=1}}"


def test_a_terminated_run_saves_says_how_to_go_on_and_ends_in_the_same_model(tmp_path: Path) -> None:
    file, out = tmp_path / "mine.toml", tmp_path / "model"
    file.write_text(settings.to_toml(generated_recipe([TRAINING.format(steps=100_000)])), encoding="utf-8")
    line = [sys.executable, "-m", "regard", "train", str(file), "--out", str(out)]
    # Sums are rounded by how many threads share them: to the bit means with as many as here.
    one = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=one) as child:
        try:
            wait_for_step(out / folder.METRICS, 5)
            child.send_signal(signal.SIGTERM)
            said, complaints = child.communicate(timeout=60)
        finally:
            child.kill()
    assert child.returncode == 143
    assert said == ""
    assert "Traceback" not in complaints
    assert re.search(r"^Stopped by SIGTERM after step [\d,]+; nothing is lost\.$", complaints, re.MULTILINE)
    (command,) = re.findall(r"^Go on with: regard (.*)$", complaints, re.MULTILINE)
    assert command == f"train --resume --out {out}"
    reached = int(checkpoint.found(out / folder.CHECKPOINTS)[-1].name)  # the first may be that of step 0

    # Seven more steps in this process, and as many from the beginning without a break.
    steps = reached + 7
    ran = regard(*command.split(" "), f"training.steps={steps}")
    assert (ran.code, ran.out) == (0, ""), ran.err
    assert f"All {steps:,} steps done.\nThe model is in {out}." in ran.err
    events = [json.loads(line) for line in (out / folder.METRICS).read_text().split("\n")[:-1]]
    assert [event["step"] for event in events if event["event"] == "step"] == list(range(1, steps + 1))
    with torch.random.fork_rng():
        experiment.train(generated_recipe([TRAINING.format(steps=steps)]), tmp_path / "unbroken")
    assert (out / folder.WEIGHTS).read_bytes() == (tmp_path / "unbroken" / folder.WEIGHTS).read_bytes()


SLOW = """
import time
print("importing", flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:  # lost, as C code may lose it
    pass
"""


@pytest.mark.parametrize("module", ["typer", "torch"])
@pytest.mark.parametrize("way", ["module", "script"])
def test_ctrl_c_while_python_imports_ends_quietly(module: str, way: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}.py").write_text(SLOW, encoding="utf-8")
    line = {"module": ["-m", "regard"], "script": ["-c", script()]}[way]
    places = os.pathsep.join([str(tmp_path), *sys.path])
    with subprocess.Popen(
        [sys.executable, *line, "inspect", "base"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": places},
    ) as child:  # fmt: skip
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "importing\n"
            child.send_signal(signal.SIGINT)
            said, complaints = child.communicate(timeout=60)
        finally:
            child.kill()
    assert (child.returncode, said, complaints) == (130, "", "regard: stopped by SIGINT before its end.\n")


def test_elsewhere_ctrl_c_does_what_it_always_does() -> None:
    code = """
import signal
from regard import signals
for ignored in (False, True):
    if ignored:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    signals.leave_imports_quietly()
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        print("interrupted")
    else:
        print("ignored")
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "interrupted\nignored\n"


def run_with_signals(code: str) -> subprocess.CompletedProcess[str]:
    """What a process does in which `noted` or `stoppable` guard something."""
    head = "import signal\nfrom regard import signals\n"
    return subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("first", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize(("second", "code"), [("SIGINT", -signal.SIGINT), ("SIGTERM", -signal.SIGTERM)])
def test_a_second_signal_ends_what_noted_the_first(first: str, second: str, code: int) -> None:
    ran = run_with_signals(f"""
with signals.noted() as received:
    signal.raise_signal(signal.{first})
    print(received, flush=True)
    signal.raise_signal(signal.{second})
    print("went on", flush=True)
""")
    assert (ran.stdout, ran.returncode) == (f"['{first}']\n", code), ran.stderr


@pytest.mark.parametrize("guard", ["noted", "stoppable"])
def test_a_signal_that_was_ignored_stays_so(guard: str) -> None:
    ran = run_with_signals(f"""
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as `trap '' INT` has it
with signals.{guard}() as received:
    for _ in range(2):
        signal.raise_signal(signal.SIGINT)
    print(received)
    before = signal.getsignal(signal.SIGTERM)
print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN, before is signal.SIG_DFL)
""")
    assert (ran.stdout, ran.returncode) == ({"noted": "[]", "stoppable": "None"}[guard] + "\nTrue False\n", 0), (
        ran.stderr
    )


def test_a_signal_that_python_does_not_handle_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    handled: list[int] = []
    monkeypatch.setattr(signal, "getsignal", lambda number: None)  # a handler that a C library has set
    monkeypatch.setattr(signal, "signal", lambda number, handler: handled.append(number))
    with signals.noted() as received:
        pass
    assert (received, handled) == ([], [])


def script() -> str:
    """What the installed `regard` runs."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, name = project["scripts"]["regard"].partition(":")
    return f"from {module} import {name}; {name}()"


def wait_for_step(metrics: Path, step: int) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if metrics.is_file() and f'"step": {step},' in metrics.read_text():
            return
        time.sleep(0.02)
    raise AssertionError(f"step {step} never came")
