"""Event files that TensorBoard reads, and packages that are imported only if somebody asks for them."""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import UsageError
from regard.training.adapters import EVENTS, RUNS, LogSettings, TensorBoard, flat, masked_crc32c, open_sinks, record

RECIPE = 'name = "x"\nseed = 1\n[model]\nkind = "gpt"\n[data]\ncolumns = [1, 2]\n'
VALUES = {"name": "x", "seed": 1, "model.kind": "gpt", "data.columns": "[1, 2]"}

# ---- a second reader of the format, as simple as can be


def records(data: bytes) -> Iterator[bytes]:
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        event, checksum = data[12 : 12 + length], data[12 + length : 16 + length]
        assert data[8:12] == masked_crc32c(data[:8])
        assert checksum == masked_crc32c(event)
        yield event
        data = data[16 + length :]


def varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[place] & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if data[place - 1] < 0x80:
            return value, place


def fields(data: bytes) -> list[tuple[int, Any]]:
    found, place = [], 0
    while place < len(data):
        key, place = varint(data, place)
        value: Any
        match key & 7:
            case 0:
                value, place = varint(data, place)
            case 1:
                value, place = struct.unpack("<d", data[place : place + 8])[0], place + 8
            case 2:
                length, place = varint(data, place)
                value, place = data[place : place + length], place + length
            case _:
                value, place = struct.unpack("<f", data[place : place + 4])[0], place + 4
        found.append((key >> 3, value))
    return found


def events(folder: Path) -> list[dict[int, Any]]:
    return [dict(fields(event)) for file in sorted(folder.iterdir()) for event in records(file.read_bytes())]


def scalars(event: dict[int, Any]) -> dict[str, float]:
    values = [dict(fields(value)) for _, value in fields(event[5])]
    return {value[1].decode(): value[2] for value in values}


# ---- TensorBoard


def test_the_checksum_is_crc_32c() -> None:
    # The check value of CRC-32C is 0xE3069283 for "123456789"; masked by hand.
    crc = 0xE3069283
    assert masked_crc32c(b"123456789") == struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


@given(st.binary(max_size=300))
def test_a_record_holds_its_data(data: bytes) -> None:
    assert list(records(record(data))) == [data]


def test_scalars_come_back(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path / "deep" / "events", first=0)
    board.write(1, {"train/loss": 2.5, "train/rate": 0.0})
    board.write(300_000, {"ünï": -1.0, "large": 1e300, "nan": math.nan})
    version, one, other = events(tmp_path / "deep" / "events")  # readable before it is closed
    board.close()
    assert version[3] == b"brain.Event:2"
    assert 1.7e9 < version[1] == pytest.approx(one[1], abs=60)
    assert (one[2], scalars(one)) == (1, {"train/loss": 2.5, "train/rate": 0.0})
    assert other[2] == 300_000
    found = scalars(other)
    assert (found["ünï"], found["large"]) == (-1.0, math.inf)
    assert math.isnan(found["nan"])


def test_a_resumed_run_voids_what_lies_beyond_its_checkpoint(tmp_path: Path) -> None:
    for first in (0, 5):
        board = TensorBoard(tmp_path, first)
        for step in range(first + 1, first + 8):
            board.write(step, {"loss": float(first)})
        board.close()
    found = events(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    start = next(event for event in found if 7 in event)
    assert (start[2], fields(start[7])) == (6, [(1, 1)])


def test_tensorboard_itself_reads_it(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for first in (0, 5):
        board = TensorBoard(tmp_path, first)
        for step in range(first + 1, first + 8):
            board.write(step, {"loss": step + first / 10})
        board.close()
    read = accumulator.EventAccumulator(str(tmp_path))
    read.Reload()
    found = [(event.step, round(event.value, 3)) for event in read.Scalars("loss")]
    assert found == [(step, step) for step in range(1, 6)] + [(step, step + 0.5) for step in range(6, 13)]


# ---- packages


class Services:
    """Fakes of both packages that note every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.wandb, self.mlflow = ModuleType("wandb"), ModuleType("mlflow")
        run = SimpleNamespace(
            id="w1",
            log=lambda values, step: self.calls.append(("wandb.log", step, values)),
            finish=lambda: self.calls.append(("wandb.finish",)),
        )
        self._add(self.wandb, "init", run)
        self._add(self.mlflow, "start_run", SimpleNamespace(info=SimpleNamespace(run_id="m1")))
        for name in ("set_experiment", "log_params", "log_metrics", "end_run"):
            self._add(self.mlflow, name, None)

    def _add(self, module: ModuleType, name: str, answer: object) -> None:
        def call(*arguments: Any, **named: Any) -> Any:
            self.calls.append((f"{module.__name__}.{name}", *arguments, *named.items()))
            return answer

        setattr(module, name, call)

    def made(self, name: str) -> list[tuple[Any, ...]]:
        return [call[1:] for call in self.calls if call[0] == name]


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> Services:
    fakes = Services()
    monkeypatch.setitem(sys.modules, "wandb", fakes.wandb)
    monkeypatch.setitem(sys.modules, "mlflow", fakes.mlflow)
    return fakes


BOTH = LogSettings(tensorboard=False, wandb="talks", mlflow="en-de")


def test_both_services_get_recipe_and_numbers(tmp_path: Path, services: Services) -> None:
    for sink in open_sinks(BOTH, tmp_path, 0, "x", RECIPE):
        sink.write(3, {"train/loss": 2.0})
        sink.close()
    (init,) = services.made("wandb.init")
    assert {("project", "talks"), ("name", "x"), ("id", None), ("resume", "allow")} <= set(init[:2] + init[3:])
    assert ("config", VALUES) in init
    assert services.made("wandb.log") == [(3, {"train/loss": 2.0})]
    assert services.made("mlflow.set_experiment") == [("en-de",)]
    assert services.made("mlflow.log_params") == [(VALUES,)]
    assert services.made("mlflow.log_metrics") == [({"train/loss": 2.0}, ("step", 3))]
    assert services.made("wandb.finish") == services.made("mlflow.end_run") == [()]


def test_a_resumed_run_goes_on_in_the_same_place_and_a_new_one_does_not(tmp_path: Path, services: Services) -> None:
    for first in (0, 7, 0):
        open_sinks(BOTH, tmp_path, first, "x", RECIPE)
    assert [dict(call)["id"] for call in services.made("wandb.init")] == [None, "w1", None]
    assert [dict(call)["run_id"] for call in services.made("mlflow.start_run")] == [None, "m1", None]
    assert len(services.made("mlflow.log_params")) == 2  # parameters of a run cannot be changed
    assert json.loads((tmp_path / RUNS).read_bytes()) == {"wandb": "w1", "mlflow": "m1"}
    (tmp_path / RUNS).write_bytes(b"\xff")
    open_sinks(BOTH, tmp_path, 7, "x", RECIPE)
    assert dict(services.made("wandb.init")[-1])["id"] is None


def test_nothing_is_imported_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)  # any import of it fails
    assert open_sinks(LogSettings(tensorboard=False), tmp_path, 0, "x", RECIPE) == []
    assert list(tmp_path.iterdir()) == []
    (board,) = open_sinks(LogSettings(), tmp_path, 0, "x", RECIPE)
    board.close()
    assert [file.name for file in tmp_path.iterdir()] == [EVENTS]


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_package_is_named_with_its_install_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setitem(sys.modules, name, None)
    settings = LogSettings(False, **{name: "x"})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=rf"log\.{name}: the package `{name}` .* pip install {name}"):
        open_sinks(settings, tmp_path, 0, "x", RECIPE)


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(ValueError, match="`wandb` must be a name or left out, but is empty"):
        LogSettings(wandb="")


def test_settings_are_flattened() -> None:
    assert flat({"a": {"b": {"c": 1}}, "d": [], "e": "text", "f": True}) == {
        "a.b.c": 1, "d": "[]", "e": "text", "f": True,
    }  # fmt: skip
