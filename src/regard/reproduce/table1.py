"""Table 1 of Attention Is All You Need: what the paper says, what Regard's layers do, and how long they take.

Shapes: T tokens, D model.

    sequential operations   how many operations, each waiting for the one before, a layer needs
    maximum path length     layers times operations until every token has heard of every token it ever can
    multiply-adds           of all matrix products, counted; projections included, which the paper leaves out

Who hears of whom is found by gradients: output i depends on input j where its derivative is not zero.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from regard.errors import UsageError
from regard.reproduce.layer_types import HEADS, KERNEL, NEIGHBOURHOOD, TABLE, TIMED, LayerType
from regard.viewing.curves import Axis, Curve, curves_svg

PATH_LENGTHS = (32, 64, 128)
CPU_LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
GPU_LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
SECONDS_EACH, RUNS_AT_LEAST = 0.25, 3
LONGEST, WIDEST = 65_536, 16_384  # beyond, one layer alone takes minutes or more memory than there is


# ---- paths


def operations_needed(kind: type[LayerType], length: int) -> int:
    """How many operations after one another a layer needs on `length` tokens."""
    return _layer(kind, 0, length)[1]


def path_length(kind: type[LayerType], length: int) -> int:
    """How many operations lie between the two tokens that are farthest apart in a stack of such layers."""
    heard, path = torch.eye(length, dtype=torch.bool), 0
    for height in itertools.count():
        layer, operations = _layer(kind, height, length)
        more = _through(layer, heard)
        if torch.equal(more, heard):
            break
        heard, path = more, path + operations
    return path


def _layer(kind: type[LayerType], height: int, length: int) -> tuple[Tensor, int]:
    """[i, j]: whether output i of a layer depends on input j; and after how many operations that is so."""
    from_input, from_states = _dependence(kind, height, length)
    heard, operations = from_input, 1
    while not torch.equal(heard, more := from_input | _through(from_states, heard)):
        heard, operations = more, operations + 1
    return heard, operations


def _through(first: Tensor, then: Tensor) -> Tensor:
    """Who depends on whom over one stop: [T, T] and [T, T] → [T, T]."""
    return (first.double() @ then.double()) > 0


def _dependence(kind: type[LayerType], height: int, length: int) -> tuple[Tensor, Tensor]:
    """[i, j]: whether one operation at i depends on input j; and on what the operation before left at j.

    There are as many rows as tokens, and row i is asked for token i alone: one way back answers for all.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        layer = kind(HEADS, height).double()
        input_TTD = torch.randn(length, length, HEADS, dtype=torch.double, requires_grad=True)
        states_TTD = torch.randn(length, length, HEADS, dtype=torch.double, requires_grad=True)
    outputs_TD = layer.operation(input_TTD, states_TTD).diagonal().T
    # Weighted unevenly, so that derivatives of a token's numbers do not cancel out.
    weights_D = torch.arange(1, HEADS + 1, dtype=torch.double).sqrt()
    asked = (outputs_TD * weights_D).sum()
    gradients = torch.autograd.grad(asked, [input_TTD, states_TTD], allow_unused=True, materialize_grads=True)
    return gradients[0].ne(0).any(dim=-1), gradients[1].ne(0).any(dim=-1)


# ---- operations and times


def multiply_adds(kind: type[LayerType], width: int, length: int) -> int:
    """Those of a layer's matrix products on `length` tokens, counted on the meta device."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        x_BTD = torch.zeros(1, length, width)
        # One operation works on all tokens; where a layer needs more, each works on one of them.
        kind(width).operation(x_BTD, x_BTD)
    return counter.get_total_flops() // 2


@torch.inference_mode()
def seconds(kind: type[LayerType], width: int, length: int, device: torch.device) -> float:
    """The time of one layer on one row of `length` tokens: the best of several runs."""
    layer, x_BTD = kind(width).to(device), torch.randn(1, length, width, device=device)
    wait: Callable[[], None] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    layer(x_BTD)
    best, runs, begin = math.inf, 0, time.perf_counter()
    while runs < RUNS_AT_LEAST or time.perf_counter() - begin < SECONDS_EACH:
        wait()
        start = time.perf_counter()
        layer(x_BTD)
        wait()
        best, runs = min(best, time.perf_counter() - start), runs + 1
    return best


def growth(lengths: Sequence[int], values: Sequence[float]) -> float:
    """The exponent p of values ~ n^p: the slope of a straight line through the logarithms."""
    xs, ys = [math.log(length) for length in lengths], [math.log(value) for value in values]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)


# ---- the table


@dataclass(frozen=True)
class Structure:
    """Who hears of whom in one layer type, and when, at each of PATH_LENGTHS."""

    kind: type[LayerType]
    operations: tuple[int, ...]
    paths: tuple[int, ...]


@dataclass(frozen=True)
class Timing:
    """What one layer type costs at each length."""

    kind: type[LayerType]
    multiply_adds: tuple[int, ...]
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class Table1:
    """The table, computed and measured."""

    width: int
    lengths: tuple[int, ...]
    device: str
    structures: tuple[Structure, ...]
    timings: tuple[Timing, ...]

    def to_text(self) -> str:
        """Tables for a terminal: what was computed, what was measured, and how both grow with n."""
        title = (
            f"Table 1 of Attention Is All You Need, with Regard's layers: d = {self.width}, k = {KERNEL}, "
            f"r = {NEIGHBOURHOOD}, on {self.device}"
        )
        return "\n\n".join([title, _aligned(self._computed()), _aligned(self._measured()), _aligned(self._growth())])

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        computed = {
            each.kind.name: {
                "complexity": each.kind.complexity, "sequential": each.kind.sequential, "path": each.kind.path,
                "operations": each.operations, "paths": each.paths,
            }
            for each in self.structures
        }  # fmt: skip
        measured = {
            each.kind.name: {"multiply_adds": each.multiply_adds, "seconds": each.seconds} for each in self.timings
        }
        return {
            "width": self.width, "device": self.device, "path_lengths": PATH_LENGTHS, "computed": computed,
            "lengths": self.lengths, "measured": measured,
        }  # fmt: skip

    def to_svg(self) -> str:
        """Time against length, both logarithmic."""
        curves = []
        for timing in self.timings:
            points = zip(map(float, self.lengths), (1000 * each for each in timing.seconds), strict=True)
            curves.append(Curve(timing.kind.name, tuple(points)))
        title = f"Time of one layer of width {self.width} on {self.device}"
        lengths = Axis("n, tokens", "log", tuple(map(float, self.lengths)))
        return curves_svg(curves, title, lengths, Axis("ms", "log"))

    def _computed(self) -> list[list[str]]:
        lengths = [f"n = {PATH_LENGTHS[0]}", *map(str, PATH_LENGTHS[1:])]
        rows = [["layer type", "complexity", "sequential", *lengths, "longest path", *lengths]]
        for found in self.structures:
            kind, operations, paths = found.kind, map(str, found.operations), map(str, found.paths)
            rows.append([kind.name, kind.complexity, kind.sequential, *operations, kind.path, *paths])
        return rows

    def _measured(self) -> list[list[str]]:
        rows = [["milliseconds", f"n = {self.lengths[0]}", *map(str, self.lengths[1:])]]
        return rows + [[each.kind.name, *map(_milliseconds, each.seconds)] for each in self.timings]

    def _growth(self) -> list[list[str]]:
        longer = slice(len(self.lengths) // 2, None)
        lengths = self.lengths[longer]
        rows = [["growth like n^p", "p of time", "of multiply-adds", "paper", f"multiply-adds, n = {lengths[-1]}"]]
        for each in self.timings:
            powers = growth(lengths, each.seconds[longer]), growth(lengths, each.multiply_adds[longer])
            counted = f"{each.multiply_adds[-1]:,}"
            rows.append([each.kind.name, *(f"{power:.2f}" for power in powers), str(each.kind.power), counted])
        return rows


def reproduce(device: torch.device, width: int = 512, lengths: Sequence[int] | None = None) -> Table1:
    """Compute and measure the table; it takes about half a minute."""
    lengths = _checked(width, lengths or (GPU_LENGTHS if device.type == "cuda" else CPU_LENGTHS))
    timings = tuple(
        Timing(
            kind,
            tuple(multiply_adds(kind, width, length) for length in lengths),
            tuple(seconds(kind, width, length, device) for length in lengths),
        )
        for kind in TIMED
    )
    return Table1(width, lengths, _device_name(device), structures(), timings)


def structures() -> tuple[Structure, ...]:
    """The part of the table that is computed."""
    return tuple(
        Structure(
            kind,
            tuple(operations_needed(kind, length) for length in PATH_LENGTHS),
            tuple(path_length(kind, length) for length in PATH_LENGTHS),
        )
        for kind in TABLE
    )


def read_lengths(text: str) -> tuple[int, ...]:
    """Lengths as people write them: 64,128,256."""
    try:
        return tuple(map(int, text.split(",")))
    except ValueError as error:
        raise UsageError(
            f"--lengths: must be whole numbers with commas between them, but is {text!r}. Write 64,128,256."
        ) from error


def _checked(width: int, lengths: Sequence[int]) -> tuple[int, ...]:
    if not HEADS <= width <= WIDEST or width % HEADS:
        rule = f"a multiple of {HEADS}, the number of heads, and at most {WIDEST:,}"
        raise UsageError(f"--width: must be {rule}, but is {width}. Try 512.")
    lengths = tuple(sorted(set(lengths)))
    # Growth is a slope, and a slope needs two points in the longer half.
    if len(lengths) < 3 or lengths[0] < 1:
        raise UsageError(f"--lengths: must be at least 3 different lengths of 1 or more, but are {list(lengths)}.")
    if lengths[-1] > LONGEST:
        raise UsageError(f"--lengths: must be at most {LONGEST:,}, but the longest is {lengths[-1]}. Try shorter ones.")
    return lengths


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"the CPU, {threads} thread{'s' * (threads > 1)}"


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.0f}" if seconds >= 0.1 else f"{1000 * seconds:.3g}"


def _aligned(rows: list[list[str]]) -> str:
    """Columns as wide as they need to be: words to the left, numbers to the right."""
    columns = []
    for column in zip(*rows, strict=True):
        side = ">" if all(cell.lstrip("-")[0].isdecimal() for cell in column[1:]) else "<"
        columns.append([f"{cell:{side}{max(map(len, column))}}" for cell in column])
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True))
