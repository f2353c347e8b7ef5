"""The paragraphs of a Word document: what is text in them, what goes around it, and how they are written anew.

A paragraph's content, flattened:

    Text     some characters in one format (a run's properties, <w:rPr>)
    Atom     what is kept as it is: a picture, a note's number, a bookmark
    Group    what stands around text: a link, a tracked insertion, a field
    Break    a tab, a line break: text before and behind it is not one sentence

A run with several things in it counts as several runs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from regard.documents.edits import Edits
from regard.documents.passage import Passage, PassageWriter, Placed
from regard.documents.xml import Element, escape

WORD = {
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "http://purl.oclc.org/ooxml/wordprocessingml/main",
}
GROUPS = {"hyperlink", "ins", "moveTo", "smartTag", "customXml", "fldSimple", "bdo", "dir"}
BREAKS = {"tab", "br", "cr", "ptab"}
DROPPED = {"proofErr", "lastRenderedPageBreak", "softHyphen"}
SPELLED = {"noBreakHyphen": "\u2011"}
# What the spelling checker needs is not written again: the language is another. Runs that differ only in it are one.
UNSEEN = re.compile(r"<(?:[\w.-]+:)?(?:lang|noProof)\b[^>]*/>|\s+(?=<)")
NO_FORMAT = re.compile(r"<(?P<name>[\w.:-]+)[^>]*></(?P=name)>|<[^>]*/>")


@dataclass(frozen=True)
class Raw:
    """A stretch of the file, in a run of its own where it stood in one."""

    start: int
    end: int
    run: str | None = None
    """The properties of the run."""


@dataclass(frozen=True)
class Text:
    """Characters of one format."""

    text: str
    run: str


@dataclass(frozen=True)
class Atom:
    """Something kept as it is."""

    raw: tuple[Raw, ...]


@dataclass(frozen=True)
class Break:
    """Something kept as it is, at which a passage ends."""

    raw: tuple[Raw, ...]


@dataclass(frozen=True)
class Group:
    """Something around other things."""

    before: tuple[Raw, ...]
    after: tuple[Raw, ...]
    items: tuple[Item, ...]


Item = Text | Atom | Break | Group


@dataclass
class Content:
    """A passage of a paragraph, with what each of its marks is."""

    passage: Passage = field(default_factory=lambda: Passage(""))
    runs: dict[int | None, str] = field(default_factory=dict)
    """The format of text directly inside a mark, or inside none."""
    around: dict[int, tuple[tuple[Raw, ...], tuple[Raw, ...]]] = field(default_factory=dict)
    edges: tuple[str, str] = ("", "")
    """The spaces before and behind the passage."""

    @property
    def has_words(self) -> bool:
        """Whether there is something to translate."""
        return self.passage.has_words


@dataclass(frozen=True)
class Paragraph:
    """What stands between `start` and `end`: passages, and what is between them."""

    start: int
    end: int
    prefix: str
    """Of the names of Word's elements, usually `w:`."""
    pieces: tuple[Content | Raw, ...]

    @property
    def contents(self) -> list[Content]:
        """Its passages that have words."""
        return [piece for piece in self.pieces if isinstance(piece, Content) and piece.has_words]

    def render(self, edits: Edits[bytes], texts: Sequence[Placed | None]) -> str:
        """Its XML with these texts; None is the text that was there."""
        rest, written = iter(texts), []
        for piece in self.pieces:
            if isinstance(piece, Raw):
                written.append(self._kept(piece, edits))
                continue
            text = next(rest) if piece.has_words else None
            written.append(self._content(piece, text or Placed(piece.passage.text, piece.passage.marks), edits))
        return "".join(written)

    def _content(self, content: Content, placed: Placed, edits: Edits[bytes]) -> str:
        def write(text: str, mark: int | None) -> str:
            inside = f'<{self.prefix}t xml:space="preserve">{escape(text)}</{self.prefix}t>'
            return self._run(content.runs.get(mark, ""), inside)

        def wrap(mark: int, inside: str) -> str:
            before, after = content.around.get(mark, ((), ()))
            return "".join([*(self._kept(raw, edits) for raw in before), inside,
                            *(self._kept(raw, edits) for raw in after)])  # fmt: skip

        before, after = (write(space, None) if space else "" for space in content.edges)
        return before + placed.render(write, wrap) + after

    def _kept(self, raw: Raw, edits: Edits[bytes]) -> str:
        content = edits.now(raw.start, raw.end).decode()
        return content if raw.run is None else self._run(raw.run, content)

    def _run(self, properties: str, inside: str) -> str:
        return f"<{self.prefix}r>{properties}{inside}</{self.prefix}r>"


def paragraphs(place: str, data: bytes, root: Element) -> list[Paragraph]:
    """The paragraphs that hold words; one inside another (a text box) comes before it."""
    found = []
    for element in root.walk():
        if element.name == "p" and element.namespace in WORD:
            made = _paragraph(place, data, element)
            if made is not None:
                found.append(made)
    return found


def _paragraph(place: str, data: bytes, element: Element) -> Paragraph | None:
    children = [child for child in element.elements if child.name != "pPr"]
    if not children:
        return None
    items = _fields(list(_items(data, children)))
    name = re.split(r"[\s/>]", data[element.start + 1 : element.inside].decode())[0]
    found = Paragraph(children[0].start, element.outside, name.removesuffix("p"), tuple(_pieces(place, items)))
    return found if found.contents else None


def _items(data: bytes, elements: Sequence[Element]) -> Iterator[Item]:
    for element in elements:
        known = element.namespace in WORD
        if known and element.name == "r":
            yield from _run_items(data, element)
        elif known and element.name in GROUPS:
            yield _group(data, element, element)
        elif known and element.name == "sdt" and (content := element.find("sdtContent")) is not None:
            yield _group(data, element, content)
        elif not known or element.name not in DROPPED:
            yield Atom((Raw(element.start, element.end),))


def _group(data: bytes, element: Element, content: Element) -> Group:
    before, after = Raw(element.start, content.inside), Raw(content.outside, element.end)
    return Group((before,), (after,), tuple(_fields(list(_items(data, content.elements)))))


@dataclass(frozen=True)
class _Field(Atom):
    """A part of a field, until all of it is known."""

    kind: str


def _run_items(data: bytes, run: Element) -> Iterator[Item]:
    style = run.find("rPr")
    properties = "" if style is None else UNSEEN.sub("", data[style.start : style.end].decode())
    properties = "" if NO_FORMAT.fullmatch(properties) else properties
    for child in run.elements:
        raw = Raw(child.start, child.end, properties)
        if child.namespace not in WORD:
            yield Atom((raw,))
        elif child.name == "t":
            yield Text(child.text(), properties)
        elif child.name in SPELLED:
            yield Text(SPELLED[child.name], properties)
        elif child.name in BREAKS:
            yield Break((raw,))
        elif child.name == "fldChar":
            kind = next((value for name, value in child.attributes.items() if name.endswith("}fldCharType")), "")
            yield _Field((raw,), kind)
        elif child.name not in {"rPr", *DROPPED}:
            yield Atom((raw,))


def _fields(items: list[Item]) -> list[Item]:
    """Fields as groups: what is between their separator and their end is text. A field that goes on in another
    paragraph, as a table of contents does, is breaks."""
    found: list[Item] = []
    open_fields: list[tuple[int, int | None]] = []  # where in `found` each begins and where its text does
    for item in items:
        found.append(item)
        if not isinstance(item, _Field):
            continue
        if item.kind == "begin":
            open_fields.append((len(found) - 1, None))
        elif item.kind == "separate" and open_fields:
            open_fields[-1] = (open_fields[-1][0], len(found))
        elif item.kind == "end" and open_fields:
            begin, text = open_fields.pop()
            found[begin:] = [_field(found[begin:], None if text is None else text - begin)]
    return [Break(item.raw) if isinstance(item, _Field) else item for item in found]


def _field(items: list[Item], text: int | None) -> Item:
    raw = [piece for item in items[: len(items) if text is None else text] for piece in _raw(item)]
    if text is None:
        return Atom(tuple(raw))
    return Group(tuple(raw), tuple(_raw(items[-1])), tuple(items[text:-1]))


def _raw(item: Item) -> Iterator[Raw]:
    """All of an item that is not text."""
    match item:
        case Atom(raw) | Break(raw):
            yield from raw
        case Group(before, after, items):
            yield from before
            for inner in items:
                yield from _raw(inner)
            yield from after


def _pieces(place: str, items: Sequence[Item]) -> Iterator[Content | Raw]:
    """Items cut at breaks: passages, and what is between them. A group with a break inside is no mark."""
    together: list[Item] = []
    for item in items:
        match item:
            case Break(raw):
                yield from _passage(place, together)
                yield from raw
                together = []
            case Group(before, after, inside) if _has_break(item):
                yield from _passage(place, together)
                yield from before
                yield from _pieces(place, inside)
                yield from after
                together = []
            case _:
                together.append(item)
    yield from _passage(place, together)


def _has_break(item: Item) -> bool:
    return isinstance(item, Break) or (isinstance(item, Group) and any(map(_has_break, item.items)))


def _passage(place: str, items: Sequence[Item]) -> Iterator[Content | Raw]:
    """Items as a passage."""
    if not items:
        return
    content, writer = Content(), PassageWriter()
    _write(place, items, None, content, writer)
    content.passage = writer.passage()
    text = _text(items)
    content.edges = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :] if text.strip() else ""
    yield content


def _text(items: Sequence[Item]) -> str:
    return "".join(
        item.text if isinstance(item, Text) else _text(item.items) if isinstance(item, Group) else "" for item in items
    )


def _write(place: str, items: Sequence[Item], parent: int | None, content: Content, writer: PassageWriter) -> None:
    items = _merged(items)
    lengths: Counter[str] = Counter()
    for item in items:
        if isinstance(item, Text):
            lengths[item.run] += len(item.text.strip())
    base = lengths.most_common(1)[0][0] if lengths else ""
    content.runs[parent] = base
    for item in items:
        match item:
            case Text(text, run) if run == base:
                writer.write(text)
            case Text(text, run):
                content.runs[writer.open(place)] = run
                writer.write(text)
                writer.close()
            case Group(before, after, inside):
                mark = writer.open(place)
                content.around[mark] = (before, after)
                _write(place, inside, mark, content, writer)
                writer.close()
            case Atom(raw) | Break(raw):
                content.around[writer.point()] = (raw, ())


def _merged(items: Sequence[Item]) -> list[Item]:
    """Neighbours of one format as one."""
    found: list[Item] = []
    for item in items:
        last = found[-1] if found else None
        if isinstance(item, Text) and isinstance(last, Text) and item.run == last.run:
            found[-1] = Text(last.text + item.text, last.run)
        else:
            found.append(item)
    return found
