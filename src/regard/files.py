"""Folders that are either whole or not there, and that can prove what they hold.

A folder is written beside its final place, flushed to disk, given a `manifest.json` with the SHA-256 of each
file, and renamed into place. Whoever reads it can tell a whole folder from a damaged one.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from regard.errors import DataError, MissingError, UsageError

FORMAT_VERSION = 1
INT8_VERSION = 2  # of model folders with weights in 8 bits: a Regard that knows only 1 could not read them
MANIFEST = "manifest.json"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # what the system says where there is no room to write
LINKS = 40  # that lead to each other; more of them are a circle
STREAMS = ("stdin", "stdout", "stderr")
STREAM = re.compile(r"/dev/(std(?:in|out|err))|/(?:dev|proc/self)/fd/(\d{1,9})")
WRITING, OLD, REMOVING = "writing", "old", "removing"  # what folders in between are called: .NAME.writing


@dataclass(frozen=True)
class Seal:
    """What a manifest says of one file."""

    bytes: int
    sha256: str


def write_folder(place: Path, fill: Callable[[Path], object]) -> None:
    """Create `place` with what `fill` writes into the folder it is given; all of it or nothing."""
    beside = begin_folder(place)
    try:
        fill(beside)
        seal(beside, sorted(file.name for file in beside.iterdir()))
    except BaseException as error:
        shutil.rmtree(beside, ignore_errors=True)
        if isinstance(error, OSError) and error.filename is None:
            with naming(place):
                raise
        raise
    _commit(beside, place)


def begin_folder(place: Path) -> Path:
    """The empty folder beside `place` whose content is to become it."""
    beside = _beside(place, WRITING)
    shutil.rmtree(beside, ignore_errors=True)
    new = not place.parent.exists()
    beside.mkdir(parents=True)
    if new:
        _sync(place.parent.parent)
    return beside


def write_part(place: Path, fill: Callable[[Path], list[str]], part: int, parts: int, patience: float = 1_800) -> None:
    """What one of several processes adds to `place`, after one of them called `begin_folder`; all or nothing again.

    `fill` writes files that nobody else writes, and gives their names. Process 0 waits up to `patience` seconds for the
    others, writes the manifest over all, and renames the folder into place.
    """
    beside = _beside(place, WRITING)
    try:
        seals = _flush(beside, fill(beside))
        if part:
            write_file(beside / _note(part), json.dumps({name: vars(found) for name, found in seals.items()}))
            return
        for other in range(1, parts):
            seals |= _wait_for_note(beside, other, patience)
        _write_manifest(beside, seals)
    except BaseException:
        if not part:
            shutil.rmtree(beside, ignore_errors=True)
        raise
    _commit(beside, place)


def remove_folder(place: Path) -> None:
    """Remove a folder: it is there as a whole or not at all, even for someone who looks in the middle of it."""
    going = _beside(place, REMOVING)
    shutil.rmtree(going, ignore_errors=True)
    place.rename(going)
    shutil.rmtree(going)


def tidy(folder: Path) -> None:
    """Clear away what a killed writer left in `folder`; an old version it had only just moved aside comes back."""
    for left in folder.glob(".*"):
        name, _, what = left.name.removeprefix(".").rpartition(".")
        place = folder / name
        if what == OLD and left.is_dir() and not place.exists():
            left.rename(place)
        elif what in (WRITING, REMOVING, OLD) and left.is_dir():
            shutil.rmtree(left)
        elif what == WRITING:
            left.unlink()


def write_file(place: Path, content: str | bytes) -> None:
    """Write a whole file: readers see the old content or the new, never a part.

    A link stays a link, and what it leads to is written. A device or a pipe takes the content as it comes.
    """
    place = destination(place)
    whole = content.encode() if isinstance(content, str) else content
    with naming(place):
        if takes_all(place):
            with pouring(place) as stream:
                stream.write(whole)
            return
        beside = _beside(place, WRITING)
        try:
            beside.write_bytes(whole)
            _sync(beside)
        except OSError:
            beside.unlink(missing_ok=True)
            raise
        beside.replace(place)
        _sync(place.parent)


@contextmanager
def naming(place: Path) -> Iterator[None]:
    """Let what the system refuses in here be refused of `place`: a full disk names no file, or the one beside it."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(place)) from error


def destination(place: Path) -> Path:
    """Where a file named `place` is to be written: behind a link, where that leads. Raises where no file can be."""
    if str(place) == "-":
        raise UsageError("-: must be the name of a file to write, but is none. Write ./- for a file that is called so.")
    if place.is_dir():
        raise UsageError(f"{place}: must be a file to write, but is a folder. Name a file inside it.")
    if place.is_symlink() and not takes_all(place):
        place = Path(os.path.realpath(place))
    if not place.parent.is_dir():
        raise MissingError(f"{place}: must be in a folder that is there, but {place.parent} is not. Make it first.")
    return place


def takes_all(place: Path) -> bool:
    """Whether this is a device, a pipe or a stream: it is written to, and nothing may ever be put in its place."""
    if _stream_of(place) is not None:
        return True
    return place.exists() and not (place.is_file() or place.is_dir())


def pouring(place: Path) -> BinaryIO:
    """Open what takes all. A stream goes on where it is: a file that was opened for it has more writers than us."""
    number = _stream_of(place)
    return place.open("wb") if number is None else os.fdopen(os.dup(number), "wb")


def _stream_of(place: Path) -> int | None:
    """The number of the open stream that a name such as /dev/stdout stands for, links followed."""
    for _ in range(LINKS):
        found = STREAM.fullmatch(os.path.abspath(place))  # noqa: PTH100 (`resolve` would follow the link to the file)
        if found:
            return STREAMS.index(found[1]) if found[1] in STREAMS else int(found[2])
        if not place.is_symlink():
            return None
        place = place.parent / place.readlink()
    return None


def seal(folder: Path, names: list[str], version: int = FORMAT_VERSION) -> None:
    """Flush the named files of `folder` to disk and write the manifest that describes them."""
    _write_manifest(folder, _flush(folder, names), version)


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
        content = file.read_bytes()
        manifest = json.loads(content)
        version = manifest["format_version"]
        # The version comes first: another one may list its files in another way.
        if version not in (FORMAT_VERSION, INT8_VERSION):
            raise DataError(
                f"{file}: format_version must be {FORMAT_VERSION} or {INT8_VERSION} for this Regard, but is {version}. "
                "Use the version of Regard that wrote it, or train the model again."
            )
        entries = manifest["files"].items()
        # A folder from a stranger must not have files elsewhere read.
        strange = [name for name, _ in entries if Path(name).name != name]
        if strange:
            raise ValueError(f"it names {strange[0]!r}, which is not a file of this folder")
        seals = {str(name): Seal(int(entry["bytes"]), str(entry["sha256"])) for name, entry in entries}
        # Every other file has its hash in here. That this one is unchanged shows in its form alone.
        if content != _manifest_text(manifest).encode():
            raise ValueError("it is not in the form in which Regard writes it")
        return seals
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DataError(
            f"{file}: must be a manifest Regard wrote, but cannot be read as one ({type(error).__name__}: {error}). "
            "Copy the folder again."
        ) from error


def _beside(place: Path, what: str) -> Path:
    return place.with_name(f".{place.name}.{what}")


def _commit(beside: Path, place: Path) -> None:
    """Rename a folder whose files are flushed and sealed."""
    old = _beside(place, OLD)
    if place.exists():
        # Only now: after a crash between the two renames, the old folder was the one whole copy.
        shutil.rmtree(old, ignore_errors=True)
        place.rename(old)
    beside.rename(place)
    _sync(place.parent)
    shutil.rmtree(old, ignore_errors=True)


def _note(part: int) -> str:
    return f".part-{part}.json"


def _wait_for_note(beside: Path, part: int, patience: float) -> dict[str, Seal]:
    """What another process says of the files it has written."""
    note, end = beside / _note(part), time.monotonic() + patience
    while not note.is_file():
        if time.monotonic() > end:
            raise MissingError(
                f"{beside}: process {part} must have written its part within {patience:,.0f} s, but has not. "
                "Do all machines see this folder?"
            )
        time.sleep(0.02)
    seals = {name: Seal(**found) for name, found in json.loads(note.read_bytes()).items()}
    note.unlink()
    return seals


def _flush(folder: Path, names: list[str]) -> dict[str, Seal]:
    # safetensors writes files that only their owner can read; a model is for everyone the folder is for.
    mode = folder.stat().st_mode & 0o666
    for name in names:
        (folder / name).chmod(mode)
        _sync(folder / name)
    return {name: _measure(folder / name) for name in names}


def _write_manifest(folder: Path, seals: dict[str, Seal], version: int = FORMAT_VERSION) -> None:
    files = {name: vars(found) for name, found in seals.items()}
    write_file(folder / MANIFEST, _manifest_text({"format_version": version, "files": files}))


def _manifest_text(manifest: object) -> str:
    return json.dumps(manifest, indent=2) + "\n"


def _measure(file: Path) -> Seal:
    with file.open("rb") as stream:
        return Seal(file.stat().st_size, hashlib.file_digest(stream, "sha256").hexdigest())


def _sync(place: Path) -> None:
    """Ask the disk to hold what was written; a rename alone may survive a crash that its content does not."""
    handle = os.open(place, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
