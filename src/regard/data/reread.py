"""The training pairs of a corpus, to be read as often as one likes; its files are decompressed and filtered once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import NamedTuple

import numpy as np

from regard.data.generated import Pair
from regard.data.reading import Corpus, LanguagePair
from regard.status import StatusLine

BLOCK = 10_000
IN_MEMORY = 2**26  # bytes of text; more than that goes into a file

Languages = tuple[str | None, str | None] | None


class _Head(NamedTuple):
    """What is written before the texts of a block: how many pairs, how many bytes of text, and the pairs' languages."""

    pairs: int
    size: int
    languages: Languages


class TrainingPairs:
    """The training pairs, streamed from the corpus the first time, and from a copy of what was kept after that.

    The copy lies in memory, or, if it is large, in `folder`: in a file without a name, which vanishes when this is
    closed. Use it in a `with` block. A `status` shows how many pairs came from the corpus.
    """

    def __init__(self, corpus: Corpus, folder: Path, status: StatusLine | None = None) -> None:
        self.corpus, self._folder, self._status = corpus, folder, status
        self._copy: SpooledTemporaryFile[bytes] | None = None

    def __enter__(self) -> TrainingPairs:
        return self

    def __exit__(self, *_: object) -> None:
        if self._copy is not None:
            self._copy.close()
            self._copy = None

    def __iter__(self) -> Iterator[Pair]:
        return self._first_time() if self._copy is None else self._again(self._copy)

    def _first_time(self) -> Iterator[Pair]:
        copy: SpooledTemporaryFile[bytes] = SpooledTemporaryFile(IN_MEMORY, dir=str(self._folder))  # noqa: SIM115
        try:
            pairs, read = self.corpus.train(), 0
            while block := list(islice(pairs, BLOCK)):
                for part in _of_one_kind(block):
                    self._write(copy, part)
                read += len(block)
                if self._status is not None:
                    self._status.show(partial("read {:,} examples".format, read))
                yield from block
            self._copy = copy
        finally:
            if self._copy is not copy:  # whoever stops halfway has no copy, and starts again
                copy.close()

    def _write(self, copy: SpooledTemporaryFile[bytes], pairs: list[Pair]) -> None:
        texts = [text for pair in pairs for text in (pair.source, pair.target)]
        content = "".join(texts).encode()
        head = _Head(len(pairs), len(content), _languages_of(pairs[0]))
        lengths = np.fromiter(map(len, texts), "<u4", count=len(texts)).tobytes()
        written = json.dumps(head).encode() + b"\n" + lengths + content
        if copy.tell() + len(written) > IN_MEMORY:
            self._folder.mkdir(parents=True, exist_ok=True)
        copy.write(written)

    def _again(self, copy: SpooledTemporaryFile[bytes]) -> Iterator[Pair]:
        place = 0
        while True:
            # Somebody else may be reading, too.
            copy.seek(place)
            line = copy.readline()
            if not line:
                return
            head = _Head(*json.loads(line))
            lengths = np.frombuffer(copy.read(8 * head.pairs), "<u4").tolist()
            texts = copy.read(head.size).decode()
            place = copy.tell()
            yield from _pairs(head, lengths, texts)


def _languages_of(pair: Pair) -> Languages:
    return (pair.source_language, pair.target_language) if isinstance(pair, LanguagePair) else None


def _of_one_kind(pairs: list[Pair]) -> Iterator[list[Pair]]:
    """Neighbours that have the same languages together."""
    kinds = list(map(_languages_of, pairs))
    cuts = [place for place in range(1, len(pairs)) if kinds[place] != kinds[place - 1]]
    for begin, end in zip([0, *cuts], [*cuts, len(pairs)], strict=True):
        yield pairs[begin:end]


def _pairs(head: _Head, lengths: Iterable[int], texts: str) -> Iterator[Pair]:
    cut, place = list[str](), 0
    for length in lengths:
        cut.append(texts[place : place + length])
        place += length
    sides = zip(cut[::2], cut[1::2], strict=True)
    if head.languages is None:
        return (Pair(*pair) for pair in sides)
    return (LanguagePair(*pair, *head.languages) for pair in sides)
