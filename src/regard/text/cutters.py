"""BPE-dropout on all cores: processes that cut one chunk of text each, and what they cut, in order.

Threads would not do: between the steps of NumPy, which are short, they wait for Python's lock. The processes are plain
programs at the end of two pipes, and no children of `multiprocessing`, which would run the user's script once more in
each of them, or copy a process that has threads. They hold no torch, and end when their pipe does.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from queue import SimpleQueue
from typing import IO

from regard.text.dropout import MergeDropout, encode_each
from regard.text.ragged import Ragged

ALONE = 4  # chunks cut in this process before others are started, which takes them about a second
MOST = 16  # processes: then this one is busy with what they give back

Columns = Sequence[Sequence[str]]
"""A chunk of examples: all texts of a side, then those of the next."""
Rows = list[list[Ragged]]
"""What became of it: for each cut, the tokens of each side."""


class Work:
    """How to cut the texts of each side."""

    def __init__(self, cuts: Sequence[MergeDropout], sides: int) -> None:
        one = cuts[0]
        assert all(cut.merges is one.merges and cut.draws.rate == one.draws.rate for cut in cuts), (
            "they differ in seeds"
        )
        self._merges = [one.merges] if sides == 1 else [one.source.merges, one.merges]
        self._draws = [cut.draws for cut in cuts]

    def do(self, columns: Columns) -> Rows:
        """Cut the texts of some examples, in every way."""
        by_side = [encode_each(merges, self._draws, texts) for merges, texts in zip(self._merges, columns, strict=True)]
        return list(map(list, zip(*by_side, strict=True)))


def cut_in_order(
    chunks: Iterable[Columns], cuts: Sequence[MergeDropout], processes: int | None = None
) -> Generator[tuple[Columns, Rows], None, None]:
    """Each chunk and its tokens, in the order of the chunks; what stands behind two sides is left as it is.

    A few chunks are cut here. If there are more, `processes` do it: by default one for each core that there is.
    """
    rest, count = iter(chunks), free_cores() if processes is None else processes
    first = next(rest, None)
    if first is None:
        return
    work = Work(cuts, len(first[:2]))
    yield first, work.do(first[:2])
    for chunk in rest if count < 2 else islice(rest, ALONE - 1):
        yield chunk, work.do(chunk[:2])
    waiting: deque[tuple[Columns, Future[Rows]]] = deque()
    crew: _Crew | None = None
    try:
        for chunk in rest:
            crew = crew or _Crew(work, count)
            waiting.append((chunk, crew.cut(chunk[:2])))
            if len(waiting) > 2 * count:
                yield _first_of(waiting)
        while waiting:
            yield _first_of(waiting)
    finally:
        if crew is not None:
            crew.close()


def free_cores() -> int:
    """How many cores this process may use; those of a machine are shared between the members of a team."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    members = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, min(cores // max(int(members) if members.isdecimal() else 1, 1), MOST))


def _first_of(waiting: deque[tuple[Columns, Future[Rows]]]) -> tuple[Columns, Rows]:
    chunk, rows = waiting.popleft()
    return chunk, rows.result()


class _Crew:
    """Processes that cut, and a thread for each, which waits for it."""

    def __init__(self, work: Work, count: int) -> None:
        self._work = work
        self._idle: SimpleQueue[_Cutter | None] = SimpleQueue()
        self._cutters = [_Cutter(work) for _ in range(count)]
        for cutter in self._cutters:
            self._idle.put(cutter)
        self._threads = ThreadPoolExecutor(count)

    def cut(self, columns: Columns) -> Future[Rows]:
        """Let the next one that is idle cut this."""
        return self._threads.submit(self._cut, columns)

    def _cut(self, columns: Columns) -> Rows:
        cutter = self._idle.get()
        try:
            return self._work.do(columns) if cutter is None else cutter.cut(columns)
        except (OSError, EOFError, pickle.UnpicklingError):
            # It could not be started, or somebody ended it. Its place is taken by this process, which cuts the same.
            cutter = None
            return self._work.do(columns)
        finally:
            self._idle.put(cutter)

    def close(self) -> None:
        """Nothing more will be asked for."""
        self._threads.shutdown(cancel_futures=True)
        for cutter in self._cutters:
            cutter.close()


class _Cutter:
    """One other process."""

    def __init__(self, work: Work) -> None:
        # Other cores are taken by its neighbours; and a signal from the keyboard is for this process alone.
        surroundings = {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "TOKENIZERS_PARALLELISM": "false",
            # glibc gives arrays of a megabyte back to the system, and a tenth of the time would go into asking again.
            "MALLOC_MMAP_THRESHOLD_": str(2**30),
            "MALLOC_TRIM_THRESHOLD_": str(2**30),
        }
        command = [sys.executable, "-P", "-m", __name__]
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                env=os.environ | surroundings, start_new_session=True,
            )  # fmt: skip
        except OSError:
            return
        self._work: Work | None = work

    def cut(self, columns: Columns) -> Rows:
        """Send texts, and wait for their tokens."""
        if self._process is None:
            raise EOFError
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self._work is not None:
            _send(self._process.stdin, self._work)
            self._work = None
        _send(self._process.stdin, columns)
        found: Rows | Exception = pickle.load(self._process.stdout)
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None:
        """End it: it reads on until its pipe is closed."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


def _send(stream: IO[bytes], content: object) -> None:
    pickle.dump(content, stream, pickle.HIGHEST_PROTOCOL)
    stream.flush()


def _serve(questions: IO[bytes], answers: IO[bytes]) -> None:
    """What such a process does until nobody asks any more."""
    work: Work = pickle.load(questions)
    while True:
        try:
            columns: Columns = pickle.load(questions)
        except EOFError:
            return
        found: Rows | Exception
        try:
            found = work.do(columns)
        except Exception as error:  # whatever it is, it belongs to the one who asked
            found = error
        _send(answers, found)


if __name__ == "__main__":
    _serve(sys.stdin.buffer, sys.stdout.buffer)
