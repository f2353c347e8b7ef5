"""Transformers that fairseq trained: a checkpoint, and a word list for each language.

    *.pt               weights and settings, pickled
    dict.LANG.txt      a word and its count a line; before them come <s>, <pad>, </s>, <unk>
    bpecodes           optional: the codes of subword-nmt

Its waves are not the paper's: [sines | cosines], with frequencies 10000^(-i / (d/2 - 1)), and the first word stands at
2. As positions of ours they are a table of learned ones. Sources end with </s>, and a text starts with </s>, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.decoding.search import SearchSettings
from regard.errors import DataError, MissingError, UsageError
from regard.interop import weights
from regard.interop.tensors import Tensors, flatten
from regard.interop.unpickling import plain, read_checkpoint
from regard.interop.wordlists import by_codes, by_spaces, check_words
from regard.models.transformer import Tie, TransformerSettings
from regard.text.learning import END, PADDING, START
from regard.text.tokenizer import Tokenizer

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
PAD, EOS, FIRST = 1, 2, 2
CODES = ("bpecodes", "code", "codes", "bpe.codes")
POSITIONS = 1024
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_accurate": "gelu-tanh", "swish": "swish"}


def read(folder: Path) -> tuple[TransformerSettings, dict[str, Tensor], Tokenizer, SearchSettings]:
    """Settings, state and vocabulary of a folder."""
    files = [file for file in sorted(folder.glob("*.pt")) if file.is_file()]
    if len(files) != 1:
        raise MissingError(f"{folder}: must hold one checkpoint (*.pt), but has {len(files)}. Leave one.")
    content = read_checkpoint(files[0])
    if not isinstance(content, Mapping) or "model" not in content:
        raise DataError(f"{files[0]}: must be a checkpoint of fairseq, but holds no `model`. Is it one?")
    told = _told(content, files[0])
    theirs = Tensors(_upgraded(flatten(content["model"], files[0])), files[0])
    settings = _settings(told, theirs, files[0])
    state = _state(settings, told, theirs)
    tokenizer = _tokenizer(folder, told, state)
    return settings, state, tokenizer, SearchSettings(beam=5, penalty="length", alpha=1.0)


def _told(content: Mapping[str, Any], file: Path) -> dict[str, Any]:
    found = plain(content.get("args")) or plain(content.get("cfg"))
    found = found.get("model", found) if isinstance(found, dict) else None
    if not isinstance(found, dict) or "encoder_attention_heads" not in found:
        raise DataError(f"{file}: must hold the settings of a Transformer (args or cfg), but does not. Is it one?")
    return found


def _upgraded(found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Checkpoints of 2018 and 2019 under the names that fairseq gave their tensors later."""
    state: dict[str, Tensor] = {}
    decoder, encoder = ("self_attn", "encoder_attn", "final"), ("self_attn", "final")
    for name, tensor in found.items():
        if ".in_proj_" in name:
            root, _, part = name.rpartition("in_proj_")
            for which, piece in zip("qkv", tensor.chunk(3), strict=True):
                state[f"{root}{which}_proj.{part}"] = piece
        elif ".layer_norms." in name:
            root, _, rest = name.partition("layer_norms.")
            number, _, part = rest.partition(".")
            kinds = encoder if name.startswith("encoder") else decoder
            known = number.isdecimal() and int(number) < len(kinds)
            state[f"{root}{kinds[int(number)]}_layer_norm.{part}" if known else name] = tensor
        else:
            state[name] = tensor
    return state


def _settings(told: Mapping[str, Any], theirs: Tensors, file: Path) -> TransformerSettings:
    for name, wanted in (("no_scale_embedding", False), ("layernorm_embedding", False), ("no_cross_attention", False),
                         ("no_token_positional_embeddings", False), ("adaptive_softmax_cutoff", None)):  # fmt: skip
        if told.get(name, wanted) != wanted:
            raise UsageError(
                f"{file}: `{name}` must be {wanted!r} to be imported, but is {told[name]!r}. No way round."
            )
    for name in ("embed_dim", "ffn_embed_dim", "attention_heads", "normalize_before", "learned_pos"):
        sides = [told.get(f"{side}_{name}", False) for side in ("encoder", "decoder")]
        if sides[0] != sides[1]:
            raise UsageError(f"{file}: `encoder_{name}` and `decoder_{name}` must be the same, but are {sides}.")
    learned, activation = bool(told.get("encoder_learned_pos")), told.get("activation_fn", "relu")
    if activation not in ACTIVATIONS:
        raise UsageError(f"{file}: `activation_fn` must be one of: {', '.join(ACTIVATIONS)}; but is {activation!r}.")
    tie: Tie = "none"
    if told.get("share_all_embeddings"):
        tie = "target" if learned else "all"  # learned positions belong to each side, and so do its embeddings here
    elif told.get("share_decoder_input_output_embed"):
        tie = "target"
    longest = theirs.shape("encoder.embed_positions.weight")[0] - FIRST if learned else POSITIONS
    layers = [int(told.get(f"{side}_layers", 6)) for side in ("encoder", "decoder")]
    if sum(layers) > len(theirs):
        raise DataError(f"{file}: asks for {sum(layers):,} layers, but has {len(theirs):,} tensors. Is it whole?")
    try:
        return TransformerSettings(
            d_model=int(told["encoder_embed_dim"]),
            d_ff=int(told["encoder_ffn_embed_dim"]),
            heads=int(told["encoder_attention_heads"]),
            encoder_layers=layers[0],
            decoder_layers=layers[1],
            dropout=float(told.get("dropout", 0.1)),
            norm="pre" if told.get("encoder_normalize_before") else "post",
            activation=ACTIVATIONS[activation],  # type: ignore[arg-type]
            positions="learned",
            max_positions=longest,
            tie=tie,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file}: must describe a model that can be built, but {error}.") from error


def sines(count: int, width: int) -> Tensor:
    """fairseq's waves for the words of a text: [N, D]."""
    half = width // 2
    speeds = torch.exp(torch.arange(half, dtype=torch.float) * -(math.log(10_000) / (half - 1)))
    angles = torch.arange(FIRST, FIRST + count, dtype=torch.float)[:, None] * speeds
    table = torch.cat([angles.sin(), angles.cos()], dim=1)
    return torch.nn.functional.pad(table, (0, width - 2 * half))


def _state(settings: TransformerSettings, told: Mapping[str, Any], theirs: Tensors) -> dict[str, Tensor]:
    width, source, target = settings.d_model, "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
    theirs.skip("encoder.version", "decoder.version")
    theirs.skip("encoder.embed_positions._float_tensor", "decoder.embed_positions._float_tensor")
    vocabulary, reads = theirs.shape(target)[0], theirs.shape(source)[0]
    state = weights.bart_layers_in(theirs, settings, "")
    state["embedding.table.weight"] = theirs.take(target, vocabulary, width)
    if settings.tie == "all":
        theirs.skip_copies(target, source)
    else:
        state["own_source_embedding.table.weight"] = theirs.take(source, reads, width)
    if settings.tie == "none":
        name = "decoder.output_projection.weight"
        name = name if name in theirs else "decoder.embed_out"
        state["output.weight"] = theirs.take(name, vocabulary, width)
    else:
        theirs.skip_copies(target, "decoder.output_projection.weight")
    for side, ours in (("decoder", "embedding"), ("encoder", "own_source_embedding")):
        if told.get("encoder_learned_pos"):
            rows = theirs.take(f"{side}.embed_positions.weight", settings.max_positions + FIRST, width)
            state[f"{ours}.positions.table.weight"] = rows[FIRST:].contiguous()
        elif f"{ours}.table.weight" in state:
            state[f"{ours}.positions.table.weight"] = sines(settings.max_positions, width)
    theirs.finish()
    return state


def _tokenizer(folder: Path, told: Mapping[str, Any], state: Mapping[str, Tensor]) -> Tokenizer:
    named = [folder / f"dict.{told.get(side)}.txt" for side in ("source_lang", "target_lang")]
    if all(file.is_file() for file in named):
        source, target = named
    else:
        lists = sorted(folder.glob("dict.*.txt"))
        if not lists:
            raise MissingError(
                f"{folder}: must hold dict.LANGUAGE.txt of source and target, but has none. "
                "Copy both from where the model was trained."
            )
        if len(lists) > 2:
            raise UsageError(
                f"{folder}: must hold dict.txt of the source and of the target alone, but has {len(lists)}."
            )
        source, target = lists[0], lists[-1]
    writes = state["embedding.table.weight"]
    reads = state.get("own_source_embedding.table.weight", writes)
    own, other = _side(folder, target, len(writes)), _side(folder, source, len(reads))
    return own if own.to_json() == other.to_json() else Tokenizer(own.rules, other, own.size)


def _side(folder: Path, file: Path, size: int) -> Tokenizer:
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: must be UTF-8, but byte {error.start} is not. Copy it again.") from error
    words = [*SPECIAL, *(line.rpartition(" ")[0] for line in lines if line.strip())]
    check_words(words, file)
    if len(words) > size:
        raise DataError(
            f"{file}: must have at most {size:,} words, as the model, but has {len(words):,}. Copy it again."
        )
    unused = [f"<unused-{number}>" for number in range(len(words), size)]
    parts = {PADDING: PAD, START: EOS, END: EOS}
    codes = [folder / name for name in CODES if (folder / name).is_file()]
    if codes:
        return by_codes([*words, *unused], [*SPECIAL, *unused], SPECIAL[3], parts, codes[0])
    return by_spaces([*words, *unused], [*SPECIAL, *unused], SPECIAL[3], parts)
