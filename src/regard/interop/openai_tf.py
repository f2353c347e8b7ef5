"""GPT-2 as OpenAI published it: a TensorFlow checkpoint, read without TensorFlow.

    hparams.json                          n_vocab, n_ctx, n_embd, n_head, n_layer
    encoder.json, vocab.bpe               the vocabulary
    model.ckpt.index                      a table: of each tensor its type, shape, file, place and size
    model.ckpt.data-00000-of-00001        the numbers

The table is one of LevelDB's: blocks of entries sorted by key, each key stored as what it adds to the one before; an
index of the blocks; and a footer of 48 bytes that says where the index is. A value is a small protocol buffer.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from regard.errors import DataError, MissingError
from regard.interop import weights
from regard.interop.tensors import Tensors, read_json
from regard.models.gpt import GPTSettings
from regard.text.tokenizer import Tokenizer

HPARAMS, ENCODER, MERGES = "hparams.json", "encoder.json", "vocab.bpe"
FOOTER, MAGIC = 48, 0xDB4775248B80FB57
TRAILER = 5  # behind each block: how it is compressed, and a checksum
FLOAT = 1  # the type of a tensor of fp32
MOST = 2**31  # a tensor is shorter in every direction


def read(folder: Path) -> tuple[GPTSettings, dict[str, Tensor], Tokenizer]:
    """Settings, state and vocabulary of a published GPT-2."""
    file = folder / HPARAMS
    sizes = read_json(file)
    names = ("n_vocab", "n_ctx", "n_embd", "n_head", "n_layer")
    wrong = [name for name in names if type(sizes.get(name)) is not int or not 0 < sizes[name] < 2**31]
    if wrong:
        raise DataError(
            f"{file}: `{wrong[0]}` must be a whole number above 0, but is {sizes.get(wrong[0])!r}. Copy it."
        )
    vocabulary, context, width, heads, layers = (sizes[name] for name in names)
    theirs = read_tensors(folder)
    if layers > len(theirs):
        raise DataError(f"{file}: asks for {layers:,} layers, but the checkpoint has {len(theirs):,} tensors. Copy it.")
    try:
        settings = GPTSettings(
            layers=layers, d_model=width, d_ff=4 * width, heads=heads, max_positions=context, dropout=0.1
        )
    except ValueError as error:
        raise DataError(f"{file}: must describe a model that can be built, but {error}.") from error
    state = weights.gpt2_in(_renamed(theirs, layers), settings, vocabulary)
    tokenizer = Tokenizer.from_gpt2(folder / ENCODER, folder / MERGES)
    if tokenizer.size != vocabulary:
        raise DataError(f"{folder / ENCODER}: must have {vocabulary:,} tokens, but has {tokenizer.size:,}. Copy it.")
    return settings, state, tokenizer


def _renamed(theirs: dict[str, Tensor], layers: int) -> Tensors:
    """The tensors by the names that transformers gave them; those nobody knows keep their own."""
    names = {"model/wte": "wte.weight", "model/wpe": "wpe.weight"}
    names |= {"model/ln_f/g": "ln_f.weight", "model/ln_f/b": "ln_f.bias"}
    for number in range(layers):
        for part in ("attn/c_attn", "attn/c_proj", "mlp/c_fc", "mlp/c_proj"):
            for kind, word in (("w", "weight"), ("b", "bias")):
                names[f"model/h{number}/{part}/{kind}"] = f"h.{number}.{part.replace('/', '.')}.{word}"
        for norm in ("ln_1", "ln_2"):
            for kind, word in (("g", "weight"), ("b", "bias")):
                names[f"model/h{number}/{norm}/{kind}"] = f"h.{number}.{norm}.{word}"
    found = {}
    for name, tensor in theirs.items():
        # Its matrices are convolutions of width 1, and have that as a dimension.
        flat = tensor[0] if name.endswith("/w") and tensor.ndim == 3 and tensor.shape[0] == 1 else tensor
        found[names.get(name, name)] = flat
    return Tensors(found, Path("model.ckpt"))


# ---- the checkpoint


@dataclass(frozen=True)
class _Entry:
    """What the table says of one tensor."""

    kind: int = 0
    shape: tuple[int, ...] = ()
    shard: int = 0
    offset: int = 0
    size: int = 0


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of the one checkpoint in a folder."""
    files = sorted(folder.glob("*.index"))
    if len(files) != 1:
        raise MissingError(f"{folder}: must hold one checkpoint (*.index), but has {len(files)}. Is it whole?")
    try:
        entries = {key: _entry(value) for key, value in _table(files[0].read_bytes()) if key}
    except (ValueError, IndexError, struct.error, UnicodeDecodeError) as error:
        raise DataError(
            f"{files[0]}: must be the index of a checkpoint, but cannot be read as one ({error}). Copy it again."
        ) from error
    return {name: _tensor(files[0], name, entry) for name, entry in entries.items()}


def _tensor(index: Path, name: str, entry: _Entry) -> Tensor:
    found = sorted(index.parent.glob(f"{index.stem}.data-{entry.shard:05d}-of-*"))
    if len(found) != 1:
        raise MissingError(f"{index.stem}.data-{entry.shard:05d}: holds {name}, but is not there. Copy the checkpoint.")
    count = math.prod(entry.shape)
    if entry.kind != FLOAT or entry.size != 4 * count:
        raise DataError(
            f"{index}: {name} must be fp32 and of 4 bytes a number, but is of type {entry.kind}, with shape "
            f"{list(entry.shape)} in {entry.size:,} bytes. Copy it again."
        )
    with found[0].open("rb") as stream:
        if entry.offset + entry.size > found[0].stat().st_size:
            raise DataError(f"{found[0]}: must hold {name} up to byte {entry.offset + entry.size:,}, but is cut short.")
        stream.seek(entry.offset)
        content = bytearray(stream.read(entry.size))
    return torch.frombuffer(content, dtype=torch.float32).view(entry.shape) if count else torch.zeros(entry.shape)


def _table(content: bytes) -> Iterator[tuple[str, bytes]]:
    """The keys and values of a table."""
    if len(content) < FOOTER or struct.unpack("<Q", content[-8:])[0] != MAGIC:
        raise ValueError("it does not end as one")
    footer = content[-FOOTER:]
    _, place = _varint(footer, 0)  # where the index of filters is: offset and size, not needed
    _, place = _varint(footer, place)
    offset, place = _varint(footer, place)
    size, _ = _varint(footer, place)
    for _, handle in _block(content, offset, size):
        begin, place = _varint(handle, 0)
        length, _ = _varint(handle, place)
        for key, value in _block(content, begin, length):
            yield key.decode("utf-8"), value


def _block(content: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """The entries of one block: (how much of the key before, how much is added, how long the value), both, …"""
    if offset + size + TRAILER > len(content):
        raise ValueError("a block is cut short")
    if content[offset + size] != 0:
        raise ValueError("its blocks are compressed, which TensorFlow does not do here")
    block = content[offset : offset + size]
    restarts = struct.unpack("<I", block[-4:])[0]
    end = len(block) - 4 - 4 * restarts
    place, key = 0, b""
    while place < end:
        shared, place = _varint(block, place)
        added, place = _varint(block, place)
        length, place = _varint(block, place)
        if shared > len(key) or place + added + length > end:
            raise ValueError("an entry goes beyond its block")
        key = key[:shared] + block[place : place + added]
        yield key, block[place + added : place + added + length]
        place += added + length


def _varint(content: bytes, place: int) -> tuple[int, int]:
    """A number in groups of seven bits, and the place behind it."""
    value = shift = 0
    while True:
        byte = content[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
        if shift > 63:
            raise ValueError("a number has no end")


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protocol buffer: their numbers and values."""
    place = 0
    while place < len(content):
        tag, place = _varint(content, place)
        match tag & 7:
            case 0:
                number, place = _varint(content, place)
                yield tag >> 3, number
            case 2:
                length, place = _varint(content, place)
                if place + length > len(content):
                    raise ValueError("a field is cut short")
                yield tag >> 3, content[place : place + length]
                place += length
            case 5 | 1 as wide:
                size = 4 if wide == 5 else 8
                yield tag >> 3, content[place : place + size]
                place += size
            case other:
                raise ValueError(f"a field is of the unknown kind {other}")


def _entry(content: bytes) -> _Entry:
    """BundleEntryProto: 1 type, 2 shape, 3 shard, 4 offset, 5 size, 6 checksum."""
    values: dict[int, int] = {}
    shape: tuple[int, ...] = ()
    for number, value in _fields(content):
        if number == 2 and isinstance(value, bytes):
            sizes = [
                dict(_fields(part)).get(1, 0) for key, part in _fields(value) if key == 2 and isinstance(part, bytes)
            ]
            shape = tuple(size for size in sizes if isinstance(size, int))
            if any(size >= MOST for size in shape):
                raise ValueError(f"a tensor has the shape {list(shape)}")
        elif isinstance(value, int):
            values[number] = value
    return _Entry(values.get(1, 0), shape, values.get(3, 0), values.get(4, 0), values.get(5, 0))
