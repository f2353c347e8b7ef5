"""Where else the numbers of a run go: TensorBoard's event files, Weights & Biases, MLflow.

TensorBoard's format is written here, and needs no package: an event is a protocol buffer, in a record of

    length (8 bytes)   checksum of the length (4)   the event   checksum of the event (4)

The checksum is CRC-32C, rotated by 15 bits, plus a constant. The other two are packages, imported when asked for.
"""

from __future__ import annotations

import json
import math
import os
import socket
import struct
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from regard.errors import UsageError
from regard.files import write_file

EVENTS = "tensorboard"
RUNS = "trackers.json"
"""Which runs of Weights & Biases and MLflow this folder's numbers go to, so that a resumed run goes on there."""


@dataclass(frozen=True)
class LogSettings:
    """Where the numbers of a run go, beside `metrics.jsonl`."""

    tensorboard: bool = True
    """Write TensorBoard's event files into the model folder."""
    wandb: str | None = None
    """A project of Weights & Biases."""
    mlflow: str | None = None
    """An experiment of MLflow, at the server that `MLFLOW_TRACKING_URI` names."""

    def __post_init__(self) -> None:
        for name in ("wandb", "mlflow"):
            if getattr(self, name) == "":
                raise ValueError(f"`{name}` must be a name or left out, but is empty")


class Sink(Protocol):
    """Something that keeps numbers."""

    name: str

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Keep the numbers of a step."""
        ...

    def close(self) -> None:
        """There are no more."""
        ...


def check_packages(settings: LogSettings) -> None:
    """Raise where a package is missing that the settings ask for: before an hour of reading, not after it."""
    for name in ("wandb", "mlflow"):
        if getattr(settings, name) is not None:
            _package(name, f"log.{name}")


def open_sinks(settings: LogSettings, folder: Path, first: int, name: str, recipe: str) -> list[Sink]:
    """What the settings ask for, for a run in `folder` that goes on from step `first`.

    `name` and the `recipe`, given as TOML, are noted with the run.
    """
    sinks: list[Sink] = []
    if settings.tensorboard:
        sinks.append(TensorBoard(folder / EVENTS, first))
    runs, values = _Runs(folder / RUNS, first), flat(tomllib.loads(recipe))
    if settings.wandb is not None:
        sinks.append(Wandb(settings.wandb, name, values, folder, runs))
    if settings.mlflow is not None:
        sinks.append(MLflow(settings.mlflow, name, values, runs))
    return sinks


# ---- TensorBoard


class TensorBoard:
    """An event file. What earlier files of the folder hold beyond step `first` is declared void."""

    name = "TensorBoard"

    def __init__(self, folder: Path, first: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        place = folder / f"events.out.tfevents.{time.time_ns() // 1000}.{socket.gethostname()}.{os.getpid()}"
        self._file = place.open("xb")
        self._event(0, _text(3, "brain.Event:2"))
        if first:
            # A session that starts: readers forget all events from this step on.
            self._event(first + 1, _message(7, _whole(1, 1)))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """One event that holds all of the values."""
        self._event(step, _message(5, b"".join(_message(1, _text(1, tag) + _float(2, values[tag])) for tag in values)))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _event(self, step: int, what: bytes) -> None:
        self._file.write(record(struct.pack("<Bd", 0x09, time.time()) + _whole(2, step) + what))
        self._file.flush()


def record(data: bytes) -> bytes:
    """A record of an event file."""
    length = struct.pack("<Q", len(data))
    return length + masked_crc32c(length) + data + masked_crc32c(data)


def masked_crc32c(data: bytes) -> bytes:
    """CRC-32C (Castagnoli), rotated and shifted as these files have it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _CRC[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def _crc_of_byte(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC = [_crc_of_byte(byte) for byte in range(256)]


def _varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


# A field of a protocol buffer begins with its number and how it is written: 0 varint, 2 with its length, 5 four bytes.


def _whole(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _message(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode())


def _float(field: int, value: float) -> bytes:
    # What is too large for four bytes is infinite there.
    largest = 3.4028234e38
    value = math.copysign(math.inf, value) if abs(value) > largest else value
    return _varint(field << 3 | 5) + struct.pack("<f", value)


# ---- packages


class Wandb:
    """A run of Weights & Biases."""

    name = "Weights & Biases"

    def __init__(self, project: str, name: str, recipe: Mapping[str, object], folder: Path, runs: _Runs) -> None:
        wandb = _package("wandb", "log.wandb")
        known = runs.known("wandb")
        self._run: Any = wandb.init(
            project=project, name=name, config=dict(recipe), dir=str(folder), id=known, resume="allow"
        )
        runs.note("wandb", self._run.id)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Send them."""
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        """Wait until all is sent."""
        self._run.finish()


class MLflow:
    """A run of MLflow."""

    name = "MLflow"

    def __init__(self, experiment: str, name: str, recipe: Mapping[str, object], runs: _Runs) -> None:
        self._mlflow = _package("mlflow", "log.mlflow")
        known = runs.known("mlflow")
        self._mlflow.set_experiment(experiment)
        run = self._mlflow.start_run(run_id=known, run_name=None if known else name)
        if known is None:  # parameters cannot be changed later
            self._mlflow.log_params(dict(recipe))
        runs.note("mlflow", run.info.run_id)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Send them."""
        self._mlflow.log_metrics(dict(values), step=step)

    def close(self) -> None:
        """The run is over."""
        self._mlflow.end_run()


class _Runs:
    """The ids of the runs elsewhere. A run that begins anew gets new ones."""

    def __init__(self, file: Path, first: int) -> None:
        self._file = file
        self._ids: dict[str, str] = {}
        if first and file.is_file():
            try:
                self._ids = dict(json.loads(file.read_bytes()))
            except (ValueError, TypeError):
                self._ids = {}  # damaged: numbers go to a new run, and the old one stays as it is

    def known(self, package: str) -> str | None:
        return self._ids.get(package)

    def note(self, package: str, run: str) -> None:
        self._ids[package] = run
        write_file(self._file, json.dumps(self._ids) + "\n")


def _package(name: str, setting: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError(
            f"{setting}: the package `{name}` must be installed to log there, but is not. "
            f"Install it with: pip install {name}; or leave the setting out."
        ) from error


def flat(tree: Mapping[str, Any], path: str = "") -> dict[str, object]:
    """The leaves of a tree of settings by dotted key, as such services want them."""
    leaves: dict[str, object] = {}
    for key, value in tree.items():
        place = f"{path}{key}"
        if isinstance(value, Mapping):
            leaves.update(flat(value, f"{place}."))
        elif isinstance(value, Sequence) and not isinstance(value, str):
            leaves[place] = json.dumps(value, ensure_ascii=False)
        else:
            leaves[place] = value
    return leaves
