"""Files of text: what a line is, and where the two sides of a pair stand.

A line ends at "\\n" and nowhere else: U+2028, form feeds and the like belong to the text. Files must be UTF-8. Two
things are taken away, and counted: a byte order mark at the start of a file, and a "\\r" at the end of a line.

Two files        line n of one is the partner of line n of the other
`.tsv`           columns apart by tabs; quotes and backslashes mean nothing
`.jsonl`         one JSON object a line; `translation.de` reaches into objects in objects
`.csv`, `.tmx`   `regard.data.spreadsheets` and `regard.data.memories` read these
`.gz .bz2 .xz`   decompressed while reading, and so is `.zst` where the package zstandard is installed
"""

from __future__ import annotations

import json
import lzma
import shlex
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from regard.data.ahead import Ahead
from regard.data.streams import CHUNK, is_compressed, looks_compressed, standard_input
from regard.data.streams import COMPRESSED as COMPRESSED
from regard.data.streams import open_text as open_text
from regard.data.suspicion import first_suspicious_line
from regard.errors import DataError, MissingError

STDIN = "-"
BYTE_ORDER_MARK = "\ufeff"
CHUNKS_AHEAD = 8
LONGEST_LINE = 2**26
BLOCK = 10_000
KEYS = ("source", "target")
"""What the sides of a pair are called in files that name them, unless settings say otherwise."""

Format = Literal["tsv", "csv", "jsonl", "tmx"]
ENDINGS: dict[str, Format] = {
    ".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".tmx": "tmx",
}  # fmt: skip
"""Of files that hold both sides."""


@dataclass
class Repairs:
    """What was taken away while reading."""

    byte_order_marks: list[str] = field(default_factory=list)
    """The files that began with one."""
    carriage_returns: dict[str, int] = field(default_factory=dict)
    """For each file the lines that ended in "\\r": before "\\n", or where the file ends."""
    left_out: dict[str, str] = field(default_factory=dict)
    """The MIDI files that could not be read, and what is wrong with each."""


class Block(NamedTuple):
    """Some pairs that follow each other in one file, or in two that belong together."""

    file: str
    first: int
    """The number of its first line, counted from 1."""
    sources: list[str]
    targets: list[str]


Rows = list[tuple[str, ...]]
"""The files of a split in the order in which they are read; those of a row side by side."""


class Split(NamedTuple):
    """The examples of training, validation or test, to be read as often as one likes, and the files they are in."""

    blocks: Callable[[Repairs], Iterator[Block]]
    rows: Callable[[], Rows] = list


def alone(files: Callable[[], list[str]]) -> Callable[[], Rows]:
    """The rows of files that have no partner beside them."""
    return lambda: [(file,) for file in files()]


# ---- lines


def read_lines(file: Path) -> list[str]:
    """The lines of a text file, without their line ends."""
    with open_text(file) as stream:
        lines = list(lines_of(stream, str(file)))
    if not lines:
        raise nothing_in(str(file))
    return lines


def lines_of(stream: Reader, place: str, repairs: Repairs | None = None) -> Iterator[str]:
    """The lines of an open stream, one at a time; `place` is named in errors."""
    return chain.from_iterable(line_lists(stream, place, repairs))


def line_lists(stream: Reader, place: str, repairs: Repairs | None = None) -> Iterator[list[str]]:
    """The lines of a stream, as many at a time as came in at once: none where one of them is not whole yet."""
    repairs = Repairs() if repairs is None else repairs
    done = 0
    for data in _whole_lines(stream, place):
        if not data:
            yield []
            continue
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            if not done and (ending := looks_compressed(data)) is not None:
                raise DataError(
                    f"{place}: must be text, but begins as a {ending} file does. Decompress it, or let its name end in "
                    f"{ending}."
                ) from error
            begin = data.rfind(b"\n", 0, error.start) + 1
            good = data[:begin].decode().split("\n")[:-1]
            yield good
            raise DataError(
                f"{place}, line {done + len(good) + 1:,}: must be UTF-8, but byte {error.start - begin + 1:,} of the "
                f"line is 0x{data[error.start]:02x} ({error.reason}). {_advice(place, b'' if done else data)}"
            ) from error
        if not done and text.startswith(BYTE_ORDER_MARK):
            text = text.removeprefix(BYTE_ORDER_MARK)
            repairs.byte_order_marks.append(place)
        ends = text.count("\r\n") + text.endswith("\r")
        if ends:
            repairs.carriage_returns[place] = repairs.carriage_returns.get(place, 0) + ends
            text = text.replace("\r\n", "\n").removesuffix("\r")
        lines = text.split("\n")
        # Only what comes last may lack its "\n"; anything else was cut behind one.
        if data.endswith(b"\n"):
            lines.pop()
        done += len(lines)
        yield lines


def _advice(place: str, begin: bytes) -> str:
    """What to do with a file that is not UTF-8, by its first bytes where they are known."""
    if begin.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"%PDF")):
        return "It is a document or a table of an office program: save its text as UTF-8, a line for each sentence."
    if not Path(place).is_file():
        return "Convert it, for example with iconv."
    known = "UTF-16" if begin.startswith((b"\xff\xfe", b"\xfe\xff")) else "WINDOWS-1252"
    sure = "It is" if known == "UTF-16" else "If it is"
    file = shlex.quote(place)
    return f"{sure} {known}: iconv -f {known} -t UTF-8 {file} > {shlex.quote(f'{place}.utf-8')}"


def _whole_lines(stream: Reader, place: str) -> Iterator[bytes]:
    """The bytes of a stream, cut behind line ends only; nothing where no line has ended in what came in."""
    # What is there, without waiting for more: somebody may be typing.
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    waiting: list[bytes] = []
    done = size = 0
    while data := read_chunk(read, place):
        cut = data.rfind(b"\n") + 1
        if cut:
            done += data.count(b"\n")
            yield b"".join((*waiting, data[:cut]))
            waiting, size = [], 0
        else:
            yield b""
        waiting.append(data[cut:])
        size += len(data) - cut
        if size > LONGEST_LINE:
            raise DataError(
                f"{place}, line {done + 1:,}: must be at most {LONGEST_LINE:,} bytes long, but is longer. "
                "Is this text, with its lines ended by \\n?"
            )
    if rest := b"".join(waiting):
        yield rest


def read_chunk(read: Callable[[int], bytes], place: str) -> bytes:
    """The next bytes that `read` gives; `place` is named where they are damaged."""
    try:
        return read(CHUNK)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(
            f"{place}: must be readable to its end, but is not ({error}). "
            "Is it whole, and does its ending fit its form?"
        ) from error


def nothing_in(place: str) -> DataError:
    """What to say of a file without a line."""
    return DataError(f"{place}: must hold at least one line of text, but is empty. Is it the right file?")


# ---- files


def find_files(place: str) -> list[str]:
    """The files that a place names: one file, those of a folder, or those that fit `*`, `?` and `**`; in order.

    `-` is the standard input. Hidden files and the folders in a folder are left out.
    """
    path = Path(place)
    if place == STDIN or path.is_file():
        return [place]
    if path.is_dir():
        candidates = path.iterdir()
    elif "*" in place or "?" in place:
        # Brackets are common in file names, and seldom meant as a choice of letters.
        pattern = str(path.relative_to(path.anchor)).replace("[", "[[]")
        candidates = Path(path.anchor).glob(pattern)
    else:
        return [place]
    found = [str(file) for file in candidates if file.is_file() and not file.name.startswith(".")]
    if not found:
        raise MissingError(f"{place}: must name at least one file, but there is none. It is relative to {Path.cwd()}.")
    return sorted(found)


def find_partners(source: str, target: str) -> list[tuple[str, str]]:
    """The files of two places in pairs. Where there are several, partners have the same name but for its ending."""
    sources, targets = (sorted(find_files(place), key=_partner_key) for place in (source, target))
    if len(sources) == len(targets) == 1:
        return [(sources[0], targets[0])]
    for one, other in zip(sources, targets, strict=False):
        if stem(one) != stem(other):
            raise DataError(
                f"{source} and {target}: partners must have the same name but for the ending, but in order of names "
                f"{one} would stand beside {other}. Rename them, or list them one by one in `data.corpora`."
            )
    if len(sources) != len(targets):
        raise DataError(
            f"{source} and {target}: both must name as many files, but name {len(sources)} and {len(targets)}. "
            f"{max(sources, targets, key=len)[min(len(sources), len(targets))]} has no partner."
        )
    return list(zip(sources, targets, strict=True))


def stem(file: str) -> str:
    """The name of a file without `.gz` and the like, and without its last ending: `news.1` of `a/news.1.de.gz`."""
    return Path(_unpacked(file)).stem


def _partner_key(file: str) -> tuple[str, str]:
    # By whole names, news.en would come before news.test.en, but news.zh after news.test.zh.
    return str(Path(file).parent), stem(file)


def _unpacked(file: str) -> str:
    name = Path(file).name
    return name[: -len(Path(name).suffix)] if is_compressed(name) else name


def format_by_name(file: str) -> Format | None:
    """How a file holds both sides of its pairs, as its ending says; None where it does not say."""
    return ENDINGS.get(Path(_unpacked(file)).suffix.lower())


@contextmanager
def opened(place: str) -> Iterator[Reader]:
    """A stream to be read from start to end; a compressed file is decompressed by another thread."""
    if place == STDIN:
        yield standard_input()
        return
    with open_text(Path(place)) as stream:
        if not is_compressed(place):
            yield stream
            return
        with Ahead(iter(partial(stream.read, CHUNK), b""), CHUNKS_AHEAD) as chunks:
            yield _Chunks(chunks)


class Reader(Protocol):
    """What can be read piece by piece until nothing comes any more."""

    def read(self, size: int, /) -> bytes:
        """The next piece, of about this size."""
        ...


class _Chunks:
    """Chunks that come as they are made, to be read."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks

    def read(self, size: int, /) -> bytes:
        return next(self._chunks, b"")


# ---- pairs


def partner_blocks(source: str, target: str, repairs: Repairs) -> Iterator[Block]:
    """The pairs of two files of equal length."""
    with opened(source) as first, opened(target) as second:
        sources, targets = lines_of(first, source, repairs), lines_of(second, target, repairs)
        done = 0
        while True:
            left, right = list(islice(sources, BLOCK)), list(islice(targets, BLOCK))
            shared = min(len(left), len(right))
            if not done and not shared:
                raise nothing_in(target if left else source)
            if shared:
                yield Block(source, done + 1, left[:shared], right[:shared])
            if len(left) != len(right):
                ends = (done + len(lines) + sum(1 for _ in rest) for lines, rest in ((left, sources), (right, targets)))
                raise _unequal(source, target, *ends)
            if shared < BLOCK:
                return
            done += shared


def _unequal(source: str, target: str, sources: int, targets: int) -> DataError:
    message = (
        f"{source} and {target}: both sides must have the same number of lines, but have {sources:,} and {targets:,}."
    )
    longer = source if sources > targets else target
    if not Path(source).is_file() or not Path(target).is_file():  # a pipe cannot be read again
        return DataError(f"{message} Look for a line too many in {longer}.")
    line = first_suspicious_line(*(read_lines(Path(place)) for place in (source, target)))
    fits = f"the lines fit each other up to line {line - 1:,}" if line > 1 else "no lines fit each other"
    return DataError(f"{message} By their form {fits}; look at line {line:,} of {longer}.")


def text_blocks(place: str, repairs: Repairs) -> Iterator[Block]:
    """The lines of one file of plain text; the sources are empty."""
    for first, lines in _blocks(place, repairs):
        yield Block(place, first, [""] * len(lines), lines)


def table_blocks(place: str, columns: tuple[int, int], repairs: Repairs) -> Iterator[Block]:
    """The pairs in two columns, counted from 1, of a file with tabs. A line with nothing in it is an empty pair."""
    one, other = columns[0] - 1, columns[1] - 1
    for first, lines in _blocks(place, repairs):
        rows = [line.split("\t") for line in lines]
        for number, row in enumerate(rows, start=first):
            if len(row) < max(columns):
                if row != [""]:
                    raise DataError(
                        f"{place}, line {number:,}: must have at least {max(columns)} columns with tabs between them, "
                        f"but has {len(row)}. Mend the line, or choose other `columns`."
                    )
                row.extend([""] * max(columns))
        yield Block(place, first, [row[one] for row in rows], [row[other] for row in rows])


def json_blocks(place: str, keys: tuple[str, str], repairs: Repairs) -> Iterator[Block]:
    """The pairs under two keys of a file of JSON objects. A line with nothing in it is an empty pair."""
    paths = [(key, key.split(".")) for key in keys]
    for first, lines in _blocks(place, repairs):
        rows = [_sides(line, paths, f"{place}, line {number:,}") for number, line in enumerate(lines, start=first)]
        yield Block(place, first, [source for source, _ in rows], [target for _, target in rows])


def _blocks(place: str, repairs: Repairs) -> Iterator[tuple[int, list[str]]]:
    """The lines of a file in blocks, each with the number of its first line."""
    with opened(place) as stream:
        lines, first = lines_of(stream, place, repairs), 1
        while block := list(islice(lines, BLOCK)):
            yield first, block
            first += len(block)
    if first == 1:
        raise nothing_in(place)


def _sides(line: str, paths: Iterable[tuple[str, Sequence[str]]], place: str) -> tuple[str, str]:
    if not line:
        return "", ""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{place}: must be a JSON object, but cannot be read as one ({error}). Mend the line."
        ) from error
    source, target = (_text_at(entry, key, path, place) for key, path in paths)
    return source, target


def _text_at(entry: Any, key: str, path: Sequence[str], place: str) -> str:
    """The text under a key, or under a path of keys where the whole is no key itself.

    Of a list, a number in the path takes one item, counted from 0, and `*` all of them, with spaces between.
    """
    keys = [key] if isinstance(entry, dict) and key in entry else path
    for part in keys:
        if isinstance(entry, list) and part == "*" and all(isinstance(item, str) for item in entry):
            entry = " ".join(entry)
            continue
        if isinstance(entry, list) and part.isdecimal() and int(part) < len(entry):
            entry = entry[int(part)]
            continue
        if not isinstance(entry, dict) or part not in entry:
            there = ", ".join(map(repr, entry)) if isinstance(entry, dict) else _in_json(entry)
            raise DataError(f"{place}: must have the key `{key}`, but has {there or 'none'}. Choose other `keys`.")
        entry = entry[part]
    if not isinstance(entry, str):
        raise DataError(f"{place}: `{key}` must be a string, but is {_in_json(entry)}. Choose other `keys`.")
    try:
        entry.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{place}: `{key}` must be Unicode, but its character {error.start + 1:,} is the lone surrogate "
            f"U+{ord(entry[error.start]):04X}. Write the line anew."
        ) from error
    return entry


def _in_json(value: Any) -> str:
    """What JSON calls a value of this type."""
    match value:
        case None | bool():
            return json.dumps(value)
        case dict():
            return "an object"
        case list():
            return "a list"
        case str():
            return "a string"
        case _:
            return "a number"
