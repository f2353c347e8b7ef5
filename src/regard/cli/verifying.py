"""`regard verify`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.common import AsJson, ModelFolder, Precision, TargetLanguage, load_model
from regard.errors import MissingError, UsageError

if TYPE_CHECKING:
    from regard.resumption import ResumeCheck
    from regard.verification import Check


def verify(
    model: ModelFolder,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Texts to ask about, one a line.", show_default="random tokens"),
    ] = None,
    texts: Annotated[int, typer.Option(help="How many texts to ask about.")] = 24,
    tolerance: Annotated[
        float | None,
        typer.Option(help="How far scores may differ.", show_default="1e-4, or 0.1 in bf16 and int8"),
    ] = None,
    steps: Annotated[int, typer.Option(help="How many steps to train on from the newest checkpoint; 0 is none.")] = 4,
    to: TargetLanguage = None,
    precision: Precision = "auto",
    as_json: AsJson = False,
) -> None:
    """Check a model's promises: answers do not depend on batch, padding, order or cache, and where there are
    checkpoints, training that stops and goes on is training that does not stop. Exit with 1 if not."""
    if texts < 2:
        raise UsageError(f"verify: --texts must be at least 2, so that there are neighbours, but is {texts}.")
    if steps < 0 or steps == 1:
        raise UsageError(f"verify: --steps must be 0 or at least 2, so that there is a middle, but is {steps}.")
    found = []
    for check in _checks(model, file, texts, tolerance, steps, to, precision):
        found.append(check)
        if not as_json:
            print(check, flush=True)
    passed = all(check.passed for check in found)
    if as_json:
        print(json.dumps({"model": str(model), "passed": passed, "checks": [check.to_json() for check in found]}))
    if not passed:
        raise typer.Exit(1)


def _checks(
    model: Path,
    file: Path | None,
    texts: int,
    tolerance: float | None,
    steps: int,
    language: str | None,
    precision: str,
) -> Iterator[Check | ResumeCheck]:
    from regard import folder
    from regard.files import MANIFEST
    from regard.resumption import verify_resume
    from regard.training import checkpoint

    goes_on = bool(checkpoint.found(model / folder.CHECKPOINTS))
    # A run that has not ended has no model yet, but what to go on from.
    if not goes_on or (model / MANIFEST).is_file():
        lines = None if file is None else _lines(file, texts)
        yield from load_model(model, precision).verify(lines, texts, tolerance, language)
    if goes_on and steps:
        try:
            yield verify_resume(model, steps)
        except MissingError as error:  # a model that was given away comes without its corpus
            print(f"resume: not checked, because its corpus is not here ({error})", file=sys.stderr)


def _lines(file: Path, count: int) -> list[str]:
    from regard.data.formats import lines_of, open_text

    with open_text(file) as stream:
        return list(islice((line for line in lines_of(stream, str(file)) if line.strip()), count))
