"""The tensors of somebody else's model: read from files that may be damaged or hostile, and accounted for one by one.

Whoever converts a model takes each tensor by its name and shape. At the end nothing may be missing and nothing left
over: half a conversion would run, and answer nonsense.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard.errors import DataError, MissingError, printable
from regard.interop.unpickling import read_checkpoint

SAFETENSORS, SHARDS = "model.safetensors", "model.safetensors.index.json"
PICKLED, PICKLED_SHARDS = "pytorch_model.bin", "pytorch_model.bin.index.json"
MOST = 2**36  # numbers of one tensor: 256 GiB in fp32, and more than any model here has in all
FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


class Tensors:
    """Tensors by name, each of which has to be taken once. `place` is named in errors."""

    def __init__(self, found: Mapping[str, Tensor], place: Path) -> None:
        self._found, self.place = dict(found), place
        self._missing: list[str] = []
        self._wrong: list[str] = []
        self._taken: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def __len__(self) -> int:
        return len(self._found)

    def names(self) -> Iterable[str]:
        """All names, taken or not."""
        return self._found

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor that must be there."""
        if name not in self._found:
            raise DataError(f"{self.place}: must hold the tensor {name}, but does not. Is it the right kind of model?")
        return tuple(self._found[name].shape)

    def peek(self, name: str) -> Tensor:
        """A tensor that is there, in fp32, to look at; it still has to be taken."""
        return self._found[name].float()

    def take(self, name: str, *shape: int) -> Tensor:
        """The tensor of this name in fp32. One that is missing or of another shape is noted for `finish`."""
        self._taken.add(name)
        if math.prod(shape) > MOST:
            raise DataError(
                f"{self.place}: {name} must have fewer than {MOST:,} numbers, but by its settings it would be "
                f"{list(shape)}. Are they damaged?"
            )
        if name not in self._found:
            self._missing.append(f"{name} {list(shape)}")
        elif tuple(self._found[name].shape) != shape:
            self._wrong.append(f"{name} must be {list(shape)}, but is {list(self._found[name].shape)}")
        elif self._found[name].dtype not in FLOATS:
            kind = str(self._found[name].dtype).removeprefix("torch.")
            self._wrong.append(f"{name} must hold floating-point numbers, but holds {kind}")
        else:
            return self._found[name].float()
        return torch.empty(shape, device="meta")

    def skip(self, *names: str) -> None:
        """These carry nothing that is needed; they may be there or not."""
        self._taken.update(names)

    def skip_copies(self, original: str, *names: str) -> None:
        """These, where they are there, must be what `original` is: some files store a shared matrix several times."""
        for name in names:
            if name in self._found and original in self._found:
                self._taken.add(name)
                if not torch.equal(self._found[name], self._found[original]):
                    self._wrong.append(f"{name} must be the same as {original}, with which it is tied, but is not")

    def finish(self) -> None:
        """Raise unless every tensor was found as it must be, and every one there was taken."""
        unused = [name for name in self._found if name not in self._taken]
        parts = [
            f"{len(names)} {what}: {', '.join(map(printable, names))}"
            for what, names in (("missing", self._missing), ("wrong", self._wrong), ("unused", unused))
            if names
        ]
        if parts:
            raise DataError(
                f"{self.place}: must hold exactly the tensors that its configuration describes, but there are "
                f"{'; '.join(parts)}. Is it whole, and of this kind?"
            )


def read_folder(folder: Path) -> Tensors:
    """The weights of a folder as transformers writes them: safetensors or pickled, whole or in shards."""
    for name, shards in ((SAFETENSORS, SHARDS), (PICKLED, PICKLED_SHARDS)):
        if (folder / name).is_file():
            return Tensors(read_file(folder / name), folder / name)
        if (folder / shards).is_file():
            return _read_shards(folder / shards)
    raise MissingError(f"{folder}: must hold weights ({SAFETENSORS} or {PICKLED}), but has none. Is it whole?")


def _read_shards(index: Path) -> Tensors:
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(file, str) for file in places.values()):
        raise DataError(f"{index}: must say which file holds which tensor, but does not. Copy it again.")
    found: dict[str, Tensor] = {}
    for file in sorted(set(places.values())):
        # A folder from a stranger must not have files elsewhere read.
        if Path(file).name != file:
            raise DataError(f"{index}: must name files of its folder, but names {file!r}. Do not trust this folder.")
        if not (index.parent / file).is_file():
            raise MissingError(f"{index.parent / file}: {index.name} names this file, but it is not there. Copy it.")
        found |= read_file(index.parent / file)
    return Tensors(found, index)


def read_file(file: Path) -> dict[str, Tensor]:
    """The tensors of one file: safetensors by its name, otherwise a checkpoint of torch's."""
    if file.suffix == ".safetensors":
        return read_safetensors(file)
    return flatten(read_checkpoint(file), file)


def read_safetensors(file: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    try:
        with safe_open(file, framework="pt") as stream:
            return {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise DataError(
            f"{file}: must be a whole safetensors file, but cannot be read as one ({error}). Copy it again."
        ) from error


def flatten(found: Any, file: Path) -> dict[str, Tensor]:
    """A state dictionary, whatever is wrapped around it; other than tensors it may hold nothing."""
    if isinstance(found, Mapping):
        for wrapping in ("state_dict", "model_state_dict", "model"):
            if isinstance(found.get(wrapping), Mapping):
                return flatten(found[wrapping], file)
        if found and all(isinstance(value, Tensor) for value in found.values()):
            return {str(name): value for name, value in found.items()}
    raise DataError(f"{file}: must hold tensors by name, as a state dictionary does, but does not. Save that alone.")


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object from a file that may be anything."""
    if not file.is_file():
        raise MissingError(f"{file}: this file must be there, but is not. Is the folder whole?")
    try:
        found = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file}: must be JSON, but is not ({error}). Copy it again.") from error
    if not isinstance(found, dict):
        raise DataError(f"{file}: must be a JSON object, but is a {type(found).__name__}. Copy it again.")
    return found
