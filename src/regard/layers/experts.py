"""A feed-forward network of many experts, of which each token asks a few (Shazeer et al. 2017).

Shapes: B rows, T tokens, N tokens of all rows, M = N·A the same as often as they ask, D model, F feed-forward,
E experts, A experts that a token asks.

    H(x) = x·W_g + noise ⊙ softplus(x·W_noise)       noise from N(0, 1) in training, none elsewhere       (section 2.1)
    G(x) = softmax over the A largest of H(x), 0 for all others
    y    = Σ_e G(x)_e · FFN_e(x)

So that all experts have something to learn, two losses make it dear to favour some (section 4 and appendix A):

    balance · (CV²(Σ_x G(x)) + CV²(Σ_x P(x)))         CV² = variance / mean², over the experts
    P(x)_e = chance that e is among the A largest if its own noise is drawn anew

The sums are over all tokens x that are read together, padding left out.

The paper's experts stand between LSTM layers, as in `RecurrentStack`; in a Transformer they take the place of the
feed-forward network. W_g begins at random and not at zero, where all experts would tie.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.layers.dropout import Dropout, hashed
from regard.layers.feedforward import Activation, activate

TINY = 1e-10


# ---- products of each group of rows with a matrix of its own


@torch.library.custom_op("regard::by_group", mutates_args=())
def by_group(x_MD: Tensor, weight_EFD: Tensor, ends_E: Tensor) -> Tensor:
    """x·Wᵀ, [M, F], the rows up to ends_E[0] by the first matrix, those up to ends_E[1] by the second, …

    On GPUs it is one kernel, for bf16, that asks the host nothing.
    """
    if x_MD.is_cuda:
        return F.grouped_mm(x_MD, weight_EFD.mT, offs=ends_E)
    y_MF = x_MD.new_empty(x_MD.shape[0], weight_EFD.shape[1])
    for expert, rows in enumerate(_groups(ends_E)):
        torch.mm(x_MD[rows], weight_EFD[expert].T, out=y_MF[rows])
    return y_MF


@torch.library.custom_op("regard::by_group_weights", mutates_args=())
def by_group_weights(y_MF: Tensor, x_MD: Tensor, ends_E: Tensor) -> Tensor:
    """yᵀ·x of each group by itself, [E, F, D]: the gradients of `by_group`'s matrices."""
    if x_MD.is_cuda:
        return F.grouped_mm(y_MF.T, x_MD, offs=ends_E)
    found = [y_MF[rows].T @ x_MD[rows] for rows in _groups(ends_E)]
    return torch.stack(found)


def _groups(ends_E: Tensor) -> list[slice]:
    ends = ends_E.tolist()
    return [slice(first, last) for first, last in zip((0, *ends), ends, strict=False)]


@by_group.register_fake
def _(x_MD: Tensor, weight_EFD: Tensor, ends_E: Tensor) -> Tensor:
    return x_MD.new_empty(x_MD.shape[0], weight_EFD.shape[1])


@by_group_weights.register_fake
def _(y_MF: Tensor, x_MD: Tensor, ends_E: Tensor) -> Tensor:
    return x_MD.new_empty(ends_E.shape[0], y_MF.shape[1], x_MD.shape[1])


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, d_MF: Tensor) -> tuple[Tensor, Tensor, None]:
    x_MD, weight_EFD, ends_E = ctx.saved_tensors
    d_MF = d_MF.contiguous()
    return by_group(d_MF, weight_EFD.mT.contiguous(), ends_E), by_group_weights(d_MF, x_MD, ends_E), None


by_group.register_autograd(_backward, setup_context=_keep)


def _flops(x: torch.Size, other: torch.Size, _ends: torch.Size, out_shape: object = None, **_more: object) -> int:
    """Of both products, from the shapes of their first two arguments: a row takes one matrix, whichever."""
    return 2 * x[0] * x[1] * other[1]


FLOPS = {torch.ops.regard.by_group: _flops, torch.ops.regard.by_group_weights: _flops}
"""What counts the products, for torch's `FlopCounterMode`."""


# ---- the layer


def check_experts(experts: int, active: int, balance: float) -> None:
    """Raise ValueError for settings that cannot be; for `__post_init__` of those that have them."""
    if experts < 1:
        raise ValueError(f"`experts` must be at least 1, but is {experts}")
    if experts > 1 and not 2 <= active <= experts:
        # The share of a single one is 1 whatever the gate says, which would learn nothing from the text.
        raise ValueError(f"`active_experts` must be between 2 and `experts` ({experts}), but is {active}")
    if not 0 <= balance < math.inf:
        raise ValueError(f"`balance` must be at least 0 and finite, but is {balance}")


class GateNoise(Dropout):
    """Numbers drawn from N(0, 1); like what dropout draws, they follow from seed, step and place alone."""

    def __init__(self) -> None:
        super().__init__(0.0)

    def forward(self, x: Tensor) -> Tensor:
        """As many as `x` has places."""
        if self.noise is None:
            return torch.randn_like(x)
        even = hashed(x, self.noise).float() / 2**31
        return math.sqrt(2) * even.clamp(-1 + 1e-6, 1 - 1e-6).erfinv()


class MixtureOfExperts(nn.Module):
    """`experts` feed-forward networks, of which each token asks the `active` that its gate finds best."""

    def __init__(
        self, d_model: int, d_ff: int, activation: Activation, experts: int, active: int, balance: float
    ) -> None:
        super().__init__()
        self.activation, self.active, self.balance = activation, active, balance
        inner = 2 * d_ff if activation == "swiglu" else d_ff
        self.gate_ED = nn.Parameter(torch.empty(experts, d_model))
        self.spread_ED = nn.Parameter(torch.zeros(experts, d_model))
        self.inner_EFD = nn.Parameter(torch.empty(experts, inner, d_model))
        self.inner_bias_EF = nn.Parameter(torch.zeros(experts, inner))
        self.outer_EDF = nn.Parameter(torch.empty(experts, d_model, d_ff))
        self.outer_bias_ED = nn.Parameter(torch.zeros(experts, d_model))
        for matrix in (self.gate_ED, *self.inner_EFD.detach(), *self.outer_EDF.detach()):
            nn.init.xavier_uniform_(matrix)
        self.noise = GateNoise()
        self.asked_2E: Tensor | None = None
        """Both sums over what was read last in training. Whoever reads token by token adds up those of all tokens."""

    def forward(self, x_BTD: Tensor, real_BT: Tensor | None = None) -> Tensor:
        """[B, T, D] → [B, T, D]; `real_BT` says which tokens are not padding, and None that all are."""
        gates_BTA, chosen_BTA = self._choose(x_BTD, real_BT)
        if torch.is_autocast_enabled(_kind(x_BTD)):
            x_BTD = x_BTD.to(torch.get_autocast_dtype(_kind(x_BTD)))
        x_ND, gates_NA, chosen_NA = (part.flatten(0, 1) for part in (x_BTD, gates_BTA, chosen_BTA))
        ask = self.ask_all if self._asks_all(x_BTD) else self.ask_chosen
        y_ND = ask(x_ND, gates_NA.to(x_ND.dtype), chosen_NA)
        return y_ND.to(x_ND.dtype).view_as(x_BTD)  # autocast makes sums float32 on GPUs

    def take_imbalance(self) -> Tensor:
        """The two losses of what was read last in training, []; whoever asks adds them to what is made small."""
        assert self.asked_2E is not None, "nothing was read in training"
        (importance_E, load_E), self.asked_2E = self.asked_2E, None
        return self.balance * _uneven(importance_E) + self.balance * _uneven(load_E)

    def _choose(self, x_BTD: Tensor, real_BT: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What each token gives on the word of the experts it asks, and which these are, [B, T, A] each.

        In full precision: a token on the border between two experts should not depend on its company.
        """
        with torch.autocast(_kind(x_BTD), enabled=False):
            x_BTD = x_BTD.float()
            scores_BTE = F.linear(x_BTD, self.gate_ED.float())
            if not self.training:
                best_BTA, chosen_BTA = scores_BTE.topk(self.active, dim=-1)
                return best_BTA.softmax(dim=-1), chosen_BTA
            spread_BTE = F.softplus(F.linear(x_BTD, self.spread_ED.float()))
            noisy_BTE = scores_BTE + self.noise(scores_BTE) * spread_BTE
            best, places = noisy_BTE.topk(min(self.active + 1, noisy_BTE.shape[-1]), dim=-1)
            gates_BTA, chosen_BTA = best[..., : self.active].softmax(dim=-1), places[..., : self.active]
            importance_BTE = torch.zeros_like(scores_BTE).scatter(-1, chosen_BTA, gates_BTA)
            # Where all are asked, none is asked more often than others.
            load_BTE = torch.ones_like(scores_BTE)
            if self.active < noisy_BTE.shape[-1]:
                load_BTE = _chances(scores_BTE, spread_BTE, noisy_BTE, best)
            self.asked_2E = torch.stack([_total(importance_BTE, real_BT), _total(load_BTE, real_BT)])
            return gates_BTA, chosen_BTA

    def _asks_all(self, x_BTD: Tensor) -> bool:
        """Whether a GPU had better ask all experts: where it has no kernel to ask a few, and for the few tokens of a
        decoding step, which are not worth sorting."""
        if not x_BTD.is_cuda:
            return False
        aligned = x_BTD.shape[2] % 8 == 0 and self.outer_EDF.shape[2] % 8 == 0
        return x_BTD.shape[1] == 1 or x_BTD.dtype != torch.bfloat16 or not aligned

    def ask_chosen(self, x_ND: Tensor, gates_NA: Tensor, chosen_NA: Tensor) -> Tensor:
        """[N, D] → [N, D]: tokens are sorted by the experts they ask, each expert reads its own, and all go back."""
        kind, experts = x_ND.dtype, self.gate_ED.shape[0]
        order_M = chosen_NA.flatten().argsort(stable=True)
        asked_ME = (chosen_NA.flatten()[order_M, None] == torch.arange(experts, device=order_M.device)).to(kind)
        ends_E = asked_ME.sum(dim=0, dtype=torch.int32).cumsum(dim=0, dtype=torch.int32)
        x_MD = x_ND[order_M // self.active]
        # A matrix product adds the biases: a sum of rows taken by index would be slow on the way back.
        y_MF = by_group(x_MD, self.inner_EFD.to(kind), ends_E) + asked_ME @ self.inner_bias_EF.to(kind)
        y_MF = activate(y_MF, self.activation)
        y_MD = by_group(y_MF, self.outer_EDF.to(kind), ends_E) + asked_ME @ self.outer_bias_ED.to(kind)
        back_M = torch.empty_like(order_M).scatter_(0, order_M, torch.arange(len(order_M), device=order_M.device))
        y_NAD = y_MD[back_M].unflatten(0, chosen_NA.shape)
        return (y_NAD * gates_NA[:, :, None]).sum(dim=1)

    def ask_all(self, x_ND: Tensor, gates_NA: Tensor, chosen_NA: Tensor) -> Tensor:
        """The same, but every expert reads every token, and what nobody asked for counts nothing."""
        kind = x_ND.dtype
        gates_NE = gates_NA.new_zeros(len(x_ND), self.gate_ED.shape[0]).scatter(1, chosen_NA, gates_NA)
        y_ENF = x_ND @ self.inner_EFD.mT.to(kind) + self.inner_bias_EF[:, None].to(kind)
        y_END = activate(y_ENF, self.activation) @ self.outer_EDF.mT.to(kind) + self.outer_bias_ED[:, None].to(kind)
        return (y_END * gates_NE.T[:, :, None]).sum(dim=0)


def _kind(x: Tensor) -> str:
    """The device for which torch is asked about precisions: it has no answer for `meta`."""
    return "cuda" if x.is_cuda else "cpu"


def _total(of_tokens_BTE: Tensor, real_BT: Tensor | None) -> Tensor:
    """The sum over all tokens that are not padding, [E]."""
    if real_BT is not None:
        # Rows that share the keys of one sentence may be told of side by side, [B / n, n·T].
        of_tokens_BTE = of_tokens_BTE * real_BT.reshape(of_tokens_BTE.shape[:2])[:, :, None]
    return of_tokens_BTE.sum(dim=(0, 1))


def _uneven(of_experts_E: Tensor) -> Tensor:
    """CV²: variance / mean², []."""
    return of_experts_E.var(unbiased=False) / (of_experts_E.mean() ** 2 + TINY)


def _chances(scores_BTE: Tensor, spread_BTE: Tensor, noisy_BTE: Tensor, best_BTA: Tensor) -> Tensor:
    """P(x): how likely each expert would be asked if its own noise were drawn anew, [B, T, E].

    `best_BTA` are the A + 1 largest of the noisy scores. To be asked, an expert must beat the last that is, or, if it
    is asked itself, the first that is not.
    """
    last, first_not = best_BTA[..., -2:-1], best_BTA[..., -1:]
    bar_BTE = torch.where(noisy_BTE > first_not, first_not, last)
    return torch.special.ndtr((scores_BTE - bar_BTE) / spread_BTE)
