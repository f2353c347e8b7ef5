"""Adam with the paper's learning rate (Attention Is All You Need, section 5.3).

lr(step) = factor · d_model^-0.5 · min(step^-0.5, step · warmup^-1.5),   step = 1, 2, …
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class OptimiserSettings:
    """Adam's settings and the schedule's; the defaults are the paper's."""

    warmup: int = 4_000
    factor: float = 1.0
    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-9
    clip: float | None = None

    def __post_init__(self) -> None:
        if self.warmup < 1:
            raise ValueError(f"`warmup` must be at least 1 step, but is {self.warmup}")
        for name in ("factor", "epsilon", "clip"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"`{name}` must be positive and finite, but is {value}")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 0 and below 1, but is {getattr(self, name)}")

    def learning_rate(self, step: int, d_model: int) -> float:
        """The rate of step 1, 2, …: it rises for `warmup` steps, then falls with the square root."""
        return self.factor * d_model**-0.5 * min(step**-0.5, step * self.warmup**-1.5)


def adam(model: nn.Module, settings: OptimiserSettings) -> torch.optim.Adam:
    """Adam over all of the model's parameters, in one fused kernel."""
    betas = (settings.beta1, settings.beta2)
    return torch.optim.Adam(model.parameters(), lr=0.0, betas=betas, eps=settings.epsilon, fused=True)
