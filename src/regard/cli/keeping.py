"""What a command reads must outlive it: none writes over a file that it was given to read."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from io import UnsupportedOperation
from pathlib import Path
from typing import TextIO

from regard.errors import UsageError

READ = ("a", "b", "check", "data", "file", "gold", "key_file", "model", "models", "others", "primer", "recipe",
        "reference", "source", "target", "texts")  # fmt: skip
WRITTEN = ("out", "confusion", "midi", "roll")
"""What commands call the files that they read, and those that they write."""

Place = str | Path | int  # a file by its name or, for a stream that is open, by its number


def keep_inputs(given: Mapping[str, object]) -> None:
    """Raise UsageError if one of a command's options, or where its results go, is a file that it reads."""
    read: list[Place] = [place for name in READ for place in _places(given.get(name))]
    read += _number(sys.stdin)
    for option in WRITTEN:
        for file in _places(given.get(option)):
            must_not_be_read(f"--{option}", Path(file), read)
    for stream in _number(sys.stdout):
        if (name := _same(stream, read)) is not None:
            raise UsageError(
                f"{name}: must not be both read and written, but stdout goes into it: with > the shell has emptied it "
                "already, with >> its end would never be reached. Send what is printed to another file."
            )


def must_not_be_read(option: str, file: Path, read: Iterable[Place]) -> None:
    """Raise UsageError if `file`, which `option` names, is one of those that are read."""
    if (name := _same(file, read)) is not None:
        other = "" if name == str(file) else f" (as {name})"
        raise UsageError(
            f"{file}: must not be both read{other} and written, but {option} names it: what is in it would be lost. "
            f"Name another file for {option}."
        )


def _same(written: Place, read: Iterable[Place]) -> str | None:
    """What the file is called by which it is read; None where it is not. Links and other spellings do not hide it."""
    found = _stat(written)
    if found is None:
        return None
    same = (place for place in read if (other := _stat(place)) is not None and os.path.samestat(found, other))
    return next(("stdin" if isinstance(place, int) else str(place) for place in same), None)


def _stat(place: Place) -> os.stat_result | None:
    """Of a plain file that is there; a device, a pipe or a folder loses nothing."""
    with suppress(OSError, ValueError):  # a text is no name: too long, or with a zero in it
        found = os.fstat(place) if isinstance(place, int) else Path(place).stat()
        if stat.S_ISREG(found.st_mode):
            return found
    return None


def _places(value: object) -> Iterator[str | Path]:
    """The names in an option's value; how these come depends on Typer's version."""
    if isinstance(value, str | Path):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _places(each)


def _number(stream: TextIO | None) -> list[int]:
    with suppress(AttributeError, UnsupportedOperation, ValueError):  # one that is closed, or no file
        return [] if stream is None else [stream.fileno()]
    return []
