"""An ONNX graph in the making: what our layers compute, node by node.

Shapes: B rows, T new tokens, K = all tokens so far, H heads, E head size, V vocabulary, D model, O outputs, I inputs.

What each part of a model computes can be read off here, and no exporter has to guess it. Positions that work inside
attention are made ready once, by `place`, and used by every layer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.engines.onnx import NUMBERS
from regard.layers.attention import Attention
from regard.layers.block import Residual
from regard.layers.embedding import Embedding
from regard.layers.feedforward import FeedForward
from regard.layers.norm import RMSNorm
from regard.layers.positions import (
    LearnedPositions,
    LinearBias,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
)

OPSET = 20  # the first with Gelu
BLOCK, LEVELS, MIDDLE = 128, 127, 128  # numbers that share a scale, and how they are written in 8 bits
FLOAT = 1  # float32, among ONNX's types
LARGEST = 2**30  # bytes of weights inside a graph's file; larger ones get a file beside it


class Graph:
    """A graph in the making. Values are known by their names; each method adds nodes and names their result."""

    def __init__(self, name: str, quantised: bool = False) -> None:
        self.name, self.quantised = name, quantised
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.weights: dict[str, Any] = {}
        self.beside = self.apart = ""  # shapes that all layers share: beams side by side, and each by itself
        self.sine = self.cosine = ""  # of rotary positions: how far the new tokens are turned
        self.distances = ""  # of relative positions: which vector stands for how far each key is ahead
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

    def split(self, x: str, sizes: Sequence[int], axis: int = -1) -> list[str]:
        """Parts of these sizes of one dimension."""
        from onnx import helper

        names = [f"Split_{len(self.nodes)}_{part}" for part in range(len(sizes))]
        self.nodes.append(helper.make_node("Split", [x, self.numbers(list(sizes))], names, axis=axis))
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
        """A small constant: whole numbers in a row, or one by itself, which need not be whole."""
        from onnx import numpy_helper

        name = f"c{values}"
        kind = torch.float32 if isinstance(values, float) else torch.int64
        self.weights.setdefault(name, numpy_helper.from_array(torch.tensor(values, dtype=kind).numpy(), name))
        return name

    def embed(self, tokens: str, positions: str, embedding: Embedding) -> str:
        """E[tokens]·√d_model + positions; without the root, or without positions, where the model has none here."""
        x = self.op("Gather", self.weight(embedding.weight_VD), tokens)
        if embedding.scale != 1.0:
            x = self.op("Mul", x, self.numbers(embedding.scale))
        match embedding.positions:
            case SinusoidalPositions() as waves:
                angles = self._angles(positions, waves.frequencies_D)
                pairs = [self.op("Unsqueeze", self.op(kind, angles), self.numbers([3])) for kind in ("Sin", "Cos")]
                flat = self.op("Concat", self.op("Shape", positions), self.numbers([-1]), axis=0)
                added = self.op("Reshape", self.op("Concat", *pairs, axis=3), flat)
                if waves.d_model % 2:
                    ends = (self.numbers([0]), self.numbers([waves.d_model]), self.numbers([2]))
                    added = self.op("Slice", added, *ends)
            case LearnedPositions() as learned:
                added = self.op("Gather", self.weight(learned.table.weight), positions)
            case _:
                return x
        return self.op("Add", x, added)

    def place(self, attention: Attention, positions: str, seen: str, mask: str) -> str:
        """Tell such attentions where tokens stand, once for all layers; gives the mask, with what else all add to it.

        `positions` are those of the new tokens, [B, T], and `seen` those of all that they may look at, [B, K].
        """
        match attention.positions:
            case RotaryPositions() as scheme:
                angles = self.op("Unsqueeze", self._angles(positions, scheme.frequencies_E), self.numbers([2]))
                self.sine, self.cosine = self.op("Sin", angles), self.op("Cos", angles)  # [B, T, 1, E/2]
            case LinearBias() as scheme:
                apart = self.op("Cast", self.op("Abs", self._ahead(positions, seen)), to=FLOAT)
                return self.op("Add", mask, self.op("Mul", apart, self.weight(-scheme.slopes_H[:, None, None])))
            case RelativePositions() as scheme:
                least, most = self.numbers(-scheme.reach), self.numbers(scheme.reach)
                rows = self.op("Add", self.op("Clip", self._ahead(positions, seen), least, most), most)
                self.distances = self.op("Expand", rows, self.numbers([1, attention.heads, 1, 1]))
        return mask

    def _angles(self, positions: str, frequencies_E: Tensor) -> str:
        """[B, T] → [B, T, E]: every position times every frequency."""
        places = self.op("Unsqueeze", self.op("Cast", positions, to=FLOAT), self.numbers([2]))
        return self.op("Mul", places, self.weight(frequencies_E.float()))

    def _ahead(self, positions: str, seen: str) -> str:
        """How far each key is ahead of each query, [B, 1, T, K]."""
        queries, keys = self.op("Unsqueeze", positions, self.numbers([1, 3])), self.numbers([1, 2])
        return self.op("Sub", self.op("Unsqueeze", seen, keys), queries)

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
        return self._normed(keys, attention.key_norm), values

    def offer_and_ask(self, attention: Attention, x: str) -> tuple[str, str, str]:
        """Of a sentence that attends to itself, queries, keys and values in one product: [rows, H, tokens, E] each."""
        weight, bias = self._query(attention)
        weight = torch.cat([weight, attention.key_value.weight.detach()])
        bias = torch.cat([bias, attention.key_value.bias.detach()])
        if isinstance(attention.positions, RotaryPositions):
            return self._turned(attention, x, weight, bias)
        joint = self.linear(x, weight, bias)
        sizes = [attention.d_k, attention.d_k, attention.d_v]
        parts = self.split(joint, [attention.heads * size for size in sizes])
        query, keys, values = (
            self._heads(part, self.numbers([0, 0, attention.heads, size]))
            for part, size in zip(parts, sizes, strict=True)
        )
        return self._asked(attention, query), self._normed(keys, attention.key_norm), values

    def _turned(self, attention: Attention, x: str, weight_OI: Tensor, bias_O: Tensor) -> tuple[str, str, str]:
        """The same with rotary positions: each pair of coordinates of queries and keys is turned by its angle.

        Rows of the weights change places, so that of all pairs the first ones come before the second ones: halves are
        cut off faster than every other number. Scores are sums over all pairs, in whichever order.
        """
        heads, half = attention.heads, attention.d_k // 2
        pairs = 2 * heads * half  # in the queries and the keys of a token
        order_O = torch.arange(len(bias_O))
        order_O[: 2 * pairs] = order_O[: 2 * pairs].view(pairs, 2).T.flatten()
        parts = self.split(self.linear(x, weight_OI[order_O], bias_O[order_O]), [pairs, pairs, heads * attention.d_v])
        first, second = (self.op("Reshape", part, self.numbers([0, 0, 2 * heads, half])) for part in parts[:2])
        if attention.query_norm is not None and attention.key_norm is not None:
            query_E, key_E = (norm.weight.detach() for norm in (attention.query_norm, attention.key_norm))
            gain_GE = torch.cat([x.expand(heads, -1) for x in (query_E * _shrink(attention), key_E)])
            gain_GE = gain_GE.unflatten(1, (half, 2)).mT.flatten(1)  # first ones before second ones, here too
            both = self._normed(self.op("Concat", first, second, axis=3), attention.query_norm, gain_GE)
            first, second = self.split(both, [half, half], axis=3)
        turned = self.op(
            "Concat",
            self.op("Sub", self.op("Mul", first, self.cosine), self.op("Mul", second, self.sine)),
            self.op("Add", self.op("Mul", first, self.sine), self.op("Mul", second, self.cosine)),
            axis=3,
        )
        query, keys = self.split(self.op("Transpose", turned, perm=[0, 2, 1, 3]), [heads, heads], axis=1)
        return query, keys, self._heads(parts[2], self.numbers([0, 0, heads, attention.d_v]))

    def ask(self, attention: Attention, x: str, keys: str) -> str:
        """Queries to keys of as many rows or fewer: beams that share a source stand side by side, [B, H, n·T, E]."""
        if not self.beside:  # the same for every layer
            rows = self.op("Slice", self.op("Shape", keys), self.numbers([0]), self.numbers([1]))
            self.beside = self.op("Concat", rows, self.numbers([-1, attention.heads, attention.d_k]), axis=0)
        return self._asked(attention, self._heads(self.linear(x, *self._query(attention)), self.beside))

    def attend(self, attention: Attention, query: str, keys: str, values: str, mask: str, like: str = "") -> str:
        """softmax(Q·Kᵀ / √d_k + mask)·V, all heads together, times W_O; with as many rows and tokens as `like` has."""
        scores = self.op("MatMul", query, self.op("Transpose", keys, perm=[0, 1, 3, 2]))
        if isinstance(attention.positions, RelativePositions):
            told = self.op("MatMul", query, self.weight(attention.positions.table_RE.detach().T))
            scores = self.op("Add", scores, self.op("GatherElements", told, self.distances, axis=3))
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
        """W_Q / √d_k and its bias: the root in the weights is one node less in every step.

        Where queries are normed, the gain has it.
        """
        shrink = _shrink(attention) if attention.query_norm is None else 1.0
        return attention.query.weight.detach() * shrink, attention.query.bias.detach() * shrink

    def _asked(self, attention: Attention, query: str) -> str:
        """Queries over √d_k, normed where they are: [rows, H, tokens, E]."""
        norm = attention.query_norm
        return query if norm is None else self._normed(query, norm, norm.weight.detach() * _shrink(attention))

    def _normed(self, x: str, norm: RMSNorm | None, gain_E: Tensor | None = None) -> str:
        """x / √(mean(x²) + ε) ⊙ gain, in nodes of which onnxruntime makes one; nothing where there is no norm."""
        if norm is None:
            return x
        square = self.op("ReduceMean", self.op("Pow", x, self.numbers(2.0)), self.numbers([-1]))
        root = self.op("Sqrt", self.op("Add", square, self.numbers(norm.eps)))
        return self.op("Mul", self.op("Div", x, root), self.weight(norm.weight if gain_E is None else gain_E))

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


def _shrink(attention: Attention) -> float:
    return 1 / math.sqrt(attention.d_k)


def _node(kind: str, values: list[str], name: str, **attributes: Any) -> Any:
    from onnx import helper

    return helper.make_node(kind, values, [name], name=f"node_{name}", **attributes)


def _described(name: str, kind: str, shape: Sequence[str | int]) -> Any:
    from onnx import TensorProto, helper

    return helper.make_tensor_value_info(name, getattr(TensorProto, kind), list(shape))
