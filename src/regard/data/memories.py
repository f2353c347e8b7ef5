"""Translation memories (`.tmx`) as corpora: a pair from each unit that has both languages.

    <tu><tuv xml:lang="en"><seg>one</seg></tuv><tuv xml:lang="de"><seg>eins</seg></tuv></tu>

They are read as a stream, since some are larger than the memory of a machine. Inline codes (<bpt>, <ept>, <ph>, <it>,
<ut>) are left out with what is in them, which is markup of some program; what is in <hi> stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple
from xml.parsers import expat

from regard.data.formats import BLOCK, Block, nothing_in, opened, read_chunk
from regard.errors import DataError
from regard.text.languages import same_language

ANY = "*all*"


class Unit(NamedTuple):
    """The texts of a unit by the codes of their languages, and the one that it was translated from."""

    source: str
    texts: Mapping[str, str]


def memory_blocks(place: str, source: str | None, target: str | None) -> Iterator[Block]:
    """The pairs of a translation memory, with the numbers of their units in the place of lines.

    Without languages, it is from the one that the file calls its source into the only other. A unit that lacks one of
    the two is an empty pair.
    """
    pairs, first = _pairs(place, source, target), 1
    while some := list(islice(pairs, BLOCK)):
        yield Block(place, first, [one for one, _ in some], [other for _, other in some])
        first += len(some)


def _pairs(place: str, source: str | None, target: str | None) -> Iterator[tuple[str, str]]:
    sides: tuple[str, str] | None = (source, target) if source and target else None
    seen: Counter[str] = Counter()
    complete = number = 0
    for number, unit in enumerate(_units(place), 1):
        seen.update(list(unit.texts))
        if sides is None and len(unit.texts) > 1:
            sides = _choose(unit, source, target, f"{place}, unit {number:,}")
        one, other = (_text(unit, language) for language in sides) if sides else ("", "")
        complete += bool(one and other)
        yield (one, other) if one and other else ("", "")
    if not number:
        raise nothing_in(place)
    if not complete:
        wanted = " and ".join(f"`{language}`" for language in sides) if sides else "two languages"
        has = ", ".join(f"`{language}` ({count:,})" for language, count in seen.most_common()) or "none"
        raise DataError(
            f"{place}: must have units with text in {wanted}, but has none of them; their languages are: {has}. Set "
            "`source_language` and `target_language` as they are written there."
        )


def _choose(unit: Unit, source: str | None, target: str | None, place: str) -> tuple[str, str]:
    """From which language into which, where not both are told."""
    there = list(unit.texts)
    if source is None:
        said = unit.source if unit.source.lower() != ANY else there[0]
        source = said if target is None or not same_language(said, target) else None
    known = source if source is not None else target
    others = [language for language in there if known is not None and not same_language(language, known)]
    if len(others) != 1:
        raise DataError(
            f"{place}: the two languages must be told where a unit has more, but this one has "
            f"{', '.join(f'`{language}`' for language in there)}. Set `source_language` and `target_language`."
        )
    return source or others[0], target or others[0]


def _text(unit: Unit, language: str) -> str:
    """What a unit says in a language; nothing where it says nothing."""
    return next((text for code, text in unit.texts.items() if same_language(code, language)), "")


def _units(place: str) -> Iterator[Unit]:
    """The units of a file one by one."""
    reader = _Reader(place)
    with opened(place) as stream:
        while chunk := read_chunk(stream.read, place):
            yield from reader.feed(chunk)
    yield from reader.feed(b"", last=True)


class _Reader:
    """Takes the bytes of a memory, and gives the units that they complete."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._source, self._unit_source, self._language = ANY, ANY, ""
        self._texts: dict[str, str] = {}
        self._segment: list[str] | None = None
        self._codes = self._depth = 0
        self._done: list[Unit] = []
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._write
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._parser.SkippedEntityHandler = self._unknown

    def feed(self, data: bytes, last: bool = False) -> list[Unit]:
        """The units that end in these bytes."""
        try:
            self._parser.Parse(data, last)
        except expat.ExpatError as error:
            raise DataError(
                f"{self._place}, line {error.lineno:,}: must be XML, but is not "
                f"({expat.errors.messages[error.code]}). Write the memory anew with the program it came from."
            ) from error
        done, self._done = self._done, []
        return done

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        if not self._depth and name != "tmx":
            raise DataError(
                f"{self._place}: must be a translation memory with <tmx> around it, but has <{name}>. Is it the right "
                "file?"
            )
        self._depth += 1
        if self._segment is not None:
            self._codes += bool(self._codes or name != "hi")
        elif name == "header":
            self._source = attributes.get("srclang", ANY)
        elif name == "tu":
            self._texts, self._unit_source = {}, attributes.get("srclang", self._source)
        elif name == "tuv":
            self._language = attributes.get("xml:lang", attributes.get("lang", ""))
        elif name == "seg":
            self._segment = []

    def _end(self, name: str) -> None:
        self._depth -= 1
        if self._codes:
            self._codes -= 1
        elif name == "seg" and self._segment is not None:
            if text := _one_line("".join(self._segment)):
                self._texts.setdefault(self._language, text)
            self._segment = None
        elif name == "tu":
            self._done.append(Unit(self._unit_source, self._texts))

    def _write(self, text: str) -> None:
        if self._segment is not None and not self._codes:
            self._segment.append(text)

    def _doctype(self, name: str, system: str | None, public: str | None, declares: bool) -> None:
        if declares:
            raise DataError(
                f"{self._place}, line {self._parser.CurrentLineNumber:,}: must declare nothing in its <!DOCTYPE>, but "
                "does: such a file can grow without end. Remove what stands in its brackets."
            )

    def _unknown(self, entity: str, _: bool) -> None:
        raise DataError(
            f"{self._place}, line {self._parser.CurrentLineNumber:,}: must be readable by itself, but `&{entity};` is "
            "declared in another file, if anywhere. Write the character that it means."
        )


def _one_line(text: str) -> str:
    """A text that was wrapped, as programs wrap XML, on one line."""
    return " ".join(filter(None, map(str.strip, text.split("\n")))) if "\n" in text else text
