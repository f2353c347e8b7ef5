"""Word documents (.docx): paragraphs are passages; their formats, links, notes, fields and pictures stay.

Translated are the text itself, tables and text boxes in it, headers, footers, footnotes and endnotes; not comments,
and not what was deleted with changes tracked. A tab or a line break ends a passage. Runs of one format are one mark, a
link is one, a field is one. Parts without a change are the same bytes as before, and so is the file if there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.documents.document import Document
from regard.documents.edits import Edits
from regard.documents.encoding import Decoded
from regard.documents.package import Package
from regard.documents.paragraphs import Paragraph, paragraphs
from regard.documents.passage import Placed
from regard.documents.xml import decode_xml, parse
from regard.errors import DataError

MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
TYPES = "[Content_Types].xml"
TRANSLATED = ("document.main+xml", "header+xml", "footer+xml", "footnotes+xml", "endnotes+xml")


@dataclass(frozen=True)
class Part:
    """An XML file inside the document."""

    name: str
    decoded: Decoded
    data: bytes
    """In UTF-8, whatever it is in the file."""
    paragraphs: Sequence[Paragraph]


def read_word(name: str, data: bytes) -> Document:
    """The paragraphs of a Word document."""
    package = Package(name, data)
    parts = [_part(package, part) for part in _translated_parts(package)]
    passages = [content.passage for part in parts for paragraph in part.paragraphs for content in paragraph.contents]

    def finish(placed: Sequence[Placed | None]) -> bytes:
        changed: dict[str, bytes] = {}
        rest = iter(placed)
        for part in parts:
            edits = Edits(part.data)
            for paragraph in part.paragraphs:
                texts = [next(rest) for _ in paragraph.contents]
                if any(text is not None for text in texts):
                    new = paragraph.render(edits, texts)
                    edits.replace(paragraph.start, paragraph.end, new.encode())
            if edits.changed:
                changed[part.name] = part.decoded.encode(edits.now().decode())
        return package.write(changed)

    return Document("docx", MEDIA_TYPE, passages, finish)


def _translated_parts(package: Package) -> list[str]:
    """The names of the parts that hold text, by what the document says of them."""
    if TYPES not in package.parts:
        raise DataError(f"{package.name}: must be a Word document, but has no {TYPES}. Is it another kind of zip file?")
    types = parse(f"{package.name}, {TYPES}", decode_xml(f"{package.name}, {TYPES}", package.read(TYPES)).text.encode())
    listed = {
        element.attributes.get("PartName", "").removeprefix("/")
        for element in types.elements
        if "word" in (kind := element.attributes.get("ContentType", "")) and kind.endswith(TRANSLATED)
    }
    found = [part for part in package.parts if part in listed]
    if not any(part for part in found):
        raise DataError(f"{package.name}: must be a Word document, but has no text. Is it a spreadsheet or slides?")
    return found


def _part(package: Package, name: str) -> Part:
    place = f"{package.name}, {name}"
    decoded = decode_xml(place, package.read(name))
    data = decoded.text.encode()
    return Part(name, decoded, data, paragraphs(place, data, parse(place, data)))
