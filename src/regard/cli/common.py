"""What several commands share: their options, and how a model is loaded and progress is shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.errors import UsageError
from regard.status import StatusLine

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


def load_model(folder: Path) -> Model:
    """The model in a folder."""
    from regard.api import load

    return load(folder)


def search_settings(default: SearchSettings, beam: int | None, alpha: float | None, nbest: int) -> SearchSettings:
    """The model's own way to search, changed by what the command line says."""
    from dataclasses import replace

    beam = default.beam if beam is None else beam
    alpha = default.alpha if alpha is None else alpha
    try:
        return replace(default, beam=beam, alpha=alpha, nbest=nbest)
    except ValueError as error:
        raise UsageError(f"search: {error}.") from error


class Progress:
    """Counts lines on the status line."""

    def __init__(self) -> None:
        self._status, self._done = StatusLine(), 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._status.close()

    def add(self, lines: int) -> None:
        """So many lines more are done."""
        self._done += lines
        self._status.show(lambda: f"{self._done:,} lines")
