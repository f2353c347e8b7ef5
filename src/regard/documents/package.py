"""Zip files that may come from anybody: read with limits, and written again with other parts.

Refused are: more than 10,000 entries; more than 256 MiB unpacked, all together; an entry that unpacks to more than 200
times its size; entries that share bytes or names; names that leave the folder; encryption; other ways to compress than
the usual one. All of that is checked before a byte is unpacked.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping

from regard.documents.encoding import check_size
from regard.errors import DataError

MOST_ENTRIES = 10_000
MOST_BYTES = 256 * 2**20
MOST_RATIO = 200
FREE = 2**20  # bytes that may be unpacked at any ratio: small files of spaces are common


class Package:
    """A zip file that was checked."""

    def __init__(self, name: str, data: bytes) -> None:
        check_size(name, data)
        self.name, self._data = name, data
        if data.startswith(b"\xd0\xcf\x11\xe0"):
            raise DataError(
                f"{name}: must be a .docx, but is an older or an encrypted one. Save it as .docx, unprotected."
            )
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError) as error:
            raise DataError(
                f"{name}: must be a zip file, as each .docx is, but is not ({error}). Copy it again, or save it "
                "again as .docx."
            ) from error
        self._check(self._zip.infolist())

    @property
    def parts(self) -> list[str]:
        """The names of its entries."""
        return self._zip.namelist()

    def read(self, part: str) -> bytes:
        """The bytes of an entry."""
        try:
            return self._zip.read(part)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, ValueError) as error:
            raise DataError(f"{self.name}, {part}: must be readable, but is damaged ({error}).") from error

    def write(self, changed: Mapping[str, bytes]) -> bytes:
        """The zip file with other bytes for some entries; without any, the same bytes it was read from."""
        if not changed:
            return self._data
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w") as target:
            target.comment = self._zip.comment
            for entry in self._zip.infolist():
                content = changed.get(entry.filename)
                target.writestr(_fresh(entry), self.read(entry.filename) if content is None else content)
        return written.getvalue()

    def _check(self, entries: list[zipfile.ZipInfo]) -> None:
        total = sum(entry.file_size for entry in entries)
        names = {entry.filename for entry in entries}
        rules = [
            (len(entries) <= MOST_ENTRIES, f"have at most {MOST_ENTRIES:,} entries", f"has {len(entries):,}"),
            (total <= MOST_BYTES, f"unpack to at most {MOST_BYTES // 2**20} MiB", f"says {total / 2**20:,.0f}"),
            (len(names) == len(entries), "have each entry once", "has one twice"),
        ]
        for holds, rule, found in rules:
            if not holds:
                raise DataError(f"{self.name}: must {rule}, but {found}. No program writes such a document by itself.")
        end = 0
        for entry in sorted(entries, key=lambda each: each.header_offset):
            self._check_entry(entry, end)
            end = entry.header_offset + entry.compress_size

    def _check_entry(self, entry: zipfile.ZipInfo, end: int) -> None:
        name, size = entry.filename, entry.file_size
        outside = (
            name.startswith("/") or "\\" in name or ":" in name or ".." in name.split("/") or not name.isprintable()
        )
        rules = [
            (not outside, "be inside the document"),
            (entry.header_offset >= end, "have bytes of its own"),
            (
                size <= FREE or size <= MOST_RATIO * entry.compress_size,
                f"unpack to at most {MOST_RATIO} times its size",
            ),
            (not entry.flag_bits & 0x1, "not be encrypted"),
            (entry.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED), "be compressed in the usual way"),
        ]
        for holds, rule in rules:
            if not holds:
                raise DataError(
                    f"{self.name}, {name[:80]!r}: must {rule}, but does not. Write the document anew with the program "
                    "it came from."
                )


def _fresh(entry: zipfile.ZipInfo) -> zipfile.ZipInfo:
    """A new entry of the same name, time and kind; sizes and places are found while writing."""
    fresh = zipfile.ZipInfo(entry.filename, entry.date_time)
    fresh.compress_type, fresh.external_attr, fresh.create_system = (
        entry.compress_type, entry.external_attr, entry.create_system
    )  # fmt: skip
    return fresh
