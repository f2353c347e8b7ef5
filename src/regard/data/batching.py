"""Examples to batches, in an order that is a pure function of (seed, step).

Which sentences can share a batch never changes (`regard.data.packing`): rows of one shape do. Which of them do, and the
order of batches, is drawn anew for each epoch. Because every epoch has the same number of batches, batch number
`step` is found without replaying the ones before it: a resumed run reads exactly what an unbroken one would
have read. How many processes divide a batch among them changes nothing in it.

Every batch of a kind of rows has the same shape, so that compiled code fits all of them. Where the rows do not come
out even, some batches have an empty row at the end: padding without labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.batch import Batch, Specials
from regard.counts import so_many
from regard.data.collate import EMPTY, one_a_row, sentence_rows, stream_rows, text_rows
from regard.data.hiding import Lesson, numbers
from regard.data.packing import Lengths, Rows, bucketed, packed
from regard.data.store import Example, TokenStore
from regard.errors import DataError, UsageError
from regard.settings import check_words
from regard.settings.bounds import check_at_least

__all__ = ["BatchSettings", "Batches", "Example", "Layout", "Shape", "collate", "shuffled"]

Layout = Literal["buckets", "packed", "blocks", "stream"]
FIRST_TOKEN = 2**32 - 1  # sets these random numbers apart from those that order rows and batches


@dataclass(frozen=True)
class BatchSettings:
    """How large a batch is and how its rows are filled. The paper's has about 25,000 source and 25,000 target tokens.

    `buckets` puts one sentence into a row; rows of about the same lengths share a batch. `packed` fills rows with
    several whole sentences. `blocks` cuts running text into rows, for language models; `stream` does, too, and lets
    each row of a batch go on from the same row of the batch before, for recurrent ones.
    """

    tokens: int = 25_000
    layout: Layout = "buckets"
    row: int = 128
    """How long a row is, for `packed`, `blocks` and `stream`."""
    shapes: int = 128
    """How many different shapes there may be, for `buckets`; with more of them, less is padded."""

    def __post_init__(self) -> None:
        check_words(self)
        check_at_least(1, self, "tokens", "row", "shapes")
        if self.layout != "buckets" and self.tokens < self.row:
            raise ValueError(f"`tokens` must be at least `row` ({self.row}), but is {self.tokens}")

    @property
    def window(self) -> int | None:
        """How many tokens of a text that runs on stand in a row; None where rows hold whole sentences."""
        return self.row if self.layout in ("blocks", "stream") else None


class Shape(NamedTuple):
    """The shape of a batch: rows, and tokens of a row on each side; `source` is 0 for language models."""

    rows: int
    source: int
    target: int


class _Kind(NamedTuple):
    """The rows of one kind, and the batches they make in an epoch."""

    rows: int
    batches: int
    shape: Shape

    @classmethod
    def of(cls, rows: int, lengths: Lengths, tokens: int) -> _Kind:
        most = max(1, tokens // max(lengths))
        batches = -(-rows // most)
        # Spread evenly: batches of a kind differ by at most one row, and that one is left empty.
        return cls(rows, batches, Shape(-(-rows // batches), *lengths))


class Batches:
    """All batches of all epochs; `batches[step]` is one of them, for any step from 0 on.

    `lesson` is what becomes of each of them for a model that learns to find what is hidden.
    """

    def __init__(
        self,
        examples: Sequence[Example] | TokenStore,
        specials: Specials,
        settings: BatchSettings,
        seed: int,
        lesson: Lesson | None = None,
    ) -> None:
        store = examples if isinstance(examples, TokenStore) else TokenStore.of_pairs(examples, specials.end)
        if not len(store):
            raise DataError("examples: there must be at least one to make batches of, but there is none. Give more.")
        self._store, self._specials, self._settings, self._seed = store, specials, settings, seed
        self.lesson = lesson
        self._rows = _sentence_rows_of(store, settings)
        self.streams = settings.layout == "stream"
        """Whether each row goes on from the same row of the batch before."""
        if self.streams:
            kinds = [_stream(len(store.target.ids), settings)]
        elif self._rows:
            kinds = [_Kind.of(len(rows), rows.shape, settings.tokens) for rows in self._rows]
        else:
            kinds = [_Kind.of(-(-len(store.target.ids) // settings.row), Lengths(0, settings.row), settings.tokens)]
        self._kinds = kinds
        self._plan = lru_cache(maxsize=2)(self._plan_of_epoch)
        self.per_epoch = sum(kind.batches for kind in kinds)
        self.shapes = [kind.shape for kind in kinds]
        slots = sum(kind.batches * kind.shape.rows * (kind.shape.source + kind.shape.target) for kind in kinds)
        self.padding_share = 1 - store.tokens / slots

    def __getitem__(self, step: int) -> Batch:
        return self.share(step, 0, 1)

    def share(self, step: int, rank: int, ranks: int) -> Batch:
        """The rows of batch `step` that process `rank` of `ranks` reads.

        All processes get as many rows; laid end to end their shares are the batch, followed by empty rows where it
        cannot be divided. A share may be all empty, so divide a loss by the labels of all processes, not by its own.
        """
        if step < 0 or not 0 <= rank < ranks:
            raise UsageError(
                f"batch {step}, process {rank} of {ranks}: steps and processes must count from 0, and a process must "
                "be below the number of them. Correct the numbers."
            )
        batch = self._share(step, rank, ranks)
        if self.lesson is None:
            return batch
        rows, length = batch.labels_BT.shape
        return self.lesson(batch, numbers(self._seed, step, rank * rows, rows, length, self.lesson.draws))

    def _share(self, step: int, rank: int, ranks: int) -> Batch:
        """The same, before the lesson."""
        epoch, place = divmod(step, self.per_epoch)
        if self.streams:
            return self._stream_share(place, rank, ranks)
        kind, numbers = self._plan(epoch)(place)
        each = -(-self._kinds[kind].shape.rows // ranks)
        mine = np.full(each, EMPTY)
        part = numbers[rank * each : (rank + 1) * each]
        mine[: len(part)] = part
        if self._rows:
            return sentence_rows(self._store, self._specials, self._rows[kind], mine)
        return text_rows(self._store, self._specials, self._settings.row, mine, self._first_token(epoch))

    def begins(self, step: int) -> bool:
        """Whether the rows of batch `step` go on from nothing before them."""
        return not self.streams or step % self.per_epoch == 0

    def _stream_share(self, place: int, rank: int, ranks: int) -> Batch:
        rows = self._kinds[0].shape.rows
        each = -(-rows // ranks)
        numbers = np.arange(rank * each, (rank + 1) * each)
        numbers[numbers >= rows] = EMPTY
        return stream_rows(self._store, self._specials, self._settings.row, numbers, place, rows)

    @property
    def examples(self) -> int:
        """How many examples an epoch has."""
        return len(self._store)

    @property
    def lengths(self) -> list[tuple[int, int]]:
        """Of the rows of each shape, source and target."""
        return [(shape.source, shape.target) for shape in self.shapes]

    def common(self, share: float) -> list[tuple[int, int]]:
        """The lengths of rows that at least this share of all batches have."""
        enough = share * self.per_epoch
        return [found for found, kind in zip(self.lengths, self._kinds, strict=True) if kind.batches >= enough]

    def summary(self) -> str:
        """How many batches and shapes there are, and how much of them is padding."""
        batches, shapes = so_many(self.per_epoch, "batch", "batches"), so_many(len(self.shapes), "shape")
        return f"{batches} an epoch, {shapes}, {100 * self.padding_share:.1f} % padding"

    def _plan_of_epoch(self, epoch: int) -> Callable[[int], tuple[int, NDArray[np.int64]]]:
        """For one epoch: from a place in it to the kind of the batch there, and the numbers of its rows."""
        order = shuffled(self.per_epoch, self._seed, epoch, 0)
        rows = [shuffled(kind.rows, self._seed, epoch, place) for place, kind in enumerate(self._kinds, start=1)]
        # The batches of the first kind come first, then those of the second, …
        ends = np.cumsum([kind.batches for kind in self._kinds])

        def find(place: int) -> tuple[int, NDArray[np.int64]]:
            kind = int(np.searchsorted(ends, order[place], side="right"))
            batches = self._kinds[kind].batches
            first = ends[kind] - batches
            return kind, rows[kind][order[place] - first :: batches]

        return find

    def _first_token(self, epoch: int) -> int:
        """Where the first row of running text begins: elsewhere in each epoch, so that contexts differ."""
        if epoch == 0:
            return 0
        return int(np.random.PCG64([self._seed, epoch, FIRST_TOKEN]).random_raw()) % len(self._store.target.ids)


def shuffled(count: int, *key: int) -> NDArray[np.int64]:
    """The numbers below `count` in an order that follows from `key` alone.

    NumPy promises that the raw numbers of a generator never change, which it does not promise of its shuffling: a
    run may go on with another version.
    """
    return np.argsort(np.random.PCG64(key).random_raw(count), kind="stable")


def _sentence_rows_of(store: TokenStore, settings: BatchSettings) -> list[Rows]:
    """The rows of whole sentences, by shape; none where rows are cut from running text."""
    source = None if store.source is None else store.source.lengths
    match settings.layout:
        case "buckets":
            return bucketed(source, store.target.lengths, settings.tokens, settings.shapes)
        case "packed":
            return packed(source, store.target.lengths, settings.row)
        case "blocks" | "stream":
            if source is not None or store.labels is not None:
                has = "pairs of source and target" if store.labels is None else "texts with labels"
                raise UsageError(
                    f"batch.layout: `{settings.layout}` is for running text, but the corpus has {has}. "
                    "Use `packed` or `buckets`."
                )
            return []


def _stream(tokens: int, settings: BatchSettings) -> _Kind:
    """As many rows as a batch has room for, and as many batches as it takes to read the text in them."""
    rows = min(max(1, settings.tokens // settings.row), tokens)
    stretch = -(-tokens // rows)
    batches = -(-stretch // settings.row)
    return _Kind(rows * batches, batches, Shape(rows, 0, settings.row))


def collate(examples: Sequence[Example], specials: Specials) -> Batch:
    """One sentence a row. The decoder reads <start> y and must answer y <end>."""
    store = TokenStore.of_pairs(examples, specials.end)
    return sentence_rows(store, specials, one_a_row(store), np.arange(len(store)))
