"""The lines that a command works through, from a file or from stdin, in windows.

Many lines share the work, but nobody is kept waiting: where the input pauses, what has come in is answered. So a person
who types and a program that asks line by line get an answer to each line, and a file or a fast pipe loses no speed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from regard.cli.common import STDIN
from regard.windows import windows


@contextmanager
def opened(file: str, size: int | None = None, full: bool = False) -> Iterator[tuple[Iterator[list[str]], int | None]]:
    """The lines of FILE in windows of at most `size`, and how many bytes they have if that is known beforehand.

    With `full`, all windows but the last have that size, however long the input pauses. Who is to type is told how.
    """
    from regard.data.formats import line_lists
    from regard.data.streams import is_compressed, more_of, open_text, standard_input

    if file == STDIN:
        stream = standard_input()
        if sys.stdin.isatty():
            print("Type a line and press Enter; Ctrl-D ends.", file=sys.stderr)
        lists = line_lists(stream, "stdin")
        yield windows(lists, size=size) if full else windows(lists, more_of(stream), size), None
        return
    place, packed = Path(file), is_compressed(file)
    with open_text(place) as stream:
        lists = line_lists(stream, file)
        # What is decompressed is read ahead of the lines, so that the system cannot tell of it.
        found = windows(lists, size=size) if full or packed else windows(lists, more_of(stream), size)
        yield found, place.stat().st_size if place.is_file() and not packed else None
