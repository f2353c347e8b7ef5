"""Torch's checkpoints without torch.load: the same tensors, and nothing that a file says is ever done."""

from __future__ import annotations

import argparse
import io
import os
import pickle
import resource
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError
from regard.interop.unpickling import MAGIC, Shell, read_checkpoint

FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])


def saved(file: Path, content: object, zipped: bool = True) -> Path:
    torch.save(content, file, _use_new_zipfile_serialization=zipped)
    return file


@FORMATS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_tensors_come_back(dtype: torch.dtype, zipped: bool, tmp_path: Path) -> None:
    whole = (torch.randn(4, 6) * 10).to(dtype)
    state = OrderedDict(a=whole, row=whole[1], column=whole[:, 2], turned=whole.T, empty=whole[:0])
    content = {"model": state, "step": 7, "words": ["a", "b"], "p": torch.nn.Parameter(torch.ones(2))}
    found = read_checkpoint(saved(tmp_path / "c.pt", content, zipped))
    assert (found["step"], found["words"]) == (7, ["a", "b"])
    assert torch.equal(found["p"], torch.ones(2))
    for name, tensor in state.items():
        assert torch.equal(found["model"][name], tensor), name
        assert found["model"][name].dtype == dtype


@FORMATS
def test_settings_become_shells(zipped: bool, tmp_path: Path) -> None:
    file = saved(tmp_path / "c.pt", {"args": argparse.Namespace(layers=6, name="x")}, zipped)
    found = read_checkpoint(file)["args"]
    assert isinstance(found, Shell)
    assert (vars(found)["layers"], vars(found)["name"]) == (6, "x")


class Runs:
    """Unpickled by anybody else, it runs a command."""

    def __init__(self, call: Any, *arguments: object) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        return self.call, self.arguments


@FORMATS
@pytest.mark.parametrize("what", ["os.system", "eval", "import", "getattr"])
def test_code_is_not_run(what: str, zipped: bool, tmp_path: Path) -> None:
    mark = tmp_path / "it-was-run"
    hostile = {
        "os.system": Runs(os.system, f"touch {mark}"),
        "eval": Runs(eval, f"open({str(mark)!r}, 'w')"),
        "import": Runs(__import__, "antigravity"),
        "getattr": Runs(getattr, argparse.Namespace, "__class__"),
    }[what]
    file = saved(tmp_path / "c.pt", {"model": {"a": torch.ones(2)}, "more": hostile}, zipped)
    with pytest.raises(DataError, match="It was not run"):
        read_checkpoint(file)
    assert not mark.exists()


def test_a_shell_runs_nothing_either(tmp_path: Path) -> None:
    """The names of settings classes are allowed; what stands behind them is not looked up."""
    mark = tmp_path / "it-was-run"
    script = f"cargparse\n_os.system\n(S'touch {mark}'\ntR."  # argparse imports os under this name
    with zipfile.ZipFile(tmp_path / "c.pt", "w") as archive:
        archive.writestr("archive/data.pkl", script)
    assert isinstance(read_checkpoint(tmp_path / "c.pt"), Shell)
    assert not mark.exists()


class _Storage(io.BytesIO):
    pass


def forged(file: Path, shape: tuple[int, ...], stride: tuple[int, ...], numbers: int, offset: int = 0) -> Path:
    """A checkpoint of one tensor that says of itself whatever it likes; it has 8 numbers."""
    content = io.BytesIO()
    pickler = pickle._Pickler(content, protocol=2)  # type: ignore[attr-defined]
    pickler.persistent_id = lambda each: (  # type: ignore[method-assign]
        ("storage", torch.FloatStorage, "0", "cpu", numbers) if isinstance(each, _Storage) else None
    )
    pickler.dump(Runs(torch._utils._rebuild_tensor_v2, _Storage(), offset, shape, stride, False, OrderedDict()))
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", content.getvalue())
        archive.writestr("archive/data/0", bytes(32))
    return file


def test_a_forged_tensor_that_is_in_order_is_read(tmp_path: Path) -> None:
    assert read_checkpoint(forged(tmp_path / "c.pt", (2, 4), (4, 1), 8)).shape == (2, 4)


@pytest.mark.parametrize(
    ("shape", "stride", "numbers", "offset"),
    [
        ((10**12,), (0,), 8, 0),  # a terabyte, all of it the same number
        ((3, 4), (4, 1), 8, 0),
        ((2, 4), (4, 1), 8, 1),
        ((2, 4), (4, 1), 8, -1),
        ((-2, 4), (4, 1), 8, 0),
        ((2, 4), (-4, 1), 8, 4),
        ((2, 4), (4, 1), 10**12, 0),
        ((2**62, 2**62), (1, 1), 8, 0),
    ],
)
def test_absurd_shapes_are_refused(
    shape: tuple[int, ...], stride: tuple[int, ...], numbers: int, offset: int, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="cannot be read as one"):
        read_checkpoint(forged(tmp_path / "c.pt", shape, stride, numbers, offset))


def test_compressed_files_are_refused(tmp_path: Path) -> None:
    """A few kilobytes could become many gigabytes."""
    with zipfile.ZipFile(tmp_path / "c.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(10_000))
    with pytest.raises(DataError, match="compressed"):
        read_checkpoint(tmp_path / "c.pt")


@FORMATS
def test_every_cut_is_noticed(zipped: bool, tmp_path: Path) -> None:
    whole = saved(tmp_path / "c.pt", {"a": torch.randn(30)}, zipped).read_bytes()
    for size in range(0, len(whole) - 1, max(1, len(whole) // 40)):
        (tmp_path / "cut.pt").write_bytes(whole[:size])
        with pytest.raises(DataError):
            read_checkpoint(tmp_path / "cut.pt")


def test_a_legacy_storage_that_lies_about_its_size(tmp_path: Path) -> None:
    file = saved(tmp_path / "c.pt", {"a": torch.randn(3)}, zipped=False)
    content = file.read_bytes()
    place = content.rindex(struct.pack("<q", 3))
    file.write_bytes(content[:place] + struct.pack("<q", 2**40) + content[place + 8 :])
    with pytest.raises(DataError, match="must have 3 numbers"):
        read_checkpoint(file)


@given(content=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("any") / "c.pt"
    file.write_bytes(pickle.dumps(MAGIC, 2) + content)
    with pytest.raises(DataError):
        read_checkpoint(file)


def zipped_pickle(file: Path, content: bytes) -> Path:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", content)
    return file


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x80\x02}r" + struct.pack("<I", 0x06000000) + b".", "remembers something at the place 100,663,296"),
        (b"\x80\x02}p100663296\n.", "remembers something at the place"),
        (b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".", "bytes follow"),
        (b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b".", "bytes follow"),
        (b"\x80\x04\x95" + struct.pack("<Q", 2**40) + b"}.", "bytes follow"),
    ],
    ids=["memo", "memo in words", "bytearray", "bytes", "frame"],
)
def test_memory_for_what_is_not_there_is_not_asked_for(
    content: bytes, words: str, legacy: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.pt"
    if legacy:
        file.write_bytes(content)
    else:
        zipped_pickle(file, content)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError, match=words):
        read_checkpoint(file)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 100_000  # kilobytes
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("what", ["module", "sparse", "transformers"])
def test_an_honest_file_of_more_than_tensors_is_told_what_to_save(what: str, tmp_path: Path) -> None:
    content = torch.nn.Linear(2, 2) if what == "module" else {"a": torch.eye(2).to_sparse()}
    if what == "transformers":
        zipped_pickle(tmp_path / "c.pt", b"\x80\x02ctransformers.models.gpt2.modeling_gpt2\nGPT2LMHeadModel\n.")
    else:
        saved(tmp_path / "c.pt", content)
    with pytest.raises(DataError, match=r"Save the state dictionary alone") as caught:
        read_checkpoint(tmp_path / "c.pt")
    assert "do not trust" not in str(caught.value)


def test_what_a_pickle_asks_for_is_quoted_without_steering_the_terminal(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read_checkpoint(zipped_pickle(tmp_path / "c.pt", b"\x80\x04\x8c\x04\x1b[2J\x8c\x03a\nb\x93."))
    assert r"\x1b[2J.a\nb" in str(caught.value)
    assert "\x1b" not in str(caught.value)
