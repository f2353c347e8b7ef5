"""OpenAI's checkpoints: written here as TensorFlow writes them, by the description of the format, and read back."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.batch import Batch, Tokens
from regard.errors import DataError, MissingError
from regard.interop import openai_tf, reading
from tests.interop import foreign

# ---- a writer: LevelDB's table, and BundleEntryProto


def varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def entry(array: np.ndarray[Any, Any], offset: int, kind: int = 1) -> bytes:
    shape = b"".join(field(2, field(1, size)) for size in array.shape)
    checksum = varint(6 << 3 | 5) + struct.pack("<I", 0x12345678)
    return field(1, kind) + field(2, shape) + field(4, offset) + field(5, array.nbytes) + checksum


def block(entries: list[tuple[bytes, bytes]], every: int = 16) -> bytes:
    found, restarts, before = b"", [], b""
    for number, (key, value) in enumerate(entries):
        shared = 0
        if number % every == 0:
            restarts.append(len(found))
        else:
            while shared < min(len(key), len(before)) and key[shared] == before[shared]:
                shared += 1
        found += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        before = key
    return found + b"".join(struct.pack("<I", place) for place in restarts) + struct.pack("<I", len(restarts))


def table(entries: list[tuple[bytes, bytes]], a_block: int = 10) -> bytes:
    content, handles = b"", []
    for first in range(0, len(entries), a_block):
        some = entries[first : first + a_block]
        data = block(some)
        handles.append((some[-1][0], varint(len(content)) + varint(len(data))))
        content += data + b"\0" + bytes(4)
    meta, index = block([]), block(handles, every=1)
    places = varint(len(content)) + varint(len(meta))
    content += meta + b"\0" + bytes(4)
    places += varint(len(content)) + varint(len(index))
    return content + index + b"\0" + bytes(4) + places.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def write(folder: Path, tensors: dict[str, np.ndarray[Any, Any]], kind: int = 1) -> None:
    data, entries = b"", [(b"", field(1, 1))]
    for name in sorted(tensors):
        entries.append((name.encode(), entry(tensors[name], len(data), kind)))
        data += tensors[name].tobytes()
    (folder / "model.ckpt.index").write_bytes(table(entries))
    (folder / "model.ckpt.data-00000-of-00001").write_bytes(data)


def openai_names(state: dict[str, torch.Tensor]) -> dict[str, np.ndarray[Any, Any]]:
    """transformers' names and shapes as OpenAI's."""
    found = {}
    for name, tensor in state.items():
        if name == "lm_head.weight":
            continue
        *path, part = name.removeprefix("transformer.").split(".")
        if path[0] == "h":
            path = [f"h{path[1]}", *path[2:]]
        norm = path[-1].startswith("ln")
        letter = "" if path[-1] in ("wte", "wpe") else ("/g" if norm else "/w") if part == "weight" else "/b"
        array = tensor.detach().numpy().astype(np.float32)
        found[f"model/{'/'.join(path)}{letter}"] = array[None] if letter == "/w" else array
    return found


@pytest.fixture
def published(tmp_path: Path) -> tuple[Path, Any]:
    """A folder as OpenAI publishes one, and the same model in transformers."""
    torch.manual_seed(1)
    model = foreign.gpt2(tmp_path / "theirs")
    place = tmp_path / "124M"
    place.mkdir()
    write(place, openai_names(model.state_dict()))
    shutil.copy(tmp_path / "theirs/vocab.json", place / "encoder.json")
    shutil.copy(tmp_path / "theirs/merges.txt", place / "vocab.bpe")
    config = model.config
    sizes = {"n_vocab": config.vocab_size, "n_ctx": 64, "n_embd": 24, "n_head": 3, "n_layer": 2}
    (place / "hparams.json").write_text(json.dumps(sizes))
    return place, model


def test_scores_are_those_of_transformers(published: tuple[Path, Any]) -> None:
    place, theirs = published
    loaded = reading.read(place)
    ids = torch.randint(theirs.config.vocab_size, (2, 20))
    with torch.inference_mode():
        found = loaded.model(Batch(None, Tokens.whole(ids), ids))
        torch.testing.assert_close(found, theirs(ids).logits, atol=1e-4, rtol=0)
    assert loaded.tokenizer.encode("one two") == foreign.library_tokenizer().encode("one two").ids


def test_a_missing_tensor_is_named(published: tuple[Path, Any]) -> None:
    place, theirs = published
    tensors = openai_names(theirs.state_dict())
    del tensors["model/h1/mlp/c_fc/w"]
    write(place, tensors | {"model/h7/odd": np.zeros(3, np.float32)})
    with pytest.raises(DataError, match=r"1 missing: h\.1\.mlp\.c_fc\.weight.*1 unused: model/h7/odd"):
        reading.read(place)


def test_other_numbers_are_refused(published: tuple[Path, Any]) -> None:
    place, theirs = published
    write(place, openai_names(theirs.state_dict()), kind=9)
    with pytest.raises(DataError, match="must be fp32"):
        reading.read(place)


@pytest.mark.parametrize("name", ["model.ckpt.index", "model.ckpt.data-00000-of-00001"])
def test_every_cut_is_noticed(name: str, published: tuple[Path, Any]) -> None:
    place, _ = published
    whole = (place / name).read_bytes()
    for size in range(0, len(whole) - 1, len(whole) // 23):
        (place / name).write_bytes(whole[:size])
        with pytest.raises((DataError, MissingError)):
            reading.read(place)


def test_damaged_indices_are_read_or_refused(published: tuple[Path, Any]) -> None:
    place, _ = published
    whole = (place / "model.ckpt.index").read_bytes()
    refused = 0
    for seed in range(150):
        draw = np.random.default_rng(seed)
        damaged = bytearray(whole)
        damaged[int(draw.integers(len(whole)))] = int(draw.integers(256))
        (place / "model.ckpt.index").write_bytes(bytes(damaged))
        try:
            openai_tf.read_tensors(place)
        except (DataError, MissingError):
            refused += 1
    assert refused > 20


@pytest.mark.parametrize("change", [{"n_layer": 10**9}, {"n_embd": 10**9}, {"n_ctx": -1}, {"n_head": "3"}])
def test_absurd_sizes_are_refused(change: dict[str, object], published: tuple[Path, Any]) -> None:
    place, _ = published
    sizes = json.loads((place / "hparams.json").read_text())
    (place / "hparams.json").write_text(json.dumps(sizes | change))
    with pytest.raises(DataError):
        reading.read(place)


def test_a_shape_that_no_tensor_has_is_refused(published: tuple[Path, Any]) -> None:
    """Nothing in one direction, too much in the other: no bytes at all, and still no tensor."""
    shape = b"".join(field(2, field(1, size)) for size in (0, 2**63))
    (published[0] / "model.ckpt.index").write_bytes(table([(b"model/wte", field(1, 1) + field(2, shape))]))
    with pytest.raises(DataError, match="a tensor has the shape"):
        openai_tf.read_tensors(published[0])
