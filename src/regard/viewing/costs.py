"""What a model costs: arithmetic and memory, counted without doing any of it.

Shapes: B rows, T tokens.

The model's own training step and decoding step run on torch's `meta` device, where tensors have shapes but no
numbers. Matrix products are counted as they pass by, and so is what autograd keeps for the way back. Nothing here
knows one kind of model from another.

    FLOPs         two for each multiply-add of a matrix product; softmax, norms and activations are left out
    training      weights + gradients + Adam's two moments (each as large as the weights) + activations
    activations   what autograd keeps between forward and backward, each piece of memory counted once
    decoding      weights + beams · cache, the cache being the state of one sentence after its last token

Attention counts as one fused kernel, which forms its weights twice: once forward, once more backward. A recurrent layer
counts as torch's plain steps; the kernels of GPUs keep somewhat other things for the way back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from regard.batch import Batch, Tokens
from regard.errors import UsageError
from regard.models.interface import SequenceModel
from regard.training.loss import smoothed_cross_entropy

SENTENCE = 25  # tokens; a common length of subword sentences


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of training on, and of writing, rows of these lengths."""

    source_length: int | None
    target_length: int
    training_token: int
    """Forward and backward, for each target token (with its share of the source)."""
    decoding_source: int
    """Reading the source, once a sentence."""
    decoding_token: int
    """Writing the last token of the target, the dearest one."""


@dataclass(frozen=True)
class Memory:
    """Bytes to train on a batch of `rows` rows, and to write one sentence with `beams` beams."""

    rows: int
    beams: int
    weights: int
    gradients: int
    moments: int
    activations: int
    training: int
    cache: int
    """The state of one beam."""
    decoding: int


def reads_source(model: SequenceModel[Any]) -> bool:
    """Whether the model translates; a language model starts from nothing."""
    try:
        model.start(None, rows=1)
    except (UsageError, ValueError):
        return True
    return False


def usual_length(model: SequenceModel[Any]) -> int:
    """The length to count with unless told: a sentence, or all the positions that a language model has learned."""
    limit: int | None = getattr(model.settings, "limit", None)
    if limit is None:
        return SENTENCE
    return min(limit, SENTENCE) if reads_source(model) else limit


def count(model: SequenceModel[Any], length: int, tokens: int, beams: int) -> tuple[Flops, Memory]:
    """The costs of a model on the meta device: rows of `length` tokens on each side, `tokens` of them in a batch."""
    rows = max(1, tokens // length)
    source = _tokens(1, length) if reads_source(model) else None
    training, activations = _train(model, rows, length)
    with torch.no_grad(), _counting() as start:
        state = model.eval().start(source, 1)
    with torch.no_grad():
        if length > 1:
            _, state = model.step(_tokens(1, length - 1).ids_BT, state)
        with _counting() as step:
            _, state = model.step(_tokens(1, 1).ids_BT, state)
    weights = sum(weight.nbytes for weight in model.parameters())
    cache = sum({_view(part): part.nbytes for part in tensors_of(state)}.values())
    return (
        Flops(None if source is None else length, length, training // (rows * length), start(), step()),
        Memory(
            rows, beams, weights, weights, 2 * weights, activations, 4 * weights + activations,
            cache, weights + beams * cache,
        ),
    )  # fmt: skip


def tensors_of(state: object) -> Iterator[Tensor]:
    """Every tensor in a decoding state: dataclasses and tuples, as deep as they go."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, tuple):
        for part in state:
            yield from tensors_of(part)
    elif is_dataclass(state):
        for field in fields(state):
            yield from tensors_of(getattr(state, field.name))


def _train(model: SequenceModel[Any], rows: int, length: int) -> tuple[int, int]:
    """FLOPs of one training step, and bytes of what autograd keeps in it."""
    tokens = _tokens(rows, length)
    batch = Batch(tokens if reads_source(model) else None, tokens, tokens.ids_BT)
    kept: dict[int, Any] = {}

    def keep(tensor: Tensor) -> Tensor:
        # Holding on to the storage keeps its address from being given to another one.
        kept[tensor.untyped_storage()._cdata] = tensor.untyped_storage()
        return tensor

    with _counting() as flops:
        with saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = model.train().losses(batch, smoothed_cross_entropy(0.1)).sum()
        loss.backward()
    model.zero_grad(set_to_none=True)
    for weight in model.parameters():
        kept.pop(weight.untyped_storage()._cdata, None)
    return flops(), sum(storage.nbytes() for storage in kept.values())


@contextmanager
def _counting() -> Iterator[Callable[[], int]]:
    """Count the FLOPs inside the block; what it gives tells them afterwards."""
    with FlopCounterMode(display=False) as counter, _FusedAttention():
        yield counter.get_total_flops


class _FusedAttention(TorchFunctionMode):
    """On the meta device torch takes attention apart and keeps its weights; real devices fuse it, so this does."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        return _fused(*args, **kwargs) if func is F.scaled_dot_product_attention else func(*args, **kwargs)


def _fused(
    query_BHQE: Tensor,
    key_BHKE: Tensor,
    value_BHKE: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    if attn_mask is not None:
        attn_mask = query_BHQE.new_zeros(attn_mask.shape).expand(*query_BHQE.shape[:3], key_BHKE.shape[2])
    kernel = torch.ops.aten._scaled_dot_product_efficient_attention
    return kernel(query_BHQE, key_BHKE, value_BHKE, attn_mask, True, 0.0, is_causal, scale=scale)[0]


def _tokens(rows: int, length: int) -> Tokens:
    return Tokens.whole(torch.zeros(rows, length, dtype=torch.long, device="meta"))


def _view(tensor: Tensor) -> tuple[object, ...]:
    """What tells one piece of memory from another: keys and values may be halves of one, or the same."""
    return tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape, tensor.stride()
