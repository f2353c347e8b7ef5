"""The processes that train one model together; alone, a team of one.

`torchrun`, or whoever starts the processes, tells each of them its place by environment variables: `RANK` of
`WORLD_SIZE`, `LOCAL_RANK` on its machine, and where to meet (`MASTER_ADDR`, `MASTER_PORT`). Each member reads its share
of every batch, and gradients become their mean over all members. How many members there are changes neither batches
nor dropout, and so nothing but how sums are rounded.
"""

from __future__ import annotations

import atexit
import gc
import inspect
import os
import time
import traceback
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Literal, Self, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from regard.errors import RegardError, UsageError
from regard.training import sharding
from regard.training.watch import Watch

T = TypeVar("T")
Parallel = Literal["auto", "ddp", "fsdp"]
STATE_BYTES = 16  # of a parameter in training: weight, gradient and two moments, fp32 each
RENAMED = "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters  # since torch 2.13
PATIENCE = timedelta(minutes=30)  # for a member that is alive but late; the watch knows sooner of one that is not


class Team:
    """One process that trains alone: what a member of a larger team asks the others, it knows."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this member writes what is written once: logs, and the model folder."""
        return self.rank == 0

    @property
    def restarted(self) -> bool:
        """Whether this is another attempt at a run that was interrupted: by `torchrun --max-restarts`, or by SLURM."""
        counts = (os.environ.get(name, "0") for name in ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"))
        return any(count.isdecimal() and int(count) > 0 for count in counts)

    def shards(self, parallel: Parallel, model: nn.Module) -> bool:
        """Whether to divide the weights among the members (FSDP), instead of giving all of them to each (DDP)."""
        return False

    def wrap(self, objective: nn.Module, sharded: bool = False, compiled: bool = False) -> nn.Module:
        """The objective, so that its gradients become the mean over all members."""
        return objective

    def accumulating(self, objective: nn.Module, last: bool) -> AbstractContextManager[object]:
        """Around all but the last of several backward passes of one step: members need not talk before the last."""
        return nullcontext()

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all members."""
        return values

    def whole(self, norm: Tensor) -> Tensor:
        """The norm of the whole gradient from that of the part this member holds."""
        return norm

    def any(self, flag: bool) -> bool:
        """Whether it is true for any member; members ask at the same point of their work."""
        return flag

    def agree(self, value: float) -> float:
        """The leader's value, for all."""
        return value

    def share(self, tensor: Tensor) -> Tensor:
        """The leader's tensor, for all: it takes the place of what the others' hold."""
        return tensor

    def first(self, work: Callable[[], T]) -> T:
        """The leader does the work before the others, who may find it done; however long it takes."""
        return work()

    def barrier(self) -> None:
        """Wait for all members."""

    def now(self, step: int, batch: int) -> None:
        """Note which step this is and which batch it reads, for the message in case it fails."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        return None


ALONE = Team()
_GROUPS: list[object] = []


class Processes(Team):
    """A member of a team of several processes; use it in a `with` block, which ends for all of them or for none."""

    def __init__(self, rank: int, size: int, device: torch.device) -> None:
        self.rank, self.size, self._device = rank, size, device
        on_gpu = device.type == "cuda"
        store, self._attempt = _meet(rank, size)
        dist.init_process_group(
            # Both: numbers that only the hosts need must not wait for GPUs.
            "cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=PATIENCE, world_size=size, rank=rank,
            store=PrefixStore("group", store), device_id=device if on_gpu else None,
        )  # fmt: skip
        # Whoever lets go of the group last waits for its thread. DDP would do so with Python's lock in its hands, which
        # the thread may be waiting for: they would wait for each other. So DDP must not be the last.
        _GROUPS.append(dist.group.WORLD)
        self._watch = Watch(rank, size, PrefixStore("watch", store))
        self._place = "before the first step"
        self._turns = 0

    @property
    def restarted(self) -> bool:
        """Also where torchrun has started everybody again because machines came or went: it does not count those."""
        return self._attempt > 1 or super().restarted

    def shards(self, parallel: Parallel, model: nn.Module) -> bool:
        """`auto`: only if weights, gradients and moments would take more than half of the memory."""
        if parallel != "auto" or self._device.type != "cuda":
            return parallel == "fsdp"
        needed = STATE_BYTES * sum(weight.numel() for weight in model.parameters())
        return bool(self.agree(needed > torch.cuda.get_device_properties(self._device).total_memory / 2))

    def wrap(self, objective: nn.Module, sharded: bool = False, compiled: bool = False) -> nn.Module:
        """DDP, or FSDP2 if `sharded`: then its layers are compiled one by one if it is to be `compiled`."""
        if sharded:
            return sharding.shard(objective, self._device.type, self.size, compiled)
        # What is no weight is the same for all, as a table of positions is, unless it is saved with the weights.
        synced = len(objective.state_dict()) > len(list(objective.named_parameters(remove_duplicate=False)))
        ddp = partial(DistributedDataParallel, objective, gradient_as_bucket_view=True)
        return ddp(forward_sync_buffers=synced) if RENAMED else ddp(broadcast_buffers=synced)

    def accumulating(self, objective: nn.Module, last: bool) -> AbstractContextManager[object]:
        """With DDP the gradients travel once a step. FSDP sends each part's: to keep them is to hold all of them."""
        if last or not isinstance(objective, DistributedDataParallel):
            return nullcontext()
        return objective.no_sync()

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all members."""
        total = values.clone()
        dist.all_reduce(total)
        return total

    def whole(self, norm: Tensor) -> Tensor:
        """The norm of the whole gradient from that of the part this member holds."""
        return sharding.whole(norm)

    def any(self, flag: bool) -> bool:
        """Whether it is true for any member; members ask at the same point of their work."""
        return bool(self.sum(torch.tensor(float(flag))))

    def agree(self, value: float) -> float:
        """The leader's value, for all."""
        return float(self.share(torch.tensor(value, dtype=torch.float64)))

    def share(self, tensor: Tensor) -> Tensor:
        """The leader's tensor, for all: it takes the place of what the others' hold."""
        dist.broadcast(tensor, src=0)
        return tensor

    def first(self, work: Callable[[], T]) -> T:
        """The leader does the work before the others, who may find it done; however long it takes."""
        self._turns += 1
        if not self.leads:
            self._watch.wait_for(f"turn/{self._turns}")
        result = work()
        if self.leads:
            self._watch.tell(f"turn/{self._turns}")
        return result

    def barrier(self) -> None:
        """Wait for all members."""
        self.any(False)

    def now(self, step: int, batch: int) -> None:
        """Note which step this is and which batch it reads, for the message in case it fails."""
        self._place = f"step {step:,}, batch {batch:,}"

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the team: all are done, or this one's error stops them all, and names rank, step and batch."""
        if error is None:
            self.barrier()
            self._watch.close()
            self.barrier()  # the leader may keep the store that the others' watches read
            dist.destroy_process_group()
            atexit.register(_let_go)
            return
        # The watch goes on: should this process hang in what is left of its connections, it ends it.
        message = self._watch.report(self._place, error)
        if os.environ.get("REGARD_DEBUG"):
            traceback.print_exception(error)
        if isinstance(error, Exception):
            raise (type(error) if isinstance(error, RegardError) else RegardError)(message) from error


def _let_go() -> None:
    """Wait for the threads of groups while there is a Python: one that gives back a tensor later aborts the process."""
    gc.collect()  # whoever still holds a group goes first
    _GROUPS.clear()


def join(device: torch.device) -> Team:
    """The team that the environment tells of, and the member of it that this process is; `device` is its own."""
    size = world_size()
    if size == 1:
        return ALONE
    rank = _number("RANK")
    if not 0 <= rank < size:
        raise UsageError(f"RANK: must be from 0 to {size - 1} (WORLD_SIZE is {size}), but is {rank}. Use torchrun.")
    _number("MASTER_PORT")
    if not os.environ.get("MASTER_ADDR"):
        raise UsageError(f"MASTER_ADDR: must be set because WORLD_SIZE is {size}, but is not. Use torchrun.")
    return Processes(rank, size, device)


def world_size() -> int:
    """How many processes the environment tells of; one without it."""
    size = _number("WORLD_SIZE", 1)
    if size < 1:
        raise UsageError(f"WORLD_SIZE: must be at least 1, but is {size}. Use torchrun, or unset it.")
    return size


def _meet(rank: int, size: int) -> tuple[Store, int]:
    """A store that is this team's alone, and which attempt of torchrun to run it this is: 1, 2, …

    torchrun keeps one store for all attempts, and what members of an earlier one left there must not be taken for
    today's. The leader counts the attempts. The others ask it for the number, each with a word never used before.
    """
    store, _, _ = next(rendezvous("env://", rank, size, timeout=PATIENCE))
    if rank > 0:
        word = uuid.uuid4().hex
        store.set(f"regard/ask/{rank}", word)
        attempt = int(store.get(f"regard/answer/{word}"))
        store.set(f"regard/here/{attempt}/{rank}", "")
    else:
        attempt = store.add("regard/attempts", 1)
        for other in range(1, size):
            # It may find the word of an earlier attempt first. To answer that one does no harm.
            while not store.check([f"regard/here/{attempt}/{other}"]):
                word = store.get(f"regard/ask/{other}").decode()
                store.set(f"regard/answer/{word}", str(attempt))
                time.sleep(0.02)
    return PrefixStore(f"regard/attempt-{attempt}", store), attempt


def own_device(device: torch.device) -> torch.device:
    """Of several GPUs, the one that is this process' own by `LOCAL_RANK`; it becomes the current one."""
    if device.type != "cuda" or world_size() == 1:
        return device
    rank, there = _number("LOCAL_RANK"), torch.cuda.device_count()
    if rank >= there:
        raise UsageError(
            f"LOCAL_RANK: must be below {there}, the GPUs of this machine, but is {rank}. Start one process for each "
            f"GPU: torchrun --nproc-per-node {there}"
        )
    own = torch.device("cuda", rank)
    torch.cuda.set_device(own)
    return own


def _number(name: str, default: int | None = None) -> int:
    text = os.environ.get(name, "")
    if not text and default is not None:
        return default
    if not text.isdecimal():
        found = f"is {text!r}" if text else "is not set"
        raise UsageError(f"{name}: must be a whole number where several processes train, but {found}. Use torchrun.")
    return int(text)
