"""Folders that are either whole or not there, and that can prove what they hold.

A folder is written beside its final place, flushed to disk, given a `manifest.json` with the SHA-256 of each
file, and renamed into place. Whoever reads it can tell a whole folder from a damaged one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from regard.errors import DataError, MissingError, UsageError

FORMAT_VERSION = 1
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Seal:
    """What a manifest says of one file."""

    bytes: int
    sha256: str


def write_folder(place: Path, fill: Callable[[Path], None]) -> None:
    """Create `place` with what `fill` writes into the folder it is given; all of it or nothing."""
    beside = place.with_name(f".{place.name}.writing")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    try:
        fill(beside)
        seal(beside, sorted(file.name for file in beside.iterdir()))
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    old = place.with_name(f".{place.name}.old")
    if place.exists():
        # Only now: after a crash between the two renames, the old folder was the one whole copy.
        shutil.rmtree(old, ignore_errors=True)
        place.rename(old)
    beside.rename(place)
    _sync(place.parent)
    shutil.rmtree(old, ignore_errors=True)


def write_file(place: Path, content: str | bytes) -> None:
    """Write a whole file: readers see the old content or the new, never a part."""
    if place.is_dir():
        raise UsageError(f"{place}: must be a file to write, but is a folder. Name a file inside it.")
    if not place.parent.is_dir():
        raise MissingError(f"{place}: must be in a folder that is there, but {place.parent} is not. Make it first.")
    beside = place.with_name(f".{place.name}.writing")
    beside.write_bytes(content.encode() if isinstance(content, str) else content)
    _sync(beside)
    beside.replace(place)
    _sync(place.parent)


def seal(folder: Path, names: list[str]) -> None:
    """Flush the named files of `folder` to disk and write the manifest that describes them."""
    for name in names:
        # safetensors writes files that only their owner can read; a model is for everyone the folder is for.
        (folder / name).chmod(0o666 & ~_umask())
        _sync(folder / name)
    files = {name: vars(_measure(folder / name)) for name in names}
    manifest = {"format_version": FORMAT_VERSION, "files": files}
    write_file(folder / MANIFEST, json.dumps(manifest, indent=2) + "\n")


def check_folder(folder: Path) -> None:
    """Raise unless every file the manifest names is there, whole and unchanged."""
    for name, expected in read_manifest(folder).items():
        file = folder / name
        if not file.is_file():
            raise MissingError(f"{file}: the manifest of {folder} names this file, but it is not there. Restore it.")
        size = file.stat().st_size
        if size != expected.bytes:
            raise DataError(
                f"{file}: must be {expected.bytes:,} bytes long as its manifest says, but is {size:,}. "
                f"{'The copy was cut short' if size < expected.bytes else 'It was changed'}; copy the folder again."
            )
        found = _measure(file)
        if found != expected:
            raise DataError(
                f"{file}: its SHA-256 must be {expected.sha256[:12]}… as its manifest says, but is "
                f"{found.sha256[:12]}…. The file was changed or damaged; copy the folder again."
            )


def read_manifest(folder: Path) -> dict[str, Seal]:
    """The seals of a folder's files by name."""
    file = folder / MANIFEST
    if not file.is_file():
        raise MissingError(f"{folder}: must hold a {MANIFEST}, but has none. Is this a folder Regard wrote?")
    try:
        manifest = json.loads(file.read_bytes())
        version = manifest["format_version"]
        # The version comes first: another one may list its files in another way.
        if version != FORMAT_VERSION:
            raise DataError(
                f"{file}: format_version must be {FORMAT_VERSION} for this Regard, but is {version}. "
                "Use the version of Regard that wrote it, or train the model again."
            )
        entries = manifest["files"].items()
        # A folder from a stranger must not have files elsewhere read.
        strange = [name for name, _ in entries if Path(name).name != name]
        if strange:
            raise ValueError(f"it names {strange[0]!r}, which is not a file of this folder")
        return {str(name): Seal(int(entry["bytes"]), str(entry["sha256"])) for name, entry in entries}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DataError(
            f"{file}: must be a manifest Regard wrote, but cannot be read as one ({type(error).__name__}: {error}). "
            "Copy the folder again."
        ) from error


def _measure(file: Path) -> Seal:
    with file.open("rb") as stream:
        return Seal(file.stat().st_size, hashlib.file_digest(stream, "sha256").hexdigest())


def _umask() -> int:
    """The permissions new files are to lack; the system tells only by setting it."""
    current = os.umask(0)
    os.umask(current)
    return current


def _sync(place: Path) -> None:
    """Ask the disk to hold what was written; a rename alone may survive a crash that its content does not."""
    handle = os.open(place, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
