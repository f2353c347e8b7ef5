"""One of our models in the files of another toolkit, or in fewer bits, with the proof that both say the same."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

import torch
from safetensors.torch import save_file

from regard.engines.loading import load_exported
from regard.errors import UsageError
from regard.files import begin_folder, write_file
from regard.folder import CARD, Loaded, load_folder
from regard.interop import compact, ctranslate2, huggingface, huggingface_text, onnx
from regard.interop.features import TARGETS, Target, lacking
from regard.interop.proof import AGREE, TOLERANCE, Proof, prove
from regard.interop.sides import ModelSide, Side, TransformersSide, inputs_for
from regard.interop.tensors import SAFETENSORS
from regard.models.gpt import GPTSettings
from regard.models.interface import SequenceModel
from regard.models.transformer import TransformerSettings
from regard.training.checkpoint import full_disk

Reader = Target | Literal["regard"]
READERS: tuple[Reader, ...] = (*TARGETS, "regard")
Numbers = ctranslate2.Numbers | compact.Numbers
NUMBERS: Mapping[Reader, tuple[str, ...]] = {
    "huggingface": ("float32",), "ctranslate2": get_args(ctranslate2.Numbers), "onnx": get_args(onnx.Numbers),
    "regard": get_args(compact.Numbers),
}  # fmt: skip


@dataclass(frozen=True)
class Exported:
    """What was written, and what came of comparing it."""

    folder: Path
    proof: Proof | None
    """None where the other toolkit is not installed, to be compared with."""
    notes: Sequence[str] = ()


def export(
    loaded: Loaded,
    out: Path,
    target: Reader,
    numbers: Numbers = "float32",
    texts: Sequence[str] | None = None,
    count: int = 200,
    own_folder: Path | None = None,
) -> Exported:
    """Write a model as `target` reads it into the new folder `out`, and compare the two on `count` texts.

    `own_folder` is where the model is from, for its size. What `target` cannot express is refused by name.
    """
    check(loaded, target, numbers)
    write_new(out, lambda folder: _write(loaded, folder, target, numbers))
    if not isinstance(loaded.network, SequenceModel):
        return Exported(out, None, ["the model writes no texts, so nothing was compared"])
    notes = _notes(loaded, target)
    theirs = _other_side(loaded, out, target, numbers)
    if theirs is None:
        missing = "transformers is not installed, so nothing was compared: pip install transformers"
        return Exported(out, None, [*notes, missing])
    inputs = inputs_for(loaded, texts, count)
    # Fewer bits give other scores and texts; how far off, how many and how much worse, the table says.
    tolerance, least = (TOLERANCE, AGREE) if numbers == "float32" else (math.inf, 0.0)
    ours = ModelSide("regard", loaded.model, own_folder)
    read = None if numbers == "float32" or inputs.invented else loaded.tokenizer.decode
    notes = [*notes, *inputs.notes]
    return Exported(out, prove(ours, theirs, inputs, tolerance, least, notes, read), notes)


def check(loaded: Loaded, target: str, numbers: str = "float32") -> tuple[Reader, Numbers]:
    """The target and the numbers, if the model can be exported so; raises, by name, for what cannot be."""
    if target not in READERS:
        raise UsageError(f"export: --to must be one of: {', '.join(READERS)}; but is `{target}`. Choose one of them.")
    chosen: Reader = target
    if numbers not in NUMBERS[chosen]:
        raise UsageError(
            f"export: --numbers must be one of: {', '.join(NUMBERS[chosen])} for {target}, but is `{numbers}`. Choose "
            "one of them."
        )
    if chosen == "regard":
        return chosen, cast("Numbers", numbers)
    if found := lacking(loaded.recipe.model, chosen):
        able = [each for each in TARGETS if not lacking(loaded.recipe.model, each)]
        fix = f"Choose --to {' or '.join(able)}" if able else "Use the model with Regard itself"
        raise UsageError(
            f"export: {target} must be able to express every setting of the model, but cannot express "
            f"{', '.join(f'model.{name}' for name in found)}. {fix}, or train a model without."
        )
    return chosen, cast("Numbers", numbers)


def write_new(out: Path, fill: Callable[[Path], object]) -> None:
    """Make the folder `out`, which must be new or empty, with what `fill` writes; all of it or nothing."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out}: must be new or empty, but is in use. Choose another folder.")
    beside = begin_folder(out)
    try:
        fill(beside)
        if out.exists():
            out.rmdir()
        beside.rename(out)
    except BaseException as error:
        shutil.rmtree(beside, ignore_errors=True)
        if (number := full_disk(error)) is None:
            raise
        # Who copies a file names the one that is read, and others name none.
        raise OSError(number, os.strerror(number), str(out)) from error


def _write(loaded: Loaded, folder: Path, target: Reader, numbers: Numbers) -> None:
    match target:
        case "regard":
            assert loaded.place is not None, "only what is in a folder can be copied"
            compact.write(loaded.place, folder, cast("compact.Numbers", numbers))
        case "huggingface":
            write_huggingface(loaded, folder)
        case "ctranslate2":
            ctranslate2.write(loaded, folder, cast("ctranslate2.Numbers", numbers))
        case "onnx":
            onnx.write(loaded, folder, cast("onnx.Numbers", numbers))
    # Whose sentences a model learned from, and under which licence, must go with it.
    if target != "regard" and loaded.place is not None and (loaded.place / CARD).is_file():
        card = compact.noted((loaded.place / CARD).read_text(encoding="utf-8"), "float32")
        write_file(folder / ("README.md" if target == "huggingface" else CARD), card)


def write_huggingface(loaded: Loaded, folder: Path) -> None:
    """A folder that AutoModel and AutoTokenizer load as it is."""
    settings, tokenizer = loaded.recipe.model, loaded.tokenizer
    assert isinstance(settings, GPTSettings | TransformerSettings)
    theirs = huggingface.state_out(settings, loaded.model.state_dict())
    save_file(
        {name: tensor.contiguous().cpu() for name, tensor in theirs.items()}, folder / SAFETENSORS, {"format": "pt"}
    )
    (folder / SAFETENSORS).chmod(folder.stat().st_mode & 0o666)
    config = huggingface.config_out(settings, tokenizer.size, tokenizer.source.size, tokenizer.specials)
    generation = huggingface.generation_out(settings, tokenizer.specials, loaded.recipe.search)
    for name, values in ((huggingface.CONFIG, config), (huggingface.GENERATION, generation)):
        write_file(folder / name, json.dumps(values, indent=2) + "\n")
    limit = settings.limit or huggingface.POSITIONS
    huggingface_text.write(tokenizer, folder, limit, isinstance(settings, TransformerSettings))


def _notes(loaded: Loaded, target: Reader) -> list[str]:
    """What is not the same there, and why."""
    search, notes = loaded.recipe.search, []
    if target == "huggingface":
        settings = loaded.recipe.model
        if isinstance(settings, TransformerSettings) and settings.limit is None:
            notes.append(
                f"positions: {huggingface.POSITIONS:,} of them are written; transformers fails on a longer source or "
                "translation"
            )
        if loaded.model.reads_source and search.beam > 1 and search.penalty == "gnmt" and search.alpha:
            notes.append(
                f"search.penalty = gnmt: transformers divides by length^{search.alpha:g} instead of "
                f"((5 + length) / 6)^{search.alpha:g}; generate may rank translations differently"
            )
        if search.coverage:
            notes.append("search.coverage: transformers has no such penalty")
        if loaded.tokenizer.source.languages:
            notes.append("target languages: put the id of the language's token first; text alone does not ask for it")
        if huggingface_text.leaves_pieces_out(loaded.tokenizer):
            notes.append("vocabulary: pieces the model has no number for are left out, and cut smaller instead")
    if target == "ctranslate2" and loaded.model.reads_source and search.beam > 1:
        notes.append(
            "stopping: ctranslate2 by itself stops when `beam` texts have ended, and may miss the best; regard "
            "translate, and this table, make it wait longer"
        )
        if search.penalty == "gnmt" and search.alpha:
            notes.append(
                f"search.penalty = gnmt: ctranslate2 by itself divides by length^{search.alpha:g}; regard translate "
                "ranks what it found by the penalty of the recipe"
            )
    return notes


def _other_side(loaded: Loaded, folder: Path, target: Reader, numbers: Numbers) -> Side | None:
    if target == "regard":
        return ModelSide(f"in {numbers}", load_folder(folder, torch.device("cpu")).model, folder)
    if target == "huggingface":
        if importlib.util.find_spec("transformers") is None:
            return None
        return TransformersSide(folder, loaded.model.reads_source)
    engine: Literal["ctranslate2", "onnx"] = target
    return ModelSide(target, load_exported(folder, engine).model, folder)
