"""A training run is killed again and again, and bytes of its checkpoints are flipped: is anything lost?

    python -m benchmarks.kills [--kills 40] [--flips 50] [--seed 0]

Each kill is a run of its own, ended by SIGKILL: half of them at any moment, half while a checkpoint is being written.
Then every checkpoint in the folder has to be whole, and `regard train --resume` has to end in the weights of a run
that was never killed, to the bit. Runs are processes forked from this one, which has imported torch for all of them;
they execute the command line `regard train …`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

RECIPE = """
name = "killed"
device = "cpu"
data = {kind = "generated", pairs = 200, valid = 10, test = 10}
tokenizer = {vocabulary = 150}
batch = {tokens = 256}
search = {extra_length = 5}
log = {tensorboard = false}

[model]
kind = "transformer"
encoder_layers = 1
decoder_layers = 1
d_model = 16
d_ff = 32
heads = 2
dropout = 0.2

[training]
steps = 30
validate_every = 15
save_every = 2
keep = 3
average = 2
ema = 0.9
optimiser = {warmup = 10, clip = 1.0}
"""
SAVES = 15
TRIES = 50  # to hit a window that is open for some milliseconds


@dataclass
class Count:
    """What came of the kills of one kind."""

    kills: int = 0
    unreadable: int = 0
    exact: int = 0


def start(out: Path, *arguments: str) -> int:
    """Begin `regard train ARGUMENTS --out OUT` in a process of its own; its number."""
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        with out.with_suffix(".log").open("a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        sys.argv = ["regard", "train", *arguments, "--out", str(out)]
        from regard.cli import main as regard

        regard()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    finally:
        os._exit(code)


def finish(child: int) -> int:
    """Wait for it; the code it ended with."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def over(child: int) -> bool:
    return os.waitpid(child, os.WNOHANG)[0] != 0


def hidden(folder: Path) -> list[str]:
    """What writers leave for as long as they write."""
    return [entry.name for entry in os.scandir(folder) if entry.name.startswith(".")] if folder.is_dir() else []


def kill_at_any_moment(out: Path, recipe: Path, seconds: float, draw: random.Random) -> bool:
    """Kill a run between its first checkpoint and its end; False if it was over before."""
    child = start(out, str(recipe))
    while not list((out / "checkpoints").glob("0*")):
        time.sleep(0.001)
    time.sleep(draw.uniform(0, seconds))
    return end(child)


def kill_while_saving(out: Path, recipe: Path, draw: random.Random) -> bool:
    """Kill a run in the middle of writing a checkpoint; False if it was through before."""
    child = start(out, str(recipe))
    passed: set[str] = set()
    wanted = draw.randrange(1, SAVES)  # not the first: before it there is nothing to go on from
    while len(passed) <= wanted:
        if over(child):
            return False
        passed |= {name for name in hidden(out / "checkpoints") if name.endswith(".writing")}
    time.sleep(draw.uniform(0, 0.005))
    return end(child) and bool(hidden(out / "checkpoints"))


def end(child: int) -> bool:
    os.kill(child, signal.SIGKILL)
    return finish(child) == -signal.SIGKILL


def weights_of(out: Path) -> str:
    return hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()


def examine(out: Path, expected: str, count: Count) -> None:
    """Look at a killed run's folder, go on with the run, and compare."""
    from regard.errors import RegardError
    from regard.files import check_folder
    from regard.training import checkpoint

    count.kills += 1
    for place in checkpoint.found(out / "checkpoints"):
        try:
            check_folder(place)
        except RegardError as error:
            print(error)
            count.unreadable += 1
    code = finish(start(out, "--resume"))
    left = hidden(out) + hidden(out / "checkpoints")
    if code == 0 and weights_of(out) == expected and not left:
        count.exact += 1
    else:
        print(f"{out}: ended with {code}, left {left}: {out.with_suffix('.log').read_text()[-2000:]}")


def killed(recipe: Path, home: Path, kills: int, draw: random.Random) -> list[Count]:
    """All kills: at any moment, and while saving."""
    unbroken = home / "unbroken"
    child = start(unbroken, str(recipe))
    while not list((unbroken / "checkpoints").glob("0*")):
        time.sleep(0.001)
    began = time.monotonic()
    assert finish(child) == 0, unbroken.with_suffix(".log").read_text()
    seconds, expected = time.monotonic() - began, weights_of(unbroken)
    counts = [Count(), Count()]
    for number in range(kills):
        saving = number % 2
        for _ in range(TRIES):
            out = home / f"run-{number}"
            shutil.rmtree(out, ignore_errors=True)
            if saving and kill_while_saving(out, recipe, draw):
                break
            if not saving and kill_at_any_moment(out, recipe, seconds, draw):
                break
        else:
            raise SystemExit(f"kill {number}: {TRIES} runs were over before they could be killed")
        examine(out, expected, counts[saving])
        shutil.rmtree(out)
    return counts


def flipped(checkpoints: Path, flips: int, draw: random.Random) -> int:
    """Flip one byte of the newest checkpoint, each time another; how often it was noticed and the one before used."""
    from regard.training import checkpoint

    *_, before, newest = checkpoint.found(checkpoints)
    noticed = 0
    for _ in range(flips):
        file = draw.choice(sorted(newest.iterdir()))
        content = bytearray(file.read_bytes())
        place = draw.randrange(len(content))
        content[place] ^= draw.randrange(1, 256)
        whole = file.read_bytes()
        file.write_bytes(content)
        snapshot, lines = checkpoint.newest(checkpoints)
        noticed += snapshot.step == int(before.name) and len(lines) == 1
        file.write_bytes(whole)
    assert checkpoint.newest(checkpoints)[0].step == int(newest.name)
    return noticed


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--flips", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments or [])
    os.environ["OMP_NUM_THREADS"] = "1"  # to the bit means with as many threads
    # Before the first fork, and once for all of them.
    import torch._dynamo

    import regard.experiment  # noqa: F401

    torch.set_num_threads(1)
    draw = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        recipe = home / "killed.toml"
        recipe.write_text(RECIPE)
        counts = killed(recipe, home, asked.kills, draw)
        noticed = flipped(home / "unbroken" / "checkpoints", asked.flips, draw)
    print("| what | times | unreadable folders | exact resumes |")
    print("|---|---|---|---|")
    for name, count in zip(("kill -9 at any moment", "kill -9 while a checkpoint is written"), counts, strict=True):
        print(f"| {name} | {count.kills} | {count.unreadable} | {count.exact} |")
    print(f"| one byte of a checkpoint flipped | {asked.flips} | noticed: {noticed} | the one before used: {noticed} |")


if __name__ == "__main__":
    main(sys.argv[1:])
