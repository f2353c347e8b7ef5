"""Somebody else's model, whatever toolkit wrote it, as one of ours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from regard.data.sources import Elsewhere
from regard.decoding.search import SearchSettings
from regard.engines.loading import engine_of
from regard.errors import DataError, MissingError
from regard.files import MANIFEST
from regard.folder import RECIPE, Loaded
from regard.interop import huggingface, huggingface_text
from regard.interop.tensors import Tensors, read_folder, read_json
from regard.models.build import ModelSettings, build
from regard.recipe import Recipe
from regard.text.tokenizer import Imported, Tokenizer

Kind = Literal["regard", "ctranslate2", "onnx", "huggingface", "openai", "fairseq", "opennmt", "torch"]
TORCH_TOML = "torch.toml"
PICKLES = (".pt", ".pth", ".bin", ".ckpt")


@dataclass(frozen=True)
class Parts:
    """What an importer makes of a folder, before it becomes a model."""

    settings: ModelSettings
    state: Mapping[str, Tensor]
    tokenizer: Tokenizer
    search: SearchSettings = SearchSettings()


def recognise(place: Path, own: Kind | None = None) -> Kind:
    """Which toolkit wrote this folder or file; `own` where nothing says, unless that is an error."""
    if not place.exists():
        raise MissingError(f"{place}: must be a folder with a model, but is not there. Check the path.")
    folder = place if place.is_dir() else place.parent
    names = {file.name for file in folder.iterdir()} if place.is_dir() else {place.name}
    if (engine := engine_of(place)) != "torch":
        return engine
    for kind, found in (
        ("regard", bool({MANIFEST, RECIPE} & names)),
        ("torch", TORCH_TOML in names),
        ("huggingface", "config.json" in names and "model_type" in read_json(folder / "config.json")),
        ("openai", "hparams.json" in names and any(name.endswith(".index") for name in names)),
        ("fairseq", any(name.startswith("dict.") and name.endswith(".txt") for name in names)),
        ("opennmt", any(name.endswith(PICKLES) for name in names)),
    ):
        if found:
            return kind  # type: ignore[return-value]
    if own is not None:
        return own
    raise DataError(
        f"{place}: must be a folder that Hugging Face, OpenAI (GPT-2), fairseq or OpenNMT-py wrote, or one with "
        f"{TORCH_TOML}, but none of their files is there. `docs/exchange.md` lists what is looked for."
    )


def read(place: Path) -> Loaded:
    """The model in somebody else's folder; nothing is written, and nothing in it is run."""
    return joined(_parts(place), place)


def _parts(place: Path) -> Parts:
    match recognise(place):
        case "huggingface":
            return read_huggingface(place)
        case "openai":
            from regard.interop import openai_tf

            return Parts(*openai_tf.read(place))
        case "fairseq":
            from regard.interop import fairseq

            return Parts(*fairseq.read(place))
        case "opennmt":
            from regard.interop import opennmt

            return Parts(*opennmt.read(place))
        case "torch":
            from regard.interop import torch_transformer

            return Parts(*torch_transformer.read(place))
        case kind:
            what = "is Regard's own already" if kind == "regard" else f"is made for running, by {kind}"
            raise DataError(f"{place}: must be a model to import, but {what}. Use it as it is: regard.load.")


def read_huggingface(folder: Path) -> Parts:
    """A folder of transformers."""
    theirs: Tensors = read_folder(folder)
    described = huggingface.describe(folder, theirs)
    state = huggingface.state_in(described, theirs)
    tokenizer = huggingface_text.read(folder, described)
    return Parts(described.settings, state, tokenizer, _search(folder, described.config))


def _search(folder: Path, config: Mapping[str, Any]) -> SearchSettings:
    """How transformers would search, as far as we search so, too."""
    file = folder / huggingface.GENERATION
    values = {**config, **(read_json(file) if file.is_file() else {})}
    beam, alpha = values.get("num_beams") or 1, values.get("length_penalty")
    alpha = 1.0 if alpha is None else alpha
    for name, value in (("num_beams", beam), ("length_penalty", alpha)):
        if not (type(value) is int or (isinstance(value, float) and math.isfinite(value))):
            raise DataError(f"{file}: `{name}` must be a finite number, but is {value!r}. Correct it.")
    try:
        return SearchSettings(beam=int(beam), penalty="length", alpha=max(0.0, float(alpha)))
    except (ValueError, OverflowError) as error:
        raise DataError(f"{file}: must describe a search, but {error}. Correct it.") from error


def joined(parts: Parts, place: Path) -> Loaded:
    """A model of ours from its parts."""
    broken = [name for name, weight in parts.state.items() if not weight.isfinite().all()]
    if broken:
        raise DataError(f"{place}: every weight must be a finite number, but {broken[0]} holds others. Copy it again.")
    tokenizer = parts.tokenizer
    model = build(parts.settings, tokenizer.size, tokenizer.source.size)
    try:
        model.load_state_dict(dict(parts.state))
    except RuntimeError as error:
        raise DataError(f"{place}: must hold the weights it describes, but does not: {error}") from error
    recipe = Recipe(
        name=place.resolve().name or "imported",
        data=Elsewhere(str(place)),
        tokenizer=Imported(tokenizer.size),
        model=parts.settings,
        search=parts.search,
    )
    return Loaded(recipe, tokenizer, model.eval())
