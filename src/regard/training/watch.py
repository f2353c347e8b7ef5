"""How the members of a team notice that one of them has failed.

A process that waits for another one's numbers cannot see that they will never come. So a thread of each says once a
second that it is alive, looks whether its neighbour still does, and whether anybody has reported a failure. Then it
ends its process, whatever that was waiting for.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time

from torch.distributed.distributed_c10d import Store

from regard.errors import InternalError, RegardError
from regard.memory import ran_out

BEAT = 1.0  # seconds between two signs of life
SILENCE = 60.0  # without a sign of life: then a process is taken for dead
GRACE = 5.0  # for a process to end by itself before its watch ends it
FAILURE = "failure"


class Watch:
    """One member's watch over the others; `store` is where this team writes, and nobody else."""

    def __init__(self, rank: int, size: int, store: Store) -> None:
        self.rank, self.size = rank, size
        # Connections of their own: one that waits would hold up whoever shares it. (torch's stubs know no `clone`.)
        self._store, for_thread = (store.clone() for _ in range(2))  # type: ignore[attr-defined]
        self._over = threading.Event()
        self._store.set(self._sign(rank), "0")
        self._thread = threading.Thread(target=self._run, args=(for_thread,), daemon=True)
        self._thread.start()

    def tell(self, key: str) -> None:
        """Make something known to those who wait for it."""
        self._store.set(key, "")

    def wait_for(self, key: str) -> None:
        """Wait until somebody has told it, or somebody has failed."""
        while not self._store.check([key]):
            time.sleep(0.05)

    def report(self, place: str, error: BaseException) -> str:
        """What went wrong and on which rank, so that all members end; this one's `error` may be but a consequence."""
        try:
            # Whoever fails takes its connections with it, and the others fail of that.
            blame = self._failed_before() if _may_be_a_consequence(error) else None
            message = blame or f"{self._name(self.rank)}, {place}: {_words(error)}"
            if blame is None and (silent := self._silent_ones(error)):
                names = " and ".join(self._name(rank) for rank in silent)
                message = f"{names}, {place}: ended without a word. Was it killed, or its machine switched off?"
            self._store.set(FAILURE, message)
            return message
        except RuntimeError:  # the store went with its process
            return f"{self._name(self.rank)}, {place}: lost contact with {self._name(0)} ({_words(error)})"

    def close(self) -> None:
        """Watch no longer."""
        self._over.set()
        self._thread.join()

    def _failed_before(self) -> str | None:
        for _ in range(10):
            if self._store.check([FAILURE]):
                return str(self._store.get(FAILURE).decode())
            time.sleep(BEAT / 10)
        return None

    def _silent_ones(self, error: BaseException) -> list[int]:
        """The members that give no sign of life any more; asked only if `error` may come from that."""
        if not _may_be_a_consequence(error):
            return []
        before = [self._store.get(self._sign(rank)) for rank in range(self.size)]
        time.sleep(3 * BEAT)
        return [rank for rank in range(self.size) if self._store.get(self._sign(rank)) == before[rank]]

    def _name(self, rank: int) -> str:
        where = f" on {socket.gethostname()}" if rank == self.rank else ""
        return f"rank {rank} of {self.size}{where}"

    @staticmethod
    def _sign(rank: int) -> str:
        return f"alive/{rank}"

    # ---- the thread

    def _run(self, store: Store) -> None:
        neighbour = (self.rank + 1) % self.size
        beats, last, since = 0, b"", time.monotonic()
        try:
            while not self._over.wait(BEAT):
                beats += 1
                store.set(self._sign(self.rank), str(beats))
                if store.check([FAILURE]):
                    self._end(store.get(FAILURE).decode())
                heard = store.get(self._sign(neighbour))
                if heard != last:
                    last, since = heard, time.monotonic()
                elif time.monotonic() - since > SILENCE:
                    message = f"{self._name(neighbour)}: gave no sign of life for {SILENCE:.0f} s"
                    store.set(FAILURE, message)
                    self._end(message, says=True)
        except RuntimeError:
            self._end(f"{self._name(self.rank)}: lost contact with {self._name(0)}", says=True)

    def _end(self, message: str, says: bool = False) -> None:
        """End this process, wherever its other threads are."""
        if self._over.wait(GRACE):
            return
        if says or self.rank == 0:
            print(f"regard: {message}", file=sys.stderr, flush=True)
        os._exit(InternalError.exit_code)


def _may_be_a_consequence(error: BaseException) -> bool:
    """torch says RuntimeError where a connection broke, and where much else did."""
    return isinstance(error, RuntimeError) and not ran_out(error)


def _words(error: BaseException) -> str:
    return str(error) if isinstance(error, RegardError) else f"{type(error).__name__}: {error}"
