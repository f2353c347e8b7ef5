"""Muon: Adam, but the matrices inside the model take orthogonal steps (Jordan et al. 2024, "Muon: An optimizer for
hidden layers in neural networks").

Shapes: N matrices of one shape, R rows, C columns.

    M ← M + (1 - μ)·(G - M)                               the moving mean of the gradients G
    U = G + μ·(M - G)                                     where it will be after one more such gradient (Nesterov)
    O = orthogonal(U)                                     U = P·Σ·Qᵀ with every number in Σ made about 1
    W ← W - rate·(length·√max(R, C)·O + weight_decay·W)   so that `length` is the root mean square of a step's entries

A gradient is mostly a few large directions; in O all directions count alike, the rare ones too. A length of 0.2 is what
Adam's steps usually have (Liu et al. 2025, "Muon is Scalable for LLM Training", section 2.2), so that one rate serves
both. Embeddings, the output projection, biases and norms are Adam's, as Jordan has it.

Matrices of one shape are stacked, and so are their means, so that a step of the base model is a few dozen large
products instead of thousands of small ones. The first two lines and the last one are descent with momentum and without,
for each of which torch has one kernel that reads and writes every number once. Nothing waits for a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from regard.layers.attention import Attention
from regard.layers.experts import MixtureOfExperts
from regard.layers.feedforward import FeedForward

# One Newton-Schulz step takes each singular value s to a·s + b·s³ + c·s⁵. Jordan chose these for the steepest rise of
# small ones: after five steps all above a 500th of the norm are somewhere from 0.68 to 1.2, which is near enough.
A, B, C = 3.4445, -4.7750, 2.0315
ROUNDS = 5
TINY = 1e-7
MEAN = "momentum"


def matrices_of(model: nn.Module) -> dict[Tensor, int]:
    """The matrices that Muon changes, and of how many equal ones, stacked along the rows, each consists.

    They are those of all linear maps and recurrent layers but the model's `output`. Keys and values of one size are two
    matrices, a SwiGLU's gate and values, too, and a recurrent layer has one for each gate. A convolution, gated or not,
    is the linear map of its taps. Each expert has its own; what chooses among them is Adam's, as an output is. What has
    one row or column only is a vector.
    """
    found: dict[Tensor, int] = {}
    output = getattr(model, "output", None)
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            for name, weight in module.named_parameters():
                if name.startswith("weight"):
                    found[weight] = len(weight) // module.hidden_size
        elif isinstance(module, nn.Linear) and module is not output:
            found.setdefault(module.weight, 1)
        elif isinstance(module, Attention) and module.d_k == module.d_v:
            found[module.key_value.weight] = 2
        elif isinstance(module, FeedForward) and module.activation == "swiglu":
            found[module.inner.weight] = 2
        elif isinstance(module, MixtureOfExperts):
            experts = len(module.gate_ED)
            found[module.inner_EFD] = 2 * experts if module.activation == "swiglu" else experts
            found[module.outer_EDF] = experts
    tables = {module.weight for module in model.modules() if isinstance(module, nn.Embedding)}
    return {
        weight: pieces
        for weight, pieces in found.items()
        if weight.requires_grad and weight not in tables and min(weight.shape[-2:]) > 1
    }


def _size(weight: Tensor, pieces: int) -> tuple[int, int]:
    """Rows and columns of one of the matrices that a weight consists of."""
    return weight.numel() // (pieces * weight.shape[-1]), weight.shape[-1]


def orthogonal(x_NRC: Tensor) -> Tensor:
    """The nearest matrices whose rows (or columns, if they are fewer) are orthonormal, [N, R, C]: roughly, and fast.

    Five Newton-Schulz steps X ← (a·I + b·X·Xᵀ + c·(X·Xᵀ)²)·X, in bf16 on GPUs. A matrix of zeros stays one.
    """
    norm_N11 = torch.linalg.vector_norm(x_NRC, dim=(-2, -1), keepdim=True).clamp(min=TINY)
    unit_NRC = torch.empty_like(x_NRC, dtype=torch.bfloat16 if x_NRC.is_cuda else x_NRC.dtype)
    x_NRC = torch.div(x_NRC, norm_N11, out=unit_NRC)
    wide = x_NRC.shape[-2] <= x_NRC.shape[-1]
    for _ in range(ROUNDS):
        # On the shorter side; (X·Xᵀ)·X = X·(Xᵀ·X).
        square_NMM = x_NRC @ x_NRC.mT if wide else x_NRC.mT @ x_NRC
        factor_NMM = torch.baddbmm(square_NMM, square_NMM, square_NMM, beta=B, alpha=C)
        factor_NMM.diagonal(dim1=-2, dim2=-1).add_(A)
        x_NRC = factor_NMM @ x_NRC if wide else x_NRC @ factor_NMM
    return x_NRC


def flops(matrices: Mapping[Tensor, int]) -> int:
    """FLOPs of the products of one step, two for each multiply-add: 5·(4·m²·n + 2·m³) for sides m ≤ n, whatever the
    batch."""
    total = 0
    for weight, pieces in matrices.items():
        short, long = sorted(_size(weight, pieces))
        total += pieces * ROUNDS * (4 * short**2 * long + 2 * short**3)
    return total


class Muon(torch.optim.AdamW):
    """Orthogonal steps for `matrices`, AdamW's for the others, at one rate; `vectors` are not pulled towards zero.

    `matrices` says of how many stacked ones each consists. The first of the `param_groups` is theirs, and each has its
    mean in `state[weight]["momentum"]`. `grad_scale` and `found_inf` do what they do for torch's fused optimisers.
    """

    def __init__(
        self,
        matrices: Mapping[Tensor, int],
        tables: Sequence[Tensor],
        vectors: Sequence[Tensor],
        rate: float | Tensor,
        length: float,
        momentum: float,
        betas: tuple[float, float],
        epsilon: float,
        weight_decay: float,
    ) -> None:
        groups: list[dict[str, Any]] = [
            {"params": list(matrices), "length": length, "momentum": momentum},
            {"params": tables},
            {"params": vectors, "weight_decay": 0.0},
        ]
        super().__init__(groups, rate, betas, epsilon, weight_decay, fused=True, capturable=isinstance(rate, Tensor))
        alike: dict[tuple[int, int], dict[Tensor, int]] = {}
        for weight, pieces in matrices.items():
            alike.setdefault(_size(weight, pieces), {})[weight] = pieces
        self._alike = [_Alike(*shape, list(found), list(found.values())) for shape, found in alike.items()]

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Adam's own looks for its counts of steps, of which matrices have none.
        torch.optim.Optimizer.__setstate__(self, state)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Change all weights once."""
        own, *others = self.param_groups
        self.param_groups = others
        try:
            loss: float | None = super().step(closure)
        finally:
            self.param_groups = [own, *others]
        for alike in (part for whole in self._alike for part in whole.with_gradients()):
            step_NRC = orthogonal(self._ahead(alike, own["momentum"])).to(alike.weights[0].dtype)
            length = own["length"] * math.sqrt(max(alike.rows, alike.columns))
            _descend(
                alike.weights, alike.apart(step_NRC), [], rate=own["lr"] * length, momentum=0.0,
                weight_decay=own["weight_decay"] / length, found_inf=getattr(self, "found_inf", None),
            )  # fmt: skip
        return loss

    def _ahead(self, alike: _Alike, momentum: float) -> Tensor:
        """Take the gradients into the means, and give U, [N, R, C]; zeros, and the means as they are, if a gradient is
        no number."""
        # With (1 - μ)·G for the gradient, what torch calls Nesterov momentum is M ← μ·M + (1 - μ)·G, and its step is U.
        ahead_NRC = torch.zeros_like(self._means(alike))
        gradients = [weight.grad.contiguous() for weight in alike.weights if weight.grad is not None]
        scale: Tensor | None = getattr(self, "grad_scale", None)
        scale = torch.ones((), device=ahead_NRC.device) if scale is None else scale
        _descend(
            alike.apart(ahead_NRC), gradients, alike.means, rate=-1.0, momentum=momentum, weight_decay=0.0,
            scale=scale / (1 - momentum), found_inf=getattr(self, "found_inf", None),
        )  # fmt: skip
        return ahead_NRC

    def _means(self, alike: _Alike) -> Tensor:
        """The stacked means, of which those in `state` are views; what somebody else put there is taken over."""
        if alike.mean_NRC is None:
            alike.mean_NRC = alike.weights[0].new_zeros(sum(alike.pieces), alike.rows, alike.columns)
            alike.means = alike.apart(alike.mean_NRC)
        for weight, own in zip(alike.weights, alike.means, strict=True):
            there = self.state[weight].get(MEAN)
            if there is not own:
                own.zero_() if there is None else own.copy_(there)
                self.state[weight][MEAN] = own
        return alike.mean_NRC


def _descend(
    weights: list[Tensor],
    gradients: list[Tensor],
    means: list[Tensor],
    *,
    rate: float | Tensor,
    momentum: float,
    weight_decay: float,
    scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    """Gradient descent, with Nesterov momentum if there are `means`, in one kernel; it divides the gradients by `scale`
    for good, and does nothing at all where `found_inf` is 1."""
    torch._fused_sgd_(
        weights, gradients, means, lr=rate, momentum=momentum, weight_decay=weight_decay, dampening=0.0,
        nesterov=bool(means), maximize=False, is_first_step=False, grad_scale=scale, found_inf=found_inf,
    )  # fmt: skip


@dataclass
class _Alike:
    """Matrices of one shape; `weights` may consist of several such `pieces`."""

    rows: int
    columns: int
    weights: list[Tensor]
    pieces: list[int]
    mean_NRC: Tensor | None = None
    means: list[Tensor] = field(default_factory=list)
    """Views of it, one for each of the weights and in its shape."""

    def with_gradients(self) -> list[_Alike]:
        """Itself; where some weights had no part in the loss, each of the others alone, and those stay as they are."""
        missing = [weight.grad is None for weight in self.weights]
        if not any(missing):
            return [self]
        alone = zip(self.weights, self.pieces, missing, strict=True)
        return [_Alike(self.rows, self.columns, [weight], [pieces]) for weight, pieces, none in alone if not none]

    def apart(self, x_NRC: Tensor) -> list[Tensor]:
        """Views of what is stacked, one for each of the weights and in its shape."""
        return [part.view_as(weight) for part, weight in zip(x_NRC.split(self.pieces), self.weights, strict=True)]
