"""Adam and its learning rates (Attention Is All You Need, section 5.3), Muon, and plain gradient descent.

    paper          factor · d_model^-0.5 · min(step^-0.5, step · warmup^-1.5)
    inverse-sqrt   rate · √(warmup / step)
    cosine         final + (rate - final) · (1 + cos(π · progress)) / 2
    linear         final + (rate - final) · (1 - progress)
    constant       rate
    steps          rate / decay^n, where n counts the stretches of `decay_every` steps begun since step `decay_from`

step = 1, 2, …; progress goes from 0 at the end of the warm-up to 1 at the last step or, by the clock, when the time is
up, whichever comes first. All but the paper's rise in a straight line to `rate` during the warm-up, as the paper's does
by its own formula.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from regard.errors import UsageError
from regard.layers.experts import MixtureOfExperts
from regard.layers.positions import RelativeWaves
from regard.settings import check_words
from regard.settings.bounds import check_at_least, check_positive, check_shares, check_weights
from regard.training.muon import Muon, flops, matrices_of
from regard.training.sharding import is_sharded

Schedule = Literal["paper", "inverse-sqrt", "cosine", "linear", "constant", "steps"]
ENDING: tuple[Schedule, ...] = ("cosine", "linear")  # those that fall to an end, and must know where it is
READ_BY: dict[str, tuple[Schedule, ...]] = {
    "factor": ("paper",), "rate": ("inverse-sqrt", "cosine", "linear", "constant", "steps"), "final": ENDING,
    "decay": ("steps",), "decay_from": ("steps",), "decay_every": ("steps",),
}  # fmt: skip


def height_of(schedule: str) -> Literal["factor", "rate"]:
    """The setting that says how high such a schedule goes."""
    return "factor" if schedule == "paper" else "rate"


def unread_by(schedule: str) -> list[str]:
    """The settings of an optimiser that such a schedule does not read."""
    return [name for name, schedules in READ_BY.items() if schedule not in schedules]


@dataclass(frozen=True)
class OptimiserSettings:
    """Adam's settings and the schedule's; the defaults are the paper's."""

    kind: Literal["adam", "adamw", "muon", "sgd"] = "adam"
    """`adamw` pulls weights towards zero apart from the gradient (Loshchilov and Hutter 2019); `muon` is the same, but
    takes orthogonal steps with the matrices inside the model (Jordan et al. 2024); `sgd` follows the gradient as it
    is."""
    schedule: Schedule = "paper"
    warmup: int = 4_000
    factor: float = 1.0
    """What the paper's rate is multiplied by; for schedule = "paper"."""
    rate: float = 1e-3
    """The highest rate, reached at the end of the warm-up; for the other schedules."""
    final: float = 0.0
    """The rate of the last step; for schedule = "cosine" and "linear"."""
    decay: float = 2.0
    """What the rate is divided by at each stretch; for schedule = "steps"."""
    decay_from: int = 0
    """The last step of the full rate; for schedule = "steps"."""
    decay_every: int = 1_000
    """The steps of a stretch; for schedule = "steps"."""
    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-9
    length: float = 0.2
    """How long the steps of `muon`'s matrices are before the rate, as the root mean square of their entries; Adam's are
    about 0.2."""
    momentum: float = 0.95
    """How slowly the mean of gradients moves of which `muon` takes the direction."""
    weight_decay: float = 0.0
    """How hard `adamw` and `muon` pull, on matrices alone; biases, norms and the like are left alone."""
    clip: float | None = None

    def __post_init__(self) -> None:
        check_words(self)
        least = 1 if self.schedule in ("paper", "inverse-sqrt") else 0
        if self.warmup < least:
            raise ValueError(f"`warmup` must be at least {least} for schedule = {self.schedule}, but is {self.warmup}")
        check_positive(self, "factor", "rate", "epsilon", "length", "clip")
        if not 1 <= self.decay < math.inf:
            raise ValueError(f"`decay` must be at least 1 and finite, but is {self.decay}")
        check_at_least(0, self, "decay_from")
        check_at_least(1, self, "decay_every")
        check_shares(self, "beta1", "beta2", "momentum")
        if not 0 <= self.final <= self.rate:
            raise ValueError(f"`final` must be from 0 to `rate` ({self.rate}), but is {self.final}")
        check_weights(self, "weight_decay")
        if self.weight_decay and self.kind not in ("adamw", "muon"):
            raise ValueError(f'`weight_decay` needs kind = "adamw" or "muon", but kind is "{self.kind}"')
        for name in ("length", "momentum"):
            if getattr(self, name) != getattr(type(self), name) and self.kind != "muon":
                raise ValueError(f'`{name}` is for kind = "muon", but kind is "{self.kind}"')

    def idle(self) -> list[str]:
        """The settings that were given and that the schedule does not read."""
        return [name for name in unread_by(self.schedule) if getattr(self, name) != getattr(type(self), name)]

    def progress(self, step: int, steps: int, over: float = 0.0) -> float:
        """How far step 1, 2, … is on the way from the end of the warm-up to that of the run, from 0 to 1: by steps or,
        if that is more, by the clock, which says how much is `over`."""
        return min(1.0, max(0.0, (step - self.warmup) / max(1, steps - self.warmup), over))

    def learning_rate(self, step: int, d_model: int, steps: int, over: float = 0.0) -> float:
        """The rate of step 1, 2, … of a run of `steps`; `over` as in `progress`."""
        if self.schedule == "paper":
            return self.factor * d_model**-0.5 * min(step**-0.5, step * self.warmup**-1.5)
        if step < self.warmup:
            return self.rate * step / self.warmup
        progress = self.progress(step, steps, over)
        match self.schedule:
            case "inverse-sqrt":
                return self.rate * math.sqrt(self.warmup / step)
            case "cosine":
                return self.final + (self.rate - self.final) * (1 + math.cos(math.pi * progress)) / 2
            case "linear":
                return self.final + (self.rate - self.final) * (1 - progress)
            case "constant":
                return self.rate
            case "steps":
                return self.rate / self.decay ** max(0, -(-(step - self.decay_from) // self.decay_every))


def optimiser(model: nn.Module, settings: OptimiserSettings) -> torch.optim.Optimizer:
    """What changes all of the model's parameters: Adam or plain gradient descent in one fused kernel, or Muon."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    left_alone = vectors_of(model)
    matrices, vectors = ([weight for weight in weights if (weight in left_alone) == left] for left in (False, True))
    on_gpu = bool(weights) and weights[0].is_cuda
    # On a GPU the rate is a number in its memory: a recorded step reads the one of the day.
    rate: float | Tensor = torch.zeros((), device=weights[0].device) if on_gpu else 0.0
    if settings.kind == "sgd":
        return torch.optim.SGD(weights, rate, fused=True)
    betas = (settings.beta1, settings.beta2)
    if settings.kind == "muon":
        if is_sharded(model):
            raise UsageError(
                "training.optimiser.kind: `muon` needs whole matrices, but the weights are divided among processes "
                "(FSDP). Set training.parallel=ddp, or choose `adamw`."
            )
        inside = matrices_of(model)
        tables = [weight for weight in matrices if weight not in inside]
        return Muon(
            inside, tables, vectors, rate, settings.length, settings.momentum, betas, settings.epsilon,
            settings.weight_decay,
        )  # fmt: skip
    if settings.kind == "adam":
        return torch.optim.Adam(weights, rate, betas, settings.epsilon, fused=True, capturable=on_gpu)
    groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, rate, betas, settings.epsilon, fused=True, capturable=on_gpu)


def vectors_of(model: nn.Module) -> set[Tensor]:
    """The weights that nobody pulls towards zero: biases, norms and the like, also where those of all experts or of all
    heads are stacked."""
    found: set[Tensor] = {weight for weight in model.parameters() if weight.ndim < 2}
    for module in model.modules():
        if isinstance(module, MixtureOfExperts):
            found |= {module.inner_bias_EF, module.outer_bias_ED}
        elif isinstance(module, RelativeWaves):
            found |= {module.content_HE, module.distance_HE}
    return found


def state_bytes(model: nn.Module, settings: OptimiserSettings) -> int:
    """What the optimiser keeps of the weights: two numbers for each of Adam's, one for each of Muon's."""
    if settings.kind == "sgd":
        return 0
    inside = matrices_of(model) if settings.kind == "muon" else {}
    return sum((1 if weight in inside else 2) * weight.nbytes for weight in model.parameters() if weight.requires_grad)


def step_flops(model: nn.Module, settings: OptimiserSettings) -> int:
    """FLOPs of the optimiser's own products in one step, whatever the batch: Muon's; the others have none."""
    return flops(matrices_of(model)) if settings.kind == "muon" else 0


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """The learning rate of the next step."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


@torch.no_grad()
def apply(optimiser: torch.optim.Optimizer, norm: Tensor, clip: float | None) -> Tensor:
    """Change the weights once, unless the gradient's `norm` is no number; says whether it was one, [], on the device.

    Nothing here waits for a GPU. The fused kernel itself divides the gradients by `grad_scale`, which clips them, and
    does nothing at all where `found_inf` is 1: the two doors torch keeps for mixed precision.
    """
    usable = norm.isfinite()
    setattr(optimiser, "found_inf", (~usable).float())  # noqa: B010
    setattr(optimiser, "grad_scale", None if clip is None else torch.where(usable, norm / clip, 1.0).clamp(min=1.0))  # noqa: B010
    optimiser.step()
    return usable
