"""Norms that keep the precision of what they read: LayerNorm (Ba et al. 2016), RMSNorm (Zhang and Sennrich 2019).

Shapes: B rows, T tokens, D model, H heads, E size of one head's key.

    LayerNorm(x) = (x - mean(x)) / √(var(x) + ε) ⊙ g + b,   over the last dimension
    RMSNorm(x)   = x / √(mean(x²) + ε) ⊙ g
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LayerNorm(nn.LayerNorm):
    """Computed in fp32, given back in the precision of `x`.

    Under autocast torch's own gives back fp32, and with it the whole residual stream would be fp32: twice the memory
    to write and read around every sub-layer.
    """

    def forward(self, x_BTD: Tensor) -> Tensor:
        """[…, D] → […, D], of the same type."""
        if x_BTD.dtype == self.weight.dtype:
            # What torch's own does, without two calls in between: a step of decoding on a CPU has eighteen norms.
            return torch.layer_norm(x_BTD, self.normalized_shape, self.weight, self.bias, self.eps)
        with torch.autocast(x_BTD.device.type, enabled=False):
            y_BTD = F.layer_norm(x_BTD.float(), self.normalized_shape, self.weight.float(), self.bias.float(), self.eps)
        return y_BTD.to(x_BTD.dtype)


class RMSNorm(nn.RMSNorm):
    """Computed in fp32, given back in the precision of `x`, as above."""

    eps: float  # for torch it may also be None

    def forward(self, x_BTHE: Tensor) -> Tensor:
        """[…, E] → […, E], of the same type."""
        if x_BTHE.dtype == self.weight.dtype:
            return super().forward(x_BTHE)
        with torch.autocast(x_BTHE.device.type, enabled=False):
            y_BTHE = F.rms_norm(x_BTHE.float(), self.normalized_shape, self.weight.float(), self.eps)
        return y_BTHE.to(x_BTHE.dtype)
