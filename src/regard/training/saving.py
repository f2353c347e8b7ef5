"""Checkpoints written by another thread while training goes on."""

from __future__ import annotations

import threading
from collections.abc import Collection
from pathlib import Path
from types import TracebackType

from regard.files import tidy
from regard.training import checkpoint
from regard.training.checkpoint import Snapshot
from regard.training.team import ALONE, Team


class Saver:
    """Writes the checkpoints of a run, one at a time. Use it in a `with` block: at its end everything is written.

    What goes wrong in the other thread is raised here: by the next call of any method.
    """

    def __init__(self, folder: Path, team: Team = ALONE) -> None:
        """Clear away what a killed run left in `folder`; nobody else may be writing there."""
        self._folder, self._team = folder, team
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        if team.leads and folder.is_dir():
            tidy(folder)

    def save(self, snapshot: Snapshot, keep: int, spare: Collection[int] = ()) -> None:
        """Begin to write a checkpoint, once the one before is written; `snapshot` must not change any more.

        The newest `keep` and those of the steps in `spare` stay. All members of a team must call it.
        """
        self.wait()
        if snapshot.parts > 1:
            if self._team.leads:
                checkpoint.begin(self._folder, snapshot.step)
            self._team.barrier()
        # One that waits for the parts of others must not keep a process alive when one of them has failed.
        self._thread = threading.Thread(
            target=self._write, args=(snapshot, keep, spare), name="checkpoint", daemon=snapshot.parts > 1
        )
        self._thread.start()

    def check(self) -> None:
        """Raise what has gone wrong so far; waits for nothing."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def wait(self) -> None:
        """Until this member's part of the checkpoint is written; for the leader, until the whole of it is."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check()

    def __enter__(self) -> Saver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Wait; what went wrong here is raised unless something else did before."""
        if error is not None and self._thread is not None and self._thread.daemon:
            return
        try:
            self.wait()
        except Exception:
            if error is None:
                raise

    def _write(self, snapshot: Snapshot, keep: int, spare: Collection[int]) -> None:
        try:
            checkpoint.save(self._folder, snapshot, keep, spare)
        except BaseException as error:  # whatever it is, it belongs to the one who asked for the checkpoint
            self._error = error
