"""The steps of a walk, and the tables of real numbers that each of them shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from regard.exploring.sentences import Said, Tongue

MOST = 64  # rows and columns of a table that are shown; `Table.whole` tells how many there are
DIGITS = 4


@dataclass(frozen=True)
class Table:
    """Part of a matrix: at most 64 × 64 of its numbers, to four significant digits, and where they are taken from.

    What is hidden by a mask has None in place of a number.
    """

    name: str
    rows: tuple[str, ...]
    columns: tuple[str, ...] | None
    values: tuple[tuple[float | None, ...], ...]
    whole: tuple[int, int]
    first: tuple[int, int]
    """Which row and which column of the whole matrix come first."""

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "name": self.name,
            "rows": list(self.rows),
            "columns": None if self.columns is None else list(self.columns),
            "values": [list(row) for row in self.values],
            "whole": list(self.whole),
            "first": list(self.first),
        }


@dataclass(frozen=True)
class Step:
    """One step: what happens in plain words, the formula, the shapes, and the numbers.

    `kept` and `computed`, where a decoder keeps keys and values, are the positions whose own were there already and
    those whose own were made, when the token at the followed position was read.
    """

    id: str
    said: Said
    formula: str
    shapes: str
    tensors: tuple[Table, ...]
    kept: tuple[int, ...] | None = None
    computed: tuple[int, ...] | None = None

    @property
    def title(self) -> str:
        """What it is called, in English."""
        return self.said.title()

    @property
    def sentence(self) -> str:
        """What happens, in English."""
        return self.said.sentence()

    def to_json(self, tongue: Tongue = "en") -> dict[str, Any]:
        """As plain values, told in some language."""
        return {
            "id": self.id,
            "title": self.said.title(tongue),
            "sentence": self.said.sentence(tongue),
            "formula": self.formula,
            "shapes": self.shapes,
            "tensors": [table.to_json() for table in self.tensors],
            "kept": None if self.kept is None else list(self.kept),
            "computed": None if self.computed is None else list(self.computed),
        }


@dataclass(frozen=True)
class Words:
    """The labels of one text, and the word in it that is followed."""

    labels: tuple[str, ...]
    position: int | None = None

    @property
    def window(self) -> slice:
        """Which of them are shown: the first ones, or those up to the followed word."""
        last = max(MOST, (self.position or 0) + 1)
        return slice(min(last, max(len(self.labels), MOST)) - MOST, last)


def table(name: str, values_RC: Tensor, rows: Words, columns: Words | None = None) -> Table:
    """A table of a matrix whose rows, and perhaps columns, belong to words; other columns are numbered only."""
    window = rows.window
    across = slice(0, MOST) if columns is None else columns.window
    shown = values_RC[window, across].detach().float().cpu().tolist()
    return Table(
        name,
        rows.labels[window],
        None if columns is None else columns.labels[across],
        tuple(tuple(_rounded(value) for value in row) for row in shown),
        (values_RC.shape[0], values_RC.shape[1]),
        (window.start, across.start),
    )


def one_row(name: str, values_C: Tensor, row: str, columns: Sequence[str]) -> Table:
    """A table of a single row whose columns have names."""
    shown = tuple(_rounded(value) for value in values_C.detach().float().cpu().tolist()[:MOST])
    return Table(name, (row,), tuple(columns[:MOST]), (shown,), (1, len(values_C)), (0, 0))


def _rounded(value: float) -> float | None:
    return float(f"{value:.{DIGITS}g}") if abs(value) != float("inf") else None
