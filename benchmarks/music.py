"""Chorales and piano music, from nothing to a table of likelihoods and five pieces, through Regard's own commands.

    python -m benchmarks.music --data FOLDER --out FOLDER [--minutes 9] [--only music-jsb,music-piano] [SETTING …]

The folder of data holds music-jsb and music-asap. The models of all recipes are trained side by side, each for at most
the minutes given less those that the rest takes. On an H200 all three took 11 minutes with nine given; on a CPU,
settings such as model.layers=1 training.steps=20 make it a trial. In the output folder come to lie: the model folders,
five pieces as MIDI files and piano rolls, results.json, and pieces.tar.gz with the pieces.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regard.viewing.training_curves import read_metrics

DATA = Path(__file__).parents[2] / "shared/data"
RECIPES = {
    "music-jsb": "music-jsb/Jsb16thSeparated.json.xz",
    "music-jsb-quarter": "music-jsb/jsb-chorales-quarter.json.xz",
    "music-piano": "music-asap/asap-midi-bach-haydn-mozart-schubert.tar.xz",
}
PIECES = [
    ("music-jsb", 1, ["--top-p", "0.98"]),
    ("music-jsb", 2, ["--top-p", "0.98"]),
    ("music-jsb", 3, ["--top-p", "0.98"]),
    ("music-piano", 1, ["--top-p", "0.97"]),
    ("music-piano", 2, ["--top-p", "0.97"]),
]
AFTER = 2.0  # minutes kept for measuring and composing


@dataclass(frozen=True)
class Row:
    recipe: str
    split: str
    pieces: int
    words: int
    nats_a_word: float
    nats_a_step: float | None
    """Of the four voices together; for chorales."""
    parameters: int
    steps: int


def train(name: str, arguments: argparse.Namespace, minutes: float) -> subprocess.Popen[bytes] | None:
    """Begin a run; None where an earlier one left a finished model."""
    place = arguments.out / name
    if (place / "manifest.json").is_file():
        return None
    command = [sys.executable, "-m", "regard", "train", name, f"data.music={arguments.data / RECIPES[name]}"]
    command += [f"training.minutes={minutes:.2f}", *arguments.settings, "--out", str(place)]
    log = (arguments.out / f"{name}.log").open("wb")
    return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def measure(place: Path) -> list[Row]:
    """What `regard evaluate` says of the validation and the test pieces."""
    report, facts = (_asked(command, str(place), "--json") for command in ("evaluate", "inspect"))
    steps = read_metrics(place / "metrics.jsonl")[-1]["step"]
    figures = {score["name"]: score for score in report["scores"]}
    rows = []
    for file in report["files"]:
        word, step = (figures.get(f"nats per {unit}, {file['role']}") for unit in ("word", "step"))
        words = int(word["signature"].rpartition(":")[2])
        rows.append(Row(place.name, file["role"], file["lines"], words, word["value"], step and step["value"],
                        facts["parameters"], steps))  # fmt: skip
    return rows


def _asked(*arguments: str) -> Any:
    command = [sys.executable, "-m", "regard", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def compose(arguments: argparse.Namespace) -> list[Path]:
    files = []
    for number, (name, seed, sampling) in enumerate(PIECES, 1):
        if not (arguments.out / name / "manifest.json").is_file():
            continue
        midi, roll = (arguments.out / f"music-{number}.{ending}" for ending in ("mid", "svg"))
        command = [sys.executable, "-m", "regard", "generate", str(arguments.out / name), "--seed", str(seed)]
        command += [*sampling, "--midi", str(midi), "--roll", str(roll), "--max-tokens", str(arguments.words)]
        if subprocess.run(command, check=False).returncode == 0:
            files += [midi, roll]
    return files


def table(rows: list[Row]) -> str:
    lines = ["| recipe | split | pieces | words | nats a word | nats a step | parameters | steps |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for row in rows:
        step = "" if row.nats_a_step is None else f"{row.nats_a_step:.3f}"
        lines.append(
            f"| {row.recipe} | {row.split} | {row.pieces} | {row.words:,} | {row.nats_a_word:.4f} | {step} | "
            f"{row.parameters:,} | {row.steps:,} |"
        )
    return "\n".join(lines)


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=Path("runs/music"))
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--only", default=",".join(RECIPES), help="names of recipes, with commas between them")
    parser.add_argument("--words", type=int, default=1_024, help="of each piece")
    parser.add_argument("settings", nargs="*", metavar="SETTING", help="as `regard train` takes them")
    arguments = parser.parse_args([] if given is None else given)
    if not (arguments.data / "music-jsb").is_dir() or (given is None and not _has_gpu()):
        print("  skipped: needs the data and a GPU; or call python -m benchmarks.music with settings")
        return
    names = arguments.only.split(",")
    if unknown := sorted(set(names) - set(RECIPES)):
        parser.error(f"--only: must name some of {', '.join(RECIPES)}, but names {', '.join(unknown)}")
    began = time.monotonic()
    arguments.out.mkdir(parents=True, exist_ok=True)
    runs = {name: train(name, arguments, max(arguments.minutes - AFTER, 0.2)) for name in names}
    rows: list[Row] = []
    for name, run in runs.items():
        code = 0 if run is None else run.wait()
        log = arguments.out / f"{name}.log"
        last = log.read_text(errors="replace").splitlines()[-3:] if log.is_file() else []
        print(
            f"  {name}: exit {code} after {(time.monotonic() - began) / 60:.1f} minutes",
            *last,
            sep="\n    ",
            flush=True,
        )
        if code == 0:
            rows += measure(arguments.out / name)
            results = json.dumps([asdict(row) for row in rows], indent=2)
            (arguments.out / "results.json").write_text(results + "\n", encoding="utf-8")
    files = compose(arguments)
    with tarfile.open(arguments.out / "pieces.tar.gz", "w:gz") as archive:
        for file in files:
            archive.add(file, file.name)
    print(f"\n{table(rows)}\n\n{len(files) // 2} pieces, {(time.monotonic() - began) / 60:.1f} minutes")


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


if __name__ == "__main__":
    main(sys.argv[1:])
