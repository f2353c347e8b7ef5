"""Files opened as streams of bytes, decompressed as their endings say, and refused where a byte of them is damaged.

Python's own readers of `.bz2` and `.xz` end without a word at anything that is no stream, and so does the package
zstandard: whatever follows a damaged header would be lost. Here, a file is read to its last byte.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import select
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

from regard.errors import DataError, MissingError, UsageError

COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
BEGINNINGS = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".xz": b"\xfd7zXZ\0", ".zst": b"\x28\xb5\x2f\xfd"}
"""The first bytes of a file of each kind."""
CHUNK = 2**20


def open_text(file: Path) -> BinaryIO:
    """A text file opened for reading as bytes, decompressed if its name says so."""
    openers: dict[str, Callable[[Path, str], Any]] = {
        ".gz": gzip.open, ".bz2": _open_bzip2, ".xz": _open_xz, ".zst": _open_zstandard,
    }  # fmt: skip
    try:
        stream: BinaryIO = openers.get(file.suffix.lower(), open)(file, "rb")
    except FileNotFoundError as error:
        raise MissingError(f"{file}: there is no such file. Check the path; it is relative to {Path.cwd()}.") from error
    except IsADirectoryError as error:
        raise DataError(f"{file}: must be a file of text, but is a folder. Name the file inside it.") from error
    except OSError as error:
        raise DataError(f"{file}: must be a file that can be read, but: {error.strerror}. Check the path.") from error
    return stream


def standard_input() -> BinaryIO:
    """The standard input as bytes. Raises UsageError where it was closed before we began (`<&-`)."""
    if sys.stdin is None:
        raise UsageError(
            "stdin: must be open to be read from, but is closed. Send a text into it, or name in the command what to "
            "read instead; --help says how."
        )
    return sys.stdin.buffer


def more_of(stream: BinaryIO) -> Callable[[float], bool]:
    """Tells whether more of a stream, or its end, can be read within so many seconds; yes where nobody knows.

    It asks the system, which does not see what Python has read ahead. Read with `read1(CHUNK)`, which leaves nothing of
    that behind.
    """

    def more(seconds: float) -> bool:
        try:
            return bool(select.select([stream], [], [], seconds)[0])
        except (OSError, ValueError):  # no file at all, or one that this system cannot be asked about
            return True

    return more


def is_compressed(name: str) -> bool:
    """Whether a file of this name is decompressed while reading; `.GZ` is as good as `.gz`."""
    return name.lower().endswith(COMPRESSED)


def looks_compressed(data: bytes) -> str | None:
    """The ending that a file with these first bytes should have; None where they may be text."""
    return next((ending for ending, first in BEGINNINGS.items() if data.startswith(first)), None)


def _open_bzip2(file: Path, mode: str) -> BinaryIO:
    return _buffered(_Frames(cast(BinaryIO, file.open(mode)), bz2.BZ2Decompressor))


def _open_xz(file: Path, mode: str) -> BinaryIO:
    # Its streams may be filled up with zeros.
    return _buffered(_Frames(cast(BinaryIO, file.open(mode)), lzma.LZMADecompressor, padding=b"\0"))


def _open_zstandard(file: Path, mode: str) -> BinaryIO:
    try:
        import zstandard
    except ImportError as error:
        raise UsageError(
            f"{file}: to read .zst the package `zstandard` must be installed, but is not. "
            "Install it with: pip install 'regard[data]'"
        ) from error
    new_frame = zstandard.ZstdDecompressor().decompressobj
    return _buffered(_Frames(cast(BinaryIO, file.open(mode)), new_frame, zstandard.ZstdError))


def _buffered(frames: _Frames) -> BinaryIO:
    return io.BufferedReader(frames, CHUNK)


class _Frames(io.RawIOBase):
    """All frames of a compressed file, one behind the other, and no end before the end."""

    def __init__(
        self, file: BinaryIO, new_frame: Callable[[], Any], fault: type[Exception] = OSError, padding: bytes = b""
    ) -> None:
        """`padding` may stand behind a frame; anything else there must be the next one."""
        self._file, self._new_frame, self._fault, self._padding = file, new_frame, fault, padding
        self._frame: Any = None
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            data = b""
            if self._frame is None or self._frame.eof:
                data = self._behind_frame()
                if not data:
                    return 0
                self._frame = self._new_frame()
            elif getattr(self._frame, "needs_input", True):
                data = self._file.read(CHUNK)
                if not data:
                    raise EOFError("the file ends before its last frame does")
            self._ready = memoryview(self._decompressed(data))
        part, self._ready = self._ready[: len(buffer)], self._ready[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        self._file.close()
        super().close()

    def _behind_frame(self) -> bytes:
        """What follows a frame, without padding; nothing at the end of the file."""
        if self._frame is None:
            return self._file.read(CHUNK)
        data: bytes = self._frame.unused_data
        while not (data := data.lstrip(self._padding)):
            data = self._file.read(CHUNK)
            if not data:
                break
        return data

    def _decompressed(self, data: bytes) -> bytes:
        # A few bytes may stand for gigabytes. Only a frame that can be told to stop says whether it needs input.
        most = (CHUNK,) if hasattr(self._frame, "needs_input") else ()
        try:
            return cast(bytes, self._frame.decompress(data, *most))
        except self._fault as error:
            raise OSError(str(error)) from error
