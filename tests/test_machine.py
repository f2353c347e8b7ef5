from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from regard import machine
from regard.errors import UsageError
from regard.machine import (
    Machine,
    choose_device,
    has_bf16,
    matmul_speed,
    this_machine,
)


def test_this_machine_says_what_it_has() -> None:
    found = this_machine(torch.device("cpu"))
    assert (found.device, found.count, has_bf16(found.device)) == ("cpu", 1, False)
    assert found.threads == torch.get_num_threads()
    assert found.memory > 10**8
    assert str(found).startswith(f"{found.name}, {found.threads} thread")


def test_gpus_are_counted_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    card = SimpleNamespace(name="NVIDIA H200", total_memory=150 * 10**9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert str(this_machine(torch.device("cuda"))) == "4 × NVIDIA H200, 150 GB"


def test_a_cpu_without_a_name_is_named_by_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nowhere:
        def __init__(self, _: str) -> None: ...

        def read_text(self, encoding: str) -> str:
            raise OSError

    monkeypatch.setattr(machine, "Path", Nowhere)
    monkeypatch.setattr(machine.platform, "processor", lambda: "")
    monkeypatch.setattr(machine.platform, "machine", lambda: "arm64")
    assert machine._processor() == "arm64"


def test_speed_is_that_of_the_best_try_two_operations_for_each_product(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 0.5, 1.0, 1.25, 2.0, 9.0, 10.0, 11.0, 12.0, 13.0])
    monkeypatch.setattr(machine.time, "perf_counter", lambda: next(now))
    threads = torch.get_num_threads()
    assert matmul_speed(Machine("cpu", "x", 3, 1), 10, 20, 30) == 3 * 2 * 10 * 20 * 30 / 0.25
    assert torch.get_num_threads() == threads


def test_speed_is_measured() -> None:
    assert 1e6 < matmul_speed(this_machine(torch.device("cpu")), 64, 64, 64) < 1e15


def test_devices_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == choose_device("cpu") == torch.device("cpu")
    with pytest.raises(UsageError, match="device: must be one this machine has, but is `cuda` and none is visible"):
        choose_device("cuda")
    with pytest.raises(UsageError, match="device: must be `auto`, `cpu` or `cuda`, but is `gpu`"):
        choose_device("gpu")
