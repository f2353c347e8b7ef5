"""The model folder: everything a model needs, in one place, readable, without pickle.

recipe.toml         all settings of the run
tokenizer.json      the vocabulary
model.safetensors   the weights
card.md             what it is, for people
data.json           what it was trained on: hashes, counts, lengths, what was dropped, what looked wrong
metrics.jsonl       how it learned
curves.svg          the same as a picture
manifest.json       format version, size and SHA-256 of each file
checkpoints/        while training
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from regard import settings, shipped
from regard.errors import DataError, MissingError
from regard.files import MANIFEST, check_folder, read_manifest, seal, write_file
from regard.models.build import AnyModel, build_any, writing
from regard.models.interface import SequenceModel
from regard.recipe import Recipe, build_recipe, find
from regard.text.tokenizer import Tokenizer
from regard.training.checkpoint import full_disk
from regard.viewing.training_curves import CURVES

RECIPE, TOKENIZER, WEIGHTS, CARD, METRICS, DATA = (
    "recipe.toml", "tokenizer.json", "model.safetensors", "card.md", "metrics.jsonl", "data.json",
)  # fmt: skip
CHECKPOINTS = "checkpoints"
FINGERPRINT = "fingerprint"  # in data.json: which corpus a run began with
SCALE = ".scale"
"""`NAME.scale` in the weights: what the rows of the int8 tensor NAME are to be multiplied with. No weight can be called
so: torch refuses a parameter and a part of a module of one name."""


@dataclass(frozen=True)
class Loaded:
    """What a model folder holds, ready to use."""

    recipe: Recipe
    tokenizer: Tokenizer
    network: AnyModel
    place: Path | None = None
    """The folder; None where there is none, as for an ensemble."""

    @property
    def model(self) -> SequenceModel[Any]:
        """The network, if it writes text; one that gives labels is refused."""
        return writing(self.network, self.recipe.name)


def write_beginning(
    folder: Path, recipe: Recipe, tokenizer: Tokenizer, report: Mapping[str, object] | None = None
) -> None:
    """What is known before the first step: settings and vocabulary, and a report on the corpus if there is one."""
    folder.mkdir(parents=True, exist_ok=True)
    # Whoever trains a finished model further has an unfinished one, until `write_end`.
    (folder / MANIFEST).unlink(missing_ok=True)
    write_file(folder / RECIPE, settings.to_toml(recipe))
    write_file(folder / TOKENIZER, tokenizer.to_json())
    if report is not None:
        write_report(folder, report)


def write_report(folder: Path, report: Mapping[str, object]) -> None:
    """What became of the corpus."""
    write_file(folder / DATA, json.dumps(report, indent=2, ensure_ascii=False) + "\n")


def write_end(folder: Path, weights: dict[str, Tensor], card: str) -> None:
    """The finished model: weights, card and the manifest over all."""
    beside = folder / f".{WEIGHTS}.writing"
    try:
        save_file(weights, beside)
    except SafetensorError as error:
        beside.unlink(missing_ok=True)
        if (number := full_disk(error)) is None:
            raise
        raise OSError(number, os.strerror(number), str(folder / WEIGHTS)) from error
    beside.replace(folder / WEIGHTS)
    write_file(folder / CARD, card)
    there = [name for name in (DATA, CURVES) if (folder / name).is_file()]
    seal(folder, [RECIPE, TOKENIZER, WEIGHTS, CARD, METRICS, *there])


def read_recipe(folder: Path, overrides: Sequence[str] = ()) -> Recipe:
    """The settings of a model folder, with `key=value` overrides on top."""
    return build_recipe(settings.read(folder / RECIPE, find), overrides, str(folder / RECIPE))


def read_report(folder: Path) -> dict[str, Any]:
    """What became of the corpus; empty where nothing says, as of a model that was imported."""
    file = folder / DATA
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_bytes())
        if not isinstance(found, dict):
            raise ValueError("it is no object")
        return found
    except ValueError as error:
        raise DataError(f"{file}: must be what Regard wrote, but cannot be read ({error}). Restore it.") from error


def read_fingerprint(folder: Path) -> Mapping[str, Any] | None:
    """Which corpus the run in a folder began with; None where nothing says."""
    found = read_report(folder).get(FINGERPRINT)
    if found is not None and not (isinstance(found, dict) and isinstance(found.get("files"), dict)):
        raise DataError(f"{folder / DATA}: `{FINGERPRINT}` must be what Regard wrote, but is not. Restore it.")
    return found


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The weights of a model folder in float32, whatever numbers they are stored in."""
    stored = load_file(folder / WEIGHTS)
    scales = {name + SCALE for name, tensor in stored.items() if tensor.dtype == torch.int8}
    weights = {}
    for name, tensor in stored.items():
        if name + SCALE in scales:
            weights[name] = _scaled(folder, name, stored)
        elif name not in scales:
            weights[name] = tensor.float() if tensor.is_floating_point() else tensor
    return weights


def _scaled(folder: Path, name: str, stored: Mapping[str, Tensor]) -> Tensor:
    """An int8 tensor times its scales, one for each row, which is what its last dimension holds."""
    levels, scale = stored[name], stored.get(name + SCALE)
    if scale is None or scale.dtype != torch.float or scale.shape != levels.shape[:-1]:
        found = "is not there" if scale is None else f"is {_kind(scale)}"
        raise DataError(
            f"{folder / WEIGHTS}: `{name}` is {_kind(levels)}, so `{name}{SCALE}` must hold a float32 for each of its "
            f"rows, but {found}. Copy the folder again, or export the model again."
        )
    return levels.float().mul_(scale[..., None])


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def load_folder(folder: Path, device: torch.device) -> Loaded:
    """Read a finished model, after proving its files whole."""
    _check_finished(folder)
    check_folder(folder)
    if unnamed := {RECIPE, TOKENIZER, WEIGHTS} - read_manifest(folder).keys():
        raise DataError(
            f"{folder / MANIFEST}: must name every file of the model, but leaves out {', '.join(sorted(unnamed))}. "
            "Copy the folder again."
        )
    recipe, tokenizer = read_recipe(folder), Tokenizer.load(folder / TOKENIZER)
    model = build_any(recipe.model, tokenizer.size, tokenizer.source.size)
    try:
        weights = read_weights(folder)
        model.load_state_dict(weights)
    except (SafetensorError, RuntimeError) as error:
        raise DataError(
            f"{folder / WEIGHTS}: must hold the weights {RECIPE} describes, but does not: {error}"
        ) from error
    if broken := [name for name, weight in weights.items() if not weight.isfinite().all()]:
        raise DataError(
            f"{folder / WEIGHTS}: every weight must be a finite number, but {broken[0]} holds others. "
            "The training diverged: go back to an earlier model, or train again with a smaller rate."
        )
    return Loaded(recipe, tokenizer, model.to(device).eval(), folder)


def _check_finished(folder: Path) -> None:
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "is not there"
        others = f", or use one that comes with Regard: {', '.join(here)}" if (here := shipped.names()) else ""
        raise MissingError(f"{folder}: must be a model folder, but {what}. Train one: regard train --help{others}")
    if not (folder / MANIFEST).is_file():
        if (folder / RECIPE).is_file():
            raise DataError(
                f"{folder}: must hold a finished model, but its training did not end. "
                f"Go on with: regard train --resume --out {folder}"
            )
        hides = ""
        if str(folder) in shipped.names():
            hides = f" It hides the model `{folder}` that comes with Regard: rename it, or work in another folder."
        raise MissingError(f"{folder}: must be a model folder, but has no {MANIFEST}. Is the path right?{hides}")
