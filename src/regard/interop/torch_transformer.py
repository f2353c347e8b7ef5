"""State dictionaries of torch.nn.Transformer, with the embeddings that a program puts around it.

torch's module has layers and nothing else: how many heads there are, which tensor embeds words, and how text becomes
tokens stand in the program that used it. So the folder holds a file `torch.toml` that says it:

    weights = "model.pt"              or .safetensors
    heads = 8
    prefix = "transformer."           what stands before encoder.layers.0…
    source_embedding = "src_embed.weight"
    target_embedding = "tgt_embed.weight"        left out: the source's
    output = "generator.weight"                  left out: the target embedding, transposed
    output_bias = "generator.bias"               left out: none
    norm_first = false                torch's own default
    activation = "relu"
    tokenizer = "tokenizer.json"      with <pad>, <bos> and <eos>
    ignore = ["positions.table"]      tensors that carry nothing, such as stored waves

Positions are the paper's waves, and embeddings are scaled by √d_model, as in the paper.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import DataError, MissingError
from regard.interop.tensors import Tensors, read_file
from regard.interop.weights import linear_in, norm_in
from regard.models.transformer import Tie, TransformerSettings
from regard.text.tokenizer import Tokenizer

DESCRIPTION = "torch.toml"
KNOWN = {
    "weights": str, "heads": int, "prefix": str, "source_embedding": str, "target_embedding": str, "output": str,
    "output_bias": str, "norm_first": bool, "activation": str, "tokenizer": str, "ignore": list,
}  # fmt: skip
REQUIRED = ("weights", "heads", "source_embedding", "tokenizer")


def read(folder: Path) -> tuple[TransformerSettings, dict[str, Tensor], Tokenizer]:
    """Settings, state and vocabulary of a folder with a `torch.toml`."""
    told = _description(folder / DESCRIPTION)
    theirs = Tensors(read_file(_inside(folder, told["weights"])), folder / told["weights"])
    tokenizer = Tokenizer.load(_inside(folder, told["tokenizer"]))
    theirs.skip(*map(str, told.get("ignore", [])))
    settings = _settings(folder / DESCRIPTION, told, theirs)
    return settings, _state(told, settings, theirs, tokenizer), tokenizer


def _description(file: Path) -> dict[str, Any]:
    try:
        told = tomllib.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise DataError(f"{file}: must be TOML, but cannot be read ({error}). Correct it.") from error
    for name in REQUIRED:
        if name not in told:
            raise DataError(f"{file}: must say `{name}`, but does not. Add it.")
    for name, value in told.items():
        if name not in KNOWN:
            raise DataError(f"{file}: `{name}` is not known; known are {', '.join(KNOWN)}. Correct it.")
        if type(value) is not KNOWN[name]:
            raise DataError(f"{file}: `{name}` must be a {KNOWN[name].__name__}, but is {value!r}. Correct it.")
    return told


def _inside(folder: Path, name: str) -> Path:
    """A file of the folder, and of no other."""
    if Path(name).name != name:
        raise DataError(f"{folder / DESCRIPTION}: must name files of its folder, but names {name!r}. Move it there.")
    if not (folder / name).is_file():
        raise MissingError(f"{folder / name}: {DESCRIPTION} names this file, but it is not there. Copy it.")
    return folder / name


def _settings(file: Path, told: Mapping[str, Any], theirs: Tensors) -> TransformerSettings:
    prefix = told.get("prefix", "")
    layers = {side: _layers(theirs, f"{prefix}{side}.layers.") for side in ("encoder", "decoder")}
    if not all(layers.values()):
        raise DataError(
            f"{theirs.place}: must hold tensors such as {prefix}encoder.layers.0.linear1.weight, but does not. Correct "
            f"`prefix` in {file}."
        )
    d_ff, width = theirs.shape(f"{prefix}encoder.layers.0.linear1.weight")
    same = "target_embedding" not in told
    tied = "output" not in told
    tie: Tie = ("all" if tied else "embeddings") if same else ("target" if tied else "none")
    try:
        return TransformerSettings(
            d_model=width,
            d_ff=d_ff,
            heads=told["heads"],
            encoder_layers=layers["encoder"],
            decoder_layers=layers["decoder"],
            norm="pre" if told.get("norm_first", False) else "post",
            activation=told.get("activation", "relu"),
            final_norm=f"{prefix}encoder.norm.weight" in theirs,
            tie=tie,
            output_bias="output_bias" in told,
        )
    except ValueError as error:
        raise DataError(f"{file}: must describe a model that can be built, but {error}.") from error


def _layers(theirs: Tensors, prefix: str) -> int:
    found = (re.match(rf"{re.escape(prefix)}(\d+)\.", name) for name in theirs.names())
    return len({match[1] for match in found if match is not None})


def _state(
    told: Mapping[str, Any], settings: TransformerSettings, theirs: Tensors, tokenizer: Tokenizer
) -> dict[str, Tensor]:
    prefix, width, inner = told.get("prefix", ""), settings.d_model, settings.d_ff
    target = told.get("target_embedding", told["source_embedding"])
    state = {"embedding.table.weight": theirs.take(target, tokenizer.size, width)}
    if settings.tie in ("target", "none"):
        source = theirs.take(told["source_embedding"], tokenizer.source.size, width)
        state["own_source_embedding.table.weight"] = source
    if "output" in told:
        state["output.weight"] = theirs.take(told["output"], tokenizer.size, width)
    if "output_bias" in told:
        name = "output.bias" if "output" in told else "tied_bias_V"
        state[name] = theirs.take(told["output_bias"], tokenizer.size)
    for side, stack, layers in (
        ("encoder", "encoder.layers", settings.encoder_layers),
        ("decoder", "decoder", settings.decoder_layers),
    ):
        for number in range(layers):
            other, mine = f"{prefix}{side}.layers.{number}", f"{stack}.{number}"
            names = (
                ["attention", "feedforward"] if side == "encoder" else ["attention", "cross_attention", "feedforward"]
            )
            for attention, name in zip(("self_attn", "multihead_attn"), names[:-1], strict=False):
                state |= _attention(theirs, f"{other}.{attention}", f"{mine}.{name}", width)
            for place, name in enumerate(names, 1):
                state |= norm_in(theirs, f"{other}.norm{place}", f"{mine}.around_{name}.norm", width)
            state |= linear_in(theirs, f"{other}.linear1", f"{mine}.feedforward.inner", inner, width)
            state |= linear_in(theirs, f"{other}.linear2", f"{mine}.feedforward.outer", width, inner)
    if settings.final_norm:
        state |= norm_in(theirs, f"{prefix}encoder.norm", "encoder.norm", width)
        state |= norm_in(theirs, f"{prefix}decoder.norm", "decoder_norm", width)
    theirs.finish()
    return state


def _attention(theirs: Tensors, other: str, mine: str, width: int) -> dict[str, Tensor]:
    """torch keeps queries, keys and values in one matrix."""
    state = linear_in(theirs, f"{other}.out_proj", f"{mine}.output", width, width)
    for part, sizes in (("weight", (3 * width, width)), ("bias", (3 * width,))):
        joint: Tensor = theirs.take(f"{other}.in_proj_{part}", *sizes)
        query, keys_values = torch.split(joint, [width, 2 * width])
        state |= {f"{mine}.query.{part}": query.contiguous(), f"{mine}.key_value.{part}": keys_values.contiguous()}
    return state
