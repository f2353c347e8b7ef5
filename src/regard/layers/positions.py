"""Telling a model where a token stands.

Shapes: B rows, T tokens, Q queries, K keys, D model, H heads, E head size, R relative distances,
X = T·R of them laid end to end.

Two places to say it. *Added to the embedding* (Attention Is All You Need, section 3.5):

    sinusoidal   PE(pos, 2i) = sin(pos / 10000^(2i/d)),  PE(pos, 2i+1) = cos(pos / 10000^(2i/d))
    learned      a vector for each position up to a limit (Table 3, row E)

*Inside self-attention*, so that only distances matter (a scheme turns queries and keys, or biases scores):

    rotary       q and k turned by angles that grow with their position       (Su et al. 2021, section 3)
    relative     score += q · r[clip(k - q)], a learned vector a distance     (Shaw et al. 2018, section 3;
                 for keys only, as in Music Transformer, Huang et al. 2018)
    alibi        score -= slope_h · |q - k|                                   (Press et al. 2022, section 3)
    relative-waves  score = (q + u)·k + (q + v)·W·wave(q - k)                 (Dai et al. 2019, section 3.3)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from regard.batch import Places
from regard.errors import UsageError
from regard.layers.mask import Visible

PositionKind = Literal["sinusoidal", "learned", "rotary", "relative", "alibi", "relative-waves"]
WAVELENGTH = 10_000.0


class TooLongError(UsageError):
    """A sequence has more tokens than positions were learned for."""


def frequencies(size: int) -> Tensor:
    """1 / 10000^(2i/size) for i = 0, 1, …: the angular speeds of the waves."""
    even = torch.arange(0, size, 2, dtype=torch.float64)
    return torch.exp(-math.log(WAVELENGTH) * even / size).float()


class SinusoidalPositions(nn.Module):
    """The paper's fixed waves. They have no length limit: they are computed, not looked up."""

    frequencies_D: Tensor

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.register_buffer("frequencies_D", frequencies(d_model), persistent=False)
        self.d_model = d_model

    def forward(self, positions_BT: Tensor) -> Tensor:
        """The waves at `positions_BT`: [B, T, D], sines at even and cosines at odd places."""
        angles_BTD = positions_BT[..., None].float() * self.frequencies_D
        waves_BTD = torch.stack([angles_BTD.sin(), angles_BTD.cos()], dim=-1).flatten(-2)
        return waves_BTD[..., : self.d_model]


class LearnedPositions(nn.Module):
    """A learned vector for each of `limit` positions; there is none for a position beyond them."""

    def __init__(self, limit: int, d_model: int) -> None:
        super().__init__()
        self.table = nn.Embedding(limit, d_model)
        nn.init.normal_(self.table.weight, std=d_model**-0.5)

    def forward(self, positions_BT: Tensor) -> Tensor:
        """The vectors at `positions_BT`: [B, T, D]."""
        return self.table(positions_BT)


def check_length(length: int, limit: int | None, places: Places) -> None:
    """Raise if a sentence is longer than the positions a model has learned.

    `length` counts the tokens of a row, those of earlier steps included: no position in `places` can be beyond it.
    Only a row that is longer than `limit` has to be looked at, because it may hold several sentences, or padding.
    """
    if limit is None or length <= limit:
        return
    if places.segments_BT is not None:
        # Looking at values breaks a compiled graph and stops an accelerator; in training, the kernel that looks
        # positions up is trusted to refuse what it does not have.
        busy = places.positions_BT.device.type != "cpu" and torch.is_grad_enabled()
        if busy or torch.compiler.is_compiling():
            return
        length = int(places.positions_BT.max()) + 1
    if length > limit:
        raise TooLongError(
            f"positions: a sequence must have at most {limit:,} tokens, since positions are learned up to "
            f"`max_positions`, but has {length:,}. Shorten it, or train with more or with sinusoidal positions."
        )


class PositionScheme(nn.Module, ABC):
    """A way to make attention mind positions."""

    @abstractmethod
    def forward(self, query_BHQE: Tensor, keys_BHKE: Tensor, visible: Visible) -> tuple[Tensor, Tensor, Tensor | None]:
        """The queries and keys to compare, and what to add to their scores (broadcasts to [B, H, Q, K])."""

    def kept(self, keys_BHTE: Tensor, visible: Visible) -> Tensor:
        """The keys of tokens that ask `visible`, as they are kept for later ones."""
        return keys_BHTE


class RotaryPositions(PositionScheme):
    """Each pair of coordinates is turned by position · frequency: q·k then depends on the distance alone.

    A key is turned once, before it is kept: a step that looks back at a long text would turn all of it again.
    """

    frequencies_E: Tensor

    def __init__(self, d_k: int) -> None:
        super().__init__()
        if d_k % 2:
            raise UsageError(f"positions: rotary positions turn pairs, so d_k must be even, but is {d_k}.")
        self.register_buffer("frequencies_E", frequencies(d_k), persistent=False)

    def forward(self, query_BHQE: Tensor, keys_BHKE: Tensor, visible: Visible) -> tuple[Tensor, Tensor, None]:
        """Turned queries, the keys that `kept` has turned, no bias."""
        return self._turn(query_BHQE, visible.positions()[0]), keys_BHKE, None

    def kept(self, keys_BHTE: Tensor, visible: Visible) -> Tensor:
        """Turned keys; beams that share their sentence's memory ask side by side, but each writes a row."""
        positions_BT = visible.positions()[0].reshape(keys_BHTE.shape[0], keys_BHTE.shape[2])
        return self._turn(keys_BHTE, positions_BT)

    def _turn(self, x_BHTE: Tensor, positions_BT: Tensor) -> Tensor:
        angles_B1TE = (positions_BT[..., None].float() * self.frequencies_E)[:, None]
        sine, cosine = angles_B1TE.sin(), angles_B1TE.cos()
        even, odd = x_BHTE.float().unflatten(-1, (-1, 2)).unbind(-1)
        turned = torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], dim=-1)
        return turned.flatten(-2).to(x_BHTE.dtype)


class RelativePositions(PositionScheme):
    """A learned vector for each distance up to `reach` either way; farther keys share the last one."""

    def __init__(self, d_k: int, reach: int) -> None:
        super().__init__()
        self.reach = reach
        self.table_RE = nn.Parameter(torch.randn(2 * reach + 1, d_k) * d_k**-0.5)

    def forward(self, query_BHQE: Tensor, keys_BHKE: Tensor, visible: Visible) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys as they are, and q·r / √d_k for each distance."""
        table_RE = self.table_RE.to(query_BHQE.dtype) / math.sqrt(query_BHQE.shape[-1])
        if visible.goes_by_columns():
            return query_BHQE, keys_BHKE, self._skewed(query_BHQE, table_RE)
        distance_B1QK = (visible.ahead().clamp(-self.reach, self.reach) + self.reach)[:, None]
        bias = (query_BHQE @ table_RE.T).gather(-1, distance_B1QK.expand(-1, query_BHQE.shape[1], -1, -1))
        return query_BHQE, keys_BHKE, bias

    def _skewed(self, query_BHTE: Tensor, table_RE: Tensor) -> Tensor:
        """The same where distances go by columns, without looking anything up."""
        length = query_BHTE.shape[2]
        distances_R = torch.arange(1 - length, length + 1, device=query_BHTE.device).clamp(-self.reach, self.reach)
        return skewed(query_BHTE @ table_RE[distances_R + self.reach].T)


def skewed(scores_BHTR: Tensor) -> Tensor:
    """Scores of all distances from 1 - T to T, [B, H, T, 2T] → those of the columns, [B, H, T, T].

    Inside a sentence positions rise by one, so column k of row q is k - q ahead. Between sentences that is not so, but
    there nothing is visible. The rows are laid end to end: read in rows of 2T - 1, the scores of each row begin one
    place further to the left, as they should (Music Transformer, section 3.4.1).
    """
    length = scores_BHTR.shape[2]
    scores_BHX = scores_BHTR.flatten(-2)
    rows_BHTR = scores_BHX[..., : length * (2 * length - 1)].unflatten(-1, (length, 2 * length - 1))
    return rows_BHTR[..., length - 1 :]


class RelativeWaves(PositionScheme):
    """A key for every distance, made from the waves at it; two learned vectors a head ask for content and distance.

    score = [(q + u)·k + (q + v)·W·wave(query - key)] / √d_k. Waves have no limit, so neither have distances.
    """

    def __init__(self, d_model: int, heads: int, d_k: int) -> None:
        super().__init__()
        self.waves = SinusoidalPositions(d_model)
        self.key = nn.Linear(d_model, heads * d_k, bias=False)
        self.content_HE = nn.Parameter(torch.zeros(heads, d_k))
        self.distance_HE = nn.Parameter(torch.zeros(heads, d_k))

    def forward(self, query_BHQE: Tensor, keys_BHKE: Tensor, visible: Visible) -> tuple[Tensor, Tensor, Tensor]:
        """q + u, the keys as they are, and (q + v)·W·wave(query - key) / √d_k."""
        content_H1E, distance_H1E = (x[:, None].to(query_BHQE.dtype) for x in (self.content_HE, self.distance_HE))
        asking_BHQE = (query_BHQE + distance_H1E) / math.sqrt(query_BHQE.shape[-1])
        columns = keys_BHKE.shape[2]
        if visible.goes_by_columns():
            scores_BHTR = self._scores(asking_BHQE, torch.arange(1 - columns, columns + 1, device=keys_BHKE.device))
            return query_BHQE + content_H1E, keys_BHKE, skewed(scores_BHTR)
        # Every position below the newest is that of some key, so no distance is larger than there are keys.
        scores_BHQR = self._scores(asking_BHQE, torch.arange(-columns, columns + 1, device=keys_BHKE.device))
        place_B1QK = (visible.ahead().clamp(-columns, columns) + columns)[:, None]
        bias_BHQK = scores_BHQR.gather(-1, place_B1QK.expand(-1, query_BHQE.shape[1], -1, -1))
        return query_BHQE + content_H1E, keys_BHKE, bias_BHQK

    def _scores(self, asking_BHQE: Tensor, ahead_R: Tensor) -> Tensor:
        """What each query has to do with keys so far ahead of it, [B, H, Q, R]."""
        keys_RD = self.key(self.waves(-ahead_R).to(asking_BHQE.dtype)).to(asking_BHQE.dtype)
        keys_HRE = keys_RD.unflatten(-1, self.content_HE.shape).transpose(0, 1)
        return asking_BHQE @ keys_HRE.transpose(-2, -1)


class LinearBias(PositionScheme):
    """ALiBi: scores fall with distance, each head at its own fixed slope: 2^(-8/H), 2^(-16/H), …

    That is for a power of two. Otherwise, as in the authors' code, the slopes are those of the power of two below H,
    then every other one of the power above, until there are H.
    """

    slopes_H: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__()
        below = 2 ** (heads.bit_length() - 1)
        between = _slopes(2 * below)[::2][: heads - below]
        self.register_buffer("slopes_H", torch.cat([_slopes(below), between]), persistent=False)

    def forward(self, query_BHQE: Tensor, keys_BHKE: Tensor, visible: Visible) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys as they are, and -slope · distance."""
        bias_BHQK = -self.slopes_H[:, None, None] * visible.ahead().abs()[:, None]
        return query_BHQE, keys_BHKE, bias_BHQK.to(query_BHQE.dtype)


def _slopes(heads: int) -> Tensor:
    """2^(-8/H), 2^(-16/H), …, 2^-8: H of them."""
    return torch.exp2(-8.0 * torch.arange(1, heads + 1) / heads)


def position_scheme(kind: PositionKind, heads: int, d_k: int, reach: int, d_model: int) -> PositionScheme | None:
    """The scheme inside attention for `kind`; None for those that are added to the embedding."""
    match kind:
        case "rotary":
            return RotaryPositions(d_k)
        case "relative":
            return RelativePositions(d_k, reach)
        case "alibi":
            return LinearBias(heads)
        case "relative-waves":
            return RelativeWaves(d_model, heads, d_k)
        case "sinusoidal" | "learned":
            return None
        case _:
            raise unknown_positions(kind)


def unknown_positions(kind: str) -> UsageError:
    """What to raise for a kind of positions that there is not."""
    kinds = ", ".join(get_args(PositionKind))
    return UsageError(f"positions: must be one of {kinds}, but are {kind!r}; choose one of them")
