"""Hugging Face folders of GPT-2 and of Marian, in and out; pre-norm Transformers go out as Blenderbot.

transformers has no Transformer with free choices, but models that are one with fixed ones. A GPT with learned positions
is GPT-2. A post-norm Transformer with waves is Marian. A pre-norm one is Blenderbot: its positions are a table, and
waves can be written into a table. What none of them can express is refused by the name of the setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from regard.batch import Specials
from regard.decoding.sampling import SamplingSettings
from regard.decoding.search import SearchSettings
from regard.errors import DataError, UsageError
from regard.interop import weights
from regard.interop.tensors import Tensors, read_json
from regard.layers.feedforward import Activation
from regard.models.build import ModelSettings
from regard.models.gpt import GPTSettings
from regard.models.transformer import Tie, TransformerSettings

Family = Literal["gpt2", "marian", "blenderbot"]
CONFIG, GENERATION = "config.json", "generation_config.json"
ACTIVATIONS: Mapping[str, Activation] = {
    "relu": "relu", "gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "silu": "swish",
    "swish": "swish",
}  # fmt: skip
WRITTEN: Mapping[Activation, str] = {"relu": "relu", "gelu": "gelu", "gelu-tanh": "gelu_new", "swish": "silu"}
POSITIONS = 1024  # how many of the waves are written, or promised, where a model has no limit
EPSILON = 1e-5  # of the norms that have no setting there


# ---- in


@dataclass(frozen=True)
class Described:
    """What a folder's `config.json` says, in our words."""

    family: Family
    settings: GPTSettings | TransformerSettings
    vocabulary: int
    source_vocabulary: int
    start: int
    end: int
    padding: int
    config: Mapping[str, Any]


class _Config:
    """Values of a `config.json`, each checked when it is asked for."""

    def __init__(self, values: Mapping[str, Any], file: Path) -> None:
        self.values, self.file = values, file

    def size(self, name: str, default: int | None = None) -> int:
        value = self.values.get(name, default)
        if value is None:
            value = default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
            raise DataError(f"{self.file}: `{name}` must be a whole number above 0, but is {value!r}. Copy it again.")
        return value

    def token(self, name: str, default: int | None, vocabulary: int) -> int:
        value = self.values.get(name)
        if isinstance(value, list) and value:
            value = value[0]
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < vocabulary:
            raise DataError(
                f"{self.file}: `{name}` must be the number of one of {vocabulary:,} tokens, but is {value!r}. Name one."
            )
        return value

    def activation(self, name: str, default: str) -> Activation:
        value = self.values.get(name, default)
        if not isinstance(value, str) or value not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise UsageError(f"{self.file}: `{name}` must be one of: {known}; but is {value!r}. There is no way round.")
        return ACTIVATIONS[value]

    def small(self, name: str, default: float) -> float:
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
            raise DataError(f"{self.file}: `{name}` must be a number between 0 and 1, but is {value!r}. Copy it again.")
        return float(value)

    def must(self, name: str, wanted: object, default: object) -> None:
        """Settings that we can only express in one way."""
        value = self.values.get(name, default)
        if value != wanted:
            raise UsageError(
                f"{self.file}: `{name}` must be {wanted!r} to be imported, but is {value!r}. There is no way round."
            )


def describe(folder: Path, theirs: Tensors) -> Described:
    """What a Hugging Face folder holds, by its configuration; `theirs` are its tensors."""
    values = read_json(folder / CONFIG)
    config = _Config(values, folder / CONFIG)
    family = values.get("model_type")
    if family == "gpt2":
        return _describe_gpt2(config)
    if family in ("marian", "blenderbot"):
        return _describe_translator(config, family, theirs)
    raise UsageError(
        f"{folder / CONFIG}: `model_type` must be one of: {', '.join(get_args(Family))}; but is {family!r}. Other "
        "models cannot be imported."
    )


def _describe_gpt2(config: _Config) -> Described:
    width, vocabulary = config.size("n_embd", 768), config.size("vocab_size", 50_257)
    for name, wanted in (("scale_attn_weights", True), ("scale_attn_by_inverse_layer_idx", False),
                         ("add_cross_attention", False)):  # fmt: skip
        config.must(name, wanted, wanted)
    with _settings_of(config.file):
        settings = GPTSettings(
            layers=config.size("n_layer", 12),
            d_model=width,
            d_ff=config.size("n_inner", 4 * width),
            heads=config.size("n_head", 12),
            dropout=_rate(config, "resid_pdrop"),
            activation=config.activation("activation_function", "gelu_new"),
            max_positions=config.size("n_positions", 1024),
            norm_epsilon=config.small("layer_norm_epsilon", EPSILON),
            tied=config.values.get("tie_word_embeddings") is not False,
        )
    end = config.token("eos_token_id", vocabulary - 1, vocabulary)
    start = config.token("bos_token_id", end, vocabulary)
    padding = config.token("pad_token_id", end, vocabulary)
    return Described("gpt2", settings, vocabulary, vocabulary, start, end, padding, config.values)


def _describe_translator(config: _Config, family: Literal["marian", "blenderbot"], theirs: Tensors) -> Described:
    config.must("scale_embedding", True, False)
    config.must("normalize_embedding", False, False)
    for name, default in (("ffn_dim", 4096), ("attention_heads", 16)):
        sizes = [config.size(f"{side}_{name}", default) for side in ("encoder", "decoder")]
        if sizes[0] != sizes[1]:
            raise UsageError(
                f"{config.file}: `encoder_{name}` and `decoder_{name}` must be the same to be imported, but are "
                f"{sizes[0]:,} and {sizes[1]:,}. There is no way round."
            )
    source_vocabulary = config.size("vocab_size", 58_101)
    shared = config.values.get("share_encoder_decoder_embeddings") is not False
    vocabulary = source_vocabulary if shared else config.size("decoder_vocab_size", source_vocabulary)
    width, positions = config.size("d_model", 1024), config.size("max_position_embeddings", POSITIONS)
    learned = family == "blenderbot" and not _are_waves(theirs, positions, width)
    with _settings_of(config.file):
        settings = TransformerSettings(
            d_model=width,
            d_ff=config.size("encoder_ffn_dim", 4096),
            heads=config.size("encoder_attention_heads", 16),
            encoder_layers=config.size("encoder_layers", 12),
            decoder_layers=config.size("decoder_layers", 12),
            dropout=_rate(config, "dropout"),
            norm="post" if family == "marian" else "pre",
            activation=config.activation("activation_function", "gelu"),
            positions="learned" if learned else "sinusoidal",
            max_positions=positions,
            tie=_tie(config, theirs, learned),
            output_bias=_has_bias(theirs),
        )
    end = config.token("eos_token_id", 0, vocabulary)
    padding = config.token("pad_token_id", vocabulary - 1, vocabulary)
    start = config.token("decoder_start_token_id", padding, vocabulary)
    return Described(family, settings, vocabulary, source_vocabulary, start, end, padding, config.values)


class _settings_of:  # noqa: N801
    """Settings that cannot be are the file's mistake."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ValueError | TypeError | OverflowError):
            raise DataError(f"{self.file}: must describe a model that can be built, but {error}.") from error


def _rate(config: _Config, name: str) -> float:
    value = config.values.get(name, 0.1)
    return float(value) if isinstance(value, int | float) else 0.1


def _has_bias(theirs: Tensors) -> bool:
    name = "final_logits_bias"
    return name in theirs and bool((theirs.peek(name) != 0).any())


def _are_waves(theirs: Tensors, positions: int, width: int) -> bool:
    names = [f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")]
    if any(name not in theirs or theirs.shape(name) != (positions, width) for name in names):
        return False
    expected = weights.waves(positions, width)
    return all(torch.equal(theirs.peek(name), expected) for name in names)


def _tie(config: _Config, theirs: Tensors, learned: bool) -> Tie:
    shared = config.values.get("share_encoder_decoder_embeddings") is not False
    tied = config.values.get("tie_word_embeddings") is not False
    if learned:  # each side has positions of its own, which we keep beside its embedding
        same_output = tied or _equal(theirs, "lm_head.weight", "model.decoder.embed_tokens.weight")
        return "target" if same_output else "none"
    if tied:
        return "all" if shared else "target"
    sides = [f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder")]
    same = not all(name in theirs for name in sides) or _equal(theirs, *sides)
    if _equal(theirs, "lm_head.weight", sides[1]):
        return "all" if same else "target"
    return "embeddings" if same else "none"


def _equal(theirs: Tensors, one: str, other: str) -> bool:
    return one in theirs and other in theirs and torch.equal(theirs.peek(one), theirs.peek(other))


def state_in(described: Described, theirs: Tensors) -> dict[str, Tensor]:
    """The tensors of a folder as the state of our model; raises unless every one has its place."""
    settings = described.settings
    _check_layers(settings, theirs)
    if isinstance(settings, GPTSettings):
        return weights.gpt2_in(theirs, settings, described.vocabulary)
    state = _embeddings_in(described, settings, theirs) | weights.bart_layers_in(theirs, settings)
    sides = [f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")]
    theirs.skip("final_logits_bias")
    if settings.positions == "sinusoidal":
        theirs.skip(*sides)  # waves; older versions stored them
    theirs.finish()
    return state if described.family == "blenderbot" else weights.alternating(state, settings.d_model)


def _check_layers(settings: GPTSettings | TransformerSettings, theirs: Tensors) -> None:
    """A configuration may ask for any number of layers; it gets no more than its file has tensors."""
    both = isinstance(settings, TransformerSettings) and settings.encoder_layers + settings.decoder_layers
    asked = settings.layers if isinstance(settings, GPTSettings) else int(both)
    if asked > len(theirs):
        raise DataError(
            f"{theirs.place}: must hold the tensors of {asked:,} layers, which {CONFIG} asks for, but has "
            f"{len(theirs):,} tensors in all. Is it whole?"
        )


def _embeddings_in(described: Described, settings: TransformerSettings, theirs: Tensors) -> dict[str, Tensor]:
    width, vocabulary, reads = settings.d_model, described.vocabulary, described.source_vocabulary
    shared, output = "model.shared.weight", "lm_head.weight"
    source, target = (f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder"))
    if target not in theirs:  # files keep what is tied once, under one name or another
        target = shared if shared in theirs else output
    if source not in theirs:
        source = shared if shared in theirs else target
    state = {"embedding.table.weight": theirs.take(target, vocabulary, width)}
    if settings.tie in ("target", "none"):
        state["own_source_embedding.table.weight"] = theirs.take(source, reads, width)
    else:
        theirs.skip_copies(target, source)
    if settings.tie in ("embeddings", "none"):
        state["output.weight"] = theirs.take(output, vocabulary, width)
    else:
        theirs.skip_copies(target, output)
    theirs.skip_copies(source, shared)
    if settings.output_bias:
        name = "tied_bias_V" if settings.tie in ("all", "target") else "output.bias"
        state[name] = theirs.take("final_logits_bias", 1, vocabulary)[0]
    if settings.positions == "learned":
        for side, ours in (("encoder", "own_source_embedding"), ("decoder", "embedding")):
            table = theirs.take(f"model.{side}.embed_positions.weight", settings.max_positions, width)
            state[f"{ours}.positions.table.weight"] = table
    return state


# ---- out


def lacking(settings: ModelSettings) -> list[str]:
    """What of these settings transformers cannot express, each by its name; empty if it can express all."""
    if settings.kind not in ("gpt", "transformer"):
        return [f'kind = "{settings.kind}"']
    assert isinstance(settings, GPTSettings | TransformerSettings)
    sizes, found = settings.layer_sizes(), []
    if settings.window is not None:
        found.append(f"window = {settings.window}")
    if settings.experts > 1:
        found.append(f"experts = {settings.experts}")
    if settings.qk_norm:
        found.append("qk_norm = true")
    if sizes.heads * sizes.d_k != sizes.d_model:
        found.append(f"d_k = {sizes.d_k} (only d_model / heads can be expressed)")
    if sizes.d_v != sizes.d_k:
        found.append(f"d_v = {sizes.d_v} (only d_k can be expressed)")
    if settings.activation not in WRITTEN:
        found.append(f'activation = "{settings.activation}"')
    if settings.ends_in_norm != (settings.norm == "pre"):
        found.append(f'final_norm = {str(settings.final_norm).lower()} with norm = "{settings.norm}"')
    if isinstance(settings, GPTSettings):
        if settings.positions != "learned":
            found.append(f'positions = "{settings.positions}" (GPT-2 has learned ones)')
        if settings.norm != "pre":
            found.append(f'norm = "{settings.norm}" (GPT-2 has pre-norm)')
        return found
    allowed = ("sinusoidal",) if settings.norm == "post" else ("sinusoidal", "learned")
    if settings.positions not in allowed:
        found.append(f'positions = "{settings.positions}" with norm = "{settings.norm}"')
    if not settings.reads_end:
        found.append("reads_end = false")
    if settings.norm_epsilon != EPSILON:
        found.append(f"norm_epsilon = {settings.norm_epsilon:g} (only {EPSILON:g} can be expressed)")
    return found


def state_out(settings: GPTSettings | TransformerSettings, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our state under transformers' names."""
    if isinstance(settings, GPTSettings):
        return weights.gpt2_out(ours, settings)
    if settings.norm == "post":
        ours = weights.halves_first(ours, settings.d_model)
    theirs = weights.bart_layers_out(ours, settings)
    target = ours["embedding.table.weight"]
    source = ours.get("own_source_embedding.table.weight", target)
    output = ours.get("output.weight", target)
    if settings.tie == "all":
        theirs["model.shared.weight"] = target
    else:
        theirs |= {"model.encoder.embed_tokens.weight": source, "model.decoder.embed_tokens.weight": target}
        if settings.tie != "target" or settings.norm == "pre":
            theirs["lm_head.weight"] = output
        if settings.norm == "pre":
            theirs["model.shared.weight"] = source
    bias = ours.get("tied_bias_V", ours.get("output.bias"))
    theirs["final_logits_bias"] = (torch.zeros(len(output)) if bias is None else bias)[None]
    if settings.norm == "pre":
        tables = {"encoder": ours.get("own_source_embedding.positions.table.weight"), "decoder": None}
        for side, own in tables.items():
            table = ours.get("embedding.positions.table.weight") if own is None else own
            table = weights.waves(POSITIONS, settings.d_model) if table is None else table
            theirs[f"model.{side}.embed_positions.weight"] = table
    # Each under its own memory: safetensors refuses to write one tensor twice.
    return {name: tensor.detach().clone().contiguous() for name, tensor in theirs.items()}


def config_out(
    settings: GPTSettings | TransformerSettings, vocabulary: int, source_vocabulary: int, specials: Specials
) -> dict[str, Any]:
    """The content of `config.json`."""
    tokens = {"bos_token_id": specials.start, "eos_token_id": specials.end, "pad_token_id": specials.padding}
    if isinstance(settings, GPTSettings):
        return {
            "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": vocabulary,
            "n_layer": settings.layers, "n_embd": settings.d_model, "n_head": settings.heads,
            "n_inner": settings.d_ff, "n_positions": settings.max_positions, "n_ctx": settings.max_positions,
            "activation_function": WRITTEN[settings.activation], "layer_norm_epsilon": settings.norm_epsilon,
            "attn_pdrop": settings.dropout, "embd_pdrop": settings.dropout, "resid_pdrop": settings.dropout,
            "tie_word_embeddings": settings.tied, "dtype": "float32", **tokens,
        }  # fmt: skip
    marian = settings.norm == "post"
    config: dict[str, Any] = {
        "architectures": ["MarianMTModel" if marian else "BlenderbotForConditionalGeneration"],
        "model_type": "marian" if marian else "blenderbot",
        "vocab_size": source_vocabulary, "d_model": settings.d_model, "is_encoder_decoder": True,
        "activation_function": WRITTEN[settings.activation], "scale_embedding": True,
        "dropout": settings.dropout, "attention_dropout": 0.0, "activation_dropout": 0.0,
        "max_position_embeddings": settings.limit or POSITIONS, "dtype": "float32",
        "decoder_start_token_id": specials.start, "forced_eos_token_id": None, **tokens,
    }  # fmt: skip
    for side, layers in (("encoder", settings.encoder_layers), ("decoder", settings.decoder_layers)):
        config |= {f"{side}_layers": layers, f"{side}_ffn_dim": settings.d_ff}
        config[f"{side}_attention_heads"] = settings.heads
    if marian:
        config |= {"decoder_vocab_size": vocabulary, "share_encoder_decoder_embeddings": settings.tie == "all"}
        config["tie_word_embeddings"] = settings.tie in ("all", "target")
    else:
        config |= {"tie_word_embeddings": settings.tie == "all", "encoder_no_repeat_ngram_size": 0}
    return config


def generation_out(
    settings: GPTSettings | TransformerSettings, specials: Specials, search: SearchSettings
) -> dict[str, Any]:
    """The content of `generation_config.json`: how `generate` searches, and how much it writes, unless told otherwise.

    transformers divides by length^α, whatever our penalty is; "never" stops where ours does. A translation may be as
    long as the model allows, a text as long as `regard generate` writes it. That is said in new tokens: to whoever asks
    for `max_new_tokens`, as one should, transformers complains of any `max_length` in this file.
    """
    never = sorted(specials.unwritten)
    config: dict[str, Any] = {
        "bos_token_id": specials.start, "eos_token_id": specials.end, "pad_token_id": specials.padding,
    }  # fmt: skip
    if never:
        config["suppress_tokens"] = never
    if isinstance(settings, GPTSettings):
        return config | {"max_new_tokens": min(SamplingSettings().max_tokens, settings.max_positions // 2)}
    config["max_new_tokens"] = (settings.limit or POSITIONS) - 1
    config["decoder_start_token_id"] = specials.start
    config |= {"num_beams": search.beam, "do_sample": False}
    if search.beam > 1:
        config["length_penalty"] = 0.0 if search.penalty == "none" else search.alpha
        config["early_stopping"] = "never"
    return config
