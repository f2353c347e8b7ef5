"""The machine a run is on: what it has, what it is called, and how fast it multiplies matrices."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import torch

from regard.counts import so_many
from regard.errors import UsageError

MEASURED = 0.2  # seconds to measure for, if they are enough for some tries
LEAST_TRIES = 5

KERNELS = torch.version.cuda is not None and find_spec("triton") is not None
"""Whether our own kernels are to be had, which are for NVIDIA's GPUs and written in Triton; torch's are elsewhere."""


@dataclass(frozen=True)
class Machine:
    """What there is to compute with: the CPU, or one of `count` GPUs of a kind."""

    device: Literal["cpu", "cuda"]
    name: str
    threads: int
    memory: int
    """Bytes: of the machine, or of one GPU."""
    count: int = 1

    def __str__(self) -> str:
        memory = f"{self.memory / 1e9:.0f} GB"
        if self.device == "cpu":
            return f"{self.name}, {so_many(self.threads, 'thread')}, {memory}"
        return f"{f'{self.count} × ' if self.count > 1 else ''}{self.name}, {memory}"


def has_bf16(device: str) -> bool:
    """Whether training uses bf16 there unless told otherwise.

    CPUs without instructions for it compute it hundreds of times slower than fp32.
    """
    return device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def this_machine(device: torch.device) -> Machine:
    """The machine around a device."""
    if device.type == "cuda":
        found = torch.cuda.get_device_properties(device)
        return Machine("cuda", found.name, torch.get_num_threads(), found.total_memory, torch.cuda.device_count())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine("cpu", _processor(), torch.get_num_threads(), memory)


def matmul_speed(machine: Machine, rows: int, width: int, inner: int) -> float:
    """FLOP/s of a product [rows, width] · [width, inner], two for each multiply-add.

    The best of some: what a machine can do, whatever else it is doing at the moment. For the same reason a CPU is
    timed with one thread, times the number of its threads: two threads wait for each other where others want a core.
    """
    kind = torch.bfloat16 if has_bf16(machine.device) else torch.float32
    left, right = (torch.ones(shape, dtype=kind, device=machine.device) for shape in ((rows, width), (width, inner)))
    at_a_time = 10 if machine.device == "cuda" else 1  # to wait for a GPU takes as long as a product or two
    tries: list[float] = []
    with threads_of(1):
        _multiply(machine, left, right, 1)  # the first one waits for libraries to be loaded
        while len(tries) < LEAST_TRIES or sum(tries) < MEASURED:
            begun = time.perf_counter()
            _multiply(machine, left, right, at_a_time)
            tries.append(time.perf_counter() - begun)
    threads = machine.threads if machine.device == "cpu" else 1
    return threads * 2 * rows * width * inner * at_a_time / min(tries)


@contextmanager
def threads_of(count: int) -> Iterator[None]:
    """So many threads of the CPU, in this block."""
    threads = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _multiply(machine: Machine, left: torch.Tensor, right: torch.Tensor, times: int) -> None:
    for _ in range(times):
        torch.matmul(left, right)
    if machine.device == "cuda":
        torch.cuda.synchronize()


def _processor() -> str:
    """What the CPU calls itself; Python knows only its family on Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n")
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def choose_device(name: str) -> torch.device:
    """`auto` is the GPU where there is one."""
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UsageError(f"device: must be one this machine has, but is `{name}` and none is visible. Use `cpu`.")
    try:
        return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)
    except RuntimeError as error:
        raise UsageError(f"device: must be `auto`, `cpu` or `cuda`, but is `{name}`.") from error
