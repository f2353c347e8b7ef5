"""In which numbers a trained model computes: made once after loading, for inference only.

fp32   as trained. On a CPU the weights are laid out once for its kernels, which changes no result.
bf16   half the bytes, for GPUs. Norms, softmaxes and scores are still computed in fp32.
int8   a quarter of the bytes, for CPUs. Norms, softmaxes and everything but linear maps stay in fp32.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import nn

from regard.errors import UsageError
from regard.layers import quantised
from regard.layers.quantised import Int8Linear, PackedLinear
from regard.models.interface import SequenceModel

Precision = Literal["fp32", "bf16", "int8"]


def convert(model: SequenceModel[Any], precision: Precision) -> None:
    """Make `model` compute in this precision, in place. It can no longer be trained or saved."""
    model.eval().requires_grad_(False)
    device = next(model.parameters()).device.type
    match precision:
        case "fp32":
            if device == "cpu" and quantised.can_pack():
                _replace(model, PackedLinear)
        case "bf16":
            if device == "cpu":
                raise UsageError(
                    'precision: "bf16" is for GPUs, but the model is on the CPU, where it is slow; use "fp32" or "int8"'
                )
            # Parameters only: the waves of positions are buffers, and would be out of tune in 8 bits.
            for parameter in model.parameters():
                parameter.data = parameter.data.to(torch.bfloat16)
        case "int8":
            if device != "cpu":
                raise UsageError(f'precision: "int8" is for CPUs, but the model is on "{device}"; use "bf16"')
            if not quantised.can_quantise():
                raise UsageError(
                    'precision: "int8" needs 8-bit products in torch, but this processor or build has none; use "fp32"'
                )
            _replace(model, Int8Linear)


def _replace(model: SequenceModel[Any], kind: type[PackedLinear | Int8Linear]) -> None:
    quantised.replace_linears(model, kind)
    matrix = model.output_matrix() if getattr(model, "output", nn.Identity()) is None else None
    # Where the output matrix is the embedding, it gets a layout of its own; the embedding is looked up as before.
    if matrix is not None and matrix[0].numel() >= quantised.WORTHWHILE:
        model.output = kind(*matrix)
