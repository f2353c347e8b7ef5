"""Dropout whose choices are a pure function of where they are made (Srivastava et al. 2014; the paper's section 5.4).

Shapes: B rows, T tokens, D model.

    y = x ⊙ keep / (1 - p),    keep = hash(seed of the step and of this module, place in the batch) ≥ p

A usual dropout draws from a generator, and what it draws depends on everything drawn before. Here it depends on the
run's seed, the step, the module and the place alone. A run goes on after a stop, or with its batch divided among
more processes or into smaller parts, and drops the very same numbers. A compiled graph gains as well: a hash of the
place is a few instructions inside the kernel that uses it, and is computed again in the backward pass instead of kept.

Recurrent layers keep torch's own dropout: their decoders may go token by token, and every token would have the same
place.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

LOWEST = -(2**31)


class Dropout(nn.Dropout):
    """Leaves numbers out with chance `p`; by `Noise` if one is attached, by torch's generator otherwise."""

    def __init__(self, p: float) -> None:
        super().__init__(p)
        self.noise: Tensor | None = None
        """This module's own seed, and the number of the batch's first row."""

    def forward(self, x: Tensor) -> Tensor:
        """The same shape; outside of training, the same numbers."""
        if not self.training or self.p == 0:
            return x
        if self.noise is None:
            return F.dropout(x, self.p)
        keep = hashed(x, self.noise) >= threshold(self.p)
        return x * keep * (1 / (1 - self.p))


class TokenCut(Dropout):
    """Cuts whole tokens, [B, T, D], from every second row, and does not make up for it (SimCut)."""

    def __init__(self) -> None:
        super().__init__(0.0)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """The same shape; while `p` is 0, as it is unless an objective asks for more, the same numbers."""
        if not self.training or self.p == 0:
            return x_BTD
        if self.noise is None:
            keep_BT1 = torch.rand_like(x_BTD[..., :1]) >= self.p
        else:
            keep_BT1 = hashed(x_BTD[..., :1], self.noise) >= threshold(self.p)
        keep_BT1[0::2] = True
        return x_BTD * keep_BT1


class Noise:
    """The randomness of a model in training: one seed for all of its dropouts, set anew before each step."""

    def __init__(self, model: nn.Module, seed: int) -> None:
        self.seed = seed
        found = [module for module in model.modules() if isinstance(module, Dropout)]
        device = next(model.parameters()).device
        # A row for each: layers then differ in tensors alone, and code compiled for one serves all. 16 bytes a row, so
        # that none is out of step with what compiled code reads at a time.
        self.numbers = torch.zeros(len(found), 4, dtype=torch.int32, device=device)
        for module, row in zip(found, self.numbers, strict=True):
            module.noise = row

    def set(self, step: int, first_row: int = 0) -> None:
        """What is dropped in this step; `first_row` is where in the whole batch the rows begin that are read now."""
        drawn = np.random.PCG64([self.seed, step]).random_raw(len(self.numbers)) >> np.uint64(32)
        values = torch.zeros(self.numbers.shape, dtype=torch.int32)
        values[:, 0] = torch.from_numpy(drawn.astype(np.uint32).view(np.int32))
        values[:, 1] = first_row
        on_gpu = self.numbers.device.type == "cuda"
        self.numbers.copy_(values.pin_memory() if on_gpu else values, non_blocking=True)


def hashed(x: Tensor, noise: Tensor) -> Tensor:
    """A number for each place of `x`, spread evenly over all of int32, that follows from seed and place alone."""
    seed, first_row = noise[0], noise[1]
    numbers = torch.arange(x.numel(), dtype=torch.int32, device=x.device).view(x.shape)
    numbers += first_row * (x.numel() // max(x.shape[0], 1))
    numbers *= -1640531535  # 2^32 / the golden ratio: neighbours far apart
    numbers += seed
    # As MurmurHash3 (Appleby) ends, on wrapping integers; the masks make shifts fill up with zeros, not with the sign.
    numbers ^= (numbers >> 16).bitwise_and_(0xFFFF)
    numbers *= -2048144789
    numbers ^= (numbers >> 13).bitwise_and_(0x7FFFF)
    numbers *= -1028477387
    return numbers


def threshold(rate: float) -> int:
    """The smallest of those numbers that stay."""
    return LOWEST + round(rate * 2**32)
