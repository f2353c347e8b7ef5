"""Translation memories (.tmx): each unit gets a translation into the target language, where it has none yet.

    <tu><tuv xml:lang="en"><seg>one</seg></tuv></tu>

becomes `<tu>…<tuv xml:lang="de"><seg>eins</seg></tuv></tu>`; an empty <seg> of the target language is filled; one
with text is left as it is. Inline codes (<bpt>, <ept>, <ph>, <it>, <hi>, <ut>) go where their words go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import quoteattr

from regard.documents.document import Document
from regard.documents.edits import Edits
from regard.documents.passage import Passage, PassageWriter, Placed
from regard.documents.tags import Tags
from regard.documents.xml import XML, Element, Text, decode_xml, escape, parse
from regard.errors import DataError, UsageError
from regard.text.languages import same_language

LANGUAGE = f"{XML}}}lang"
ANY = "*all*"


@dataclass(frozen=True)
class Unit:
    """A unit to be translated: what goes between `start` and `end`, with `before` and `after` it."""

    start: int
    end: int
    before: str
    after: str
    tags: Tags = field(default_factory=Tags)


def read_memory(name: str, data: bytes, target: str | None = None) -> Document:
    """The units of a translation memory that have no text in the target language.

    `target` may be left out where the file has two languages, one of which is its source.
    """
    decoded = decode_xml(name, data)
    whole = decoded.text.encode()
    root = parse(name, whole)
    if root.name != "tmx":
        raise DataError(f"{name}: must be a translation memory with <tmx> around it, but has <{root.name}>.")
    header = root.find("header")
    source = ANY if header is None else header.attributes.get("srclang", ANY)
    units = [element for element in root.walk() if element.name == "tu"]
    into = target or _other_language(name, units, source)
    found = []
    for number, unit in enumerate(units, 1):
        known = unit.attributes.get("srclang", source)
        texts = [each for each in unit.elements if each.name == "tuv" and each.find("seg") is not None]
        first = next((each for each in texts if same_language(_language(each), known) or known.lower() == ANY), None)
        if first is not None and not same_language(_language(first), into):
            made = _unit(f"{name}, unit {number:,}", whole, unit, texts, first, into)
            if made is not None:
                found.append(made)

    def finish(placed: Sequence[Placed | None]) -> bytes:
        edits = Edits(whole)
        rest = iter(placed)
        for unit, passage in found:
            text = next(rest) if passage.has_words else None
            # A translation that is its source, as a number's, is one nevertheless.
            written = (text or Placed(passage.text, passage.marks)).render(
                lambda piece, _: escape(piece), unit.tags.wrap
            )
            edits.replace(unit.start, unit.end, f"{unit.before}{written}{unit.after}".encode())
        return decoded.encode(edits.now().decode())

    return Document("tmx", "application/x-tmx+xml", [passage for _, passage in found if passage.has_words], finish)


def _unit(
    place: str, whole: bytes, unit: Element, texts: Sequence[Element], first: Element, into: str
) -> tuple[Unit, Passage] | None:
    """What is to be translated of a unit, and where it goes; None where there is nothing to do."""
    segment, there = first.find("seg"), next((each for each in texts if same_language(_language(each), into)), None)
    if segment is None or (there is not None and (already := there.find("seg")) is not None and already.text().strip()):
        return None
    tags, writer = Tags(), PassageWriter()
    _read(segment, whole, tags, writer, place)
    tags.end(writer)
    passage = writer.passage()
    if not passage.text:
        return None
    if there is not None and (empty := there.find("seg")) is not None:
        return Unit(empty.start, empty.end, "<seg>", "</seg>", tags), passage
    last = texts[-1]
    # The new one stands as the last one does: on a line of its own, or not.
    gap = whole[unit.start : last.start].decode()
    gap = gap[len(gap.rstrip()) :]
    prefix = f"{gap}<tuv xml:lang={quoteattr(into)}><seg>"
    return Unit(last.end, last.end, prefix, "</seg></tuv>", tags), passage


def _read(element: Element, whole: bytes, tags: Tags, writer: PassageWriter, place: str) -> None:
    """The text of a segment, and the codes in it."""
    for child in element.children:
        if isinstance(child, Text):
            writer.write(child.text)
            continue
        raw = whole[child.start : child.end].decode()
        if child.name == "hi":
            mark = tags.open(writer, "hi", whole[child.start : child.inside].decode(), place)
            _read(child, whole, tags, writer, place)
            tags.shut(writer, mark, whole[child.outside : child.end].decode())
        elif child.name == "bpt":
            tags.open(writer, f"pt {child.attributes.get('i', '')}", raw, place)
        elif child.name == "ept":
            tags.close(writer, f"pt {child.attributes.get('i', '')}", raw)
        else:
            tags.point(writer, raw)


def _other_language(name: str, units: Sequence[Element], source: str) -> str:
    """The only language beside the source."""
    languages = Counter(_language(each) for unit in units for each in unit.elements if each.name == "tuv")
    others = [language for language in languages if not same_language(language, source)]
    if len(others) != 1 or source.lower() == ANY:
        raise UsageError(
            f"{name}: the language to translate into must be given, unless the file has one beside its source "
            f"(`{source}`), but it has {', '.join(others) or 'none'}. Say which."
        )
    return others[0]


def _language(element: Element) -> str:
    return element.attributes.get(LANGUAGE, element.attributes.get("lang", ""))
