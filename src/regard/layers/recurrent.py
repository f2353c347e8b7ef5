"""Recurrent layers, stacks of them, and the attention of recurrent decoders.

Shapes: B rows, T tokens, S source tokens, Q queries, K keys, D model, X size of a layer's input.

    rnn   h' = tanh(W·x + U·h)                                                     (Elman 1990)
    gru   r, z = σ(W·x + U·h),  n = tanh(W·x + r∘(U·h)),  h' = (1 − z)∘n + z∘h     (Cho et al. 2014, 2.3)
    lstm  i, f, o = σ(W·x + U·h),  g = tanh(W·x + U·h),  c' = f∘c + i∘g,  h' = o∘tanh(c')
                                                               (Hochreiter and Schmidhuber 1997; Gers 2000)

Each letter on the left has its own W, U and bias. Time runs inside torch's kernels, a whole sequence in one
call. Padding stands on the right of a row, so a forward layer meets it only after the last real token; a
backward layer reads each row turned around within its own length, and so never meets it first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.batch import PADDING_SEGMENT, Places
from regard.errors import UsageError
from regard.layers.attention import KeyValue, Watcher
from regard.layers.experts import MixtureOfExperts

Cell = Literal["rnn", "gru", "lstm"]
Links = Literal["plain", "residual", "fast-forward"]
Directions = bool | Literal["first", "alternating"]
Score = Literal["additive", "general", "dot", "scaled"]

_KERNELS: dict[Cell, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


# ---- rows of different lengths


def row_lengths(places: Places, where: str) -> Tensor | None:
    """How many tokens of each row are real, [B]; None where all are. Several sentences in a row are refused."""
    segments_BT = places.segments_BT
    if places.positions_BT.shape[1] == 0:
        raise UsageError(f"{where}: must have at least one token a row, but has none; end each with the end token")
    if segments_BT is None:
        return None
    places.check_one_sentence(where)
    # An empty row reads one token of padding: nothing will look at it, and no kernel likes nothing.
    return (segments_BT != PADDING_SEGMENT).sum(dim=1).clamp(min=1)


def reverse_rows(x_BTX: Tensor, lengths_B: Tensor | None) -> Tensor:
    """Each row turned around within its length; padding stays where it is."""
    if lengths_B is None:
        return x_BTX.flip(1)
    time_T = torch.arange(x_BTX.shape[1], device=x_BTX.device)
    mirror_BT = lengths_B[:, None] - 1 - time_T
    index_BT = torch.where(mirror_BT >= 0, mirror_BT, time_T)
    return x_BTX.gather(1, index_BT[:, :, None].expand_as(x_BTX))


def end_of_rows(x_BTX: Tensor, lengths_B: Tensor | None) -> Tensor:
    """What stands at each row's last real token, [B, X]."""
    if lengths_B is None:
        return x_BTX[:, -1]
    return x_BTX.take_along_dim((lengths_B - 1)[:, None, None], dim=1)[:, 0]


# ---- layers


@dataclass(frozen=True)
class Hidden:
    """The state of one layer: its output, and an LSTM's memory cell."""

    output_BD: Tensor
    cell_BD: Tensor | None = None

    def select(self, rows: Tensor) -> Hidden:
        """The given rows, in the given order; a row may be named twice."""
        cell = None if self.cell_BD is None else self.cell_BD.index_select(0, rows)
        return Hidden(self.output_BD.index_select(0, rows), cell)

    def beside(self, other: Hidden) -> Hidden:
        """Both states, one beside the other: the two directions of a bidirectional layer."""
        output = torch.cat([self.output_BD, other.output_BD], dim=-1)
        if self.cell_BD is None or other.cell_BD is None:
            return Hidden(output)
        return Hidden(output, torch.cat([self.cell_BD, other.cell_BD], dim=-1))


class RecurrentLayer(nn.Module):
    """One layer in one direction. `kernel` holds the weights, laid out as torch does."""

    def __init__(self, cell: Cell, d_input: int, d_model: int) -> None:
        super().__init__()
        self.cell = cell
        self.kernel = _KERNELS[cell](d_input, d_model, batch_first=True)

    def forward(self, x_BTX: Tensor, hidden: Hidden) -> tuple[Tensor, Hidden]:
        """The output after each of T tokens, [B, T, D], and the state after the last."""
        if x_BTX.shape[1] == 1:
            hidden = self._one(x_BTX[:, 0], hidden)
            return hidden.output_BD[:, None], hidden
        # The kernels of GPUs insist on states that lie in one piece.
        start = hidden.output_BD[None].contiguous()
        if hidden.cell_BD is None:
            outputs_BTD, end = self.kernel(x_BTX, start)
            return outputs_BTD, Hidden(end[0])
        outputs_BTD, (end, cell) = self.kernel(x_BTX, (start, hidden.cell_BD[None].contiguous()))
        return outputs_BTD, Hidden(end[0], cell[0])

    def zero(self, rows: int) -> Hidden:
        """The state before anything was read."""
        nothing = self.kernel.all_weights[0][0].new_zeros(rows, self.kernel.hidden_size)
        return Hidden(nothing, nothing if self.cell == "lstm" else None)

    def read(self, x_BTX: Tensor, lengths_B: Tensor | None, keep_cell: bool) -> tuple[Tensor, Hidden]:
        """All of each row from the zero state: outputs [B, T, D], and the state at each row's own end."""
        rows = x_BTX.shape[0]
        if lengths_B is not None and self.cell == "lstm" and keep_cell and rows:
            return self._read_packed(x_BTX, lengths_B)
        outputs_BTD, end = self(x_BTX, self.zero(rows))
        if lengths_B is None or not rows:
            return outputs_BTD, end
        return outputs_BTD, Hidden(end_of_rows(outputs_BTD, lengths_B))

    def _read_packed(self, x_BTX: Tensor, lengths_B: Tensor) -> tuple[Tensor, Hidden]:
        # The kernel tells the memory cell only where a row ends, so it must know where that is. This costs
        # a wait for an accelerator, and half the speed on a CPU; hence only where the cell is wanted.
        packed = pack_padded_sequence(x_BTX, lengths_B.cpu(), batch_first=True, enforce_sorted=False)
        outputs, (end, cell) = self.kernel(packed)
        outputs_BTD, _ = pad_packed_sequence(outputs, batch_first=True, total_length=x_BTX.shape[1])
        return outputs_BTD, Hidden(end[0], cell[0])

    def _one(self, x_BX: Tensor, hidden: Hidden) -> Hidden:
        """One token: torch's cells do it in half the time of the kernels for sequences."""
        if hidden.cell_BD is not None:
            return Hidden(*torch.lstm_cell(x_BX, (hidden.output_BD, hidden.cell_BD), *self.kernel.all_weights[0]))
        one = torch.gru_cell if self.cell == "gru" else torch.rnn_tanh_cell
        return Hidden(one(x_BX, hidden.output_BD, *self.kernel.all_weights[0]))


class ReadingLayer(nn.Module):
    """One layer of an encoder. In both directions, each has d_model / 2 units: together d_model."""

    def __init__(self, sizes: StackSizes, d_input: int, keep_cell: bool) -> None:
        super().__init__()
        self.keep_cell = keep_cell
        units = sizes.d_model // 2 if sizes.bidirectional else sizes.d_model
        self.left_to_right = RecurrentLayer(sizes.cell, d_input, units)
        self.right_to_left = RecurrentLayer(sizes.cell, d_input, units) if sizes.bidirectional else None

    def forward(self, x_BSX: Tensor, lengths_B: Tensor | None) -> tuple[Tensor, Hidden]:
        """The state at each token, [B, S, D], and the one after reading each row to its end."""
        states_BSD, end = self.left_to_right.read(x_BSX, lengths_B, self.keep_cell)
        if self.right_to_left is None:
            return states_BSD, end
        turned_BSX = reverse_rows(x_BSX, lengths_B)
        back_BSD, back_end = self.right_to_left.read(turned_BSX, lengths_B, self.keep_cell)
        both_BSD = torch.cat([states_BSD, reverse_rows(back_BSD, lengths_B)], dim=-1)
        return both_BSD, end.beside(back_end)


# ---- stacks


@dataclass(frozen=True)
class StackSizes:
    """What a stack of recurrent layers is made of."""

    cell: Cell
    layers: int
    d_input: int
    d_model: int
    dropout: float
    links: Links = "plain"
    bidirectional: Directions = False
    """True: each layer reads both ways, "first": the lowest one does, "alternating": see `InterleavedEncoder`."""
    d_context: int = 0
    """The size of what every layer but the lowest reads beside its input."""
    experts: tuple[int, int, int, float] | None = None
    """Below the top layer: how many, how many of them a token asks, d_ff of each, the weight of their balance."""

    def d_inputs(self) -> list[int]:
        """The size of each layer's input, lowest first; a context beside it does not count."""
        return [self.d_input] + [self.d_model] * (self.layers - 1)


class Link(nn.Module):
    """How a layer's input x and output y become what the layer above reads.

    plain         y
    residual      x + y, except around the lowest layer, whose input has its own size   (Wu et al. 2016, 3.1)
    fast-forward  W·[x; y], a linear road past all the layers                          (Zhou et al. 2016, 3.1)
    """

    def __init__(self, links: Links, d_input: int, d_model: int, lowest: bool) -> None:
        super().__init__()
        self.adds = links == "residual" and not lowest
        self.join = nn.Linear(d_input + d_model, d_model) if links == "fast-forward" else None

    def forward(self, x_BTX: Tensor, y_BTD: Tensor) -> Tensor:
        """[B, T, X] and [B, T, D] → [B, T, D]."""
        if self.join is not None:
            y_BTD = self.join(torch.cat([x_BTX, y_BTD], dim=-1))
        return x_BTX + y_BTD if self.adds else y_BTD


class RecurrentEncoder(nn.Module):
    """A stack that reads a whole sentence, in one direction, in both, or in both in its lowest layer.

    With `keep_cells` the states at the rows' ends have an LSTM's memory cells, too.
    """

    def __init__(self, sizes: StackSizes, keep_cells: bool) -> None:
        super().__init__()
        both = {True: sizes.layers, "first": 1}.get(sizes.bidirectional, 0)
        self.layers = nn.ModuleList(
            ReadingLayer(replace(sizes, bidirectional=index < both), x, keep_cells)
            for index, x in enumerate(sizes.d_inputs())
        )
        self.links = links_of(sizes)
        self.experts = _experts(sizes)
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(
        self, x_BSX: Tensor, lengths_B: Tensor | None, real_BS: Tensor | None = None
    ) -> tuple[Tensor, tuple[Hidden, ...]]:
        """The top layer's states, [B, S, D], and the state of every layer at each row's end.

        `real_BS` tells experts which tokens are not padding: an empty row has a length of 1.
        """
        ends: list[Hidden] = []
        for layer, link in zip(self.layers, self.links, strict=True):
            if self.experts is not None and len(ends) == len(self.layers) - 1:
                x_BSX = x_BSX + self.dropout(self.experts(x_BSX, real_BS))
            x_BSX = self.dropout(x_BSX)
            y_BSD, end = layer(x_BSX, lengths_B)
            x_BSX = link(x_BSX, y_BSD)
            ends.append(end)
        return x_BSX, tuple(ends)


class RecurrentStack(nn.Module):
    """A stack that reads from left to right and can stop after any token: a decoder or a language model.

    Dropout is on what goes up, never on what goes through time (Zaremba et al. 2014, section 3.2). With
    `sizes.d_context` every layer but the lowest reads a context beside its input, which links go past (GNMT).
    """

    def __init__(self, sizes: StackSizes) -> None:
        super().__init__()
        lowest, *others = sizes.d_inputs()
        self.layers = nn.ModuleList(
            RecurrentLayer(sizes.cell, x, sizes.d_model) for x in (lowest, *(x + sizes.d_context for x in others))
        )
        self.links = links_of(sizes)
        self.experts = _experts(sizes)
        self.dropout = nn.Dropout(sizes.dropout)

    def zero(self, rows: int) -> tuple[Hidden, ...]:
        """The states before anything was read, one a layer."""
        layers = [layer for layer in self.layers if isinstance(layer, RecurrentLayer)]
        return tuple(layer.zero(rows) for layer in layers)

    def forward(
        self,
        x_BTX: Tensor,
        hidden: Sequence[Hidden],
        context_BTD: Tensor | None = None,
        real_BT: Tensor | None = None,
    ) -> tuple[Tensor, tuple[Hidden, ...]]:
        """T more tokens from the states `hidden`, one a layer: outputs [B, T, D] and the new states.

        `real_BT` tells experts which tokens are not padding.
        """
        y_BTD, first = self.lowest(x_BTX, hidden[0])
        y_BTD, others = self.above(y_BTD, hidden[1:], context_BTD, real_BT)
        return y_BTD, (first, *others)

    def lowest(self, x_BTX: Tensor, hidden: Hidden) -> tuple[Tensor, Hidden]:
        """The lowest layer alone: what the second one reads, [B, T, D], and the new state."""
        x_BTX = self.dropout(x_BTX)
        y_BTD, hidden = self.layers[0](x_BTX, hidden)
        return self.links[0](x_BTX, y_BTD), hidden

    def above(
        self,
        x_BTD: Tensor,
        hidden: Sequence[Hidden],
        context_BTD: Tensor | None = None,
        real_BT: Tensor | None = None,
    ) -> tuple[Tensor, tuple[Hidden, ...]]:
        """All layers but the lowest, which has read these tokens."""
        after: list[Hidden] = []
        for layer, link, before in zip(self.layers[1:], self.links[1:], hidden, strict=True):
            if self.experts is not None and len(after) == len(hidden) - 1:
                x_BTD = x_BTD + self.dropout(self.experts(x_BTD, real_BT))
            x_BTD = self.dropout(x_BTD)
            beside = x_BTD if context_BTD is None else torch.cat([x_BTD, self.dropout(context_BTD)], dim=-1)
            y_BTD, end = layer(beside, before)
            x_BTD = link(x_BTD, y_BTD)
            after.append(end)
        return x_BTD, tuple(after)


def _experts(sizes: StackSizes) -> MixtureOfExperts | None:
    """What stands below the top layer of a stack, if anything does (Shazeer et al. 2017, appendix E)."""
    if sizes.experts is None:
        return None
    experts, active, d_ff, balance = sizes.experts
    return MixtureOfExperts(sizes.d_model, d_ff, "relu", experts, active, balance)


def links_of(sizes: StackSizes) -> nn.ModuleList:
    """One link for each layer of a stack."""
    return nn.ModuleList(
        Link(sizes.links, d_input, sizes.d_model, lowest=index == 0) for index, d_input in enumerate(sizes.d_inputs())
    )


def initialise(model: nn.Module) -> None:
    """Glorot matrices, orthogonal ones through time, zero biases, and LSTMs that begin by remembering."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.uniform_(module.weight, -0.1, 0.1)
        elif isinstance(module, nn.RNNBase):
            _initialise_kernel(module)


def _initialise_kernel(kernel: nn.RNNBase) -> None:
    inward, through, *biases = kernel.all_weights[0]
    # Gates share one matrix in memory; each must begin as if it had its own.
    for gate in inward.detach().split(kernel.hidden_size):
        nn.init.xavier_uniform_(gate)
    for gate in through.detach().split(kernel.hidden_size):
        nn.init.orthogonal_(gate)
    for bias in biases:
        nn.init.zeros_(bias)
    if isinstance(kernel, nn.LSTM):
        # Jozefowicz et al. 2015: a forget gate that begins open lets gradients reach far back.
        nn.init.ones_(biases[0].detach().split(kernel.hidden_size)[1])


# ---- attention to the encoder's states


@dataclass(frozen=True)
class Glance:
    """What attention brought back: the context, and where it was taken from if that was worked out.

    `log_chance_BQ` is the log-probability of the position that hard attention drew.
    """

    context_BQD: Tensor
    weights_BQK: Tensor | None = None
    log_chance_BQ: Tensor | None = None


class StateAttention(nn.Module):
    """One-head attention of a decoder's state s to the encoder's states h_1 … h_K.

        α = softmax(score(s, h)),  context = Σ_k α_k·h_k

        additive  vᵀ·tanh(W·s + U·h)   (Bahdanau et al. 2015, appendix A.1.2)
        general   sᵀ·W·h               (Luong et al. 2015, section 3.1)
        dot       sᵀ·h                 (the same)
        scaled    sᵀ·h / √d_model      (Vaswani et al. 2017, section 3.2.1)

    Hard attention takes one h_k instead: drawn from α in training, the likeliest in evaluation.
    """

    def __init__(self, d_model: int, score: Score, hard: bool = False) -> None:
        super().__init__()
        if score not in get_args(Score):
            known = ", ".join(get_args(Score))
            raise UsageError(f"StateAttention: score must be one of {known}, but is {score!r}; choose one of them")
        self.score, self.hard = score, hard
        self.scale = 1 / math.sqrt(d_model) if score == "scaled" else 1.0
        additive, plain = score == "additive", score in ("dot", "scaled")
        self.query = nn.Linear(d_model, d_model) if additive else nn.Identity()
        self.key = nn.Identity() if plain else nn.Linear(d_model, d_model, bias=False)
        self.vector = nn.Linear(d_model, 1, bias=False) if additive else None
        self.watcher: Watcher | None = None

    def keys_values(self, memory_BKD: Tensor) -> KeyValue:
        """What the encoder's states offer, as keys and values of one head; made once."""
        return KeyValue(self.key(memory_BKD)[:, None], memory_BKD[:, None])

    def forward(self, state_BQD: Tensor, kv: KeyValue, readable_BK: Tensor | None) -> Glance:
        """What each state of `state_BQD` gathers from `kv`. The caller passes the weights on to `watcher`.

        `readable_BK` says which of the encoder's states may be looked at; None is all of them.
        """
        query_BQD, values_BKD = self.query(state_BQD), kv.values_BHKE[:, 0]
        if self.watcher is None and not self.hard and self.vector is None:
            allowed = None if readable_BK is None else readable_BK[:, None, None]
            context = F.scaled_dot_product_attention(
                query_BQD[:, None], kv.keys_BHKE, kv.values_BHKE, attn_mask=allowed, scale=self.scale
            )
            return Glance(context[:, 0])
        scores_BQK = self._scores(query_BQD, kv.keys_BHKE[:, 0])
        if readable_BK is not None:
            scores_BQK = scores_BQK.masked_fill(~readable_BK[:, None], -torch.inf)
        if not self.hard:
            weights_BQK = scores_BQK.softmax(dim=-1)
            return Glance(weights_BQK @ values_BKD, weights_BQK)
        log_weights_BQK = scores_BQK.log_softmax(dim=-1)
        chosen_BQ = self.choose(log_weights_BQK.detach())
        log_chance_BQ = log_weights_BQK.gather(2, chosen_BQ[:, :, None])[:, :, 0]
        weights_BQK = F.one_hot(chosen_BQ, scores_BQK.shape[2]).to(values_BKD)
        return Glance(weights_BQK @ values_BKD, weights_BQK, log_chance_BQ)

    def choose(self, log_weights_BQK: Tensor) -> Tensor:
        """The position that hard attention takes for each query, [B, Q]."""
        if not self.training:
            return log_weights_BQK.argmax(dim=-1)
        return torch.multinomial(log_weights_BQK.flatten(0, 1).exp(), 1).view(log_weights_BQK.shape[:2])

    def _scores(self, query_BQD: Tensor, keys_BKD: Tensor) -> Tensor:
        if self.vector is None:
            return query_BQD @ keys_BKD.transpose(1, 2) * self.scale
        scores_BQK1: Tensor = self.vector((query_BQD[:, :, None] + keys_BKD[:, None]).tanh())
        return scores_BQK1[..., 0]


def readable(source: Places) -> Tensor | None:
    """Which source tokens a decoder may look at, [B, K]: all but padding. None where there is none."""
    if source.segments_BT is None:
        return None
    real_BK = source.segments_BT != PADDING_SEGMENT
    # A row that is all padding may look anywhere: a softmax over nothing is NaN.
    return real_BK | ~real_BK.any(dim=1, keepdim=True)
