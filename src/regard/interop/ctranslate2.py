"""To CTranslate2: a folder that its Translator (encoder-decoder) or Generator (GPT) reads.

Weights go out as float32, int16 or int8; the latter two by CTranslate2's own quantiser: int8 has a scale for each row
of a matrix, int16 one for all of it. Positions are written out as a table: CTranslate2 knows the paper's waves only
with all sines before all cosines, and ours alternate. Rotary positions need none: it turns queries and keys as we do,
however long the text. Beside its files the folder holds `recipe.toml` and `tokenizer.json`, so that `regard translate`
can read it, and the model's card.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from regard import settings as toml
from regard.decoding.penalties import aligning_layer
from regard.engines.loading import LIMIT
from regard.errors import UsageError
from regard.files import write_file
from regard.folder import RECIPE, TOKENIZER, Loaded
from regard.interop.weights import as_trained
from regard.layers.block import DecoderLayer, EncoderLayer, Residual
from regard.layers.feedforward import FeedForward
from regard.layers.positions import WAVELENGTH, RotaryPositions
from regard.models.build import ModelSettings
from regard.models.gpt import GPT, GPTSettings
from regard.models.transformer import StackSettings, Transformer, TransformerSettings
from regard.text.tokenizer import Tokenizer

Numbers = Literal["float32", "int16", "int8"]
POSITIONS = 2_048  # written out where a model has no limit of its own
ACTIVATIONS = {
    "relu": "RELU", "relu2": "RELU", "gelu": "GELU", "gelu-tanh": "GELUTanh", "swish": "SWISH", "swiglu": "SWISH",
}  # fmt: skip
GATED = ("swiglu", "relu2")  # it has no square; but relu(x)² = relu(x)·x, a gate that opens for itself


def lacking(settings: ModelSettings) -> list[str]:
    """What of these settings CTranslate2 cannot express, each by its name; empty if it can express all."""
    if not isinstance(settings, TransformerSettings | GPTSettings) or settings.kind not in ("transformer", "gpt"):
        return [f'kind = "{settings.kind}"']
    found = []
    if settings.positions not in ("sinusoidal", "learned", "rotary"):
        found.append(f'positions = "{settings.positions}"')
    if settings.window is not None:
        found.append(f"window = {settings.window}")
    if settings.experts > 1:
        found.append(f"experts = {settings.experts}")
    if settings.qk_norm:
        found.append("qk_norm = true")
    if settings.norm == "post" and settings.final_norm:
        found.append('final_norm = true with norm = "post"')
    if settings.norm == "pre" and settings.final_norm is False:
        found.append('final_norm = false with norm = "pre"')
    if isinstance(settings, TransformerSettings) and not settings.reads_end:
        found.append("reads_end = false")
    sizes = settings.layer_sizes()
    if sizes.heads * sizes.d_k != sizes.d_model:
        found.append(f"d_k = {sizes.d_k} (CTranslate2 needs d_model / heads)")
    if sizes.d_v != sizes.d_k:
        found.append(f"d_v = {sizes.d_v} (CTranslate2 needs d_k)")
    return found


def write(loaded: Loaded, folder: Path, numbers: Numbers = "float32") -> None:
    """Write the model into `folder`, which is there and empty."""
    if numbers not in (known := get_args(Numbers)):
        raise UsageError(f"export: numbers must be one of: {', '.join(known)}; but are `{numbers}`.")
    if missing := lacking(loaded.recipe.model):
        raise UsageError(
            f"export: CTranslate2 must be able to express every setting, but has nothing for: {', '.join(missing)}. "
            "Use --to onnx, or train a model without."
        )
    _needed()
    model = as_trained(loaded)
    spec = _transformer(model, loaded.tokenizer) if isinstance(model, Transformer) else _gpt(model, loaded.tokenizer)
    spec.config.layer_norm_epsilon = model.settings.norm_epsilon
    if (limit := _limit(model.settings)) is not None:
        spec.config.add_attribute(LIMIT, limit)
    spec.validate()
    spec.optimize(quantization=None if numbers == "float32" else numbers)
    spec.save(str(folder))
    write_file(folder / RECIPE, toml.to_toml(loaded.recipe))
    write_file(folder / TOKENIZER, loaded.tokenizer.to_json())


def _needed() -> None:
    try:
        import ctranslate2  # noqa: F401
    except ImportError as error:
        raise UsageError(
            "export: needs CTranslate2, but it is not installed. Install it: pip install 'regard[export]'"
        ) from error


def _transformer(model: Transformer, tokenizer: Tokenizer) -> Any:
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation

    settings = model.settings
    spec = TransformerSpec.from_config(
        (settings.encoder_layers, settings.decoder_layers),
        settings.heads,
        pre_norm=settings.norm == "pre",
        no_final_norm=settings.final_norm is False,
        activation=Activation[ACTIVATIONS[settings.activation]],
        alignment_layer=aligning_layer(settings.decoder_layers),  # and of it the mean of all heads, as our own
        alignment_heads=0,
        ffn_glu=settings.activation in GATED,
    )
    source = model.own_source_embedding or model.embedding
    _embedding(spec.encoder, spec.encoder.embeddings[0], source, settings)
    _embedding(spec.decoder, spec.decoder.embeddings, model.embedding, settings)
    for part, layer in zip(spec.encoder.layer, model.encoder.layers, strict=True):
        assert isinstance(layer, EncoderLayer)
        _self_attention(part, layer)
        _feedforward(part, layer)
    for part, layer in zip(spec.decoder.layer, model.decoder_layers, strict=True):
        _self_attention(part, layer)
        cross = layer.cross_attention
        _norm(part.attention.layer_norm, layer.around_cross_attention)
        for linear, mine in zip(part.attention.linear, (cross.query, cross.key_value, cross.output), strict=True):
            _linear(linear, mine.weight, mine.bias)
        _feedforward(part, layer)
    _last_norm(spec.encoder, model.encoder.norm)
    _last_norm(spec.decoder, model.decoder_norm)
    _linear(spec.decoder.projection, *model.output_matrix())
    spec.register_source_vocabulary(list(tokenizer.source.tokens))
    spec.register_target_vocabulary(list(tokenizer.tokens))
    _specials(spec.config, tokenizer)
    spec.config.decoder_start_token = spec.config.bos_token
    spec.config.add_source_eos = True
    return spec


def _gpt(model: GPT, tokenizer: Tokenizer) -> Any:
    from ctranslate2.specs import TransformerDecoderModelSpec
    from ctranslate2.specs.common_spec import Activation

    settings = model.settings
    spec = TransformerDecoderModelSpec.from_config(
        settings.layers,
        settings.heads,
        pre_norm=settings.norm == "pre",
        no_final_norm=settings.final_norm is False,
        activation=Activation[ACTIVATIONS[settings.activation]],
        ffn_glu=settings.activation in GATED,
    )
    _embedding(spec.decoder, spec.decoder.embeddings, model.embedding, settings)
    for part, layer in zip(spec.decoder.layer, model.layers, strict=True):
        assert isinstance(layer, EncoderLayer)
        _self_attention(part, layer)
        _feedforward(part, layer)
    _last_norm(spec.decoder, model.norm)
    _linear(spec.decoder.projection, *model.output_matrix())
    spec.register_vocabulary(list(tokenizer.tokens))
    _specials(spec.config, tokenizer)
    return spec


def _specials(config: Any, tokenizer: Tokenizer) -> None:
    words, specials = tokenizer.tokens, tokenizer.specials
    config.bos_token, config.eos_token = words[specials.start], words[specials.end]
    # CTranslate2 wants an unknown token; vocabularies of bytes have none, and never meet it.
    config.unk_token = words[specials.padding if tokenizer.unknown is None else tokenizer.unknown]


def _limit(settings: StackSettings) -> int | None:
    """How many positions are written out; None of rotary ones, which are computed where they are needed."""
    return None if settings.positions == "rotary" else settings.limit or POSITIONS


def _embedding(stack: Any, spec: Any, embedding: Any, settings: StackSettings) -> None:
    spec.weight = _numbers(embedding.weight_VD)
    stack.scale_embeddings = embedding.scale != 1.0
    if (limit := _limit(settings)) is None:
        del stack.position_encodings
        return
    places_1T = torch.arange(limit)[None]
    with torch.no_grad():
        stack.position_encodings.encodings = _numbers(embedding.positions(places_1T)[0])


def _self_attention(spec: Any, layer: EncoderLayer | DecoderLayer) -> None:
    attention = layer.attention
    if isinstance(attention.positions, RotaryPositions):
        spec.self_attention = _rotary(attention.d_k)
    _norm(spec.self_attention.layer_norm, layer.around_attention)
    joint = [torch.cat([getattr(attention.query, part), getattr(attention.key_value, part)])
             for part in ("weight", "bias")]  # fmt: skip
    _linear(spec.self_attention.linear[0], *joint)
    _linear(spec.self_attention.linear[1], attention.output.weight, attention.output.bias)


def _rotary(d_k: int) -> Any:
    """A self-attention that turns pairs of neighbours, as ours; `TransformerSpec.from_config` has no word for it."""
    from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec

    return MultiHeadAttentionSpec(self_attention=True, rotary_dim=d_k, rotary_interleave=True, rotary_base=WAVELENGTH)


def _feedforward(spec: Any, layer: EncoderLayer | DecoderLayer) -> None:
    network = layer.feedforward
    assert isinstance(network, FeedForward)  # `lacking` refuses experts
    _norm(spec.ffn.layer_norm, layer.around_feedforward)
    weight: Tensor = network.inner.weight
    bias: Tensor = network.inner.bias
    if network.activation in GATED:
        second, second_bias = weight, bias  # the same numbers twice, which `optimize` stores once
        if network.activation == "swiglu":
            (weight, second), (bias, second_bias) = weight.chunk(2), bias.chunk(2)
        _linear(spec.ffn.linear_0_noact, second, second_bias)
    _linear(spec.ffn.linear_0, weight, bias)
    _linear(spec.ffn.linear_1, network.outer.weight, network.outer.bias)


def _last_norm(spec: Any, norm: nn.Module) -> None:
    if isinstance(norm, nn.LayerNorm):
        spec.layer_norm.gamma, spec.layer_norm.beta = _numbers(norm.weight), _numbers(norm.bias)


def _norm(spec: Any, around: Residual) -> None:
    spec.gamma, spec.beta = _numbers(around.norm.weight), _numbers(around.norm.bias)


def _linear(spec: Any, weight_OI: Tensor, bias_O: Tensor | None) -> None:
    spec.weight = _numbers(weight_OI)
    if bias_O is not None:
        spec.bias = _numbers(bias_O)


def _numbers(tensor: Tensor) -> Tensor:
    """A copy: the quantiser writes into what it is given."""
    return tensor.detach().float().cpu().clone().contiguous()
