"""Transformers that OpenNMT-py trained: one checkpoint with weights, settings and words.

    model       the tensors of encoder and decoder
    generator   the output matrix and its bias
    vocab       the words: lists, or torchtext's objects in older versions
    opt         the settings

Pre-norm, the paper's waves, and norms with ε = 1e-6. Newer versions have no biases in queries, keys and values: they
are zero here. OpenNMT-py gives its models sources without an end, so the encoder does not see ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.decoding.search import SearchSettings
from regard.errors import DataError, MissingError, UsageError
from regard.interop.tensors import Tensors
from regard.interop.unpickling import Shell, plain, read_checkpoint
from regard.interop.weights import linear_in, norm_in
from regard.interop.wordlists import by_spaces, check_words
from regard.models.transformer import Tie, TransformerSettings
from regard.text.learning import END, PADDING, START
from regard.text.tokenizer import Tokenizer

BLANK, BEGIN, STOP, UNKNOWN = "<blank>", "<s>", "</s>", "<unk>"
EPSILON = 1e-6
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "swish"}
SUFFIXES = (".pt", ".pth", ".bin", ".ckpt")


def read(place: Path) -> tuple[TransformerSettings, dict[str, Tensor], Tokenizer, SearchSettings]:
    """Settings, state and vocabulary of a checkpoint, or of the one in a folder."""
    files = [place] if place.is_file() else sorted(file for file in place.iterdir() if file.suffix in SUFFIXES)
    if len(files) != 1:
        raise MissingError(f"{place}: must hold one checkpoint (*.pt), but has {len(files)}. Leave one.")
    file = files[0]
    content = read_checkpoint(file)
    if not isinstance(content, Mapping) or not {"model", "generator", "vocab", "opt"} <= content.keys():
        raise DataError(f"{file}: must hold model, generator, vocab and opt, as OpenNMT-py writes it, but does not.")
    told = plain(content["opt"])
    sides = {side: content[side] for side in ("model", "generator")}
    if not isinstance(told, dict) or not all(isinstance(each, Mapping) for each in sides.values()):
        raise DataError(f"{file}: must hold tensors by name and settings, as OpenNMT-py writes them, but does not.")
    found = {str(name): each for name, each in sides["model"].items()}
    found |= {f"generator.{name}": each for name, each in sides["generator"].items()}
    if not all(isinstance(each, Tensor) for each in found.values()):
        raise DataError(f"{file}: must hold tensors by name, but holds other things among them. Save it again.")
    theirs = Tensors(found, file)
    settings = _settings(told, theirs, file)
    words = {side: _words(content["vocab"], side, file) for side in ("src", "tgt")}
    state = _state(settings, theirs, len(words["tgt"]), len(words["src"]))
    return settings, state, _tokenizer(words, file), SearchSettings(beam=5, penalty="none")


def _settings(told: Mapping[str, Any], theirs: Tensors, file: Path) -> TransformerSettings:
    for name, wanted in (("position_encoding", True), ("max_relative_positions", 0), ("encoder_type", "transformer"),
                         ("decoder_type", "transformer"), ("layer_norm", "standard"), ("parallel_residual", False),
                         ("copy_attn", False), ("aan_useffn", False)):  # fmt: skip
        if told.get(name, wanted) != wanted:
            raise UsageError(
                f"{file}: `{name}` must be {wanted!r} to be imported, but is {told[name]!r}. No way round."
            )
    layers = [told.get(f"{side}_layers", told.get(f"{side[:3]}_layers", told.get("layers", 6))) for side in
              ("encoder", "decoder")]  # fmt: skip
    activation = told.get("pos_ffn_activation_fn", "relu")
    if activation not in ACTIVATIONS:
        raise UsageError(
            f"{file}: `pos_ffn_activation_fn` must be one of: {', '.join(ACTIVATIONS)}; not {activation!r}."
        )
    width = theirs.shape("encoder.embeddings.make_embedding.emb_luts.0.weight")[1]
    shared, tied = bool(told.get("share_embeddings")), bool(told.get("share_decoder_embeddings"))
    tie: Tie = ("all" if tied else "embeddings") if shared else ("target" if tied else "none")
    try:
        if sum(map(int, layers)) > len(theirs):
            raise ValueError(f"it asks for {sum(map(int, layers)):,} layers and has {len(theirs):,} tensors")
        return TransformerSettings(
            d_model=width,
            d_ff=int(told["transformer_ff"]),
            heads=int(told["heads"]),
            encoder_layers=int(layers[0]),
            decoder_layers=int(layers[1]),
            norm="pre",
            norm_epsilon=EPSILON,
            activation=ACTIVATIONS[activation],  # type: ignore[arg-type]
            tie=tie,
            output_bias=True,
            reads_end=False,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file}: must describe a model that can be built, but {error}.") from error


def _state(settings: TransformerSettings, theirs: Tensors, vocabulary: int, reads: int) -> dict[str, Tensor]:
    width = settings.d_model
    source, target = (f"{side}.embeddings.make_embedding.emb_luts.0.weight" for side in ("encoder", "decoder"))
    theirs.skip(*(f"{side}.embeddings.make_embedding.pe.pe" for side in ("encoder", "decoder")))  # waves
    state = {"embedding.table.weight": theirs.take(target, vocabulary, width)}
    if settings.tie in ("all", "embeddings"):
        theirs.skip_copies(target, source)
    else:
        state["own_source_embedding.table.weight"] = theirs.take(source, reads, width)
    output, bias = _names(theirs, "generator.0", "generator")
    tied = settings.tie in ("all", "target")
    state["tied_bias_V" if tied else "output.bias"] = theirs.take(bias, vocabulary)
    if tied:
        theirs.skip_copies(target, output)
    else:
        state["output.weight"] = theirs.take(output, vocabulary, width)
    for number in range(settings.encoder_layers):
        other, mine = f"encoder.transformer.{number}", f"encoder.layers.{number}"
        state |= _attention(theirs, f"{other}.self_attn", f"{mine}.attention", width)
        state |= norm_in(theirs, f"{other}.layer_norm", f"{mine}.around_attention.norm", width)
        state |= _feedforward(theirs, other, mine, settings)
    for number in range(settings.decoder_layers):
        other, mine = f"decoder.transformer_layers.{number}", f"decoder.{number}"
        for attention, name, norm in (("self_attn", "attention", 1), ("context_attn", "cross_attention", 2)):
            state |= _attention(theirs, f"{other}.{attention}", f"{mine}.{name}", width)
            state |= norm_in(theirs, f"{other}.layer_norm_{norm}", f"{mine}.around_{name}.norm", width)
        state |= _feedforward(theirs, other, mine, settings)
    state |= norm_in(theirs, "encoder.layer_norm", "encoder.norm", width)
    state |= norm_in(theirs, "decoder.layer_norm", "decoder_norm", width)
    theirs.finish()
    return state


def _names(theirs: Tensors, *roots: str) -> tuple[str, str]:
    """Weight and bias under the first of these names that is there."""
    root = next((root for root in roots if f"{root}.weight" in theirs), roots[0])
    return f"{root}.weight", f"{root}.bias"


def _attention(theirs: Tensors, other: str, mine: str, width: int) -> dict[str, Tensor]:
    state = {}
    for part, sizes in (("weight", (width, width)), ("bias", (width,))):
        found = {}
        for name in ("linear_query", "linear_keys", "linear_values", "final_linear"):
            full = f"{other}.{name}.{part}"
            absent = part == "bias" and full not in theirs
            found[name] = torch.zeros(width) if absent else theirs.take(full, *sizes)
        state[f"{mine}.query.{part}"] = found["linear_query"]
        state[f"{mine}.key_value.{part}"] = torch.cat([found["linear_keys"], found["linear_values"]])
        state[f"{mine}.output.{part}"] = found["final_linear"]
    return state


def _feedforward(theirs: Tensors, other: str, mine: str, settings: TransformerSettings) -> dict[str, Tensor]:
    width, inner, network = settings.d_model, settings.d_ff, f"{other}.feed_forward"
    state = norm_in(theirs, f"{network}.layer_norm", f"{mine}.around_feedforward.norm", width)
    state |= linear_in(theirs, f"{network}.w_1", f"{mine}.feedforward.inner", inner, width)
    return state | linear_in(theirs, f"{network}.w_2", f"{mine}.feedforward.outer", width, inner)


def _words(vocab: Any, side: str, file: Path) -> list[str]:
    """The words of one side; in older versions deep inside torchtext's objects."""
    found = _list(vocab.get(side) if isinstance(vocab, Mapping) else vocab, 0)
    if not found:
        raise DataError(f"{file}: must hold the words of `{side}`, but does not, or in a form that is not known.")
    words = [str(word) for word in found]
    check_words(words, file)
    return words


def _list(value: Any, depth: int) -> list[Any] | None:
    """The first list of strings in here."""
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        return value
    inside = list(vars(value).values()) if isinstance(value, Shell) else []
    inside += list(value.values()) if isinstance(value, Mapping) else []
    inside += list(value) if isinstance(value, list | tuple) else []
    if isinstance(value, Shell) and isinstance(vars(value).get("itos"), list):
        return list(vars(value)["itos"])
    return next((found for each in inside if depth < 8 and (found := _list(each, depth + 1))), None)


def _tokenizer(words: Mapping[str, list[str]], file: Path) -> Tokenizer:
    """The end and the start are the target's; a source knows them only where both share their words."""
    sides = {}
    target = {word: number for number, word in enumerate(words["tgt"])}
    for name in (BLANK, BEGIN, STOP, UNKNOWN):
        if name not in target:
            raise DataError(f"{file}: its words must have {name}, but have not. Is it a model that translates?")
    parts = {PADDING: target[BLANK], START: target[BEGIN], END: target[STOP]}
    for side, some in words.items():
        if UNKNOWN not in some or len(some) <= max(parts.values()):
            raise DataError(f"{file}: the words of `{side}` must have {UNKNOWN} and the special tokens, but have not.")
        sides[side] = by_spaces(some, [BLANK, BEGIN, STOP, UNKNOWN], UNKNOWN, parts)
    if words["src"] == words["tgt"]:
        return sides["tgt"]
    return Tokenizer(sides["tgt"].rules, sides["src"])
