"""A model folder of our own to be given away: weights in fewer bits, and nothing that only training needs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import load_file, save_file

from regard import folder
from regard.errors import DataError
from regard.files import read_manifest, seal, write_file

Numbers = Literal["float32", "float16"]
NOTE = "## Weights\n\nStored in 16 bits (float16); Regard computes with them in 32.\n"


def write(place: Path, out: Path, numbers: Numbers = "float32") -> None:
    """Copy what the manifest of the model folder `place` names into the empty folder `out`, and seal it.

    With `float16` each weight is rounded to 11 significant bits. Loading turns it back into float32. A folder that has
    16 bits a weight already is written with as many as are asked for, too; the card says what they are.
    """
    copied = [name for name in read_manifest(place) if name != folder.WEIGHTS]
    for name in copied:
        shutil.copyfile(place / name, out / name)
    kind = torch.half if numbers == "float16" else torch.float
    weights = {
        name: weight.to(kind) if weight.is_floating_point() else weight
        for name, weight in load_file(place / folder.WEIGHTS).items()
    }
    if numbers == "float16" and (large := [name for name, weight in weights.items() if not weight.isfinite().all()]):
        raise DataError(
            f"{place / folder.WEIGHTS}: every weight must be below {torch.finfo(torch.half).max:,.0f} to be "
            f"written in float16, but {large[0]} has larger ones. Choose --numbers float32."
        )
    if folder.CARD in copied:
        write_file(out / folder.CARD, _noted((place / folder.CARD).read_text(encoding="utf-8"), numbers))
    save_file(weights, out / folder.WEIGHTS)
    seal(out, [*copied, folder.WEIGHTS])


def _noted(card: str, numbers: Numbers) -> str:
    """A card with the note on 16 bits where there are so many, once, and without it elsewhere."""
    if (NOTE in card) == (numbers == "float16"):
        return card
    return f"{card.rstrip()}\n\n{NOTE}" if numbers == "float16" else f"{card.replace(NOTE, '').rstrip()}\n"
