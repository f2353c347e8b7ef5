"""What several commands share: their options, and how a model is loaded and progress is shown."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.errors import UsageError
from regard.status import StatusLine, clock

if TYPE_CHECKING:
    from regard.api import Model
    from regard.decoding.search import SearchSettings

STOPPED_BY = {"SIGINT": 130, "SIGTERM": 143}

ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, made for programs.")]
Beam = Annotated[int | None, typer.Option(help="Beams to search with; 1 is greedy.", show_default="the model's recipe")]
Alpha = Annotated[
    float | None,
    typer.Option(help="Length penalty ((5+length)/6)^alpha; 0 is neutral, more favours longer.",
                 show_default="the model's recipe"),
]  # fmt: skip


Precision = Annotated[
    str, typer.Option(help="Numbers to compute with: fp32, bf16 on a GPU, int8 on a CPU; auto is fp32.")
]


def load_model(folder: Path, precision: str = "auto") -> Model:
    """The model in a folder; on this process's own GPU where torchrun started several."""
    from typing import cast

    import torch

    from regard.api import load
    from regard.models import precision as precisions

    rank = os.environ.get("LOCAL_RANK", "")
    device = f"cuda:{rank}" if rank.isdecimal() and torch.cuda.is_available() else "auto"
    return load(folder, device, cast("precisions.Precision", precision))


def search_settings(
    default: SearchSettings,
    beam: int | None = None,
    alpha: float | None = None,
    nbest: int = 1,
    min_length: int | None = None,
    no_repeat: int | None = None,
    groups: int | None = None,
) -> SearchSettings:
    """The model's own way to search, changed by what the command line says."""
    from dataclasses import replace

    try:
        return replace(
            default,
            beam=default.beam if beam is None else beam,
            alpha=default.alpha if alpha is None else alpha,
            nbest=nbest,
            min_length=default.min_length if min_length is None else min_length,
            no_repeat=default.no_repeat if no_repeat is None else no_repeat,
            groups=default.groups if groups is None else groups,
        )
    except ValueError as error:
        raise UsageError(f"search: {error}.") from error


class Progress:
    """Counts lines and tokens on the status line, and says how long it will take where that can be known.

    `size` is the bytes of all lines, None where nobody knows. A quiet one shows nothing.
    """

    def __init__(self, size: int | None = None, quiet: bool = False) -> None:
        self._status, self._size, self._quiet = StatusLine(), size, quiet
        self._begin = time.monotonic()
        self._lines = self._tokens = 0
        self._behind = self._skipped = 0  # bytes of windows behind us, and of those that cost no time
        self._window, self._window_lines, self._window_done = 0, 1, 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._status.close()

    def window(self, lines: Sequence[str]) -> None:
        """These lines come next."""
        self._behind += self._window
        self._window, self._window_lines, self._window_done = _bytes(lines), len(lines), 0

    def skip(self, lines: Sequence[str]) -> None:
        """These lines need not be done."""
        self._behind += _bytes(lines)
        self._skipped += _bytes(lines)

    def add(self, lines: int, tokens: int = 0) -> None:
        """So many lines more are done, and so many tokens were written for them."""
        self._lines, self._tokens = self._lines + lines, self._tokens + tokens
        self._window_done += lines
        if not self._quiet:
            self._status.show(self._words)

    def _words(self) -> str:
        seconds = max(time.monotonic() - self._begin, 1e-6)
        words = [f"{self._lines:,} lines", f"{self._lines / seconds:,.1f} lines/s"]
        if self._tokens:
            words.append(f"{self._tokens / seconds:,.0f} tokens/s")
        if self._size:
            here = self._behind + self._window * self._window_done / self._window_lines
            worked = here - self._skipped
            words.append(f"{min(1.0, here / self._size):.0%}")
            if worked > 0:
                words.append(f"{clock(max(0.0, seconds * (self._size - here) / worked))} left")
        return "  ".join(words)


def _bytes(lines: Sequence[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)
