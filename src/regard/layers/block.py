"""Encoder and decoder layers: attention and feed-forward, each inside a residual connection.

Shapes: B rows, S source tokens, T target tokens, Q queries, D model.

    post-norm, the paper's:  y = LayerNorm(x + Dropout(f(x)))
    pre-norm:                y = x + Dropout(f(LayerNorm(x)))

    encoder layer                        decoder layer
       x ──┬─────────────┐                  x ──┬──────────────────┐
           └ attend self ┴ + ──┬───┐            └ attend to past   ┴ + ──┬────────────────┐
                               └ FFN ┴ + → y                             └ attend to memory ┴ + ──┬───┐
                                                                                                  └ FFN ┴ + → y
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from regard.layers.attention import Attention, KeyValue, infers
from regard.layers.dropout import Dropout, threshold
from regard.layers.experts import MixtureOfExperts
from regard.layers.feedforward import Activation, FeedForward
from regard.layers.mask import Visible
from regard.layers.norm import LayerNorm
from regard.layers.positions import PositionKind, PositionScheme, position_scheme
from regard.machine import KERNELS

Norm = Literal["post", "pre"]


@dataclass(frozen=True, kw_only=True)
class LayerSizes:
    """The sizes one layer needs; their defaults stand where they are set."""

    d_model: int
    d_ff: int
    heads: int
    d_k: int
    d_v: int
    dropout: float
    norm: Norm
    activation: Activation
    positions: PositionKind
    reach: int
    norm_epsilon: float
    experts: int
    active_experts: int
    balance: float
    qk_norm: bool

    def self_attention(self) -> Attention:
        """An attention of a sentence to itself; it may mind distances."""
        scheme = position_scheme(self.positions, self.heads, self.d_k, self.reach, self.d_model)
        return self._attention(scheme)

    def cross_attention(self) -> Attention:
        """An attention to another sentence: distances between the two mean nothing."""
        return self._attention(None)

    def _attention(self, scheme: PositionScheme | None) -> Attention:
        epsilon = self.norm_epsilon if self.qk_norm else None
        return Attention(self.d_model, self.heads, self.d_k, self.d_v, scheme, epsilon)

    def feedforward(self) -> FeedForward | MixtureOfExperts:
        """The feed-forward network of these sizes, or several of which each token asks a few."""
        if self.experts == 1:
            return FeedForward(self.d_model, self.d_ff, self.activation)
        asked = self.active_experts
        return MixtureOfExperts(self.d_model, self.d_ff, self.activation, self.experts, asked, self.balance)


class Residual(nn.Module):
    """The road around a sub-layer: `enter` on the way in, `leave` on the way out."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.norm = LayerNorm(sizes.d_model, sizes.norm_epsilon)
        self.dropout = Dropout(sizes.dropout)
        self.pre = sizes.norm == "pre"

    def enter(self, x_BTD: Tensor) -> Tensor:
        """What the sub-layer reads."""
        return self.norm(x_BTD) if self.pre else x_BTD

    def leave(self, x_BTD: Tensor, y_BTD: Tensor) -> Tensor:
        """`x_BTD` went around the sub-layer, `y_BTD` through it."""
        in_one = x_BTD.is_cuda and KERNELS and not self.pre
        if in_one and self.training and self.dropout.noise is not None:
            return self._join_and_norm(x_BTD, y_BTD, self.dropout.noise)
        if in_one and not self.training and infers():
            from regard.layers.kernels import join_and_norm

            return join_and_norm(x_BTD, y_BTD, self.norm.weight, self.norm.bias, self.norm.eps)
        joined_BTD = x_BTD + (self.dropout(y_BTD) if self.training else y_BTD)
        return joined_BTD if self.pre else self.norm(joined_BTD)

    def _join_and_norm(self, x_BTD: Tensor, y_BTD: Tensor, noise: Tensor) -> Tensor:
        from regard.layers.kernels import JoinAndNorm

        drop = self.dropout
        return JoinAndNorm.apply(  # type: ignore[no-untyped-call]
            x_BTD, y_BTD, self.norm.weight, self.norm.bias, noise, threshold(drop.p), drop.p, self.norm.eps
        )


def _feed(network: FeedForward | MixtureOfExperts, x_BTD: Tensor, visible: Visible) -> Tensor:
    """[B, T, D] → [B, T, D]; experts are told which of the tokens that look are padding."""
    return network(x_BTD, visible.real()) if isinstance(network, MixtureOfExperts) else network(x_BTD)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward; under a causal mask and with a past, a decoder-only layer."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.attention = sizes.self_attention()
        self.around_attention = Residual(sizes)
        self.feedforward = sizes.feedforward()
        self.around_feedforward = Residual(sizes)

    def forward(self, x_BTD: Tensor, visible: Visible, past: KeyValue | None = None) -> tuple[Tensor, KeyValue]:
        """[B, T, D] → [B, T, D], and the keys and values of `past` followed by these T tokens'."""
        y_BTD = self.around_attention.enter(x_BTD)
        kv, query_BTD = self.attention.project(y_BTD, visible)
        kv = kv if past is None else past.extend(kv)
        x_BTD = self.around_attention.leave(x_BTD, self.attention(y_BTD, kv, visible, query_BTD))
        y_BTD = _feed(self.feedforward, self.around_feedforward.enter(x_BTD), visible)
        return self.around_feedforward.leave(x_BTD, y_BTD), kv

    def keep(self, x_BTD: Tensor, visible: Visible) -> KeyValue:
        """The keys and values of these T tokens alone, for those that come after them."""
        return self.attention.project(self.around_attention.enter(x_BTD), visible)[0]

    def remember(self, x_BTD: Tensor) -> KeyValue:
        """The keys and values of tokens that have been read, for those that come after them, wherever they stood."""
        return self.attention.unplaced(self.around_attention.enter(x_BTD))[0]

    def ask(self, x_BQD: Tensor, kv: KeyValue, visible: Visible) -> Tensor:
        """[B, Q, D] → [B, Q, D], for queries that are no tokens: they look at what is there, and leave nothing."""
        y_BQD = self.around_attention.enter(x_BQD)
        query_BQD = None if self.attention.joint is None else self.attention.unplaced(y_BQD)[1]
        x_BQD = self.around_attention.leave(x_BQD, self.attention(y_BQD, kv, visible, query_BQD))
        y_BQD = _feed(self.feedforward, self.around_feedforward.enter(x_BQD), visible)
        return self.around_feedforward.leave(x_BQD, y_BQD)


@dataclass(frozen=True)
class DecoderMemory:
    """What one decoder layer keeps between steps: its own past, and the source's keys and values."""

    source: KeyValue
    past: KeyValue | None = None

    def select(self, rows: Tensor, sentences: Tensor | None) -> DecoderMemory:
        """The given rows of the past, and the source of the given sentences; None leaves it as it is."""
        past = None if self.past is None else self.past.select(rows)
        return DecoderMemory(self.source if sentences is None else self.source.select(sentences), past)


class DecoderLayer(nn.Module):
    """Attention to what was written so far, attention to the source, then feed-forward."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.attention = sizes.self_attention()
        self.around_attention = Residual(sizes)
        self.cross_attention = sizes.cross_attention()
        self.around_cross_attention = Residual(sizes)
        self.feedforward = sizes.feedforward()
        self.around_feedforward = Residual(sizes)

    def remember(self, memory_BSD: Tensor) -> DecoderMemory:
        """The memory before the first step: the source's keys and values, made once."""
        return DecoderMemory(self.cross_attention.keys_values(memory_BSD))

    def forward(
        self, x_BTD: Tensor, memory: DecoderMemory, visible: Visible, source_visible: Visible
    ) -> tuple[Tensor, DecoderMemory]:
        """[B, T, D] → [B, T, D], and the memory with these T tokens added."""
        y_BTD = self.around_attention.enter(x_BTD)
        kv, query_BTD = self.attention.project(y_BTD, visible)
        kv = kv if memory.past is None else memory.past.extend(kv)
        x_BTD = self.around_attention.leave(x_BTD, self.attention(y_BTD, kv, visible, query_BTD))
        y_BTD = self.around_cross_attention.enter(x_BTD)
        y_BTD = self.cross_attention(y_BTD, memory.source, source_visible)
        x_BTD = self.around_cross_attention.leave(x_BTD, y_BTD)
        y_BTD = _feed(self.feedforward, self.around_feedforward.enter(x_BTD), visible)
        return self.around_feedforward.leave(x_BTD, y_BTD), DecoderMemory(memory.source, kv)
