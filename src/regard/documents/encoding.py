"""Bytes to text and back in the same encoding: UTF-8 with or without a byte order mark, or UTF-16 with one."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from regard.errors import DataError

LARGEST = 64 * 2**20  # bytes of a document

MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
# UTF-32 in little order begins as UTF-16 does, so it is looked at first.
OTHERS = {codecs.BOM_UTF32_LE: "UTF-32", codecs.BOM_UTF32_BE: "UTF-32", b"PK\x03\x04": "a zip file",
          b"%PDF": "a PDF file", b"\xd0\xcf\x11\xe0": "an old Office file", b"\x1f\x8b": "a gzip file"}  # fmt: skip


@dataclass(frozen=True)
class Decoded:
    """A document as text, and what is needed to write it again as it was."""

    text: str
    encoding: str
    mark: bytes
    """Its byte order mark, which the text has not."""

    def encode(self, text: str) -> bytes:
        """Other text in the same encoding; half a character, which a model may write, becomes a question mark."""
        return self.mark + text.encode(self.encoding, errors="replace")


def decode(name: str, data: bytes) -> Decoded:
    """The text of a document; raises DataError for other encodings, with the line of the first wrong byte."""
    check_size(name, data)
    for beginning, what in OTHERS.items():
        if data.startswith(beginning):
            raise DataError(
                f"{name}: must be text in UTF-8 or UTF-16, but begins as {what} does. Convert or rename it."
            )
    mark = next((mark for mark in MARKS if data.startswith(mark)), b"")
    encoding = MARKS.get(mark, "utf-8")
    try:
        text = data[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        good = data[len(mark) : len(mark) + error.start].decode(encoding, errors="ignore")
        found = data[len(mark) + error.start]
        raise DataError(
            f"{name}, line {good.count(chr(10)) + 1:,}: must be UTF-8, or UTF-16 with a byte order mark, but byte "
            f"{len(mark) + error.start + 1:,} of the file is 0x{found:02x} ({error.reason}). Convert the file, for "
            "example with iconv."
        ) from error
    if "\0" in text:
        raise DataError(
            f"{name}, line {text[: text.index(chr(0))].count(chr(10)) + 1:,}: must be text, but holds a NUL character. "
            "UTF-16 needs a byte order mark; convert the file."
        )
    return Decoded(text, encoding, mark)


def check_size(name: str, data: bytes) -> None:
    """Raise DataError for a document that is too large to be held several times in memory."""
    if len(data) > LARGEST:
        raise DataError(f"{name}: a document must have at most {LARGEST // 2**20} MiB, but this has more. Split it.")
