"""To ONNX: an encoder and a decoder that keeps its keys and values, in files that onnxruntime reads.

Shapes: B sentences, R texts that are being written (B, or its beams), S source tokens, T new target tokens, P earlier
ones, K = P + T, H heads, E head size, V vocabulary.

    encoder.onnx   tokens_BS, positions_BS, mask_B1QS → source_key_0_BHSE, source_value_0_BHSE, …
    decoder.onnx   tokens_RT, positions_RT, mask_R1TK, source_mask_B1QS, past_key_0_RHPE, past_value_0_RHPE, …,
                   source_key_0_BHSE, … → scores_RTV, key_0_RHKE, value_0_RHKE, …
                   and seen_RK, the positions of all tokens so far, where distances are told (`relative`, `alibi`)

A mask is 0 where a token may look and -inf where not. R may be a multiple of B: neighbouring texts, the beams of a
sentence, then share its source. A language model has decoder.onnx alone, without anything of a source.
Rotary keys are kept turned.

`regard.interop.onnx_graph` puts the graphs together, node by node.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from regard import settings as toml
from regard.engines.onnx import COMPARED, DECODER, ENCODER
from regard.errors import UsageError
from regard.files import write_file
from regard.folder import RECIPE, TOKENIZER, Loaded
from regard.interop.onnx_graph import Graph
from regard.interop.weights import as_trained
from regard.layers.block import DecoderLayer, EncoderLayer
from regard.models.build import ModelSettings
from regard.models.gpt import GPT, GPTSettings
from regard.models.transformer import Transformer, TransformerSettings

Numbers = Literal["float32", "int8"]


def lacking(settings: ModelSettings) -> list[str]:
    """What of these settings is not exported to ONNX, each by its name; empty if all is."""
    if not isinstance(settings, TransformerSettings | GPTSettings) or settings.kind not in ("transformer", "gpt"):
        return [f'kind = "{settings.kind}"']
    if settings.positions == "relative-waves":
        return [f'positions = "{settings.positions}"']
    if isinstance(settings, TransformerSettings) and not settings.reads_end:
        return ["reads_end = false"]
    if settings.experts > 1:
        return [f"experts = {settings.experts}"]
    return []


def write(loaded: Loaded, folder: Path, numbers: Numbers = "float32") -> None:
    """Write the model into `folder`, which is there and empty."""
    if numbers not in (known := get_args(Numbers)):
        raise UsageError(f"export: numbers must be one of: {', '.join(known)}; but are `{numbers}`.")
    if missing := lacking(loaded.recipe.model):
        raise UsageError(
            f"export: ONNX must be able to take every setting of the model, but does not yet: {', '.join(missing)}. "
            "Use the model with Regard itself, or train one without."
        )
    _needed()
    model = as_trained(loaded)
    if isinstance(model, Transformer):
        _encoder(model).save(folder / ENCODER)
        _decoder(model, model.decoder_layers, numbers).save(folder / DECODER)
    else:
        layers = [layer for layer in model.layers if isinstance(layer, EncoderLayer)]
        _decoder(model, layers, numbers).save(folder / DECODER)
    write_file(folder / RECIPE, toml.to_toml(loaded.recipe))
    write_file(folder / TOKENIZER, loaded.tokenizer.to_json())


def _needed() -> None:
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise UsageError("export: needs onnx, but it is not installed. Install it: pip install 'regard[export]'") from (
            error
        )


def _encoder(model: Transformer) -> Graph:
    graph = Graph("encoder")
    tokens = graph.input("tokens", "INT64", ["B", "S"])
    positions = graph.input("positions", "INT64", ["B", "S"])
    mask = graph.input("mask", "FLOAT", ["M", 1, "Q", "S"])
    x = graph.embed(tokens, positions, model.own_source_embedding or model.embedding)
    layers = [layer for layer in model.encoder.layers if isinstance(layer, EncoderLayer)]
    mask = graph.place(layers[0].attention, positions, positions, mask)
    for layer in layers:
        query, keys, values = graph.offer_and_ask(layer.attention, graph.enter(layer.around_attention, x))
        x = graph.leave(layer.around_attention, x, graph.attend(layer.attention, query, keys, values, mask))
        y = graph.feedforward(layer.feedforward, graph.enter(layer.around_feedforward, x))
        x = graph.leave(layer.around_feedforward, x, y)
    x = graph.norm(model.encoder.norm, x)
    for number, decoder_layer in enumerate(model.decoder_layers):
        cross = decoder_layer.cross_attention
        keys, values = graph.keys_values(cross, x)
        graph.output(keys, f"source_key_{number}", "FLOAT", ["B", cross.heads, "S", cross.d_k])
        graph.output(values, f"source_value_{number}", "FLOAT", ["B", cross.heads, "S", cross.d_v])
    return graph


def _decoder(
    model: Transformer | GPT, layers: Sequence[DecoderLayer | EncoderLayer], numbers: Numbers = "float32"
) -> Graph:
    graph = Graph("decoder", quantised=numbers == "int8")
    tokens = graph.input("tokens", "INT64", ["R", "T"])
    positions = graph.input("positions", "INT64", ["R", "T"])
    mask = graph.input("mask", "FLOAT", ["M", 1, "T", "K"])
    source_mask = graph.input("source_mask", "FLOAT", ["N", 1, "Q", "S"]) if model.reads_source else ""
    seen = graph.input("seen", "INT64", ["R", "K"]) if model.settings.positions in COMPARED else ""
    x = graph.embed(tokens, positions, model.embedding)
    mask = graph.place(layers[0].attention, positions, seen, mask)
    for number, layer in enumerate(layers):
        own = layer.attention
        query, *new = graph.offer_and_ask(own, graph.enter(layer.around_attention, x))
        kept = []
        for part, size, values in zip(("key", "value"), (own.d_k, own.d_v), new, strict=True):
            past = graph.input(f"past_{part}_{number}", "FLOAT", ["R", own.heads, "P", size])
            kept.append(graph.op("Concat", past, values, axis=2))
            graph.output(kept[-1], f"{part}_{number}", "FLOAT", ["R", own.heads, "K", size])
        x = graph.leave(layer.around_attention, x, graph.attend(own, query, kept[0], kept[1], mask))
        if isinstance(layer, DecoderLayer):
            cross = layer.cross_attention
            keys = graph.input(f"source_key_{number}", "FLOAT", ["B", cross.heads, "S", cross.d_k])
            values = graph.input(f"source_value_{number}", "FLOAT", ["B", cross.heads, "S", cross.d_v])
            query = graph.ask(cross, graph.enter(layer.around_cross_attention, x), "source_key_0")
            y = graph.attend(cross, query, keys, values, source_mask, tokens)
            x = graph.leave(layer.around_cross_attention, x, y)
        y = graph.feedforward(layer.feedforward, graph.enter(layer.around_feedforward, x))
        x = graph.leave(layer.around_feedforward, x, y)
    x = graph.norm(model.decoder_norm if isinstance(model, Transformer) else model.norm, x)
    graph.output(graph.project(x, *model.output_matrix()), "scores", "FLOAT", ["R", "T", model.vocabulary])
    return graph
