"""The sub-layers of one Transformer layer, each part called in the open.

Shapes: B rows (one), T tokens, Q queries, K keys, D model, H heads, E head size, F feed-forward.

    post-norm   y = LayerNorm(x + f(x))              the paper's
    pre-norm    y = x + f(LayerNorm(x))              GPT-2's
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.exploring.sentences import Said, Value
from regard.exploring.steps import Step, Table, Words, table
from regard.layers.attention import Attention, KeyValue
from regard.layers.block import Residual
from regard.layers.feedforward import FeedForward, activate
from regard.layers.mask import Visible


@dataclass
class Sublayers:
    """A text between two sub-layers: the vectors that travel on, the word and the head followed, the steps so far."""

    x_BTD: Tensor
    words: Words
    head: int
    steps: list[Step]

    @property
    def word(self) -> str:
        """The word that is followed."""
        return self.words.labels[self.words.position or 0]


Memory = tuple[Words, KeyValue]
"""Whom a decoder looks at across, and what they offer."""


def attended(
    way: Sublayers,
    attention: Attention,
    around: Residual,
    visible: Visible,
    memory: Memory | None = None,
    keeps: bool = False,
) -> None:
    """One attention with the road around it. `memory` is given where it looks at another text; `keeps` where a
    decoder keeps its keys and values from step to step."""
    cross = "" if memory is None else "cross-"
    place = f"{cross}{{}}" if cross else "{}1"  # how the steps around it are called
    y_BTD = _enter(way, around, place)
    query_BHQE, kv = _projected(attention, y_BTD, memory)
    others = way.words if memory is None else memory[0]
    query_HE, keys, values = query_BHQE[0, way.head], kv.keys_BHKE[0, way.head], kv.values_BHKE[0, way.head]
    kept, computed = _kept(way, others, memory is not None, keeps)
    normed = attention.query_norm is not None
    way.steps.append(_qkv(way, cross, others, (query_HE, keys, values), y_BTD.shape[2], normed, kept, computed))
    turned_BHQE, keys_BHKE, bias_BHQK = query_BHQE, kv.keys_BHKE, None
    if attention.positions is not None:
        keys_BHKE = attention.positions.kept(kv.keys_BHKE, visible)
        turned_BHQE, keys_BHKE, bias_BHQK = attention.positions(query_BHQE, keys_BHKE, visible)
        if bias_BHQK is None:
            way.steps.append(_turn(way, turned_BHQE[0, way.head], keys_BHKE[0, way.head]))
    products_BHQK = turned_BHQE @ keys_BHKE.transpose(-2, -1)
    weights_BHQK = _weighed(way, cross, others, products_BHQK, bias_BHQK, visible, attention.d_k)
    heads_BHQE = weights_BHQK @ kv.values_BHKE
    way.steps.append(_sum(way, cross, others, weights_BHQK[0, way.head], values, heads_BHQE[0, way.head]))
    joined_BQD = heads_BHQE.transpose(1, 2).flatten(2)
    through_BTD = attention.output(joined_BQD)
    way.steps.append(_join(way, cross, joined_BQD[0], through_BTD[0], attention.heads))
    _leave(way, around, through_BTD, place)


def _projected(attention: Attention, y_BTD: Tensor, memory: Memory | None) -> tuple[Tensor, KeyValue]:
    """Queries, [B, H, Q, E], and the keys and values they meet."""
    if memory is not None:
        query_BTD, kv = attention.query(y_BTD), memory[1]
    else:
        kv, joint_BTD = attention.unplaced(y_BTD)
        query_BTD = attention.query(y_BTD) if joint_BTD is None else joint_BTD
    return attention.queries(query_BTD), kv


def _kept(
    way: Sublayers, others: Words, cross: bool, keeps: bool
) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """Of which positions keys and values were there already, and of which they are made, in one step of writing."""
    position = way.words.position or 0
    if cross:
        return tuple(range(len(others.labels))), ()
    return (tuple(range(position)), (position,)) if keeps else (None, None)


def _qkv(
    way: Sublayers,
    cross: str,
    others: Words,
    parts: tuple[Tensor, Tensor, Tensor],
    size: int,
    normed: bool,
    kept: tuple[int, ...] | None,
    computed: tuple[int, ...] | None,
) -> Step:
    query_QE, keys_KE, values_KE = parts
    source = "memory" if cross else "x"
    made = f"q = RMSNorm(x·W_Q),  k = RMSNorm({source}·W_K)" if normed else f"q = x·W_Q,  k = {source}·W_K"
    return Step(
        f"{cross}qkv",
        _projecting(way, cross, normed, kept),
        f"{made},  v = {source}·W_V",
        f"[{len(query_QE)}, {size}] → q [{len(query_QE)}, {query_QE.shape[1]}], "
        f"k [{len(keys_KE)}, {keys_KE.shape[1]}], v [{len(values_KE)}, {values_KE.shape[1]}]",
        (table("q", query_QE, way.words), table("k", keys_KE, others), table("v", values_KE, others)),
        kept,
        computed,
    )


def _projecting(way: Sublayers, cross: str, normed: bool, kept: tuple[int, ...] | None) -> Said:
    """What is said of queries, keys and values, and of those that were there already."""
    head: dict[str, Value] = {"head": way.head + 1}
    name = "source" if cross else "qkv"
    names = (name, f"{name}.normed") if normed else (name,)
    if cross or kept is None:
        return Said(names, head)
    if not kept:
        return Said((*names, "qkv.first"), {**head, "word": way.word})
    return Said((*names, "qkv.kept"), {**head, "word": way.word, "count": len(kept)})


def _turn(way: Sublayers, query_QE: Tensor, keys_KE: Tensor) -> Step:
    return Step(
        "turn",
        Said(("turn",), {}),
        "q ← R(position)·q,  k ← R(position)·k",
        f"[{len(query_QE)}, {query_QE.shape[1]}]",
        (table("q", query_QE, way.words), table("k", keys_KE, way.words)),
    )


def _weighed(
    way: Sublayers,
    cross: str,
    others: Words,
    products_BHQK: Tensor,
    bias_BHQK: Tensor | None,
    visible: Visible,
    d_k: int,
) -> Tensor:
    """From products of queries and keys to weights, [B, H, Q, K]: every query's sum to one."""
    words, head, shape = way.words, way.head, f"[{products_BHQK.shape[2]}, {products_BHQK.shape[3]}]"

    def show(name: str, x_BHQK: Tensor) -> Table:
        return table(name, x_BHQK.expand(products_BHQK.shape)[0, head], words, others)

    scores_BHQK = products_BHQK / math.sqrt(d_k)
    hidden_BHQK = ~visible.dense(scores_BHQK)[:, None].expand(scores_BHQK.shape)
    way.steps += [
        Step(f"{cross}scores", Said(("scores",), {}), "s = q·kᵀ", shape, (show("q·kᵀ", products_BHQK),)),
        Step(
            f"{cross}scale", Said(("scale",), {"d_k": d_k, "root": float(f"{math.sqrt(d_k):.4g}")}),
            "s ← s / √d_k", shape, (show("s", scores_BHQK),),
        ),
    ]  # fmt: skip
    if bias_BHQK is not None:
        scores_BHQK = scores_BHQK + bias_BHQK
        way.steps.append(
            Step(
                f"{cross}bias", Said(("bias",), {}),
                "s ← s + b(distance)", shape, (show("b", bias_BHQK), show("s + b", scores_BHQK)),
            )
        )  # fmt: skip
    scores_BHQK = scores_BHQK.masked_fill(hidden_BHQK, -torch.inf)
    weights_BHQK = scores_BHQK.softmax(dim=-1).masked_fill(hidden_BHQK, 0.0)
    way.steps += [
        _mask(cross, bool(hidden_BHQK.any()), shape, show("s", scores_BHQK)),
        Step(
            f"{cross}softmax", Said(("softmax",), {"word": way.word, **_most(way, others, weights_BHQK)}),
            "w = softmax(s)", shape, (show("w", weights_BHQK),),
        ),
    ]  # fmt: skip
    return weights_BHQK


def _mask(cross: str, hides: bool, shape: str, shown: Table) -> Step:
    said = Said(("mask" if hides else "mask.none",), {})
    return Step(f"{cross}mask", said, "s_ij ← −∞ where i may not see j", shape, (shown,))


def _most(way: Sublayers, others: Words, weights_BHQK: Tensor) -> dict[str, Value]:
    """Whom the followed word looks at most, and how much."""
    row_K = weights_BHQK[0, way.head, way.words.position or 0]
    best = int(row_K.argmax())
    return {"other": others.labels[best], "share": round(float(row_K[best]), 4)}


def _sum(way: Sublayers, cross: str, others: Words, weights_QK: Tensor, values_KE: Tensor, head_QE: Tensor) -> Step:
    return Step(
        f"{cross}sum",
        Said(("sum",), {"word": way.word}),
        "z = Σ_j w_j · v_j",
        f"[{weights_QK.shape[0]}, {weights_QK.shape[1]}] · [{values_KE.shape[0]}, {values_KE.shape[1]}] → "
        f"[{head_QE.shape[0]}, {head_QE.shape[1]}]",
        (table("w", weights_QK, way.words, others), table("v", values_KE, others), table("z", head_QE, way.words)),
    )  # fmt: skip


def _join(way: Sublayers, cross: str, joined_TD: Tensor, through_TD: Tensor, heads: int) -> Step:
    return Step(
        f"{cross}join",
        Said(("join",), {"heads": heads}),
        "y = Concat(z_1, …, z_h)·W_O",
        f"[{joined_TD.shape[0]}, {joined_TD.shape[1]}] → [{through_TD.shape[0]}, {through_TD.shape[1]}]",
        (table("z_1 … z_h", joined_TD, way.words), table("y", through_TD, way.words)),
    )


def fed_forward(way: Sublayers, feedforward: FeedForward, around: Residual) -> None:
    """The feed-forward network with the road around it."""
    y_BTD = _enter(way, around, "{}2")
    inner_BTF = activate(feedforward.inner(y_BTD), feedforward.activation)
    through_BTD = feedforward.outer(inner_BTF)
    name, size = feedforward.activation.removesuffix("-tanh"), inner_BTF.shape[2]
    said = Said(("feedforward.gated" if name == "swiglu" else "feedforward",), {"activation": name, "size": size})
    if name in ("relu", "relu2"):
        active = round(float((inner_BTF[0, way.words.position or 0] != 0).float().mean()), 4)
        said = Said((*said.names, "feedforward.zeros"), {**said.values, "word": way.word, "share": active})
    way.steps.append(
        Step(
            "feedforward",
            said,
            "y = (silu(x·W_g + b_g) ⊙ (x·W_1 + b_1))·W_2 + b_2" if name == "swiglu"
            else f"y = {name}(x·W_1 + b_1)·W_2 + b_2",
            f"[{y_BTD.shape[1]}, {y_BTD.shape[2]}] → [{y_BTD.shape[1]}, {size}] → [{y_BTD.shape[1]}, {y_BTD.shape[2]}]",
            (table("inner", inner_BTF[0], way.words), table("y", through_BTD[0], way.words)),
        )
    )  # fmt: skip
    _leave(way, around, through_BTD, "{}2")


def _enter(way: Sublayers, around: Residual, place: str) -> Tensor:
    """What the sub-layer reads: with pre-norm, the vectors normalised first."""
    y_BTD = around.enter(way.x_BTD)
    if around.pre:
        way.steps.append(
            Step(
                place.format("norm"),
                Said(("norm",), {}),
                "x′ = LayerNorm(x)",
                f"[{y_BTD.shape[1]}, {y_BTD.shape[2]}]",
                (table("x", way.x_BTD[0], way.words), table("LayerNorm(x)", y_BTD[0], way.words)),
            )
        )
    return y_BTD


def _leave(way: Sublayers, around: Residual, through_BTD: Tensor, place: str) -> None:
    """The road around the sub-layer and the way through it come together."""
    sum_BTD, result_BTD = way.x_BTD + through_BTD, around.leave(way.x_BTD, through_BTD)
    shown = [table("x", way.x_BTD[0], way.words), table("y", through_BTD[0], way.words)]
    shape = f"[{result_BTD.shape[1]}, {result_BTD.shape[2]}]"
    if around.pre:
        step = Step(
            place.format("add"), Said(("add",), {}),
            "x ← x + y", shape, (*shown, table("x + y", result_BTD[0], way.words)),
        )  # fmt: skip
    else:
        step = Step(
            place.format("norm"), Said(("add", "norm"), {}),
            "x ← LayerNorm(x + y)", shape,
            (*shown, table("x + y", sum_BTD[0], way.words), table("LayerNorm(x + y)", result_BTD[0], way.words)),
        )  # fmt: skip
    way.steps.append(step)
    way.x_BTD = result_BTD
