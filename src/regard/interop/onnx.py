"""To ONNX: an encoder and a decoder that keeps its keys and values, in files that onnxruntime reads.

Shapes: B sentences, R texts that are being written (B, or its beams), S source tokens, T new target tokens, P earlier
ones, K = P + T, H heads, E head size, V vocabulary.

    encoder.onnx   tokens_BS, positions_BS, mask_B1QS → source_key_0_BHSE, source_value_0_BHSE, …
    decoder.onnx   tokens_RT, positions_RT, mask_R1TK, source_mask_B1QS, past_key_0_RHPE, past_value_0_RHPE, …,
                   source_key_0_BHSE, … → scores_RTV, key_0_RHKE, value_0_RHKE, …

A mask is 0 where a token may look and -inf where not. R may be a multiple of B: neighbouring texts, the beams of a
sentence, then share its source. A language model has decoder.onnx alone, without anything of a source.

The graphs are put together here, node by node: what they compute can be read off, and no exporter has to guess it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from regard import settings as toml
from regard.engines.onnx import DECODER, ENCODER, NUMBERS
from regard.errors import UsageError
from regard.files import write_file
from regard.folder import RECIPE, TOKENIZER, Loaded
from regard.interop.weights import as_trained
from regard.layers.attention import Attention
from regard.layers.block import DecoderLayer, EncoderLayer, Residual
from regard.layers.embedding import Embedding
from regard.layers.feedforward import FeedForward
from regard.layers.positions import LearnedPositions, SinusoidalPositions
from regard.models.build import ModelSettings
from regard.models.gpt import GPT, GPTSettings
from regard.models.transformer import Transformer, TransformerSettings

Numbers = Literal["float32", "int8"]
OPSET = 20  # the first with Gelu
BLOCK, LEVELS, MIDDLE = 128, 127, 128  # numbers that share a scale, and how they are written in 8 bits
LARGEST = 2**30  # bytes of weights inside a graph's file; larger ones get a file beside it


def lacking(settings: ModelSettings) -> list[str]:
    """What of these settings is not exported to ONNX, each by its name; empty if all is."""
    if not isinstance(settings, TransformerSettings | GPTSettings) or settings.kind not in ("transformer", "gpt"):
        return [f'kind = "{settings.kind}"']
    if settings.positions not in ("sinusoidal", "learned"):
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
    for layer in model.encoder.layers:
        assert isinstance(layer, EncoderLayer)
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
    x = graph.embed(tokens, positions, model.embedding)
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


class Graph:
    """A graph in the making. Values are known by their names; each method adds nodes and names their result."""

    def __init__(self, name: str, quantised: bool = False) -> None:
        self.name, self.quantised = name, quantised
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.weights: dict[str, Any] = {}
        self.beside = self.apart = ""  # shapes that all layers share: beams side by side, and each by itself
        self.tensors: list[Tensor] = []  # kept alive: a weight is known by where it lies in memory

    def save(self, file: Path) -> None:
        """Write the graph; weights of more than a gigabyte into a file beside it."""
        import onnx
        from onnx import helper

        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, list(self.weights.values()))
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)][: 1 + self.quantised]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="regard")
        model.ir_version = 9
        helper.set_model_props(model, {NUMBERS: "int8" if self.quantised else "float32"})
        beside = sum(tensor.nbytes for tensor in self.tensors) > LARGEST
        onnx.save_model(
            model, str(file), save_as_external_data=beside, location=f"{file.name}.data" if beside else None
        )

    def input(self, name: str, kind: str, shape: Sequence[str | int]) -> str:
        """A value that whoever runs the graph hands over."""
        self.inputs.append(_described(name, kind, shape))
        return name

    def output(self, value: str, name: str, kind: str, shape: Sequence[str | int]) -> None:
        """A value that whoever runs the graph gets back."""
        self.nodes.append(_node("Identity", [value], name))
        self.outputs.append(_described(name, kind, shape))

    def op(self, kind: str, *values: str, **attributes: Any) -> str:
        """One node."""
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(_node(kind, list(values), name, **attributes))
        return name

    def split(self, x: str, sizes: Sequence[int]) -> list[str]:
        """Parts of these sizes of the last dimension."""
        from onnx import helper

        names = [f"Split_{len(self.nodes)}_{part}" for part in range(len(sizes))]
        self.nodes.append(helper.make_node("Split", [x, self.numbers(list(sizes))], names, axis=-1))
        return names

    def weight(self, tensor: Tensor) -> str:
        """A constant; the same tensor is stored once."""
        from onnx import numpy_helper

        name = f"w{tensor.data_ptr()}_{'x'.join(map(str, tensor.shape))}_{'x'.join(map(str, tensor.stride()))}"
        if name not in self.weights:
            self.weights[name] = numpy_helper.from_array(tensor.detach().cpu().contiguous().numpy(), name)
            self.tensors.append(tensor)
        return name

    def numbers(self, values: Sequence[int] | float) -> str:
        """A small constant: whole numbers in a row, or one that need not be whole."""
        from onnx import numpy_helper

        name = f"c{values}"
        kind = torch.float32 if isinstance(values, float) else torch.int64
        self.weights.setdefault(name, numpy_helper.from_array(torch.tensor(values, dtype=kind).numpy(), name))
        return name

    def embed(self, tokens: str, positions: str, embedding: Embedding) -> str:
        """E[tokens]·√d_model + positions, or without the root where the model has none."""
        x = self.op("Gather", self.weight(embedding.weight_VD), tokens)
        if embedding.scale != 1.0:
            x = self.op("Mul", x, self.numbers(embedding.scale))
        match embedding.positions:
            case SinusoidalPositions() as waves:
                places = self.op("Unsqueeze", self.op("Cast", positions, to=1), self.numbers([2]))
                angles = self.op("Mul", places, self.weight(waves.frequencies_D.float()))
                pairs = [self.op("Unsqueeze", self.op(kind, angles), self.numbers([3])) for kind in ("Sin", "Cos")]
                flat = self.op("Concat", self.op("Shape", positions), self.numbers([-1]), axis=0)
                added = self.op("Reshape", self.op("Concat", *pairs, axis=3), flat)
                if waves.d_model % 2:
                    ends = (self.numbers([0]), self.numbers([waves.d_model]), self.numbers([2]))
                    added = self.op("Slice", added, *ends)
            case LearnedPositions() as learned:
                added = self.op("Gather", self.weight(learned.table.weight), positions)
            case _:
                raise UsageError("export: ONNX needs positions that are added to the embedding, but these are not.")
        return self.op("Add", x, added)

    def linear(self, x: str, weight_OI: Tensor, bias_O: Tensor | None) -> str:
        """x·Wᵀ + b."""
        if self.quantised and weight_OI.shape[1] % BLOCK == 0:
            return self._small_linear(x, weight_OI, bias_O)
        y = self.op("MatMul", x, self.weight(weight_OI.detach().T))
        return y if bias_O is None else self.op("Add", y, self.weight(bias_O))

    def _small_linear(self, x: str, weight_OI: Tensor, bias_O: Tensor | None) -> str:
        """The same in 8 bits: a scale for each block of a row, of the weights here and of the input when it comes."""
        outputs, inputs = weight_OI.shape
        blocks_ONb = weight_OI.detach().float().unflatten(1, (-1, BLOCK))
        scales_ON = blocks_ONb.abs().amax(dim=-1).clamp(min=torch.finfo(torch.float).tiny * LEVELS) / LEVELS
        whole_ONb = (blocks_ONb / scales_ON[..., None]).round().add(MIDDLE).to(torch.uint8)
        weights = [self.weight(whole_ONb), self.weight(scales_ON.flatten()), "", ""]
        bias = [] if bias_O is None else [self.weight(bias_O)]
        return self.op(
            "MatMulNBits", x, *weights, *bias, domain="com.microsoft",
            K=inputs, N=outputs, bits=8, block_size=BLOCK, accuracy_level=4,
        )  # fmt: skip

    def project(self, x: str, weight_VD: Tensor, bias_V: Tensor | None) -> str:
        """Features times the output matrix, which may be the embedding and is stored as such."""
        if self.quantised and weight_VD.shape[1] % BLOCK == 0:
            return self._small_linear(x, weight_VD, bias_V)
        rows = self.op("Reshape", x, self.numbers([-1, weight_VD.shape[1]]))
        bias = [] if bias_V is None else [self.weight(bias_V)]
        scores = self.op("Gemm", rows, self.weight(weight_VD), *bias, transB=1)
        first = self.op("Slice", self.op("Shape", x), self.numbers([0]), self.numbers([2]))
        return self.op("Reshape", scores, self.op("Concat", first, self.numbers([-1]), axis=0))

    def norm(self, norm: nn.Module, x: str) -> str:
        """A layer norm, or nothing where there is none."""
        if not isinstance(norm, nn.LayerNorm):
            return x
        weights = self.weight(norm.weight), self.weight(norm.bias)
        return self.op("LayerNormalization", x, *weights, axis=-1, epsilon=norm.eps)

    def enter(self, around: Residual, x: str) -> str:
        """What a sub-layer reads."""
        return self.norm(around.norm, x) if around.pre else x

    def leave(self, around: Residual, x: str, y: str) -> str:
        """`x` went around the sub-layer, `y` through it."""
        joined = self.op("Add", x, y)
        return joined if around.pre else self.norm(around.norm, joined)

    def keys_values(self, attention: Attention, x: str) -> tuple[str, str]:
        """The keys and values that `x` offers to others: [rows, H, tokens, E]."""
        sizes = [attention.d_k, attention.d_v]
        joint = self.linear(x, attention.key_value.weight, attention.key_value.bias)
        parts = self.split(joint, [attention.heads * size for size in sizes])
        keys, values = (
            self._heads(part, self.numbers([0, 0, attention.heads, size]))
            for part, size in zip(parts, sizes, strict=True)
        )
        return keys, values

    def offer_and_ask(self, attention: Attention, x: str) -> tuple[str, str, str]:
        """Of a sentence that attends to itself, queries, keys and values in one product: [rows, H, tokens, E] each."""
        weight, bias = self._query(attention)
        joint = self.linear(
            x, torch.cat([weight, attention.key_value.weight]), torch.cat([bias, attention.key_value.bias])
        )
        sizes = [attention.d_k, attention.d_k, attention.d_v]
        parts = self.split(joint, [attention.heads * size for size in sizes])
        query, keys, values = (
            self._heads(part, self.numbers([0, 0, attention.heads, size]))
            for part, size in zip(parts, sizes, strict=True)
        )
        return query, keys, values

    def ask(self, attention: Attention, x: str, keys: str) -> str:
        """Queries to keys of as many rows or fewer: beams that share a source stand side by side, [B, H, n·T, E]."""
        if not self.beside:  # the same for every layer
            rows = self.op("Slice", self.op("Shape", keys), self.numbers([0]), self.numbers([1]))
            self.beside = self.op("Concat", rows, self.numbers([-1, attention.heads, attention.d_k]), axis=0)
        return self._heads(self.linear(x, *self._query(attention)), self.beside)

    def attend(self, attention: Attention, query: str, keys: str, values: str, mask: str, like: str = "") -> str:
        """softmax(Q·Kᵀ / √d_k + mask)·V, all heads together, times W_O; with as many rows and tokens as `like` has."""
        scores = self.op("MatMul", query, self.op("Transpose", keys, perm=[0, 1, 3, 2]))
        weights = self.op("Softmax", self.op("Add", scores, mask), axis=-1)
        heads = self.op("Transpose", self.op("MatMul", weights, values), perm=[0, 2, 1, 3])
        width = attention.heads * attention.d_v
        shape = self.numbers([0, 0, width])
        if like:
            self.apart = self.apart or self.op("Concat", self.op("Shape", like), self.numbers([width]), axis=0)
            shape = self.apart
        return self.linear(self.op("Reshape", heads, shape), attention.output.weight, attention.output.bias)

    @staticmethod
    def _query(attention: Attention) -> tuple[Tensor, Tensor]:
        """W_Q / √d_k and its bias: the root in the weights is one node less in every step."""
        shrink = 1 / math.sqrt(attention.d_k)
        return attention.query.weight.detach() * shrink, attention.query.bias.detach() * shrink

    def feedforward(self, network: nn.Module, x: str) -> str:
        """Two linear maps with a non-linearity between."""
        assert isinstance(network, FeedForward)  # `lacking` refuses experts
        y = self.linear(x, network.inner.weight, network.inner.bias)
        match network.activation:
            case "relu":
                y = self.op("Relu", y)
            case "relu2":
                y = self.op("Relu", y)
                y = self.op("Mul", y, y)
            case "gelu" | "gelu-tanh":
                y = self.op("Gelu", y, approximate="tanh" if network.activation == "gelu-tanh" else "none")
            case "swish":
                y = self.op("Mul", y, self.op("Sigmoid", y))
            case "swiglu":
                gate, value = self.split(y, [network.outer.in_features] * 2)
                y = self.op("Mul", self.op("Mul", gate, self.op("Sigmoid", gate)), value)
        return self.linear(y, network.outer.weight, network.outer.bias)

    def _heads(self, x: str, shape: str) -> str:
        """[R, T, H·E] → [rows, H, tokens, E]; in a shape, 0 leaves a size as it is."""
        return self.op("Transpose", self.op("Reshape", x, shape), perm=[0, 2, 1, 3])


def _node(kind: str, values: list[str], name: str, **attributes: Any) -> Any:
    from onnx import helper

    return helper.make_node(kind, values, [name], name=f"node_{name}", **attributes)


def _described(name: str, kind: str, shape: Sequence[str | int]) -> Any:
    from onnx import TensorProto, helper

    return helper.make_tensor_value_info(name, getattr(TensorProto, kind), list(shape))
