"""In which numbers a trained model computes: made once after loading, for inference only.

fp32   as trained. On a CPU the weights are laid out once for its kernels, which changes results by rounding only.
bf16   half the bytes, for GPUs. Norms, softmaxes and scores are still computed in fp32.
int8   a quarter of the bytes, for CPUs. Norms, softmaxes and everything but linear maps stay in fp32.

In all of them queries, keys and values of a sentence that attends to itself become one product.
"""

from __future__ import annotations

from typing import Literal

import torch

from regard.errors import UsageError
from regard.layers import quantised
from regard.layers.block import DecoderLayer, EncoderLayer
from regard.layers.quantised import Int8Linear, PackedLinear
from regard.models.gpt import CausalTransformer
from regard.models.interface import Learner
from regard.models.transformer import Transformer

Precision = Literal["fp32", "bf16", "int8"]


def convert(model: Learner, precision: Precision) -> None:
    """Make `model` compute in this precision, in place. It can no longer be trained or saved."""
    device = next(model.parameters()).device.type
    _check(precision, device)
    model.eval().requires_grad_(False)
    for module in model.modules():
        if isinstance(module, EncoderLayer | DecoderLayer) and module.attention.joint is None:
            module.attention.join()
    match precision:
        case "fp32":
            if device == "cpu" and quantised.can_pack():
                _replace(model, PackedLinear)
        case "bf16":
            # Parameters only: the waves of positions are buffers, and would be out of tune in 8 bits.
            for parameter in model.parameters():
                parameter.data = parameter.data.to(torch.bfloat16)
        case "int8":
            _replace(model, Int8Linear)


def _check(precision: Precision, device: str) -> None:
    if precision == "bf16" and device == "cpu":
        raise UsageError(
            'precision: "bf16" is for GPUs, but the model is on the CPU, where it is slow; use "fp32" or "int8"'
        )
    if precision == "int8" and device != "cpu":
        raise UsageError(f'precision: "int8" is for CPUs, but the model is on "{device}"; use "bf16"')
    if precision == "int8" and not quantised.can_quantise():
        raise UsageError(
            'precision: "int8" needs 8-bit products in torch, but this processor or build has none; use "fp32"'
        )


def _replace(model: Learner, kind: type[PackedLinear | Int8Linear]) -> None:
    output = getattr(model, "output", None)
    quantised.replace_linears(model, kind)
    if not isinstance(model, Transformer | CausalTransformer):
        # Others reach into their output matrix instead of calling it.
        if output is not None:
            model.output = output
        return
    matrix = model.output_matrix() if model.output is None else None
    # Where the output matrix is the embedding, it gets a layout of its own; the embedding is looked up as before.
    if matrix is not None and matrix[0].numel() >= quantised.WORTHWHILE:
        setattr(model, "output", kind(*matrix))  # noqa: B010
