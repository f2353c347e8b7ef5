"""From a file's name and bytes to a document."""

from __future__ import annotations

from pathlib import Path, PurePath

from regard.documents.document import LINES, Document
from regard.documents.encoding import LARGEST
from regard.documents.markup import read_markup
from regard.documents.memory import read_memory
from regard.documents.plain import read_lines, read_plain
from regard.documents.subtitles import read_subtitles
from regard.documents.word import read_word
from regard.errors import DataError, MissingError, UsageError

READERS = {"txt": read_plain, "srt": read_subtitles, "html": read_markup, "docx": read_word}
FORMS = (*READERS, "tmx")
SUFFIXES = {".txt": "txt", ".srt": "srt", ".html": "html", ".htm": "html", ".xhtml": "html", ".docx": "docx",
            ".tmx": "tmx"}  # fmt: skip


def form_of(name: str) -> str | None:
    """The form of a document of this name; None where the name says nothing."""
    return SUFFIXES.get(PurePath(name).suffix.lower())


def read(name: str, data: bytes, form: str | None = None, target: str | None = None) -> Document:
    """A document, ready to be translated.

    Its form follows from its name, unless `form` says it: `lines` is plain text whose lines stay lines. `target` is the
    language to translate into, which a translation memory (.tmx) writes down, as does a page that says its language;
    other forms do not need it. Raises DataError for content that is not what the name says, or that is a trap, and
    UsageError for a form that nobody knows.
    """
    form = form or form_of(name)
    if form == "tmx":
        return read_memory(name, data, target)
    if form == "html":
        return read_markup(name, data, target)
    if form == LINES:
        return read_lines(name, data)
    if form not in READERS:
        suffix = PurePath(name).suffix
        raise UsageError(
            f"{name}: a document must be one of: {', '.join(SUFFIXES)}; but its name "
            f"{f'ends in `{suffix}`' if suffix else 'has no ending'}. Convert it, or say its form: {', '.join(FORMS)}."
        )
    return READERS[form](name, data)


def read_file(file: Path, form: str | None = None, target: str | None = None) -> Document:
    """The document in a file."""
    try:
        with file.open("rb") as stream:
            data = stream.read(LARGEST + 1)  # one byte too many, and it is refused
    except FileNotFoundError as error:
        raise MissingError(f"{file}: there is no such file. Check the path; it is relative to {Path.cwd()}.") from error
    except OSError as error:
        raise DataError(f"{file}: must be a file that can be read, but: {error.strerror}. Check the path.") from error
    return read(str(file), data, form, target)
