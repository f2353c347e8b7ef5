"""Examples as token ids, in memory or in files that are mapped instead of read.

A side (the sources, or the targets) is one long array of ids, each sentence followed by <end>, and the place where
each sentence begins. A prepared folder holds these arrays as they are:

    source.ids    target.ids      unsigned 16- or 32-bit numbers, little-endian
    source.begin  target.begin    64-bit numbers: where each sentence begins, and where the last one ends
    store.json                    how to read them, and what they were made from

Opening such a folder reads none of it: the operating system fetches the pages that a batch asks for. A corpus of one
side, for a language model, has targets only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import DataError, MissingError
from regard.text.ragged import Integers, Ragged

__all__ = ["Example", "Integers", "Side", "StoreWriter", "TokenStore"]

Example = tuple[Sequence[int], Sequence[int]]

DESCRIPTION = "store.json"
FORMAT_VERSION = 1
BEGIN = np.dtype("<i8")


@dataclass(frozen=True, eq=False)
class Side:
    """The sentences of one side, one after another, each with its <end>."""

    ids: Integers
    begin: Integers
    """Where each sentence begins; one number more than there are sentences."""

    @classmethod
    def of(cls, sentences: Iterable[Sequence[int]], end: int) -> Side:
        """Sentences in memory, given without their <end>."""
        ids, lengths = Ragged.of(list(sentences)).ending_with(end)
        return cls(ids, np.concatenate([[0], lengths.cumsum()]))

    @classmethod
    def of_parts(cls, parts: Sequence[Ragged]) -> Side:
        """Sentences in memory, part by part, given with their <end>."""
        ids, lengths = Ragged.joined(parts)
        return cls(ids.astype(np.int32, copy=False), np.append(0, lengths.cumsum(dtype=np.int64)))

    @cached_property
    def lengths(self) -> Integers:
        """How many tokens each sentence has, <end> included."""
        return np.diff(self.begin).astype(np.int32)

    def __len__(self) -> int:
        return len(self.begin) - 1

    def __getitem__(self, number: int) -> list[int]:
        """Sentence `number`, without its <end>."""
        found: list[int] = self.ids[self.begin[number] : self.begin[number + 1] - 1].tolist()
        return found


@dataclass(frozen=True, eq=False)
class TokenStore:
    """Examples by number. A store of pairs has both sides; one for language models has no source.

    One of labelled texts has these as targets, and `labels`: one for each text, or for each token, <end> included.
    Label number n is kept as n + 1, and 0 where there is none.
    """

    target: Side
    source: Side | None = None
    labels: Side | None = None

    @property
    def labels_tokens(self) -> bool:
        """Whether each token has a place for a label, and not each text."""
        return self.labels is not None and len(self.labels.ids) == len(self.target.ids)

    @classmethod
    def of_pairs(cls, examples: Sequence[Example], end: int) -> TokenStore:
        """Pairs in memory, given without their <end>."""
        return cls(Side.of((target for _, target in examples), end), Side.of((source for source, _ in examples), end))

    @classmethod
    def of_texts(cls, texts: Iterable[Sequence[int]], end: int) -> TokenStore:
        """Texts for a language model in memory, given without their <end>."""
        return cls(Side.of(texts, end))

    @classmethod
    def of_chunks(cls, chunks: Iterable[Mapping[str, Ragged]], end: int) -> TokenStore:
        """Examples in memory, chunk by chunk: for each side its sentences without their <end>."""
        sides: dict[str, list[Ragged]] = {}
        for chunk in chunks:
            for side, sentences in chunk.items():
                ids, lengths = sentences.ending_with(end)
                sides.setdefault(side, []).append(Ragged(ids.astype(np.int32), lengths.astype(np.int32)))
        found = {side: Side.of_parts(parts) for side, parts in sides.items()}
        return cls(found["target"], found.get("source"))

    @classmethod
    def open(cls, folder: Path) -> TokenStore:
        """A prepared folder. Sizes are checked, which is instant; `files.check_folder` checks every byte."""
        about = read_description(folder)
        try:
            dtype, examples, tokens = np.dtype(about["dtype"]), int(about["examples"]), dict(about["tokens"])
            sides = {name: _map(folder, name, dtype, examples, int(count)) for name, count in tokens.items()}
            return cls(sides["target"], sides.get("source"))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{folder / DESCRIPTION}: must say how to read the folder, but does not ({type(error).__name__}: "
                f"{error}). Delete the folder; it is prepared anew from the corpus."
            ) from error

    def __len__(self) -> int:
        return len(self.target)

    @property
    def tokens(self) -> int:
        """All tokens of both sides, <end> included."""
        return len(self.target.ids) + (0 if self.source is None else len(self.source.ids))


class StoreWriter:
    """Writes a prepared folder chunk by chunk; what it holds in memory does not grow with the corpus.

    Use it in a `with` block, and `finish` it when all is written.
    """

    def __init__(self, folder: Path, sides: Sequence[str], vocabulary: int, end: int) -> None:
        self._folder, self._sides, self._end = folder, tuple(sides), end
        self._dtype = np.dtype("<u2" if vocabulary <= 2**16 else "<u4")
        self.examples = 0
        self.tokens = dict.fromkeys(self._sides, 0)
        self._opened = ExitStack()
        self._files = {
            (side, part): self._opened.enter_context((folder / f"{side}.{part}").open("wb"))
            for side in self._sides
            for part in ("ids", "begin")
        }
        for side in self._sides:
            self._files[side, "begin"].write(np.zeros(1, BEGIN).tobytes())

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def append(self, chunk: Mapping[str, Ragged]) -> None:
        """Add examples: for each side its sentences without their <end>."""
        for side in self._sides:
            ids, lengths = chunk[side].ending_with(self._end)
            begin = self.tokens[side] + lengths.cumsum()
            self._files[side, "ids"].write(ids.astype(self._dtype).tobytes())
            self._files[side, "begin"].write(begin.astype(BEGIN).tobytes())
            self.tokens[side] += len(ids)
        self.examples += len(chunk[self._sides[0]].lengths)

    def finish(self, about: dict[str, object]) -> None:
        """Write the description; `about` says what the store was made from."""
        form = {"format_version": FORMAT_VERSION, "dtype": self._dtype.str, "examples": self.examples}
        description = json.dumps({**form, "tokens": self.tokens, **about}, indent=2, ensure_ascii=False)
        (self._folder / DESCRIPTION).write_text(description + "\n", encoding="utf-8")


def read_description(folder: Path) -> dict[str, Any]:
    """What `store.json` says."""
    file = folder / DESCRIPTION
    if not file.is_file():
        raise MissingError(f"{folder}: must hold a {DESCRIPTION}, but has none. Is it a folder of prepared tokens?")
    try:
        about: dict[str, Any] = json.loads(file.read_bytes())
        version = about["format_version"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{file}: must be what Regard wrote, but cannot be read ({type(error).__name__}: {error}). "
            "Delete the folder; it is prepared anew from the corpus."
        ) from error
    if version != FORMAT_VERSION:
        raise DataError(
            f"{file}: format_version must be {FORMAT_VERSION} for this Regard, but is {version}. "
            "Delete the folder; it is prepared anew from the corpus."
        )
    return about


def _map(folder: Path, side: str, dtype: np.dtype[Any], examples: int, tokens: int) -> Side:
    ids = _mapped(folder / f"{side}.ids", dtype, tokens)
    begin = _mapped(folder / f"{side}.begin", BEGIN, examples + 1)
    if begin[-1] != tokens:
        raise DataError(
            f"{folder / side}.begin: must end with the number of tokens ({tokens:,}), but ends with {begin[-1]:,}. "
            "The file was changed; delete the folder, and it is prepared anew."
        )
    return Side(ids, begin)


def _mapped(file: Path, dtype: np.dtype[Any], count: int) -> Integers:
    if not file.is_file():
        raise MissingError(f"{file}: {DESCRIPTION} beside it names this file, but it is not there. Copy it again.")
    size, expected = file.stat().st_size, count * dtype.itemsize
    if size != expected:
        raise DataError(
            f"{file}: must be {expected:,} bytes long, as {DESCRIPTION} says, but is {size:,}. The copy was cut "
            "short; copy the folder again, or delete it and it is prepared anew."
        )
    # A plain array over the same pages: each use of the subclass costs more than the pages it reads.
    return np.asarray(np.memmap(file, dtype=dtype, mode="r"))
