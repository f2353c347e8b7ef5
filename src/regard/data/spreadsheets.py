"""Tables as spreadsheet programs write them (`.csv`): a pair in each row, its sides in two of the cells.

Cells are apart by commas, semicolons or tabs, whichever cuts the first rows alike. One that holds such a mark, a line
end or a quote stands in quotes, with its own quotes doubled. If the first row names the columns, it is no pair.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from regard.data.formats import BLOCK, KEYS, Block, Repairs, lines_of, nothing_in, opened
from regard.errors import DataError

SEPARATORS = "\t;,"  # of those that cut rows equally well the first: commas are frequent in sentences, tabs are not
LOOKED_AT = 100  # lines


def csv_blocks(
    place: str, columns: tuple[int, int], repairs: Repairs, keys: tuple[str, str] | None = None
) -> Iterator[Block]:
    """The pairs in two columns: those whose names in the first row are `keys`, or else those of these numbers, from 1.

    Rows are counted as spreadsheet programs count them, the first included. A row with nothing in it is an empty pair.
    """
    with opened(place) as stream:
        rows = _rows(lines_of(stream, place, repairs), place)
        header = next(rows, None)
        if header is None:
            raise nothing_in(place)
        named = _named(header, keys, place)
        one, other = columns if named is None else named
        first = 1 if named is None else 2
        rows = chain([header], rows) if named is None else rows
        while some := list(islice(rows, BLOCK)):
            for number, row in enumerate(some, start=first):
                _check_width(row, max(one, other), f"{place}, row {number:,}")
            yield Block(place, first, [row[one - 1] for row in some], [row[other - 1] for row in some])
            first += len(some)


def _rows(lines: Iterator[str], place: str) -> Iterator[list[str]]:
    """The cells of each row."""
    beginning = list(islice(lines, LOOKED_AT))
    ended = (f"{line}\n" for line in chain(beginning, lines))
    number = 0
    try:
        for row in csv.reader(ended, delimiter=_separator(beginning), strict=True):
            number += 1
            yield row
    except csv.Error as error:
        raise DataError(
            f"{place}, row {number + 1:,}: must be cells with commas, semicolons or tabs between them, in quotes where "
            f"they hold such a mark, but: {error}. Is a quote left open? Save the table anew as CSV, in UTF-8."
        ) from error


def _separator(lines: Sequence[str]) -> str:
    """What stands between cells: it cuts the most rows into as many as the first, and that into two at least."""

    def alike(separator: str) -> int:
        widths = [len(row) for row in csv.reader((f"{line}\n" for line in lines), delimiter=separator)]
        return widths.count(widths[0]) if widths and widths[0] > 1 else 0

    return max(SEPARATORS, key=alike)


def _named(header: Sequence[str], keys: tuple[str, str] | None, place: str) -> tuple[int, int] | None:
    """Where the columns of these names stand, counted from 1; None where the first row does not name columns."""
    names = [cell.strip() for cell in header]
    if keys is not None and set(keys) <= set(names):
        return names.index(keys[0]) + 1, names.index(keys[1]) + 1
    if keys not in (None, KEYS):
        raise DataError(
            f"{place}, row 1: must name the columns {_listed(keys or ())}, but has {_listed(names)}. Choose other "
            "`keys`; or leave them out, and say in `columns` which ones to read."
        )
    return None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _check_width(row: list[str], columns: int, place: str) -> None:
    """An empty row becomes an empty pair; one that is too short is a mistake."""
    if not row:
        row.extend([""] * columns)
    if len(row) < columns:
        raise DataError(
            f"{place}: must have at least {columns} cells, but has {len(row)}. Mend the row, or choose other `columns`."
        )
