"""Encoder and decoder layers: attention and feed-forward, each inside a residual connection.

Shapes: B rows, S source tokens, T target tokens, D model.

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

from regard.layers.attention import Attention, KeyValue
from regard.layers.feedforward import FeedForward
from regard.layers.mask import Visible

Norm = Literal["post", "pre"]


@dataclass(frozen=True)
class LayerSizes:
    """The sizes one layer needs."""

    d_model: int
    d_ff: int
    heads: int
    d_k: int
    d_v: int
    dropout: float
    norm: Norm

    def attention(self) -> Attention:
        """An attention of these sizes."""
        return Attention(self.d_model, self.heads, self.d_k, self.d_v)


class Residual(nn.Module):
    """The road around a sub-layer: `enter` on the way in, `leave` on the way out."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(sizes.d_model)
        self.dropout = nn.Dropout(sizes.dropout)
        self.pre = sizes.norm == "pre"

    def enter(self, x_BTD: Tensor) -> Tensor:
        """What the sub-layer reads."""
        return self.norm(x_BTD) if self.pre else x_BTD

    def leave(self, x_BTD: Tensor, y_BTD: Tensor) -> Tensor:
        """`x_BTD` went around the sub-layer, `y_BTD` through it."""
        joined_BTD = x_BTD + self.dropout(y_BTD)
        return joined_BTD if self.pre else self.norm(joined_BTD)


class EncoderLayer(nn.Module):
    """Self-attention over the whole sentence, then feed-forward."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.attention = sizes.attention()
        self.around_attention = Residual(sizes)
        self.feedforward = FeedForward(sizes.d_model, sizes.d_ff)
        self.around_feedforward = Residual(sizes)

    def forward(self, x_BSD: Tensor, visible: Visible) -> Tensor:
        """[B, S, D] → [B, S, D]."""
        y_BSD = self.around_attention.enter(x_BSD)
        y_BSD = self.attention(y_BSD, self.attention.keys_values(y_BSD), visible)
        x_BSD = self.around_attention.leave(x_BSD, y_BSD)
        y_BSD = self.feedforward(self.around_feedforward.enter(x_BSD))
        return self.around_feedforward.leave(x_BSD, y_BSD)


@dataclass(frozen=True)
class DecoderMemory:
    """What one decoder layer keeps between steps: its own past, and the source's keys and values."""

    source: KeyValue
    past: KeyValue | None = None

    def select(self, rows: Tensor) -> DecoderMemory:
        """The given rows, in the given order."""
        past = None if self.past is None else self.past.select(rows)
        return DecoderMemory(self.source.select(rows), past)


class DecoderLayer(nn.Module):
    """Attention to what was written so far, attention to the source, then feed-forward."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.attention = sizes.attention()
        self.around_attention = Residual(sizes)
        self.cross_attention = sizes.attention()
        self.around_cross_attention = Residual(sizes)
        self.feedforward = FeedForward(sizes.d_model, sizes.d_ff)
        self.around_feedforward = Residual(sizes)

    def remember(self, memory_BSD: Tensor) -> DecoderMemory:
        """The memory before the first step: the source's keys and values, made once."""
        return DecoderMemory(self.cross_attention.keys_values(memory_BSD))

    def forward(
        self, x_BTD: Tensor, memory: DecoderMemory, visible: Visible, source_visible: Visible
    ) -> tuple[Tensor, DecoderMemory]:
        """[B, T, D] → [B, T, D], and the memory with these T tokens added."""
        y_BTD = self.around_attention.enter(x_BTD)
        kv = self.attention.keys_values(y_BTD)
        kv = kv if memory.past is None else memory.past.extend(kv)
        x_BTD = self.around_attention.leave(x_BTD, self.attention(y_BTD, kv, visible))
        y_BTD = self.around_cross_attention.enter(x_BTD)
        y_BTD = self.cross_attention(y_BTD, memory.source, source_visible)
        x_BTD = self.around_cross_attention.leave(x_BTD, y_BTD)
        y_BTD = self.feedforward(self.around_feedforward.enter(x_BTD))
        return self.around_feedforward.leave(x_BTD, y_BTD), DecoderMemory(memory.source, kv)
