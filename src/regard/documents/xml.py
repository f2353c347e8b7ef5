"""XML read so that every byte can be found again, and traps are refused.

A document type (<!DOCTYPE>) that declares anything is refused, and with it every entity that could grow; so are trees
deeper or larger than any real document.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.parsers import expat
from xml.sax.saxutils import escape as escape_markup

from regard.documents.encoding import Decoded, decode
from regard.errors import DataError

DEEPEST = 256
MOST_ELEMENTS = 1_000_000
XML = "http://www.w3.org/XML/1998/namespace"
# What XML 1.0 cannot hold, even as a reference; a model of bytes may write it.
FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
DECLARED = re.compile(r"""\A\s*<\?xml\b[^>]*?encoding\s*=\s*["']([\w.-]+)""")


@dataclass(slots=True)
class Element:
    """An element, with places in the bytes it was read from.

    Its opening tag goes from `start` to `inside`, its closing tag from `outside` to `end`.
    """

    namespace: str
    name: str
    attributes: Mapping[str, str]
    start: int
    inside: int = 0
    outside: int = 0
    end: int = 0
    children: list[Element | Text] = field(default_factory=list)

    @property
    def elements(self) -> list[Element]:
        """Its children that are no text."""
        return [child for child in self.children if isinstance(child, Element)]

    def find(self, name: str) -> Element | None:
        """Its first child of this name."""
        return next((child for child in self.elements if child.name == name), None)

    def walk(self) -> list[Element]:
        """All elements inside it and itself; what is inside an element comes before the element."""
        found, waiting = [], [self]
        while waiting:
            element = waiting.pop()
            found.append(element)
            waiting.extend(element.elements)
        return found[::-1]

    def text(self) -> str:
        """All text inside it."""
        return "".join(child.text if isinstance(child, Text) else child.text() for child in self.children)


@dataclass(slots=True)
class Text:
    """Characters between tags, as they read."""

    text: str


def escape(text: str) -> str:
    """Text as XML holds it."""
    return escape_markup(FORBIDDEN.sub("\ufffd", text))


def decode_xml(place: str, data: bytes) -> Decoded:
    """The text of an XML file in UTF-8 or UTF-16; raises where it says that it is in something else."""
    decoded = decode(place, data)
    said = DECLARED.search(decoded.text)
    if said is not None and not decoded.encoding.startswith(said[1].lower()[:6]):
        raise DataError(
            f"{place}: must be in UTF-8, or in UTF-16 with a byte order mark, but says that it is in `{said[1]}`. "
            "Convert it, and change the word in its first line."
        )
    return decoded


def parse(place: str, data: bytes) -> Element:
    """The tree of an XML text in UTF-8; `place` is named in errors."""
    return _Reader(place, data).root


class _Reader:
    def __init__(self, place: str, data: bytes) -> None:
        self.place, self.data, self.count = place, data, 0
        self.open: list[Element] = []
        self.roots: list[Element] = []
        self.untold: Element | None = None  # its opening tag ends where the next thing begins
        self.parser = expat.ParserCreate("utf-8", "}")
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.SkippedEntityHandler = self._unknown
        for name in ("CommentHandler", "ProcessingInstructionHandler", "StartCdataSectionHandler",
                     "EndCdataSectionHandler"):  # fmt: skip
            setattr(self.parser, name, lambda *_: self._tell())
        try:
            self.parser.Parse(data, True)
        except expat.ExpatError as error:
            raise DataError(
                f"{place}, line {error.lineno:,}: must be XML, but is not ({expat.errors.messages[error.code]}). "
                "Write the document anew with the program it came from."
            ) from error
        self.root = self.roots[0]

    def _tell(self) -> int:
        here = self.parser.CurrentByteIndex
        if self.untold is not None:
            self.untold.inside = here
            self.untold = None
        return here

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        here = self._tell()
        self.count += 1
        if len(self.open) >= DEEPEST or self.count > MOST_ELEMENTS:
            raise DataError(
                f"{self.place}, line {self.parser.CurrentLineNumber:,}: may have {MOST_ELEMENTS:,} elements, at most "
                f"{DEEPEST} inside each other, but has more. No program writes such a document by itself; split it."
            )
        namespace, _, local = name.rpartition("}")
        element = Element(namespace, local, attributes, here)
        (self.open[-1].children if self.open else self.roots).append(element)
        self.open.append(element)
        self.untold = element

    def _end(self, _: str) -> None:
        element = self.open.pop()
        element.outside = element.end = self._tell()
        if self.data[element.inside - 2 : element.inside] != b"/>":
            element.end = self.data.index(b">", element.outside) + 1

    def _text(self, text: str) -> None:
        self._tell()
        if self.open:
            self.open[-1].children.append(Text(text))

    def _doctype(self, name: str, system: str | None, public: str | None, declares: bool) -> None:
        if declares:
            raise DataError(
                f"{self.place}, line {self.parser.CurrentLineNumber:,}: must declare nothing in its <!DOCTYPE>, but "
                "does: such a file can grow without end. Remove what stands in its brackets."
            )

    def _unknown(self, entity: str, _: bool) -> None:
        raise DataError(
            f"{self.place}, line {self.parser.CurrentLineNumber:,}: must be readable by itself, but `&{entity};` is "
            "declared in another file, if anywhere. Write the character that it means."
        )
