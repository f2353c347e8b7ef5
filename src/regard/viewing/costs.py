"""What a model costs: arithmetic and memory, counted without doing any of it.

Shapes: B rows, T tokens.

The model's own training step and decoding step run on torch's `meta` device, where tensors have shapes but no
numbers. Matrix products are counted as they pass by, and memory as tensors come and go. Nothing here knows one kind
of model from another.

    FLOPs         two for each multiply-add of a matrix product; softmax, norms and activations are left out; what a
                  causal mask or a window hides is not
    activations   what is alive between forward and backward
    training      weights + what the optimiser keeps (Adam two moments, each as large) + the most that is alive at once
                  in a step: somewhere on the way back, most activations, some gradients, and what is being computed
    decoding      weights + beams · cache, the cache being the state of one sentence after its last token; a model that
                  writes nothing, but gives labels or fills gaps, has none

All numbers are float32, four bytes each, whatever precision the recipe trains in.

Attention counts as one fused kernel, which forms its weights twice: once forward, once more backward. A recurrent layer
counts as torch's plain steps; the kernels of GPUs keep somewhat other things for the way back.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from regard.batch import Batch, Tokens
from regard.layers.experts import FLOPS
from regard.models.interface import FillsGaps, Learner, SequenceModel
from regard.training.loss import smoothed_cross_entropy
from regard.training.optim import OptimiserSettings, step_flops

SENTENCE = 25  # tokens; a common length of subword sentences
ROWS = 64  # of a batch in which a token's share is counted


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of training on, and of writing, rows of these lengths."""

    source_length: int | None
    target_length: int
    training_token: int
    """Forward and backward, for each target token (with its share of the source)."""
    decoding_source: int
    """Reading the source, once a sentence; where nothing is written, reading a text and answering."""
    decoding_token: int
    """Writing the last token of the target, the dearest one; 0 where nothing is written."""


@dataclass(frozen=True)
class Memory:
    """Bytes to train on a batch of `rows` rows, and to write one sentence with `beams` beams; 0 where nothing is."""

    rows: int
    beams: int
    weights: int
    gradients: int
    moments: int
    activations: int
    training: int
    """The most at once: at no moment is all of the above alive."""
    cache: int
    """The state of one beam."""
    decoding: int


@dataclass(frozen=True)
class Lesson:
    """What one training step on `rows` rows takes; memory is in bytes."""

    rows: int
    flops_token: int
    """Forward and backward, for each target token (with its share of the source)."""
    weights: int
    moments: int
    activations: int
    most: int
    """At once."""


def usual_length(model: Learner) -> int:
    """The length to count with unless told: a sentence, or all the positions that a language model has learned."""
    if model.context is None:
        return SENTENCE
    running = isinstance(model, FillsGaps) or (isinstance(model, SequenceModel) and not model.reads_source)
    return model.context if running else min(model.context, SENTENCE)


def count(model: Learner, length: int, tokens: int, beams: int, moments: int | None = None) -> tuple[Flops, Memory]:
    """The costs of a model on the meta device: rows of `length` tokens on each side, `tokens` of them in a batch.

    `moments` are the bytes that the optimiser keeps; unless given, those of Adam.
    """
    lesson = count_training(model, length, tokens, moments)
    weights, source, written, cache = lesson.weights, None, 0, 0
    with torch.no_grad():
        if isinstance(model, SequenceModel):
            source = length if model.reads_source else None
            read, written, cache = _write(model, length)
        else:
            beams = 0
            with _counting() as reading:
                model.eval()(_tokens(1, length))
            read = reading()
    return (
        Flops(source, length, lesson.flops_token, read, written),
        Memory(
            lesson.rows, beams, weights, weights, lesson.moments, lesson.activations, lesson.most,
            cache, weights + beams * cache,
        ),
    )  # fmt: skip


def count_training(model: Learner, length: int, tokens: int, moments: int | None = None) -> Lesson:
    """The part of `count` that is about training, for any model that learns from texts, or from pairs of them."""
    rows = max(1, tokens // length)
    flops, activations, most = _train(model, rows, length)
    weights = sum(weight.nbytes for weight in model.parameters())
    moments = 2 * weights if moments is None else moments
    return Lesson(rows, flops // (rows * length), weights, moments, activations, weights + moments + most)


def spent(model: Learner, length: int, tokens: int, steps: int, optimiser: OptimiserSettings) -> float:
    """FLOPs of a run that read so many tokens, of both sides where there are two, in rows of `length`, in `steps`.

    The model is on the meta device. Where it has not learned as many positions, rows are shorter.
    """
    length = min(length, model.context or length)
    sides = 2 if isinstance(model, SequenceModel) and model.reads_source else 1
    lesson = count_training(model, length, length * ROWS)
    return tokens / sides * lesson.flops_token + steps * float(step_flops(model, optimiser))


def _write(model: SequenceModel[Any], length: int) -> tuple[int, int, int]:
    """The FLOPs of reading a source and of writing the last token of a sentence, and the bytes of the state then."""
    with _counting() as start:
        state = model.eval().start(_tokens(1, length) if model.reads_source else None, 1)
    if length > 1:
        _, state = model.step(_tokens(1, length - 1).ids_BT, state)
    with _counting() as step:
        _, state = model.step(_tokens(1, 1).ids_BT, state)
    return start(), step(), sum({_view(part): part.nbytes for part in tensors_of(state)}.values())


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


def _train(model: Learner, rows: int, length: int) -> tuple[int, int, int]:
    """One training step: its FLOPs, the bytes of what is kept between forward and backward, and the most at once."""
    tokens = _tokens(rows, length)
    reads_source = isinstance(model, SequenceModel) and model.reads_source
    labels = tokens.ids_BT[:, :1] if model.answers_once else tokens.ids_BT
    batch = Batch(tokens if reads_source else None, tokens, labels)
    with _Alive() as alive, _counting() as flops:
        loss = model.train().losses(batch, smoothed_cross_entropy(0.1)).sum()
        activations = alive.now
        loss.backward()
    model.zero_grad(set_to_none=True)
    return flops(), activations, alive.most


@contextmanager
def _counting() -> Iterator[Callable[[], int]]:
    """Count the FLOPs inside the block; what it gives tells them afterwards."""
    with FlopCounterMode(display=False, custom_mapping=FLOPS) as counter, _Fused():
        yield counter.get_total_flops


class _Alive(TorchDispatchMode):
    """How many bytes the tensors made inside the block take: now, and at most."""

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)
        self.now, self.most = 0, 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # What an operation reads and nobody made here, such as the weights, was there before.
        self._note((args, kwargs), made_here=False)
        made = func(*args, **(kwargs or {}))
        self._note(made, made_here=True)
        return made

    def _note(self, values: object, made_here: bool) -> None:
        for tensor in tree_leaves(values):
            if isinstance(tensor, Tensor) and (storage := tensor.untyped_storage())._cdata not in self._known:
                size = storage.nbytes() if made_here else 0
                self._known.add(storage._cdata)
                self.now += size
                self.most = max(self.most, self.now)
                weakref.finalize(storage, self._forget, storage._cdata, size)

    def _forget(self, address: int, size: int) -> None:
        self._known.discard(address)
        self.now -= size


class _Fused(TorchFunctionMode):
    """On the meta device torch takes attention and dropout apart and keeps more; GPUs do each in one kernel."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            return _fused_attention(*args, **kwargs)
        if func is F.dropout:
            return _fused_dropout(*args, **kwargs)
        return func(*args, **kwargs)


def _fused_dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return torch.native_dropout(x, p, training)[0] if training and p else x


def _fused_attention(
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
