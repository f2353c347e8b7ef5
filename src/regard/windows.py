"""A long file worked through in windows of some thousand lines: in order, resumable, by one process or by many.

The answer to each window becomes a file of its own, in a folder beside the output:

    .out.de.parts/00000000      a line of JSON (which job, which input), and below it the answer's lines
    .out.de.parts/00000001      …

A process takes every n-th window. When all are there, the first process joins them into the output and removes the
folder. So a broken run keeps what it has: windows that are there are not done again, by however many processes it goes
on. Each part names the model, the settings and the lines it was made from; parts of another job are refused.

What stays is one line beside the output, `.out.de.done`: which job made it from which file. A run that is to go on
with an output that is whole can tell by it, and stop. A device or a pipe has nothing beside it, and takes each answer
at once.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.counts import so_many
from regard.errors import DataError, MissingError, UsageError
from regard.files import FULL, destination, naming, pouring, takes_all, write_file

WINDOW = 2_000  # lines
PAUSE = 0.2  # seconds between two looks at what other processes have done
PATIENCE = 0.05  # seconds that a line waits for others to share the work with


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
        address, port = (os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT"))
        if int(world) > 1 and not (address and port.isdecimal()):
            raise UsageError(
                f"environment: {world} processes must be told in MASTER_ADDR and MASTER_PORT where to meet, but these "
                f"are `{address}` and `{port}`. Start several processes with torchrun, or unset RANK and WORLD_SIZE."
            )
        return cls(int(rank), int(world))

    def agree(self, decide: Callable[[], bool]) -> bool:
        """What the first process decides; the others wait for it."""
        if self.world == 1:
            return decide()
        import torch  # not above: a help text needs no torch
        import torch.distributed as together

        try:  # before anything is written: they may not find each other
            together.init_process_group("gloo", rank=self.rank, world_size=self.world)
        except (RuntimeError, ValueError) as error:
            raise UsageError(
                f"environment: {self.world} processes must meet at MASTER_ADDR:MASTER_PORT, but do not ({error}). "
                "Start all of them with torchrun."
            ) from error
        try:
            answer = torch.tensor([self.rank == 0 and decide()])
            together.broadcast(answer, src=0)
            return bool(answer)
        finally:
            together.destroy_process_group()


def windows(
    lists: Iterable[list[str]], more: Callable[[float], bool] = lambda _: True, size: int | None = None
) -> Iterator[list[str]]:
    """The lines of all lists, `size` at a time, `WINDOW` unless given. The last window may be shorter, and so is one
    before which the input pauses: `more` tells whether another list, or the end, comes within so many seconds.
    """
    size = size or WINDOW
    waiting: list[str] = []
    since = 0.0
    for some in lists:
        since = since if waiting else time.monotonic()
        waiting += some
        while len(waiting) >= size:
            yield waiting[:size]
            waiting, since = waiting[size:], time.monotonic()
        if waiting and not more(max(0.0, since + PATIENCE - time.monotonic())):
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def work_through(
    windows: Iterable[list[str]],
    out: Path,
    job: str,
    work: Callable[[Sequence[str]], Sequence[str]],
    share: Share,
    resume: bool,
    skip: Callable[[Sequence[str]], None],
    source: Path | None = None,
) -> None:
    """Write what `work` answers to each window into `out`, a line for each line.

    `job` tells runs apart that would answer differently. `skip` is called with windows that are not done
    now: they are another process's, or were done before. `source` is the file of the lines, if there is one. To go on,
    or to be shared out, the windows must be the same each time: only a device or a pipe may be given shorter ones.
    """
    if takes_all(out):
        _pour(windows, out, work, share, resume)
        return
    parts = Parts(destination(out), job, source)
    if not share.agree(lambda: parts.begin(resume)):
        if share.rank == 0:
            print(
                f"{out}: is whole already, made from the same file by the same job. Nothing was done.", file=sys.stderr
            )
        return
    try:
        _answer_all(windows, parts, work, share, skip)
    except BaseException as error:
        kept = parts.leave(share)
        if kept and isinstance(error, OSError) and error.errno in FULL:
            raise MissingError(
                f"{error.filename or out}: the disk must have room, but has none ({error.strerror}). "
                f"{so_many(kept, 'part')} of {out} {'is' if kept == 1 else 'are'} kept: make room, then go on with the "
                "same command and --resume."
            ) from error
        raise


def _answer_all(
    windows: Iterable[list[str]],
    parts: Parts,
    work: Callable[[Sequence[str]], Sequence[str]],
    share: Share,
    skip: Callable[[Sequence[str]], None],
) -> None:
    inputs = []
    for number, window in enumerate(windows):
        inputs.append(digest(window))
        # All look at every part that is there, so that all stop if one is not of this job.
        if parts.holds(number, inputs[-1]) or number % share.world != share.rank:
            skip(window)
        else:
            parts.write(number, inputs[-1], work(window))
    if share.rank == 0:
        parts.wait(len(inputs))
        parts.join(inputs)


def _pour(
    windows: Iterable[list[str]], out: Path, work: Callable[[Sequence[str]], Sequence[str]], share: Share, resume: bool
) -> None:
    """Write each answer at once into what takes all and keeps no place for later."""
    if resume or share.world > 1:
        found = "this run is to go on with it" if resume else f"there are {share.world} processes"
        raise UsageError(
            f"{out}: a device, a pipe or a stream can only be written by one process from beginning to end, but "
            f"{found}. Name a file."
        )
    with naming(out), pouring(out) as stream:
        for window in windows:
            stream.write(_text(work(window)))
            stream.flush()


def parts_of(out: Path) -> int:
    """How many windows are kept of an output that is not whole."""
    return len(list(Parts(destination(out), "").folder.glob("*")))


def digest(window: Sequence[str]) -> str:
    """What tells these lines from others."""
    return hashlib.sha256("\n".join(window).encode()).hexdigest()


class Parts:
    """The finished windows of an output that is not whole yet."""

    def __init__(self, out: Path, job: str, source: Path | None = None) -> None:
        self.out, self.job, self.read = out, job, _stamp(source)
        self.folder, self.record = (out.with_name(f".{out.name}.{what}") for what in ("parts", "done"))

    def begin(self, resume: bool) -> bool:
        """Make the folder; if it is there already, only go on if that is asked for. Whether there is work to do."""
        if self.folder.is_dir() and not resume:
            raise UsageError(
                f"{self.out}: a run that broke off left {so_many(len(list(self.folder.iterdir())), 'part')} of it in "
                f"{self.folder}. Go on with --resume, or remove that folder to begin anew."
            )
        if resume and not self.folder.is_dir() and self.out.is_file():
            if self._is_whole():
                return False
            raise UsageError(
                f"{self.out}: a run must go on with what it began with, but this file is not known to be of the same "
                "model, settings and lines, or was changed since. Leave --resume out to write it anew."
            )
        with naming(self.out):
            self.folder.mkdir(exist_ok=True)
        return True

    def leave(self, share: Share) -> int:
        """The run breaks off: an empty folder goes, unless others may write there. How many parts stay."""
        if not self.folder.is_dir():
            return 0
        kept = len(list(self.folder.iterdir()))
        if not kept and share.world == 1:
            self.folder.rmdir()
        return kept

    def holds(self, number: int, read: str) -> bool:
        """Whether the window of which `read` is the digest was done before; raises if it was done by another job."""
        place = self._place(number)
        if not place.is_file():
            return False
        found = self._head(place)
        for what, wanted, name in (("job", self.job, "model and settings"), ("input", read, "lines of text")):
            if found.get(what) != wanted:
                raise UsageError(
                    f"{self.out}: a run must go on with the {name} it began with, but part {number:,} was made with "
                    f"others. Use the same again, or remove {self.folder} to begin anew."
                )
        return True

    def write(self, number: int, read: str, answers: Sequence[str]) -> None:
        """Keep the answers to the window of which `read` is the digest."""
        head = json.dumps({"job": self.job, "input": read})
        with naming(self.out):
            write_file(self._place(number), _text([head, *answers]))

    def wait(self, count: int) -> None:
        """Go on when so many windows are there, whoever did them."""
        for number in range(count):
            while not self._place(number).is_file():
                time.sleep(PAUSE)

    def join(self, inputs: Sequence[str]) -> None:
        """Make the output from its parts, one for each digest, and remove them."""
        for number, read in enumerate(inputs):
            # Another process may have been started with other settings.
            self.holds(number, read)
        beside = self.out.with_name(f".{self.out.name}.writing")
        with naming(self.out):
            try:
                with beside.open("wb") as whole:
                    for number in range(len(inputs)):
                        with self._place(number).open("rb") as part:
                            part.readline()
                            shutil.copyfileobj(part, whole)
                    whole.flush()
                    os.fsync(whole.fileno())
            except OSError:
                beside.unlink(missing_ok=True)
                raise
            beside.replace(self.out)
            if self.read is not None:
                write_file(self.record, json.dumps(self._finished()) + "\n")
        shutil.rmtree(self.folder)

    def _finished(self) -> dict[str, object]:
        """What is written down of a whole output. Sizes and times tell files apart, as for `make`."""
        return {"job": self.job, "input": self.read, "output": _stamp(self.out)}

    def _is_whole(self) -> bool:
        """Whether this job made the output, from the file as it is now."""
        if self.read is None or not (self.out.is_file() and self.record.is_file()):
            return False
        return self.record.read_text(encoding="utf-8") == json.dumps(self._finished()) + "\n"

    def _place(self, number: int) -> Path:
        return self.folder / f"{number:08d}"

    def _head(self, place: Path) -> dict[str, object]:
        with place.open("rb") as part:
            try:
                return dict(json.loads(part.readline()))
            except ValueError as error:
                raise DataError(
                    f"{place}: must begin with a line of JSON, but does not. Remove {self.folder} to begin anew."
                ) from error


def _text(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _stamp(file: Path | None) -> list[int] | None:
    """What tells a file from its earlier and later selves; None where there is none."""
    if file is None or not file.is_file():
        return None
    found = file.stat()
    return [found.st_size, found.st_mtime_ns]
