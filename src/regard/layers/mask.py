"""Who may look at whom.

Shapes: B rows, H heads, Q queries, K keys.

One rule covers padded, packed, causal, windowed and cached rows alike, because it speaks of positions and
segments instead of matrix corners. Query i sees key j when

    they belong to the same segment             (padding, and sentences that share a row)
    and position_j <= position_i                (causal: the sequence mask of section 3.2.3)
    and |position_i - position_j| < window      (restricted self-attention, section 4)

`python -m regard.layers.mask` draws the common cases.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from regard.batch import PADDING_SEGMENT, Places


@dataclass(frozen=True)
class Visible:
    """The answer of a mask: which keys each query sees.

    `allowed_BQK` is None where every query sees every key, or where plain causal order says it all
    (`is_causal`): fused kernels are fastest when they are not handed a matrix. `places` are those of the
    queries and of the keys, for attention that minds how far apart they are. `added_BQK` says what `allowed_BQK`
    says in numbers to add to scores, 0 or -inf: a step of decoding makes them once, and not in every layer.
    """

    allowed_BQK: Tensor | None = None
    is_causal: bool = False
    places: tuple[Places, Places] | None = field(default=None, compare=False)
    added_BQK: Tensor | None = field(default=None, compare=False)

    def in_numbers(self, dtype: torch.dtype) -> Visible:
        """The same answer with `added_BQK`."""
        if self.allowed_BQK is None:
            return self
        nothing = torch.zeros((), dtype=dtype, device=self.allowed_BQK.device)
        return replace(self, added_BQK=torch.where(self.allowed_BQK, nothing, -torch.inf))

    def real(self) -> Tensor | None:
        """Which queries are not padding, [B, Q]; None where all are, or nobody knows."""
        return None if self.places is None else self.places[0].real()

    def positions(self) -> tuple[Tensor, Tensor]:
        """The positions of the queries, [B, Q], and of the keys, [B, K]."""
        if self.places is None:
            raise ValueError("Visible.positions: this answer was made without places; use Mask.visible")
        queries, keys = self.places
        return queries.positions_BT, keys.positions_BT

    def ahead(self) -> Tensor:
        """How far each key is ahead of each query, [B, Q, K]; negative for keys behind it."""
        queries_BQ, keys_BK = self.positions()
        return keys_BK[:, None, :] - queries_BQ[:, :, None]

    def goes_by_columns(self) -> bool:
        """Whether a visible key in column k is k - q ahead of the query in column q.

        So it is where queries and keys are the same tokens, whole rows and not a step that looks back at earlier ones,
        and where each sentence stands in one piece.
        """
        return self.places is not None and self.places[0] is self.places[1] and self.places[0].unbroken

    def dense(self, scores_BHQK: Tensor) -> Tensor:
        """The same answer as a boolean matrix for `scores_BHQK`; it broadcasts to [B, Q, K]."""
        if self.allowed_BQK is not None:
            return self.allowed_BQK
        everything = torch.ones_like(scores_BHQK[:1, 0], dtype=torch.bool)
        return everything.tril() if self.is_causal else everything


@dataclass(frozen=True)
class Mask:
    """A rule of sight between queries and keys; `visible` applies it to actual places."""

    causal: bool = False
    window: int | None = None

    def visible(self, queries: Places, keys: Places) -> Visible:
        """Apply the rule. With `causal`, the queries must be the newest of the keys, as in a cached step."""
        visible = Visible(places=(queries, keys))
        whole = queries.segments_BT is None and keys.segments_BT is None
        if whole and self.window is None:
            if not self.causal or queries.positions_BT.shape[1] == 1:
                return visible
            if queries.positions_BT.shape == keys.positions_BT.shape:
                return replace(visible, is_causal=True)
        allowed_BQK = self._segments_agree(queries, keys) & self._positions_agree(visible.ahead())
        return replace(visible, allowed_BQK=allowed_BQK)

    @staticmethod
    def _segments_agree(queries: Places, keys: Places) -> Tensor:
        query_BQ1 = queries.segments_or_ones()[:, :, None]
        key_B1K = keys.segments_or_ones()[:, None, :]
        # Padding may look anywhere: what it computes is never used, and a softmax over nothing is NaN.
        return (query_BQ1 == key_B1K) | (query_BQ1 == PADDING_SEGMENT)

    def _positions_agree(self, ahead_BQK: Tensor) -> Tensor:
        allowed = torch.ones_like(ahead_BQK, dtype=torch.bool)
        if self.causal:
            allowed = allowed & (ahead_BQK <= 0)
        if self.window is not None:
            allowed = allowed & (ahead_BQK.abs() < self.window)
        return allowed


def _draw(title: str, mask: Mask, places: Places) -> None:
    visible = mask.visible(places, places)
    length = places.positions_BT.shape[1]
    dense_QK = visible.dense(torch.zeros(1, 1, length, length))[0]
    print(f"\n{title}")
    for row in dense_QK.tolist():
        print("  " + " ".join("■" if cell else "·" for cell in row))


if __name__ == "__main__":
    whole = Places.whole(torch.zeros(1, 6))
    padded = Places(torch.tensor([[0, 1, 2, 3, 0, 0]]), torch.tensor([[1, 1, 1, 1, 0, 0]]))
    packed = Places(torch.tensor([[0, 1, 2, 0, 1, 2]]), torch.tensor([[1, 1, 1, 2, 2, 2]]))
    print("Rows are queries, columns are keys; ■ = the query sees the key.")
    _draw("everything", Mask(), whole)
    _draw("causal", Mask(causal=True), whole)
    _draw("causal, window of 3", Mask(causal=True, window=3), whole)
    _draw("padding (the last two are padding; what they see is never used)", Mask(), padded)
    _draw("two sentences packed in one row, causal", Mask(causal=True), packed)
