"""A corpus at a glance, before it is read: whether it is there, how large it is, and which characters it has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import log2
from pathlib import Path
from unicodedata import normalize

from regard.data.both_sides import both_sides
from regard.data.corpus import CorpusSettings, Elsewhere, Files, Mixture, Music, Text
from regard.data.formats import STDIN, Repairs, find_files, open_text, read_chunk
from regard.data.generated import Generated, generate
from regard.data.labelled import Class, Classes, Labelled, Restoring, Tagged, place_of
from regard.errors import MissingError

BYTES_A_TOKEN = 4.5  # of vocabularies that are not learned as subwords from the corpus
LOOKED_AT = 2**24  # bytes of a file in which characters are counted
PLACES = ("source", "target", "text", "table", "words", "music", "valid_source", "valid_target", "valid",
          "test_source", "test_target", "test")  # fmt: skip
"""What settings call the files of a corpus."""


def subword_bytes(vocabulary: int) -> float:
    """About how many bytes a token takes that is one of so many subwords.

    Measured on the target side, line ends counted, with 500, 1,000, … 32,000 tokens learned from both sides:

        Tatoeba en-de    2.40  2.87  3.41  3.98  4.55  5.08  5.50    all 169,813 pairs
        Tatoeba en-de    2.45  2.92  3.46  4.10  4.84  5.76          4,000 of them, which give 17,796 at most
        Multi30k en-de   2.61  3.22  3.84  4.52  5.15  5.69  6.15
        Multi30k en-fr   2.70  3.35  3.99  4.63  5.14  5.51  5.73
        Europarl en-de   2.31  2.84  3.42  4.09  4.83  5.59  6.22    100,000 pairs
        here             2.55  3.12  3.69  4.26  4.83  5.40  5.97
    """
    return 2.55 + 0.57 * log2(min(32_000, max(250, vocabulary)) / 500)


def check_there(settings: CorpusSettings) -> None:
    """Raise MissingError with all files that the settings name and that are not there."""
    missing = {name: place for name, place in _places(settings, "data.") if not _is_there(place)}
    if len(missing) == 1:
        ((name, place),) = missing.items()
        raise MissingError(
            f"{place}: there is no such file, but `{name}` names it. Check the path; it is relative to {Path.cwd()}."
        )
    if missing:
        listed = ", ".join(f"{place} (`{name}`)" for name, place in missing.items())
        raise MissingError(
            f"data: all its files must be there, but {len(missing)} are not: {listed}. Check the paths; they are "
            f"relative to {Path.cwd()}."
        )


def _places(settings: CorpusSettings | Class, before: str) -> Iterator[tuple[str, str]]:
    """The places that settings name, each after the setting that names it."""
    match settings:
        case Mixture():
            for number, corpus in enumerate(settings.corpora):
                yield from _places(corpus, f"{before}corpora[{number}].")
        case Classes():
            for number, one in enumerate(settings.classes):
                yield from _places(one, f"{before}classes[{number}].")
        case Generated() | Elsewhere():  # whose `source` is a language
            return
        case _:
            named = ((name, vars(settings).get(name)) for name in PLACES)
            yield from ((f"{before}{name}", place) for name, place in named if isinstance(place, str))


def _is_there(place: str) -> bool:
    """Whether a place names something. A folder may yet turn out to hold nothing."""
    if place == STDIN or Path(place).exists():
        return True
    try:
        return find_files(place) != [place]
    except MissingError:  # of a pattern
        return False


@dataclass(frozen=True)
class CorpusSize:
    """How many pairs (or lines) there are, and the bytes of each side; source is 0 for plain text."""

    pairs: int
    source: int
    target: int
    bytes_a_token: float = BYTES_A_TOKEN

    def __add__(self, other: CorpusSize) -> CorpusSize:
        return CorpusSize(self.pairs + other.pairs, self.source + other.source, self.target + other.target)

    @property
    def tokens(self) -> int:
        """About how many tokens the target side has, ends of sentences included."""
        return round(self.target / self.bytes_a_token) + self.pairs


def measure(settings: CorpusSettings) -> CorpusSize | None:
    """The size of a corpus, by counting lines; nothing is filtered. None where it cannot be read twice."""
    match settings:
        case Generated():
            some = generate(replace(settings, pairs=min(settings.pairs, 200), valid=0, test=0)).train
            sides = ([pair.source for pair in some], [pair.target for pair in some])
            source, target = (sum(len(text.encode()) for text in side) for side in sides)
            times = settings.pairs / len(some)
            return CorpusSize(settings.pairs, round(source * times), round(target * times))
        case Files():
            if STDIN in (settings.source, settings.target):
                return None
            if settings.target is None:
                sizes = (_both(file, settings) for file in find_files(settings.source))
                return sum(sizes, CorpusSize(0, 0, 0))
            lines, source = _count(settings.source)
            return CorpusSize(lines, source, _count(settings.target)[1])
        case Mixture():
            known = (size for corpus in settings.corpora if (size := measure(corpus)) is not None)
            return sum(known, CorpusSize(0, 0, 0))
        case Text():
            if settings.text == STDIN:
                return None
            lines, target = _count(settings.text)
            return CorpusSize(lines, 0, target)
        case Labelled() | Restoring():
            most = settings.most if isinstance(settings, Restoring) else None
            return sum((_beginnings(file, most) for file in find_files(place_of(settings))), CorpusSize(0, 0, 0))
        # A MIDI file's size says little of its notes, a table's of a column, and a line of tags is only a word.
        case Music() | Classes() | Tagged() | Elsewhere():
            return None


def _both(file: str, settings: Files) -> CorpusSize:
    """The size of one file that holds both sides."""
    if settings.format_of(file) != "tmx":
        lines, size = _count(file)
        return CorpusSize(lines, size // 2, size // 2)  # which part is whose would take reading it
    found = CorpusSize(0, 0, 0)
    for block in both_sides(file, settings, Repairs()):  # most of a memory is markup
        sizes = (sum(len(text.encode()) for text in side) for side in (block.sources, block.targets))
        found += CorpusSize(len(block.sources), *sizes)
    return found


def _beginnings(file: str, most: int | None) -> CorpusSize:
    """The size of the first lines of a file: of all, or of so many at most."""
    lines, size = _count(file)
    read = lines if most is None else min(most, lines)
    return CorpusSize(read, 0, round(size * read / max(1, lines)))


def _count(place: str) -> tuple[int, int]:
    """The lines and the bytes of all files of a place."""
    lines = size = 0
    for file in find_files(place):
        last = b"\n"
        with open_text(Path(file)) as stream:
            while chunk := read_chunk(stream.read, file):
                lines, size, last = lines + chunk.count(b"\n"), size + len(chunk), chunk[-1:]
        lines += last != b"\n"
    return lines, size


@dataclass(frozen=True)
class Alphabet:
    """Which characters a corpus has, as far as it was looked at, and the bytes that one takes in the mean."""

    characters: frozenset[str]
    bytes_each: float


def alphabet(settings: CorpusSettings, compose: bool) -> Alphabet | None:
    """The characters of a corpus, in Unicode's composed form if asked for; None for corpora that are no plain text.

    Of each file the first megabytes are read: what is rarer hardly changes a count.
    """
    match settings:
        case Generated():
            some = generate(replace(settings, pairs=min(settings.pairs, 200), valid=0, test=0)).train
            texts = ["".join(pair.source + pair.target for pair in some)]
        case Text():
            texts = [_beginning(file) for file in find_files(settings.text)]
        case Files(target=None):
            texts = [_beginning_of_both(file, settings) for file in find_files(settings.source)]
        case Files(target=str(target)):
            texts = [_beginning(file) for place in (settings.source, target) for file in find_files(place)]
        case _:
            return None
    whole = "".join(texts)
    found = frozenset(normalize("NFC", whole) if compose else whole) - set("\r\n")
    return Alphabet(found, len(whole.encode()) / max(1, len(whole)))


def _beginning(file: str) -> str:
    with open_text(Path(file)) as stream:
        chunks: list[bytes] = []
        while sum(map(len, chunks)) < LOOKED_AT and (chunk := read_chunk(stream.read, file)):
            chunks.append(chunk)
    return b"".join(chunks)[:LOOKED_AT].decode("utf-8", errors="ignore")


def _beginning_of_both(file: str, settings: Files) -> str:
    """The same of a file that holds both sides; of a memory, what is no markup."""
    if settings.format_of(file) != "tmx":
        return _beginning(file)
    texts, size = [], 0
    for block in both_sides(file, settings, Repairs()):
        texts += [*block.sources, *block.targets]
        size += sum(map(len, [*block.sources, *block.targets]))
        if size > LOOKED_AT:
            break
    return "\n".join(texts)
