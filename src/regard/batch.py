"""What a model reads: token ids in rows, and where in its sentence each token stands.

Shapes: B rows, T tokens, S source tokens.

A row may hold one sentence and padding, or several whole sentences one after another. Both are said in
the same way, by giving each token a *segment* (0 is padding, 1, 2, … are the row's sentences) and a
*position* inside that segment. Masks, positions and losses need nothing else.

Padding stands on the right of a row, behind its last sentence. Models that read a row in order (recurrent ones,
ByteNet) or look for its ends (a classifier that takes the first or the last token) count on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import UsageError

PADDING_SEGMENT = 0
IGNORED = -100  # a label that carries no loss, as torch's cross entropy counts it


@dataclass(frozen=True)
class Specials:
    """The ids of the tokens that are not text. A language model may start and end with the same one."""

    padding: int
    start: int
    end: int

    @property
    def unwritten(self) -> set[int]:
        """Those that no text holds, whatever a model thinks of them: only the end is written, and stops."""
        return {self.padding, self.start} - {self.end}


@dataclass(frozen=True)
class Places:
    """Where each token of each row stands.

    `segments_BT` may be None: then every row is one whole sentence without padding, and positions rise by
    one. That is worth knowing, because attention can then use its fastest kernels.
    """

    positions_BT: Tensor
    segments_BT: Tensor | None = None
    unbroken: bool = True
    """Whether the tokens of each sentence stand side by side: then columns are as far apart as positions are."""

    @classmethod
    def whole(cls, ids_BT: Tensor, first: int = 0) -> Places:
        """The places of `ids_BT` when each row is one sentence, at positions `first`, `first + 1`, …"""
        positions_T = torch.arange(first, first + ids_BT.shape[1], device=ids_BT.device)
        return cls(positions_T.expand(ids_BT.shape))

    def extend(self, new: Places) -> Places:
        """These places followed by `new` ones."""
        positions = torch.cat([self.positions_BT, new.positions_BT], dim=1)
        if self.segments_BT is None and new.segments_BT is None:
            return Places(positions)
        # A sentence that goes on in the new ones has others, or padding, in between.
        segments = torch.cat([self.segments_or_ones(), new.segments_or_ones()], dim=1)
        return Places(positions, segments, unbroken=False)

    def segments_or_ones(self) -> Tensor:
        """The segments, spelled out where the rows are whole sentences."""
        if self.segments_BT is None:
            return torch.ones_like(self.positions_BT)
        return self.segments_BT

    def real(self) -> Tensor | None:
        """Which tokens are not padding, [B, T]; None where all are."""
        return None if self.segments_BT is None else self.segments_BT != PADDING_SEGMENT

    def check_one_sentence(self, where: str) -> None:
        """Refuse rows that hold several sentences, or padding in front of one, for a model that reads in order."""
        # Looking at values would stop an accelerator and break a compiled graph; there the batcher is trusted
        # to respect `packs_sentences = False` of the model.
        if self.segments_BT is None or self.segments_BT.device.type != "cpu" or torch.compiler.is_compiling():
            return
        several_B = (self.segments_BT > 1).any(dim=1)
        if several_B.any():
            row = int(several_B.nonzero()[0])
            raise UsageError(
                f"{where}: needs one sentence a row, but row {row} holds {int(self.segments_BT[row].max())}; "
                "batch without packing"
            )
        early_B = (self.segments_BT[:, 1:] > self.segments_BT[:, :-1]).any(dim=1)
        if early_B.any():
            row = int(early_B.nonzero()[0])
            raise UsageError(
                f"{where}: needs padding on the right of a row, but in row {row} some stands before a token; "
                "put it behind, as Tokens.padded does"
            )

    def select(self, rows: Tensor) -> Places:
        """The given rows, in the given order; a row may be named twice."""
        segments = None if self.segments_BT is None else self.segments_BT.index_select(0, rows)
        return Places(self.positions_BT.index_select(0, rows), segments, self.unbroken)

    def share(self, keys: Places) -> Places:
        """These places with as many rows as `keys`: neighbouring rows, the beams of one sentence, side by side."""
        rows = keys.positions_BT.shape[0]
        if rows == self.positions_BT.shape[0]:
            return self
        segments = None if self.segments_BT is None else self.segments_BT.reshape(rows, -1)
        return Places(self.positions_BT.reshape(rows, -1), segments, unbroken=False)

    def map(self, function: Callable[[Tensor], Tensor]) -> Places:
        """The same places after `function` has been applied to each tensor."""
        segments = None if self.segments_BT is None else function(self.segments_BT)
        return Places(function(self.positions_BT), segments, self.unbroken)


@dataclass(frozen=True)
class Tokens:
    """Token ids in rows, and their places."""

    ids_BT: Tensor
    places: Places

    @classmethod
    def whole(cls, ids_BT: Tensor) -> Tokens:
        """Rows that are each one whole sentence, all of one length, without padding."""
        return cls(ids_BT, Places.whole(ids_BT))

    @classmethod
    def padded(cls, sentences: Sequence[Sequence[int]], padding: int, length: int | None = None) -> Tokens:
        """One sentence a row, filled up with `padding` on the right to `length` or to the longest."""
        longest = max(map(len, sentences))
        length = longest if length is None else length
        ids = torch.full((len(sentences), length), padding, dtype=torch.long)
        for row, sentence in enumerate(sentences):
            ids[row, : len(sentence)] = torch.as_tensor(sentence, dtype=torch.long)
        lengths_B1 = torch.tensor([[len(sentence)] for sentence in sentences])
        positions = torch.arange(length).expand(len(sentences), length)
        real = positions < lengths_B1
        return cls(ids, Places(torch.where(real, positions, 0), real.long()))

    def map(self, function: Callable[[Tensor], Tensor]) -> Tokens:
        """The same tokens after `function` has been applied to each tensor."""
        return Tokens(function(self.ids_BT), self.places.map(function))

    def to(self, device: torch.device) -> Tokens:
        """The same tokens on another device."""
        return self.map(lambda x: x.to(device, non_blocking=True))


@dataclass(frozen=True)
class Batch:
    """One training batch: what is read, what is fed to the decoder, and what it should answer.

    `labels_BT[b, t]` is the token that follows `target.ids_BT[b, t]`; `IGNORED` where there is none.
    A model without a source (a language model) has `source = None`.
    """

    source: Tokens | None
    target: Tokens
    labels_BT: Tensor
    order_BT: Tensor | None = None
    """The turn of each label, from 0: when it is to be answered, the tokens of earlier turns are known, wherever they
    stand. None: from left to right, as nearly everywhere."""

    def map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """The same batch after `function` has been applied to each tensor; all have the same rows."""
        source = None if self.source is None else self.source.map(function)
        order_BT = None if self.order_BT is None else function(self.order_BT)
        return Batch(source, self.target.map(function), function(self.labels_BT), order_BT)

    def to(self, device: torch.device) -> Batch:
        """The same batch on another device."""
        return self.map(lambda x: x.to(device, non_blocking=True))

    def pinned(self) -> Batch:
        """The same batch in memory from which a copy to a GPU runs beside its work."""
        return self.map(lambda x: x.contiguous().pin_memory())

    def rows(self, which: slice) -> Batch:
        """Some of the rows."""
        return self.map(lambda x: x[which])
