"""A model folder to be given away says the same in half the bytes."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from unittest import mock

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from regard import folder
from regard.api import load
from regard.files import seal
from regard.interop import compact
from tests.tiny import failed, regard


def test_half_the_bytes_and_nothing_that_only_training_needs(words_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "small"
    ran = regard("export", words_model, out, "--to", "regard", "--numbers", "float16", "--count", 13, "--json")
    assert ran.code == 0, ran.err
    proof = json.loads(ran.out)["proof"]
    assert proof["same"]["greedy"] == {"same": 13, "of": 13}
    assert proof["bytes"]["in float16"] < 0.55 * proof["bytes"]["regard"]
    before, after = load_file(words_model / folder.WEIGHTS), load_file(out / folder.WEIGHTS)
    assert before.keys() == after.keys()
    for name, weight in after.items():
        assert weight.dtype == torch.float16
        torch.testing.assert_close(weight.float(), before[name], rtol=2**-11, atol=1e-7)
    assert not (out / folder.CHECKPOINTS).exists()
    assert compact.NOTE in (out / folder.CARD).read_text(encoding="utf-8")
    model = load(out)
    assert next(model.network.parameters()).dtype == torch.float32
    assert model.translate(["seven"]) == ["sieben"]


def test_all_bits_are_kept_where_nothing_else_is_asked(words_model: Path, tmp_path: Path) -> None:
    ran = regard("export", words_model, tmp_path / "copy", "--to", "regard", "--count", 5)
    assert ran.code == 0, ran.err
    assert "differ by at most 0.0e+00" in ran.out
    assert "passed" in ran.out
    weights = folder.WEIGHTS
    assert (tmp_path / "copy" / weights).read_bytes() == (words_model / weights).read_bytes()


def test_a_folder_of_16_bits_can_be_written_again_with_as_many_or_more(words_model: Path, tmp_path: Path) -> None:
    half, again, full = (tmp_path / name for name in ("half", "again", "full"))
    half.mkdir()
    compact.write(words_model, half, "float16")
    for out, more in ((again, ("--numbers", "float16")), (full, ())):
        ran = regard("export", half, out, "--to", "regard", "--count", 5, *more)
        assert ran.code == 0, ran.err
    for name in (folder.CARD, folder.WEIGHTS):
        assert (again / name).read_bytes() == (half / name).read_bytes()
    assert {weight.dtype for weight in load_file(full / folder.WEIGHTS).values()} == {torch.float32}
    before = (words_model / folder.CARD).read_text(encoding="utf-8").rstrip()
    assert (full / folder.CARD).read_text(encoding="utf-8").rstrip() == before
    for name, weight in load_file(half / folder.WEIGHTS).items():
        torch.testing.assert_close(load_file(full / folder.WEIGHTS)[name], weight.float(), rtol=0, atol=0)


def test_a_weight_that_16_bits_cannot_hold_is_named(words_model: Path, tmp_path: Path) -> None:
    place = tmp_path / "large"
    shutil.copytree(words_model, place)
    weights = load_file(place / folder.WEIGHTS)
    name = sorted(weights)[0]
    weights[name].view(-1)[0] = 70_000.0
    save_file(weights, place / folder.WEIGHTS)
    seal(place, [folder.RECIPE, folder.TOKENIZER, folder.WEIGHTS, folder.CARD, folder.METRICS])
    ran = regard("export", place, tmp_path / "small", "--to", "regard", "--numbers", "float16")
    failed(ran, 65, "below 65,504", name, "--numbers float32")
    assert not (tmp_path / "small").exists()


@pytest.mark.parametrize(
    ("writer", "error"),
    [
        ("shutil.copyfile", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "the file that is read")),
        ("save_file", SafetensorError(f"I/O error: {os.strerror(errno.ENOSPC)} (os error {errno.ENOSPC})")),
    ],
)
def test_a_full_disk_is_that_of_the_folder_to_write(
    writer: str, error: Exception, words_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"regard.interop.compact.{writer}", mock.Mock(side_effect=error))
    ran = regard("export", words_model, tmp_path / "small", "--to", "regard")
    failed(ran, 66, f"regard: {tmp_path / 'small'}: No space left on device.")
    assert not any(tmp_path.iterdir())


def test_numbers_that_are_not_ours_are_refused(words_model: Path, tmp_path: Path) -> None:
    ran = regard("export", words_model, tmp_path / "small", "--to", "regard", "--numbers", "int8")
    failed(ran, 2, "--numbers must be one of: float32, float16 for regard")


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_it_computes_in_any_precision(precision: str, words_model: Path, tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    compact.write(words_model, tmp_path / "small", "float16")
    ran = regard("translate", tmp_path / "small", "--precision", precision, stdin=b"nine\n")
    assert ran.out == "neun\n", ran.err
