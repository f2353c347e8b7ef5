"""Runs of the project's own commands, some side by side, that go on where they were stopped; for other benchmarks.

A signal that asks to stop is handed on to every command that runs, and these are waited for: training saves a
checkpoint first. A second signal ends them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from regard.errors import MissingError, RegardError
from regard.files import write_file
from regard.viewing.training_curves import read_metrics

LOOK = 0.2  # seconds between two looks at whether to stop
PATIENCE = 60.0  # seconds for a command to end by itself when the time is up
DONE = "done"
TRIAL = "runs/{}-trial"  # what --set makes is no result, and must not be taken for one


@contextmanager
def mistakes_told(name: str) -> Iterator[None]:
    """What the user can mend ends a benchmark of this name with a sentence, as it ends a command."""
    try:
        yield
    except RegardError as error:
        print(f"{name}: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error


class Stopped(Exception):  # noqa: N818
    """The time is up, or a signal came; says which."""


@dataclass(frozen=True)
class Job:
    """Something to run: its name, what it takes of the GPU, what has to be there before it, and how it goes."""

    name: str
    share: float
    run: Callable[[Bench], None]
    needs: tuple[str, ...] = ()
    minutes: float = 0.0
    """About how long it took on an H200, beside others if it shares that; 0 where it has not been run."""


@dataclass
class Bench:
    """Where runs go, where results go, and when to stop."""

    work: Path
    out: Path
    data: Path
    deadline: float
    environment: dict[str, str] = field(default_factory=dict)
    settings: tuple[str, ...] = ()
    """On top of every recipe, for a trial."""
    signals: list[int] = field(default_factory=list)
    """Those that came and asked to stop."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def train(self, name: str, recipe: str, *overrides: str) -> Path:
        """A finished model: found, or trained on from its newest checkpoint, or trained."""
        folder, asked = self.work / name, [recipe, *overrides, *self.settings]
        self._must_be_the_same(name, asked)
        if not (folder / "manifest.json").is_file():
            begun = any((folder / "checkpoints").glob("0*")) and (folder / "recipe.toml").is_file()
            how = ["--resume"] if begun else asked
            started = time.monotonic()
            self.regard("train", *how, "--out", str(folder))
            if not begun:
                self.result(name, "seconds from text to model", round(time.monotonic() - started, 1))
        for kept in ("curves.svg", "card.md"):
            if (folder / kept).is_file():
                self.write(f"{name}-{kept}", (folder / kept).read_text())
        return folder

    def _must_be_the_same(self, name: str, asked: Sequence[str]) -> None:
        """Raise where a run of this name was begun with other words: its model would be published as what it is not."""
        note = self.work / f"{name}.asked.json"
        before = json.loads(note.read_bytes()) if note.is_file() else None
        if before not in (None, [*asked]):
            differs = sorted({*before} ^ {*asked}) or asked
            raise RuntimeError(
                f"{self.work / name}: must go on with the settings it began with, but {', '.join(differs)} differs. "
                "Ask for the same, or choose another --work and --out."
            )
        write_file(note, json.dumps(asked, ensure_ascii=False))

    def evaluate(self, folder: Path, *arguments: str) -> dict[str, float]:
        """The scores of `regard evaluate`, by name."""
        return {score["name"]: score["value"] for score in self.report(folder, *arguments)["scores"]}

    def report(self, folder: Path, *arguments: str) -> dict[str, Any]:
        """All that `regard evaluate` says; it is kept beside the model, and found again by the same arguments."""
        # A digest, since arguments are paths, which are no names of files. A check by eye finds them in the file.
        digest = hashlib.sha256(json.dumps(arguments).encode()).hexdigest()
        kept = folder / f"evaluated-{digest[:12]}.json"
        if not kept.is_file():
            said = json.loads(self.regard("evaluate", str(folder), *arguments, "--json"))
            write_file(kept, json.dumps({"arguments": arguments, "report": said}, ensure_ascii=False))
        return json.loads(kept.read_text())["report"]

    def regard(self, *arguments: str) -> str:
        """What a command prints; its messages go into a log. At the deadline, or by a signal, it is asked to stop."""
        if (why := self._over()) is not None:
            raise Stopped(why)
        with (self.work / "log.txt").open("ab") as log:
            log.write(f"\n$ regard {' '.join(arguments)}\n".encode())
            log.flush()
            # In a group of its own: a Ctrl-C that reached it directly, too, would be its second, and it would not save.
            process = subprocess.Popen(
                [sys.executable, "-m", "regard", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **self.environment},
                process_group=0,
            )
            printed, why = self._wait(process)
        if process.returncode and why is not None:
            raise Stopped(why)
        if process.returncode:
            raise RuntimeError(
                f"regard {' '.join(arguments)}: ended with {process.returncode}; see {self.work}/log.txt"
            )
        return printed.decode()

    def _wait(self, process: subprocess.Popen[bytes]) -> tuple[bytes, str | None]:
        """What a command printed, and why it was asked to stop, if it was."""
        why, patience = None, math.inf
        while True:
            try:
                return process.communicate(timeout=LOOK)[0], why
            except subprocess.TimeoutExpired:
                if why is None and (why := self._over()) is not None:
                    process.send_signal(signal.SIGTERM)  # a training run writes a checkpoint
                    patience = math.inf if self.signals else time.monotonic() + PATIENCE
                if len(self.signals) > 1 or time.monotonic() > patience:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)

    def _over(self) -> str | None:
        """Why nothing more may be done; None if it may."""
        if self.signals:
            return f"{signal.Signals(self.signals[0]).name} came"
        return "the time was up" if time.monotonic() >= self.deadline else None

    @contextmanager
    def heeding(self) -> Iterator[None]:
        """Note signals that ask to stop, instead of dying of them and leaving commands behind; a third does that."""
        # A terminal that is closed tells only us, as commands have groups of their own. With nohup nobody is told.
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: found for number in numbers if (found := signal.getsignal(number)) is not signal.SIG_IGN}

        def put_back() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        def note(number: int, _frame: FrameType | None) -> None:
            self.signals.append(number)
            if len(self.signals) > 1:
                put_back()
                return
            sentence = "the commands that run are asked to stop, and waited for; a second signal ends them"
            with suppress(OSError):  # nobody reads it
                os.write(2, f"{signal.Signals(number).name}: {sentence}\n".encode())

        for number in before:
            signal.signal(number, note)
        try:
            yield
        finally:
            put_back()

    def leave(self, endings: Mapping[str, str]) -> None:
        """End with the exit code of the signal that came, or with 1 where not all runs came to their end."""
        if self.signals:
            raise SystemExit(128 + self.signals[0])
        if any(ending != DONE for ending in endings.values()):
            raise SystemExit(1)

    def write(self, name: str, content: str) -> None:
        """A file beside the results."""
        write_file(self.out / name, content)

    def result(self, job: str, what: str, value: object) -> None:
        """A line of the results."""
        with self._lock, (self.out / "results.jsonl").open("a") as file:
            file.write(json.dumps({"job": job, "what": what, "value": value}) + "\n")

    def note(self, job: str, folder: Path) -> None:
        """What a finished run says of itself, in lines of the results."""
        for what, value in facts(folder).items():
            self.result(job, what, value)


def results(out: Path) -> list[dict[str, Any]]:
    """All results, of this call and of earlier ones; what was found twice as it was found last."""
    file = out / "results.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
    return list({(line["job"], line["what"]): line for line in lines}.values())


def facts(folder: Path) -> dict[str, Any]:
    """What a finished run says of itself: parameters, minutes of training, steps, and the losses it reached.

    A loss that was no number is None.
    """
    events = read_metrics(folder / "metrics.jsonl")
    losses: dict[int, float | None] = {}
    for event in events:
        if event["event"] == "validation":
            # A run that went back to a checkpoint left behind what it had validated after that.
            losses = {step: loss for step, loss in losses.items() if step < event["step"]}
            losses[event["step"]] = event["nll"]
    final = [event["nll"] for event in events if event["event"] == "average"]
    # Of all steps it made, those that were left behind as well: they took their time.
    seconds = sum(event["took"] for event in events if event["event"] == "step")
    tokens = sum(event["tokens"] for event in events if event["event"] == "step")
    return {
        "parameters": parameters(folder),
        "steps": events[-1]["step"],
        "minutes": round(seconds / 60, 2),
        "tokens_per_second": round(tokens / max(seconds, 1e-9)),
        "best_loss": min((loss for loss in losses.values() if loss is not None), default=None),
        "loss": final[-1] if final else list(losses.values())[-1],
    }


def parameters(folder: Path) -> int:
    """How many a finished model has; matrices used twice are counted once."""
    from regard.folder import read_weights

    return sum(weight.numel() for weight in read_weights(folder).values())


def run_all(jobs: Sequence[Job], bench: Bench) -> dict[str, str]:
    """Run jobs in their order, side by side as long as the GPU is not full; how each ended."""
    endings: dict[str, str] = {}
    running: dict[str, threading.Thread] = {}
    shares = {job.name: job.share for job in jobs}
    known = {job.name for job in jobs}

    def work(job: Job) -> None:
        began = time.monotonic()
        try:
            job.run(bench)
            endings[job.name] = DONE
        except Stopped as stopped:
            endings[job.name] = f"stopped: {stopped}"
        except Exception as error:  # the others go on
            endings[job.name] = f"failed: {error}"
        minutes = (time.monotonic() - began) / 60
        print(f"{job.name}: {endings[job.name]} after {minutes:.1f} minutes", file=sys.stderr, flush=True)

    waiting = list(jobs)
    while waiting or running:
        for name in [name for name, thread in running.items() if not thread.is_alive()]:
            del running[name]
        for job in list(waiting):
            before = [need for need in job.needs if need in known]
            if any(endings.get(need, DONE) != DONE for need in before):
                endings[job.name] = "left out: what it needs is not there"
                waiting.remove(job)
                continue
            fits = sum(shares[name] for name in running) + job.share <= 1.01
            if fits and all(need in endings for need in before):
                waiting.remove(job)
                running[job.name] = threading.Thread(target=work, args=(job,))
                running[job.name].start()
        time.sleep(LOOK)
    return endings


def options(name: str, description: str | None, minutes: float) -> argparse.ArgumentParser:
    """The command line of a benchmark of this name, which has so many minutes unless told otherwise."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", type=Path, help=f"where results go; runs/{name}-results, with --set {TRIAL.format(name)}-results"
    )
    parser.add_argument("--work", type=Path, help=f"where models go; runs/{name}, with --set {TRIAL.format(name)}")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("REGARD_DATA", "../shared/data")))
    limit = "as long as it takes" if math.isinf(minutes) else f"{minutes:g}"
    parser.add_argument(
        "--minutes", type=float, default=minutes, help=f"when to stop all runs, to go on later: {limit}"
    )
    parser.set_defaults(name=name)
    parser.add_argument("--only", help="names of runs, with commas between them; * stands for anything")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="on top of every recipe, for a trial")
    parser.add_argument("--list", action="store_true", help="name the runs, and run none")
    parser.add_argument("--cpu", action="store_true", help="run without a GPU, too: for a trial with --set")
    return parser


def run_asked(
    asked: argparse.Namespace,
    jobs: Sequence[Job],
    table: Callable[[Path, dict[str, str]], str],
    spare: float,
    settings: tuple[str, ...] = (),
) -> None:
    """Run what the command line asks for, and write what `table` makes of the results and of how each run ended.

    So many seconds are `spare` at the end; `settings` are on top of every recipe, under those of the command line.
    """
    patterns = asked.only.split(",") if asked.only else ["*"]
    found = {pattern: [job for job in jobs if fnmatchcase(job.name, pattern)] for pattern in patterns}
    if unknown := sorted(pattern for pattern, ones in found.items() if not ones):
        raise SystemExit(f"no such runs: {', '.join(unknown)}; see --list")
    chosen = [job for job in jobs if any(job in ones for ones in found.values())]
    if asked.list:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader who leaves, as `head` does, ends it quietly
        print("\n".join(map(_listed, chosen)))
        return
    _must_have_gpu(asked)
    place = TRIAL.format(asked.name) if asked.set else f"runs/{asked.name}"
    work, out = asked.work or Path(place), asked.out or Path(f"{place}-results")
    if not asked.data.is_dir():
        _refuse(f"--data: {asked.data} must be the folder of all corpora, but is no folder. See docs/reproduce.md.")
    for folder in (work, out):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            _refuse(f"{folder}: must be a folder to write to, but cannot be made ({error.strerror}). Choose another.")
    places = work.resolve(), out.resolve(), asked.data.resolve()
    deadline = time.monotonic() + 60 * asked.minutes - spare
    bench = Bench(*places, deadline, settings=(*settings, *asked.set))
    with bench.heeding():
        endings = run_all(chosen, bench)
    made = table(out, endings)
    bench.write("table.md", made + "\n")
    if (log := bench.work / "log.txt").is_file():
        bench.write("log.txt", log.read_text(errors="replace")[-200_000:])
    print(made)
    bench.leave(endings)


def _refuse(sentence: str) -> NoReturn:
    print(sentence, file=sys.stderr)
    raise SystemExit(MissingError.exit_code)


def _listed(job: Job) -> str:
    """A run in a line: how long it takes if that is known, of how much of the GPU, and after which others."""
    takes = f"about {job.minutes:g} {'minute' if job.minutes == 1 else 'minutes'}, " if job.minutes else ""
    after = f", after {', '.join(job.needs)}" if job.needs else ""
    return f"{job.name:28} {takes}{100 * job.share:.0f} % of the GPU{after}"


def _must_have_gpu(asked: argparse.Namespace) -> None:
    import torch

    if not asked.cpu and not torch.cuda.is_available():
        raise SystemExit(
            "these runs need a GPU, but torch finds no CUDA device; on a CPU they would take hours and many gigabytes. "
            "Run them where one is, or try them on the CPU with --cpu --set training.steps=20 and --only."
        )
