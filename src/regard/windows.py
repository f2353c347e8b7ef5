"""A long file worked through in windows of some thousand lines: in order, resumable, by one process or by many.

The answer to each window becomes a file of its own, in a folder beside the output:

    .out.de.parts/00000000      a line of JSON (which job, which input), and below it the answer's lines
    .out.de.parts/00000001      …

A process takes every n-th window. When all are there, the first process joins them into the output and removes the
folder. So a broken run keeps what it has: windows that are there are not done again, by however many processes it goes
on. Each part names the model, the settings and the lines it was made from; parts of another job are refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from regard.errors import DataError, MissingError, UsageError
from regard.files import write_file

WINDOW = 2_000  # lines
PAUSE = 0.2  # seconds between two looks at what other processes have done


@dataclass(frozen=True)
class Share:
    """Which of several processes this one is; torchrun says it in the environment."""

    rank: int = 0
    world: int = 1

    @classmethod
    def of_this_process(cls) -> Share:
        """What RANK and WORLD_SIZE say; one process alone without them."""
        rank, world = (os.environ.get(name, default) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
        if not (rank.isdecimal() and world.isdecimal() and int(rank) < int(world)):
            raise UsageError(
                f"environment: RANK must be a number below WORLD_SIZE, but they are `{rank}` and `{world}`. "
                "Start several processes with torchrun, or unset both."
            )
        return cls(int(rank), int(world))

    def wait_for_the_first(self) -> None:
        """Go on when the first process has come here, too."""
        if self.world > 1:
            import torch.distributed as together  # not above: a help text needs no torch

            together.init_process_group("gloo", rank=self.rank, world_size=self.world)
            together.barrier()
            together.destroy_process_group()


def windows(lines: Iterator[str], size: int | None = None) -> Iterator[list[str]]:
    """The lines in lists of `size`, `WINDOW` unless given; the last may be shorter."""
    while some := list(islice(lines, size or WINDOW)):
        yield some


def work_through(
    lines: Iterator[str],
    out: Path,
    job: str,
    work: Callable[[Sequence[str]], Sequence[str]],
    share: Share,
    resume: bool,
    skip: Callable[[Sequence[str]], None],
) -> None:
    """Write what `work` answers to each window of `lines` into `out`, a line for each line.

    `job` tells runs apart that would answer differently. `skip` is called with windows that are not done
    now: they are another process's, or were done before.
    """
    parts = Parts(out, job)
    if share.rank == 0:
        parts.begin(resume)
    share.wait_for_the_first()
    count = 0
    for number, window in enumerate(windows(lines)):
        count += 1
        if number % share.world != share.rank or parts.holds(number, window):
            skip(window)
        else:
            parts.write(number, window, work(window))
    if share.rank == 0:
        while not parts.complete(count):
            time.sleep(PAUSE)
        parts.join(count)


class Parts:
    """The finished windows of an output that is not whole yet."""

    def __init__(self, out: Path, job: str) -> None:
        self.out, self.job, self.folder = out, job, out.with_name(f".{out.name}.parts")

    def begin(self, resume: bool) -> None:
        """Make the folder; if it is there already, only go on if that is asked for."""
        if self.out.is_dir():
            raise UsageError(f"{self.out}: must be a file to write, but is a folder. Name a file inside it.")
        if not self.out.parent.is_dir():
            raise MissingError(
                f"{self.out}: must be in a folder that is there, but {self.out.parent} is not. Make it first."
            )
        if self.folder.is_dir() and not resume:
            raise UsageError(
                f"{self.out}: a run that broke off left {len(list(self.folder.iterdir())):,} parts of it in "
                f"{self.folder}. Go on with --resume, or remove that folder to begin anew."
            )
        self.folder.mkdir(exist_ok=True)

    def holds(self, number: int, window: Sequence[str]) -> bool:
        """Whether this window was done before; raises if it was done by another job."""
        place = self._place(number)
        if not place.is_file():
            return False
        found, wanted = self._head(place), self._describe(window)
        for what, name in (("job", "model and settings"), ("input", "lines of text")):
            if found.get(what) != wanted[what]:
                raise UsageError(
                    f"{self.out}: a run must go on with the {name} it began with, but part {number:,} was made with "
                    f"others. Use the same again, or remove {self.folder} to begin anew."
                )
        return True

    def write(self, number: int, window: Sequence[str], answers: Sequence[str]) -> None:
        """Keep the answers to a window."""
        head = json.dumps(self._describe(window))
        write_file(self._place(number), "".join(f"{line}\n" for line in (head, *answers)))

    def complete(self, count: int) -> bool:
        """Whether all windows are there, whoever did them."""
        return all(self._place(number).is_file() for number in range(count))

    def join(self, count: int) -> None:
        """Make the output from its parts and remove them."""
        beside = self.out.with_name(f".{self.out.name}.writing")
        with beside.open("wb") as whole:
            for number in range(count):
                with self._place(number).open("rb") as part:
                    part.readline()
                    shutil.copyfileobj(part, whole)
            whole.flush()
            os.fsync(whole.fileno())
        beside.replace(self.out)
        shutil.rmtree(self.folder)

    def _place(self, number: int) -> Path:
        return self.folder / f"{number:08d}"

    def _describe(self, window: Sequence[str]) -> dict[str, object]:
        text = hashlib.sha256("\n".join(window).encode()).hexdigest()
        return {"job": self.job, "input": text, "lines": len(window)}

    def _head(self, place: Path) -> dict[str, object]:
        with place.open("rb") as part:
            try:
                return dict(json.loads(part.readline()))
            except ValueError as error:
                raise DataError(
                    f"{place}: must begin with a line of JSON, but does not. Remove {self.folder} to begin anew."
                ) from error
