"""What came of one row of a study: its figures, what they cost, and everything needed to say how they were made.

It is the file `result.json` in the row's folder. Where that file is, the row is done. It ends with a seal, the SHA-256
of all the rest, by which figures that were changed by accident are known as such. It proves nothing more: anybody can
compute one.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from regard.errors import DataError
from regard.files import write_file

RESULT = "result.json"
SEAL = "seal"
SHOWN_OF_SEAL = 12


def _check_finite(figures: object) -> None:
    """Raise where a figure is NaN or infinite, as none that was measured is."""
    for name, value in vars(figures).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"`{name}` must be a finite number, but is {value}")


@dataclass(frozen=True)
class Stretch:
    """The lines of the test set whose source has about so many words, and their BLEU."""

    lines: int
    words: float
    """Of a source, on average."""
    bleu: float

    def __post_init__(self) -> None:
        _check_finite(self)


@dataclass(frozen=True)
class Judged:
    """The figures of a model on one set of sentence pairs."""

    lines: int
    sha256: dict[str, str]
    """Of source and reference, as lines of text."""
    bleu: float
    chrf: float
    perplexity: float | None
    """Per target token; None where the model cannot read a reference, or where it is beyond all numbers."""
    signatures: dict[str, str]
    """By the name of a figure, the exact definition."""

    def __post_init__(self) -> None:
        if "BLEU" not in self.signatures:
            raise ValueError(f"`signatures` must say how BLEU was computed, but are of {sorted(self.signatures)}")
        _check_finite(self)
        for name, value in (("bleu", self.bleu), ("chrf", self.chrf)):
            if not 0 <= value <= 100:
                raise ValueError(f"`{name}` must be between 0 and 100, but is {value}")


@dataclass(frozen=True)
class Outcome:
    """One row, trained and measured."""

    study: str
    row: str
    what: str
    parameters: int
    steps: int
    tokens: int
    """Read in training on both sides, without padding."""
    flops: float
    """Of training: matrix products, forward and backward."""
    seconds: float
    """Of training steps, compilation included."""
    speed: float
    """Tokens a second of training, the median of all reports."""
    beside: int
    """How many other rows were being made on the same machine when its training began or ended; then times are long."""
    dev: Judged
    test: Judged
    decoded: int
    """Target tokens of the test set's translations."""
    decoding_seconds: float
    lengths: list[Stretch]
    machine: str
    """That it was trained on; of a row that went on elsewhere, each of them in turn, and the same of torch."""
    torch: str
    regard: str
    seed: int
    search: str
    data: dict[str, str]
    """The SHA-256 of each file that it was trained on or validated with."""
    changes: list[str]
    """What whoever ran it asked for on top of the study's own settings."""
    learning: list[tuple[float, float]] = field(default_factory=list)
    """Millions of tokens read, and the training loss there; none of several models that write as one."""

    def __post_init__(self) -> None:
        _check_finite(self)
        if not all(math.isfinite(number) for point in self.learning for number in point):
            raise ValueError("`learning` must be of finite numbers, but has others")

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    def write(self, folder: Path) -> None:
        """Write it into a row's folder, whole or not at all."""
        content = self.to_json()
        sealed = {**content, SEAL: _seal(content)}
        write_file(folder / RESULT, json.dumps(sealed, indent=2, ensure_ascii=False) + "\n")


def _seal(content: Mapping[str, Any]) -> str:
    """The SHA-256 of values, however they are laid out in a file."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_outcome(folder: Path) -> Outcome | None:
    """What a row's folder says of it; None where the row is not done."""
    file = folder / RESULT
    if not file.is_file():
        return None
    text = file.read_bytes()
    try:
        found = TypeAdapter(Outcome).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where, why = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
        raise DataError(
            f"{file}: must be what `regard reproduce` wrote, but is not ({where and f'{where}: '}{why}). "
            "Remove it, and the row is measured again; where its model is not beside it, it is trained again."
        ) from error
    content = json.loads(text)
    seal = content.pop(SEAL, None)
    if seal is None:
        raise DataError(
            f"{file}: must have a `{SEAL}`, the SHA-256 of its figures, but has none. Put back what `regard reproduce` "
            "wrote, or remove it, and the row is measured again."
        )
    if seal != (now := _seal(content)):
        raise DataError(
            f"{file}: its figures must have the SHA-256 it was sealed with, {str(seal)[:SHOWN_OF_SEAL]}…, but have "
            f"{now[:SHOWN_OF_SEAL]}…: they were changed after it was written. Put back what was there, or remove it, "
            "and the row is measured again."
        )
    return found


def read_row(folder: Path, study: str, row: str) -> Outcome | None:
    """The same, if it is of this row of this study; another's figures must not stand under this one's name."""
    found = read_outcome(folder)
    if found is not None and (found.study, found.row) != (study, row):
        raise DataError(
            f"{folder / RESULT}: must be of `{row}` of {study}, but is of `{found.row}` of {found.study}. Choose "
            "another --out."
        )
    return found


@dataclass(frozen=True)
class Measure:
    """A column of a study's table: what it is of a row, how it is written, and how the paper writes it."""

    name: str
    of: Callable[[Outcome], float | None]
    form: str
    unit: float = 1.0
    paper_form: str = "g"
    """As the paper writes it."""

    def text(self, value: float | None) -> str:
        """A value as the table has it; nothing where there is none."""
        return "" if value is None else format(value / self.unit, self.form)

    def paper_text(self, value: float | None) -> str:
        """The same of a value that the paper printed."""
        return "" if value is None else format(value / self.unit, self.paper_form)


MEASURES = {
    measure.name: measure
    for measure in (
        Measure("parameters", lambda row: row.parameters, ".1f", 1e6, ".0f"),
        Measure("dev perplexity", lambda row: row.dev.perplexity, ".3f", paper_form=".2f"),
        Measure("dev BLEU", lambda row: row.dev.bleu, ".2f", paper_form=".1f"),
        Measure("test BLEU", lambda row: row.test.bleu, ".2f"),
        Measure("tokens", lambda row: row.tokens, ".1f", 1e6),
        Measure("training FLOPs", lambda row: row.flops, ".2e", paper_form=".1e"),
        Measure("training seconds", lambda row: row.seconds, ".0f"),
        Measure("training tokens/s", lambda row: row.speed, ",.0f"),
        Measure("decoding tokens/s", lambda row: row.decoded / max(row.decoding_seconds, 1e-9), ",.0f"),
    )
}
TITLES = {"parameters": "parameters, millions", "tokens": "tokens read, millions"}
