"""Multi-head scaled dot-product attention (Attention Is All You Need, section 3.2).

Shapes: B rows, R rows of all beams, T tokens, Q queries, K keys, D model, H heads, E size of one head's key or value.

    Attention(Q, K, V) = softmax(Q·Kᵀ / √d_k)·V
    MultiHead(x, kv)   = Concat(head_1, …, head_h)·W_O,   head_i = Attention(x·W_Q_i, kv.keys_i, kv.values_i)

Queries and keys of each head may be normed before they meet, RMSNorm(x·W_Q_i) and RMSNorm(x·W_K_i): however large the
matrices grow, no score is larger than √d_k times the largest gain of the queries and the largest of the keys.

Attention attends to a `KeyValue` through a `Visible`. Whether that is its own sentence, the encoder's
memory or what earlier steps left behind is the caller's business.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.layers.growing import Room
from regard.layers.mask import Visible
from regard.layers.norm import RMSNorm
from regard.layers.positions import PositionScheme
from regard.machine import KERNELS

Watcher = Callable[[Tensor], None]


@dataclass(frozen=True)
class KeyValue:
    """The keys and values of every head, computed once and kept.

    A value: who has an old one sees what it saw. If two go on from the same one, the first takes the `room` behind it,
    and the second moves to memory of its own.
    """

    keys_BHKE: Tensor
    values_BHKE: Tensor
    room: Room | None = field(default=None, compare=False, repr=False, kw_only=True)
    """The memory that these are the beginning of, where there is any."""

    def extend(self, new: KeyValue) -> KeyValue:
        """What was kept, followed by `new`; if that has more rows, neighbours share a row of this, side by side."""
        rows, _, before, _ = self.keys_BHKE.shape
        keys_BHKE, values_BHKE = side_by_side(new.keys_BHKE, rows), side_by_side(new.values_BHKE, rows)
        if not infers():  # gradients need everything as it was
            keys_BHKE = torch.cat([self.keys_BHKE, keys_BHKE], dim=2)
            return KeyValue(keys_BHKE, torch.cat([self.values_BHKE, values_BHKE], dim=2))
        room, more = self.room, keys_BHKE.shape[2]
        if room is None or room.filled != before or not room.takes(more):
            room = Room.around(self.keys_BHKE, self.values_BHKE, more)
        room.write(keys_BHKE, values_BHKE)
        return KeyValue(*room.written(), room=room)

    def select(self, rows: Tensor) -> KeyValue:
        """The given rows, in the given order; a row may be named twice."""
        if self.room is None:
            return KeyValue(self.keys_BHKE.index_select(0, rows), self.values_BHKE.index_select(0, rows))
        room = self.room.select(rows, self.keys_BHKE.shape[2])
        return KeyValue(*room.written(), room=room)


def side_by_side(x_RHTE: Tensor, rows: int) -> Tensor:
    """[B·N, H, T, E] → [B, H, N·T, E], for B = `rows`: what neighbouring rows have, the beams of a sentence, in one."""
    if x_RHTE.shape[0] == rows:
        return x_RHTE
    return x_RHTE.unflatten(0, (rows, -1)).transpose(1, 2).flatten(2, 3)


class Attention(nn.Module):
    """Multi-head attention with free h, d_k and d_v; with `norm_epsilon`, queries and keys are normed.

    Set `watcher` to receive the weights of every call, [B, H, Q, K]; they are then computed step by step.
    Without a watcher the fused kernel runs, which never forms them.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        d_k: int,
        d_v: int,
        positions: PositionScheme | None = None,
        norm_epsilon: float | None = None,
    ) -> None:
        super().__init__()
        self.heads, self.d_k, self.d_v = heads, d_k, d_v
        self.query = nn.Linear(d_model, heads * d_k)
        self.key_value = nn.Linear(d_model, heads * (d_k + d_v))
        self.output = nn.Linear(heads * d_v, d_model)
        self.query_norm = None if norm_epsilon is None else RMSNorm(d_k, norm_epsilon)
        self.key_norm = None if norm_epsilon is None else RMSNorm(d_k, norm_epsilon)
        self.joint: nn.Module | None = None
        """Queries, keys and values in one product, after `join`."""
        self.positions = positions
        self.watcher: Watcher | None = None

    def join(self) -> None:
        """For inference: make queries, keys and values in one product, where a sentence attends to itself."""
        parts = [self.query, self.key_value]
        self.joint = nn.Linear(self.query.in_features, sum(part.out_features for part in parts), device="meta")
        self.joint.weight = nn.Parameter(torch.cat([part.weight.detach() for part in parts]), requires_grad=False)
        self.joint.bias = nn.Parameter(torch.cat([part.bias.detach() for part in parts]), requires_grad=False)
        del self.query, self.key_value

    def project(self, x_BTD: Tensor, visible: Visible) -> tuple[KeyValue, Tensor | None]:
        """Of a sentence that attends to itself, what it offers and, after `join`, what it asks: [B, T, H·d_k].

        `visible` is what its tokens will ask, so it knows where they stand.
        """
        kv, query_BTD = self.unplaced(x_BTD)
        if self.positions is not None:
            kv = KeyValue(self.positions.kept(kv.keys_BHKE, visible), kv.values_BHKE)
        return kv, query_BTD

    def unplaced(self, x_BTD: Tensor) -> tuple[KeyValue, Tensor | None]:
        """The same before keys mind where they stand."""
        if self.joint is None:
            return self.keys_values(x_BTD), None
        sizes = [self.heads * self.d_k, self.heads * self.d_k, self.heads * self.d_v]
        query_BTD, keys, values = self.joint(x_BTD).split_with_sizes(sizes, dim=-1)
        return KeyValue(self._keys(keys), self._split_heads(values)), query_BTD

    def keys_values(self, x_BKD: Tensor) -> KeyValue:
        """The keys and values that `x_BKD` offers to those who attend to it."""
        keys, values = self.key_value(x_BKD).split([self.heads * self.d_k, self.heads * self.d_v], dim=-1)
        return KeyValue(self._keys(keys), self._split_heads(values))

    def queries(self, query_BQD: Tensor) -> Tensor:
        """What each head asks, of what `query` or the joint product made: [B, Q, H·d_k] → [B, H, Q, d_k]."""
        return self._split_heads(query_BQD, self.query_norm)

    def _keys(self, keys_BKD: Tensor) -> Tensor:
        return self._split_heads(keys_BKD, self.key_norm)

    def forward(self, x_BQD: Tensor, kv: KeyValue, visible: Visible, query_BQD: Tensor | None = None) -> Tensor:
        """What each token of `x_BQD`, or the query that `project` made for it, gathers from `kv`: [B, Q, D].

        `kv` may have fewer rows, each for several neighbours of `x_BQD`: the beams of a sentence share its source.
        They then ask side by side, as so many queries of one row, and `visible` speaks of those.
        """
        query_BQD = self.query(x_BQD) if query_BQD is None else query_BQD
        rows, queries, width = query_BQD.shape
        sharing = rows // max(kv.keys_BHKE.shape[0], 1)
        if sharing > 1:
            query_BQD = query_BQD.reshape(-1, sharing * queries, width)
        query_BHQE, keys_BHKE, bias_BHQK = self.queries(query_BQD), kv.keys_BHKE, None
        if self.positions is not None:
            query_BHQE, keys_BHKE, bias_BHQK = self.positions(query_BHQE, keys_BHKE, visible)
        if self.watcher is not None:
            weights_BHQK = attention_weights(query_BHQE, keys_BHKE, visible, bias_BHQK)
            self.watcher(_rows_apart(weights_BHQK, sharing) if sharing > 1 else weights_BHQK)
            heads_BHQE = weights_BHQK @ kv.values_BHKE
        else:
            heads_BHQE = fused_attention(query_BHQE, KeyValue(keys_BHKE, kv.values_BHKE), visible, bias_BHQK)
        return self.output(heads_BHQE.transpose(1, 2).reshape(rows, queries, self.heads * self.d_v))

    def _split_heads(self, x_BTD: Tensor, norm: RMSNorm | None = None) -> Tensor:
        x_BTHE = x_BTD.view(*x_BTD.shape[:-1], self.heads, x_BTD.shape[-1] // self.heads)
        return (x_BTHE if norm is None else norm(x_BTHE)).transpose(1, 2)


def _rows_apart(weights_BHQK: Tensor, sharing: int) -> Tensor:
    """The weights of `sharing` rows that asked side by side, each row again by itself."""
    return weights_BHQK.unflatten(2, (sharing, -1)).transpose(1, 2).flatten(0, 1)


def attention_weights(
    query_BHQE: Tensor, keys_BHKE: Tensor, visible: Visible, bias_BHQK: Tensor | None = None
) -> Tensor:
    """softmax(Q·Kᵀ / √d_k + bias) over the visible keys: [B, H, Q, K], each row sums to one."""
    scores_BHQK = query_BHQE @ keys_BHKE.transpose(-2, -1) / math.sqrt(query_BHQE.shape[-1])
    if bias_BHQK is not None:
        scores_BHQK = scores_BHQK + bias_BHQK
    hidden_BHQK = ~visible.dense(scores_BHQK)[:, None]
    # Where nothing is visible (an empty source) the softmax is NaN; the fused kernel gathers nothing there.
    return scores_BHQK.masked_fill(hidden_BHQK, -torch.inf).softmax(dim=-1).masked_fill(hidden_BHQK, 0.0)


def fused_attention(query_BHQE: Tensor, kv: KeyValue, visible: Visible, bias_BHQK: Tensor | None = None) -> Tensor:
    """softmax(Q·Kᵀ / √d_k + bias)·V in one kernel that never forms the weights: [B, H, Q, E]."""
    plain = bias_BHQK is None and (visible.allowed_BQK is not None or not visible.is_causal)
    if plain and query_BHQE.is_cuda and infers() and KERNELS:
        from regard.layers import few_queries

        if few_queries.serves(query_BHQE, kv.keys_BHKE, kv.values_BHKE):
            return few_queries.attend(query_BHQE, kv.keys_BHKE, kv.values_BHKE, visible.allowed_BQK)
    mask: Tensor | None = None
    if bias_BHQK is not None:
        mask = bias_BHQK.masked_fill(~visible.dense(bias_BHQK)[:, None], -torch.inf)
    elif visible.added_BQK is not None:
        mask = visible.added_BQK[:, None]
    elif visible.allowed_BQK is not None:
        mask = visible.allowed_BQK[:, None]
    return F.scaled_dot_product_attention(
        query_BHQE, kv.keys_BHKE, kv.values_BHKE, attn_mask=mask, is_causal=visible.is_causal and mask is None
    )


def infers() -> bool:
    """Whether nobody will ask for gradients; compilers cannot look, and join what they read themselves."""
    return not torch.compiler.is_compiling() and torch.is_inference_mode_enabled()
