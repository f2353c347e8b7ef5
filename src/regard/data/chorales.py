"""Chorales from a JSON file, as words.

    {"train": [piece, …], "valid": […], "test": […]}    or only [piece, …]
    piece   [step, …]          one step after another of a fixed grid
    step    [74, 70, 65, 58]   the pitches of soprano, alto, tenor and bass; -1 or nothing is a rest

Where each step of a file is in rising order it is a set of pitches, as in the files of Boulanger-Lewandowski et al.
(2012): then the highest is given to the soprano, and so on. A step with fewer pitches leaves the lower voices out.
"""

from __future__ import annotations

import json
import lzma
import zlib
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from regard.data.streams import open_text
from regard.errors import DataError
from regard.music import chorale
from regard.music.encoding import Encoding
from regard.music.notes import PITCHES

MOST_JSON = 2**28  # bytes
RANGE = f"a pitch from 0 to {PITCHES - 1}, or -1 for a rest"


def splits_in(file: str) -> set[str]:
    """The splits besides the one for training that a file has pieces for."""
    tree = _json(file)
    return {split for split in ("valid", "test") if isinstance(tree, dict) and tree.get(split)}


def read_chorales(file: str, encoding: Encoding, split: str) -> Iterator[tuple[str, list[str]]]:
    """The pieces of a split: where each is from, and its words."""
    if encoding != "chorale":
        raise DataError(f'{file}: JSON holds chorales, but `encoding` is "{encoding}". Set it to "chorale".')
    tree = _json(file)
    pieces = tree.get(split) if isinstance(tree, Mapping) else tree
    if not isinstance(pieces, list) or not pieces:
        raise DataError(f"{file}: must hold a list of pieces for `{split}`, but does not. See docs/music.md.")
    found = [_steps(f"{file}, {split} piece {number}", piece) for number, piece in enumerate(pieces, 1)]
    rising = all(one < other for steps in found for step in steps for one, other in pairwise(step))
    for number, steps in enumerate(found, 1):
        ordered = [tuple(reversed(step)) if rising else step for step in steps]
        filled = [tuple(None if pitch < 0 else pitch for pitch in step) for step in ordered]
        words = chorale.to_words([(*step, *[None] * (len(chorale.VOICES) - len(step))) for step in filled])
        yield f"{file}, {split} piece {number}", words


def _json(file: str) -> Any:
    with open_text(Path(file)) as stream:
        try:
            data = stream.read(MOST_JSON + 1)
            if len(data) > MOST_JSON:
                raise DataError(f"{file}: must have at most {MOST_JSON:,} bytes, but has more. Cut it up.")
            return json.loads(data)
        except (ValueError, OSError, EOFError, zlib.error, lzma.LZMAError, RecursionError) as error:
            raise DataError(f"{file}: must be JSON that can be read, but is not ({error}). Copy it again.") from error


def _steps(place: str, piece: object) -> list[tuple[int, ...]]:
    if not isinstance(piece, list) or not piece:
        raise DataError(f"{place}: must be a list of steps, but is not. See docs/music.md.")
    return [_step(f"{place}, step {number}", step) for number, step in enumerate(piece, 1)]


def _step(place: str, step: object) -> tuple[int, ...]:
    if not isinstance(step, list) or len(step) > len(chorale.VOICES):
        what = f"has {len(step)}" if isinstance(step, list) else f"is {step!r}"
        raise DataError(f"{place}: must be a list of at most {len(chorale.VOICES)} pitches, but {what}. Correct it.")
    for pitch in step:
        # JSON as Python reads it may hold NaN and Infinity, and `true`, which Python counts as 1.
        number = isinstance(pitch, int | float) and not isinstance(pitch, bool) and -1 <= pitch < PITCHES
        if not number or pitch != int(pitch):
            raise DataError(f"{place}: must hold {RANGE}, but holds {pitch!r}. Correct it.")
    return tuple(int(pitch) for pitch in step)
