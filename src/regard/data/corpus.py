"""Parallel corpora: files of sentence pairs, one sentence a line, read exactly.

A line ends at "\\n" and nowhere else: U+2028, form feeds and the like belong to the text. Files must be UTF-8;
`.gz`, `.bz2` and `.xz` are opened as they are.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from regard.data.generated import Generated, Pair, Splits, generate
from regard.errors import DataError, MissingError

HELD_OUT_SHARE = 0.02
HELD_OUT_MOST = 1_000
NEIGHBOURHOOD = 500


@dataclass(frozen=True)
class Files:
    """A corpus in files: line n of `target` translates line n of `source`.

    Without a validation pair of its own, some training sentences are held out, chosen by their source text.
    """

    source: str
    target: str
    kind: Literal["files"] = "files"
    valid_source: str | None = None
    valid_target: str | None = None
    test_source: str | None = None
    test_target: str | None = None

    def __post_init__(self) -> None:
        for split in ("valid", "test"):
            sides = [getattr(self, f"{split}_source"), getattr(self, f"{split}_target")]
            if sides.count(None) == 1:
                raise ValueError(f"`{split}_source` and `{split}_target` must be given together, but one is missing")


CorpusSettings = Generated | Files


def load_corpus(settings: CorpusSettings) -> Splits:
    """Generate or read the corpus."""
    if isinstance(settings, Generated):
        return generate(settings)
    train = read_pairs(Path(settings.source), Path(settings.target))
    test: list[Pair] = []
    if settings.test_source is not None and settings.test_target is not None:
        test = read_pairs(Path(settings.test_source), Path(settings.test_target))
    if settings.valid_source is not None and settings.valid_target is not None:
        return Splits(train, read_pairs(Path(settings.valid_source), Path(settings.valid_target)), test)
    train, valid = _hold_out(train)
    if not train or not valid:
        raise DataError(
            f"{settings.source}: there must be enough different sentences to hold some out for validation, "
            f"but there are only {len(train) + len(valid)} pairs. Give `data.valid_source` and `data.valid_target`."
        )
    return Splits(train, valid, test)


def read_lines(file: Path) -> list[str]:
    """The lines of a text file, without their line ends."""
    with open_text(file) as stream:
        lines = list(lines_of(stream, str(file)))
    if not lines:
        raise DataError(f"{file}: must hold at least one line of text, but is empty.")
    return lines


def lines_of(stream: BinaryIO, place: str) -> Iterator[str]:
    """The lines of an open stream, one at a time; `place` is named in errors."""
    for number, line in enumerate(_raw_lines(stream, place), start=1):
        try:
            yield line.removesuffix(b"\n").decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{place}, line {number:,}: must be UTF-8, but byte {error.start + 1:,} of the line is "
                f"0x{line[error.start]:02x} ({error.reason}). Convert the file, for example with iconv."
            ) from error


def _raw_lines(stream: BinaryIO, place: str) -> Iterator[bytes]:
    try:
        yield from stream
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(
            f"{place}: must be readable to its end, but is not ({error}). "
            "Is it whole, and does its ending fit its form?"
        ) from error


def open_text(file: Path) -> BinaryIO:
    """A text file opened for reading as bytes, decompressed if its name says so."""
    openers: dict[str, Callable[[Path, str], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    try:
        stream: BinaryIO = openers.get(file.suffix, open)(file, "rb")
    except FileNotFoundError as error:
        raise MissingError(f"{file}: there is no such file. Check the path; it is relative to {Path.cwd()}.") from error
    except IsADirectoryError as error:
        raise DataError(f"{file}: must be a file of text, but is a folder. Name the file inside it.") from error
    except OSError as error:
        raise DataError(f"{file}: must be a file that can be read, but: {error.strerror}. Check the path.") from error
    return stream


def read_pairs(source: Path, target: Path) -> list[Pair]:
    """The sentence pairs of two files of equal length."""
    sources, targets = read_lines(source), read_lines(target)
    if len(sources) != len(targets):
        line = first_suspicious_line(sources, targets)
        longer = source if len(sources) > len(targets) else target
        raise DataError(
            f"{source} and {target}: both sides must have the same number of lines, but have {len(sources):,} and "
            f"{len(targets):,}. By their form the lines fit each other up to line {line - 1:,}; look at line "
            f"{line:,} of {longer}."
        )
    return [Pair(*pair) for pair in zip(sources, targets, strict=True)]


def first_suspicious_line(sources: list[str], targets: list[str]) -> int:
    """Where the longer side most likely has a line too many, counted from 1.

    The length of lines, which is quick to compare, finds the neighbourhood; there a closer look is taken.
    """
    longer, shorter = (sources, targets) if len(sources) > len(targets) else (targets, sources)
    extra = len(longer) - len(shorter)
    about = _best_break(longer, shorter, lambda line: (len(line),))
    low, high = max(0, about - NEIGHBOURHOOD), about + NEIGHBOURHOOD
    return low + _best_break(longer[low : high + extra], shorter[low:high], _traits) + 1


def _best_break(longer: list[str], shorter: list[str], traits: Callable[[str], tuple[int, ...]]) -> int:
    """How many lines match before the longer side has a line too many.

    If d lines were inserted at one place k, then lines before k match as they are and lines after k match when
    shifted by d. Translations have similar traits, so the best k is the one with the smallest misfit.
    """
    extra, lines = len(longer) - len(shorter), len(shorter)
    if not lines:
        return 0
    long, short = (np.log1p([traits(line) for line in side]) for side in (longer, shorter))
    usual = np.median(long[:lines] - short, axis=0)
    straight = np.abs(long[:lines] - short - usual).sum(axis=1)
    shifted = np.abs(long[extra:] - short - usual).sum(axis=1)
    misfit = np.concatenate([[0.0], straight.cumsum()]) + np.concatenate([shifted[::-1].cumsum()[::-1], [0.0]])
    return int(misfit.argmin())


def _traits(line: str) -> tuple[int, ...]:
    """What a translation has about as much of: characters, words, digits, marks and capitals."""
    digits, marks = len(re.findall(r"\d", line)), len(re.findall(r"[^\w\s]", line))
    return len(line), line.count(" "), digits, marks, sum(map(str.isupper, line))


def _hold_out(pairs: list[Pair]) -> tuple[list[Pair], list[Pair]]:
    """Split by the source text, so that no source sentence stands on both sides."""
    share = min(HELD_OUT_SHARE, HELD_OUT_MOST / max(len(pairs), 1))
    # Small corpora need a larger share, or nothing would be left to validate on.
    border = max(share, min(0.5, 20 / max(len(pairs), 1))) * 2**32
    train: list[Pair] = []
    valid: list[Pair] = []
    for pair in pairs:
        number = int.from_bytes(hashlib.sha256(pair.source.encode("utf-8", "surrogatepass")).digest()[:4])
        (valid if number < border else train).append(pair)
    return train, valid
