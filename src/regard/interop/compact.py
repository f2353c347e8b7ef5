"""A model folder of our own to be given away: weights in fewer bits, and nothing that only training needs."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import save_file
from torch import Tensor

from regard import folder
from regard.errors import DataError
from regard.files import FORMAT_VERSION, INT8_VERSION, read_manifest, seal, write_file

Numbers = Literal["float32", "float16", "int8"]
BITS: dict[Numbers, int] = {"float32": 32, "float16": 16, "int8": 8}
NOTES = {
    "float16": "Stored in 16 bits (float16); Regard computes with them in 32.",
    "int8": "Stored in 8 bits (int8) with a scale for each row; Regard computes with them in 32.",
}
LICENCE = "LICENSE"  # may lie in a folder without being named by its manifest, as in the shipped ones
LEVELS = 127
SHORTEST = 16  # weights of a row: shorter ones are not worth the 4 bytes of a scale


def write(place: Path, out: Path, numbers: Numbers = "float32") -> None:
    """Copy what the manifest of the model folder `place` names, and its licence, into the empty folder `out`; seal it.

    With `float16` each weight is rounded to 11 significant bits, with `int8` each weight of a matrix to a multiple of
    the 127th part of the largest in its row. Loading turns both back into float32. A folder that has fewer bits a
    weight already is written with as many as are asked for, too; the card says what they are and were.
    """
    copied = [name for name in read_manifest(place) if name != folder.WEIGHTS]
    for name in copied:
        shutil.copyfile(place / name, out / name)
    if (place / LICENCE).is_file():
        shutil.copyfile(place / LICENCE, out / LICENCE)
    weights = folder.read_weights(place)
    if numbers == "float16":
        weights = _in_16_bits(weights, place)
    elif numbers == "int8":
        weights = _in_8_bits(weights)
    if folder.CARD in copied:
        write_file(out / folder.CARD, noted((place / folder.CARD).read_text(encoding="utf-8"), numbers))
    save_file(weights, out / folder.WEIGHTS)
    seal(out, [*copied, folder.WEIGHTS], INT8_VERSION if numbers == "int8" else FORMAT_VERSION)


def _in_16_bits(weights: Mapping[str, Tensor], place: Path) -> dict[str, Tensor]:
    halves = {name: weight.half() if weight.is_floating_point() else weight for name, weight in weights.items()}
    if large := [name for name, weight in halves.items() if not weight.isfinite().all()]:
        raise DataError(
            f"{place / folder.WEIGHTS}: every weight must be below {torch.finfo(torch.half).max:,.0f} to be "
            f"written in float16, but {large[0]} has larger ones. Choose --numbers float32."
        )
    return halves


def _in_8_bits(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Matrices as int8, each with its scales beside it; vectors, and matrices of short rows, as they are."""
    found = dict(weights)
    for name, weight in weights.items():
        if weight.ndim > 1 and weight.shape[-1] >= SHORTEST and weight.is_floating_point():
            found[name], found[name + folder.SCALE] = _rounded(weight)
    return found


def _rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Levels from -127 to 127, and what those of each row are to be multiplied with."""
    # Not 0, even for a row of zeros: it is divided by. The largest weight that is read, 127 times this, gives it again.
    scale = (weight.abs().amax(dim=-1) / LEVELS).clamp(min=torch.finfo(torch.float).tiny)
    return (weight / scale[..., None]).round().to(torch.int8), scale


def noted(card: str, numbers: Numbers) -> str:
    """A card with one note on how many bits there are, or once were; without one where there have always been all."""
    known = {_note(each, fewest): fewest for each in BITS for fewest in BITS if BITS[fewest] <= BITS[each]}
    before = next((note for note in known if note and note in card), "")
    note = _note(numbers, min(numbers, known[before], key=BITS.__getitem__))
    return card.replace(before, note) if before else f"{card.rstrip()}\n\n{note}" if note else card


def _note(numbers: Numbers, fewest: Numbers) -> str:
    """What a card says of weights that were rounded to the `fewest` bits at some time; nothing if they never were."""
    if fewest == "float32":
        return ""
    said = [NOTES[numbers]] if numbers in NOTES else []
    if numbers != fewest:
        said.append(f"Rounded to {BITS[fewest]} bits ({fewest}) before, which more bits do not undo.")
    return f"## Weights\n\n{' '.join(said)}\n"
