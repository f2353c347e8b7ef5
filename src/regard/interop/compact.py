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

    With `float16` each weight is rounded to 11 significant bits. Loading turns it back into float32.
    """
    copied = [name for name in read_manifest(place) if name != folder.WEIGHTS]
    for name in copied:
        shutil.copyfile(place / name, out / name)
    weights = load_file(place / folder.WEIGHTS)
    if numbers == "float16":
        weights = {name: weight.half() if weight.is_floating_point() else weight for name, weight in weights.items()}
        if large := [name for name, weight in weights.items() if not weight.isfinite().all()]:
            raise DataError(
                f"{place / folder.WEIGHTS}: every weight must be below {torch.finfo(torch.half).max:,.0f} to be "
                f"written in float16, but {large[0]} has larger ones. Choose --numbers float32."
            )
        if folder.CARD in copied:
            write_file(out / folder.CARD, f"{(place / folder.CARD).read_text(encoding='utf-8').rstrip()}\n\n{NOTE}")
    save_file(weights, out / folder.WEIGHTS)
    seal(out, [*copied, folder.WEIGHTS])
