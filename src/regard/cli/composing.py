"""The music of `regard generate`: a MIDI file or several, and a piano roll of each."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.keeping import must_not_be_read
from regard.counts import so_many
from regard.errors import DataError, MissingError, UsageError

if TYPE_CHECKING:
    from regard.api import Model
    from regard.decoding.sampling import SamplingSettings
    from regard.exploring.composing import Composition

PIECES = 64  # drawn at a time


@dataclass(frozen=True)
class Music:
    """What `--midi`, `--primer` and `--roll` name."""

    midi: Path | None
    primer: Path | None
    roll: Path | None

    @property
    def wanted(self) -> bool:
        """Whether any is given."""
        return any(file is not None for file in (self.midi, self.primer, self.roll))

    def check(self, prompt: str | None, stream: bool, as_json: bool, lines: int, count: int) -> None:
        """Raise where the options do not go together."""
        from regard.files import destination

        if self.midi is None and self.roll is None:
            raise UsageError("generate: --primer needs --midi or --roll, to write what follows it, but has neither.")
        if prompt is not None:
            raise UsageError(
                "generate: music begins with the notes of --primer, not with a text, but there is a PROMPT. Leave it "
                "out."
            )
        if stream or as_json:
            raise UsageError(
                "generate: --midi and --roll write whole files, but --stream or --json is given. Leave it out."
            )
        if lines != 1:
            raise UsageError(
                f"generate: music has no lines, but --lines is {lines}. Leave it out: --max-tokens says how much is "
                "written."
            )
        if self.midi is not None and self.roll is not None and self.midi.resolve() == self.roll.resolve():
            raise UsageError(
                f"generate: --midi and --roll must name two files, but both name {self.midi}. Give the picture another "
                "name, such as out.svg."
            )
        for option, file in (("--midi", self.midi), ("--roll", self.roll)):
            if file is not None:
                destination(file)
                for number in range(1, count + 1) if self.primer else ():
                    must_not_be_read(option, _numbered(file, number, count), [str(self.primer)])

    def write(self, model: Model, sampling: SamplingSettings, seed: int, count: int) -> None:
        """Draw the pieces and write the files: `out.mid`, or `out-1.mid`, `out-2.mid`, … of several."""
        from regard.files import write_file
        from regard.music.midi import write_midi

        primer = None if self.primer is None else _read(self.primer)
        pieces = _pieces(model, primer, sampling, seed, count, str(self.primer or "primer"))
        for number, composition in enumerate(pieces, 1):
            if not composition.piece.notes:
                raise DataError(
                    f"generate: a piece must have at least one note, but that of seed {composition.seed} has none. "
                    "Choose another --seed, or a larger --max-tokens."
                )
            if composition.prompt_cut:
                print(
                    f"warning: {so_many(composition.prompt_cut, 'word was', 'words were')} left out at the beginning "
                    "of the primer: there is no room for more. The piece begins after that.",
                    file=sys.stderr,
                )
            if self.midi is not None:
                file = _numbered(self.midi, number, count)
                write_file(file, write_midi(composition.piece))
                print(_summary(file, composition), file=sys.stderr)
            if self.roll is not None:
                file = _numbered(self.roll, number, count)
                write_file(file, _drawn(model, composition))
                print(f"{file}: its piano roll", file=sys.stderr)


def _pieces(
    model: Model, primer: bytes | None, sampling: SamplingSettings, seed: int, count: int, place: str
) -> Iterator[Composition]:
    """Some at a time: the first files are there soon, and few pieces are held, however many are asked for."""
    for first in range(0, count, PIECES):
        yield from model.compose(primer, sampling, seed + first, min(PIECES, count - first), place)


def _read(file: Path) -> bytes:
    from regard.music.checking import LARGEST

    try:
        with file.open("rb") as stream:
            return stream.read(LARGEST + 1)  # more is refused by its size
    except FileNotFoundError as error:
        raise MissingError(f"{file}: there is no such file. Check the path; it is relative to {Path.cwd()}.") from error
    except OSError as error:
        raise DataError(f"{file}: must be a file that can be read, but: {error.strerror}. Check the path.") from error


def _numbered(file: Path, number: int, count: int) -> Path:
    return file if count == 1 else file.with_name(f"{file.stem}-{number}{file.suffix}")


def _summary(file: Path, composition: Composition) -> str:
    piece, primed = composition.piece, len(composition.primed)
    after = f" after {primed:,} of the primer" if primed else ""
    written = len(piece.notes) - primed
    notes = so_many(written, "note")
    return f"{file}: {notes}{after}, {piece.duration:.0f} s, seed {composition.seed}"


def _drawn(model: Model, composition: Composition) -> str:
    """The piano roll, with attention where the model has any."""
    from regard.exploring.composing import LEAST
    from regard.viewing.pianoroll import pianoroll_svg

    name = f"{model.recipe.name}, seed {composition.seed}"
    if model.recipe.model.kind != "gpt":
        return pianoroll_svg(composition.piece, name, composition.primed)
    seen = model.note_attention(composition)
    where = f"layer {seen.layer + 1} of {seen.layers}"
    any_line = any(line.note != line.seen and line.note not in composition.primed for line in seen.lines)
    title = f"{name}: attention of {where}" if any_line else f"{name}: no note got {LEAST:.0%} of a head in {where}"
    return pianoroll_svg(composition.piece, title, composition.primed, seen.lines)
