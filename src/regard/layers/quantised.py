"""Linear maps for decoding on a CPU, where the time goes into reading weights from memory.

Shapes: R rows, I inputs, O outputs.

    packed   the same fp32 numbers, laid out once as the kernel wants them. Otherwise it does so in every call, which
             for a handful of rows (the beams of a sentence) takes as long as the product itself.
    int8     a quarter of the bytes. Weights have a scale for each output, w ≈ scale_o · q, |q| ≤ 127; each row of the
             input gets its own when it comes, x ≈ scale_r · q. A scale for all rows together, as torch's dynamic
             quantisation has it, would make a sentence's translation depend on its neighbours in the batch.

Both are for inference, and both ask torch first whether it has what they need on this machine.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 127
LEAST = torch.finfo(torch.float).tiny
MIDDLE = 128  # inputs are unsigned: this stands for 0
ROWS = 128  # that packed weights are laid out for; measured, this layout is the best for 4 rows, too
FEW, SMALL = 4, 512 * 512  # a small matrix times so many rows is as fast as it stands
WORTHWHILE = 128 * 1024  # smaller matrices stay in the processor's cache, whatever their precision


class PackedLinear(nn.Module):
    """x·Wᵀ + b in fp32."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        super().__init__()
        self.weight_OI, self.bias_O = weight_OI.detach(), None if bias_O is None else bias_O.detach()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight_OI, ROWS)
        self.plain_up_to = weight_OI.shape[1] * (FEW if weight_OI.numel() <= SMALL else 1)  # numbers of an input

    def forward(self, x_RI: Tensor) -> Tensor:
        """[…, I] → […, O]."""
        if x_RI.numel() <= self.plain_up_to:
            return F.linear(x_RI, self.weight_OI, self.bias_O)  # nothing is laid out there, and less is in the way
        multiply = _bare(torch.ops.mkldnn._linear_pointwise.default)
        product_RO: Tensor = multiply(x_RI.contiguous(), self.packed, self.bias_O, "none", [], "")
        return product_RO


class Int8Linear(nn.Module):
    """x·Wᵀ + b with weights and inputs in 8 bits, sums in 32."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        super().__init__()
        self.bias_O = None if bias_O is None else bias_O.detach()
        weight_OI = weight_OI.detach().float()
        scale_O = weight_OI.abs().amax(dim=1).clamp(min=torch.finfo(torch.float).tiny * LEVELS) / LEVELS
        nothing_O = torch.zeros(len(scale_O), dtype=torch.long)
        engine, torch.backends.quantized.engine = torch.backends.quantized.engine, "fbgemm"
        try:
            with warnings.catch_warnings():
                # torch means to drop this way of making the tensor; until it offers another, there is no way around.
                warnings.simplefilter("ignore", UserWarning)
                weight = torch.quantize_per_channel(weight_OI, scale_O.double(), nothing_O, 0, torch.qint8)
                self.packed = torch.ops.quantized.linear_prepack(weight, None)
        finally:
            torch.backends.quantized.engine = engine

    def forward(self, x_RI: Tensor) -> Tensor:
        """[…, I] → […, O]."""
        reach_R1 = x_RI.abs().amax(dim=-1, keepdim=True).clamp_(min=LEAST)
        multiply = _bare(torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default)
        y_RO: Tensor = multiply(x_RI / reach_R1, 1 / LEVELS, MIDDLE, self.packed)
        return y_RO.mul_(reach_R1) if self.bias_O is None else torch.addcmul(self.bias_O, y_RO, reach_R1)


def _bare(operator: Callable[..., Any]) -> Callable[..., Any]:
    """What torch calls in the end, without the Python around it, which looks at every argument in every call."""
    return getattr(operator, "_op", operator)


@cache
def can_pack() -> bool:
    """Whether torch lays out fp32 weights on this machine, and computes the same with them."""
    return _works(PackedLinear, tolerance=1e-4)


@cache
def can_quantise() -> bool:
    """Whether torch multiplies in 8 bits on this machine, each row by its own scale."""
    return _works(Int8Linear, tolerance=0.1)


def _works(kind: type[PackedLinear | Int8Linear], tolerance: float) -> bool:
    draw = torch.Generator().manual_seed(1)
    weight_OI, bias_O, x_RI = (torch.randn(*size, generator=draw) for size in ((16, 32), (16,), (3, 32)))
    wanted_RO = F.linear(x_RI, weight_OI, bias_O)
    try:
        found_RO = kind(weight_OI, bias_O)(x_RI)
    except (AttributeError, RuntimeError):  # how torch says that it was built without, or that the processor cannot
        return False
    return bool((found_RO - wanted_RO).norm() <= tolerance * wanted_RO.norm())


def replace_linears(model: nn.Module, kind: type[PackedLinear | Int8Linear]) -> None:
    """Every linear map of `model` that is large enough becomes one of this kind, in place."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Linear and child.weight.numel() >= WORTHWHILE:
                setattr(module, name, kind(child.weight, child.bias))
