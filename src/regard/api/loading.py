"""From a folder to a model, whoever wrote the folder; and from a recipe to both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from regard import experiment, folder, shipped
from regard.api.model import Model
from regard.engines.loading import Engine, choose, load_exported
from regard.errors import UsageError
from regard.interop.reading import read, recognise
from regard.machine import choose_device
from regard.models.precision import Precision, convert
from regard.recipe import Recipe, load_recipe


def load(
    path: str | Path,
    device: str = "auto",
    precision: Precision | Literal["auto"] = "auto",
    engine: Engine | Literal["auto"] = "auto",
) -> Model:
    """The model in a folder that `regard train` wrote, that `regard export` wrote for CTranslate2 or ONNX, or that
    another toolkit wrote and `regard import` can read, such as one of Hugging Face;
    or by its name one that comes with Regard (`regard.shipped`).

    `precision` says in which numbers it computes: "fp32" as it was trained, "bf16" on a GPU, "int8" on a CPU. "auto"
    is fp32 everywhere: answers then do not depend on the batch, which rounding to fewer bits cannot promise. An
    exported model computes in the numbers it was exported in. `engine` says who computes: "auto" is the engine that
    the folder is for.
    """
    if precision not in (known := ("auto", *get_args(Precision))):
        raise UsageError(f"precision: must be one of: {', '.join(known)}; but is `{precision}`.")
    if not isinstance(path, str | Path) or not str(path):
        raise UsageError(f"load: needs a model folder, but got `{path}`. Name one, or a model that comes with Regard.")
    path = shipped.resolve(path)
    chosen = choose(path, engine)
    if chosen != "torch":
        return Model(load_exported(path, chosen, precision))
    where = choose_device(device)
    if path.exists() and recognise(path, own="regard") != "regard":
        loaded = read(path)
        loaded.network.to(where)
    else:
        loaded = folder.load_folder(path, where)
    convert(loaded.network, "fp32" if precision == "auto" else precision)
    return Model(loaded)


def train(recipe: Recipe | str | Path, out: str | Path, overrides: Sequence[str] = ()) -> Model:
    """Train by a recipe (a `Recipe`, a file or a preset's name) into the folder `out`, and load the result."""
    if not isinstance(recipe, Recipe):
        recipe = load_recipe(str(recipe), overrides)
    experiment.train(recipe, Path(out))
    return load(out, recipe.device)
