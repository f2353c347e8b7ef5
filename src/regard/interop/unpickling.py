"""Torch's checkpoints without torch.load: a pickle is a program, and this one may only make tensors and plain values.

Every name a pickle asks for is answered by this file: with a tensor's parts, with plain containers, or with an empty
shell for the settings that fairseq and OpenNMT-py put beside their weights. Any other name is refused, and nothing of
what it would do is done. Shapes and sizes are checked against the bytes that are there before memory is asked for;
for what the pickle says of itself, that is a look through its instructions before any is followed.

    zip       a zip file: ROOT/data.pkl, and ROOT/data/KEY with the bytes of each storage       (torch 1.6 and later)
    legacy    pickles one after another: magic number, version, system, the object, the keys; then the storages
"""

from __future__ import annotations

import io
import pickle
import pickletools
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from torch import Tensor

from regard.errors import DataError, printable

MAGIC = 0x1950A86A20F9469CFC6C  # what a legacy checkpoint begins with
SHELLS = ("argparse", "omegaconf", "fairseq", "onmt", "torchtext")
"""Modules whose classes hold settings or words: their instances become shells with the same attributes."""
WHOLE = ("torch.nn.", "torch._utils", "torch._tensor", "torch.sparse", "torch.storage", "transformers.")
"""Where the names come from that an honest checkpoint asks for if more than tensors was saved."""
DTYPES = {
    "DoubleStorage": torch.float64, "FloatStorage": torch.float32, "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16, "LongStorage": torch.int64, "IntStorage": torch.int32,
    "ShortStorage": torch.int16, "CharStorage": torch.int8, "ByteStorage": torch.uint8, "BoolStorage": torch.bool,
}  # fmt: skip


class Shell:
    """What a settings object held, without its class: attributes, and items if it was a container."""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments

    def __setstate__(self, state: object) -> None:
        values = state[0] if isinstance(state, tuple) and state else state
        if isinstance(values, Mapping):
            self.__dict__.update({str(name): value for name, value in values.items()})

    def __setitem__(self, key: object, value: object) -> None:
        self.__dict__[str(key)] = value

    def append(self, value: object) -> None:
        """One more item."""
        self.__dict__.setdefault("items", []).append(value)

    def extend(self, values: list[object]) -> None:
        """More items."""
        self.__dict__.setdefault("items", []).extend(values)


def plain(value: Any) -> Any:
    """Settings without the classes they were kept in: omegaconf's, argparse's."""
    if isinstance(value, Shell):
        values = vars(value)
        if "_val" in values:
            return plain(values["_val"])
        return plain(values.get("_content", {name: each for name, each in values.items() if name != "arguments"}))
    return {name: plain(each) for name, each in value.items()} if isinstance(value, Mapping) else value


class _Named(dict[Any, Any]):
    """An ordered dictionary; torch hangs attributes on it that nobody needs."""

    def __setstate__(self, state: object) -> None:
        pass


class _Storage(NamedTuple):
    """Some numbers in a row, not yet read."""

    key: str
    dtype: torch.dtype
    size: int


class _Refused(Exception):  # noqa: N818
    """A pickle asks for something that is not allowed."""


class _More(Exception):  # noqa: N818
    """A pickle holds something of torch's that is more than a dense tensor."""


def read_checkpoint(file: Path) -> Any:
    """What a checkpoint of torch's holds: containers, plain values, tensors and shells."""
    try:
        with file.open("rb") as stream:
            return _read_zip(file) if zipfile.is_zipfile(stream) else _read_legacy(file)
    except _Refused as error:
        raise DataError(
            f"{file}: a checkpoint must hold tensors and plain values, but this one {error}. It was not run; do not "
            "trust this file."
        ) from error
    except _More as error:
        raise DataError(
            f"{file}: a checkpoint must hold dense tensors and plain values, but this one asks for {error}. It was not "
            "run. Save the state dictionary alone, with dense tensors: torch.save(model.state_dict(), FILE)."
        ) from error
    except (OSError, EOFError, struct.error, zipfile.BadZipFile, pickle.UnpicklingError, ValueError, TypeError,
            AttributeError, KeyError, IndexError, RuntimeError, OverflowError, MemoryError,
            NotImplementedError, RecursionError) as error:  # fmt: skip
        raise DataError(
            f"{file}: must be a whole checkpoint of torch's, but cannot be read as one "
            f"({type(error).__name__}: {error}). Copy it again."
        ) from error


def _read_zip(file: Path) -> Any:
    with zipfile.ZipFile(file) as archive:
        entries = {info.filename: info for info in archive.infolist()}
        names = [name for name in entries if name.endswith("/data.pkl") or name == "data.pkl"]
        if len(names) != 1:
            raise ValueError(f"it has {len(names)} files data.pkl instead of one")
        root = names[0].removesuffix("data.pkl")
        if any(info.compress_type != zipfile.ZIP_STORED for info in entries.values()):
            raise ValueError("its files are compressed, which torch never does")
        order = archive.read(f"{root}byteorder") if f"{root}byteorder" in entries else b"little"
        if order != b"little":
            raise ValueError("its numbers are in another byte order")

        def numbers(storage: _Storage) -> Tensor:
            name = f"{root}data/{storage.key}"
            needed = storage.size * storage.dtype.itemsize
            if name not in entries or entries[name].file_size != needed:
                there = entries[name].file_size if name in entries else 0
                raise ValueError(f"storage {storage.key} must be {needed:,} bytes long, but is {there:,}")
            return _numbers(archive.read(name), storage)

        return _load(io.BytesIO(archive.read(names[0])), _once(numbers))


def _read_legacy(file: Path) -> Any:
    """Storages come last, so the object is read twice: first to learn which there are, then with their numbers."""
    asked: dict[str, _Storage] = {}

    def note(storage: _Storage) -> Tensor:
        asked[storage.key] = storage
        return torch.empty(storage.size, dtype=storage.dtype, device="meta")

    with file.open("rb") as stream:
        if _load(stream, note) != MAGIC:
            raise ValueError("it does not begin as one")
        _load(stream, note)  # the version of the format
        _load(stream, note)  # the system it was written on
        begin = stream.tell()
        _load(stream, note)
        keys = _load(stream, note)
        there = {str(key): _legacy_storage(stream, asked[str(key)]) for key in keys}
        stream.seek(begin)
        return _load(stream, lambda storage: there[storage.key])


def _legacy_storage(stream: BinaryIO, storage: _Storage) -> Tensor:
    (size,) = struct.unpack("<q", stream.read(8))
    if size != storage.size:
        raise ValueError(f"storage {storage.key} must have {storage.size:,} numbers, but has {size:,}")
    here = stream.tell()
    left = stream.seek(0, io.SEEK_END) - here
    stream.seek(here)
    if left < size * storage.dtype.itemsize:
        raise ValueError(f"storage {storage.key} is cut short")
    return _numbers(stream.read(size * storage.dtype.itemsize), storage)


def _numbers(content: bytes, storage: _Storage) -> Tensor:
    if not content:
        return torch.empty(0, dtype=storage.dtype)
    return torch.frombuffer(bytearray(content), dtype=storage.dtype)


def _once(read: Callable[[_Storage], Tensor]) -> Callable[[_Storage], Tensor]:
    """Tensors may share a storage; it is read one time."""
    known: dict[_Storage, Tensor] = {}

    def found(storage: _Storage) -> Tensor:
        if storage not in known:
            known[storage] = read(storage)
        return known[storage]

    return found


def _load(stream: BinaryIO, numbers: Callable[[_Storage], Tensor]) -> Any:
    """The next object of a stream, which is left behind it."""
    begin = stream.tell()
    end = stream.seek(0, io.SEEK_END)
    stream.seek(begin)
    _look_through(_Counted(stream, end))
    stream.seek(begin)
    return _Unpickler(stream, numbers).load()


class _Counted:
    """A stream that is not asked for more than it has: Python makes room for all that is asked for."""

    def __init__(self, stream: BinaryIO, end: int) -> None:
        self._stream, self.end = stream, end

    def read(self, size: int) -> bytes:
        """So many bytes."""
        if size > self.end - self._stream.tell():
            raise ValueError(f"it says that {size:,} bytes follow, but there are fewer")
        return self._stream.read(size)

    def readline(self) -> bytes:
        """The bytes up to the end of a line."""
        return self._stream.readline()

    def tell(self) -> int:
        """How far it was read."""
        return self._stream.tell()


def _look_through(stream: _Counted) -> None:
    """Raise for a pickle that would take memory for what is not there: more bytes, or a far place to remember.

    Places to remember things at are numbered one by one, so no number is larger than that of the instructions.
    """
    for count, (instruction, argument, _) in enumerate(pickletools.genops(stream)):  # type: ignore[arg-type]
        if not isinstance(argument, int):
            continue
        if instruction.name in ("PUT", "BINPUT", "LONG_BINPUT") and not 0 <= argument <= count:
            raise ValueError(f"its instruction {count:,} remembers something at the place {argument:,}")
        if instruction.name == "FRAME" and argument > stream.end - stream.tell():
            raise ValueError(f"it says that {argument:,} bytes follow, but there are fewer")


class _Unpickler(pickle.Unpickler):
    """Answers each name a pickle asks for with something harmless, or refuses it."""

    def __init__(self, stream: BinaryIO, numbers: Callable[[_Storage], Tensor]) -> None:
        super().__init__(stream, encoding="utf-8", errors="replace")
        self._numbers = numbers

    def find_class(self, module: str, name: str) -> Any:
        """Nothing is ever imported here."""
        match module, name:
            case "collections", "OrderedDict":
                return type("OrderedDict", (_Named,), {})
            case "torch._utils", "_rebuild_tensor_v2" | "_rebuild_tensor":
                return _Maker(self._tensor)
            case "torch._utils", "_rebuild_parameter":
                return _Maker(_parameter)
            case "torch" | "torch.storage", kind if kind in DTYPES:
                return _Kind(kind)
            case "torch", "Size":
                return _Maker(_size)
        if module.partition(".")[0] in SHELLS:
            # A class of its own each time: whatever a pickle hangs on it, no other shell has.
            return type(name.rpartition(".")[2], (Shell,), {})
        if module == "torch" or module.startswith(WHOLE):
            raise _More(printable(f"{module}.{name}"))
        raise _Refused(f"asks for {printable(f'{module}.{name}')}")

    def persistent_load(self, pid: Any) -> _Storage:
        """A storage: ("storage", its kind, its key, where it was, its size, …)."""
        what, kind, key, _, size, *_ = pid
        if what != "storage" or not isinstance(kind, _Kind) or not isinstance(size, int) or size < 0:
            raise _Refused(f"asks for {what!r}, which is no storage")
        return _Storage(printable(str(key)), DTYPES[kind], size)

    def _tensor(self, storage: object, offset: int, shape: Any, stride: Any, *_: object) -> Tensor:
        if not isinstance(storage, _Storage):
            raise _Refused("makes a tensor of what is no storage")
        sizes, strides = [int(size) for size in shape], [int(step) for step in stride]
        count = 1
        for size in sizes:
            count *= size
        last = offset + sum((size - 1) * step for size, step in zip(sizes, strides, strict=True))
        negative = min([offset, *sizes, *strides]) < 0
        if negative or count > storage.size or (count and last >= storage.size):
            raise ValueError(f"a tensor of shape {sizes} does not fit into its storage of {storage.size:,} numbers")
        return self._numbers(storage).as_strided(sizes, strides, offset)


class _Kind(str):
    """The name of a kind of storage. A pickle cannot change it."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        raise _Refused("changes what it was given")


class _Maker:
    """A function that a pickle may call, and nothing else."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(self, *arguments: Any) -> Any:
        return self._make(*arguments)

    def __setstate__(self, state: object) -> None:
        raise _Refused("changes what it was given")


def _parameter(data: Tensor, *_: object) -> Tensor:
    return data


def _size(sizes: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in sizes)
