"""The attention weights of a call, taken while it runs.

Shapes: H heads, Q queries, K keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from regard.batch import Batch
from regard.layers.attention import Attention
from regard.models.interface import SequenceModel
from regard.text.tokenizer import Tokenizer
from regard.viewing.figures import AttentionMap


@contextmanager
def watching(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Collect the weights of every attention inside the block, by module name: [B, H, Q, K] each."""
    seen: dict[str, Tensor] = {}
    watched = {name: module for name, module in model.named_modules() if isinstance(module, Attention)}
    for name, module in watched.items():
        module.watcher = lambda weights, name=name: seen.__setitem__(name, weights.detach())
    try:
        yield seen
    finally:
        for module in watched.values():
            module.watcher = None


@torch.inference_mode()
def attention_maps(
    model: SequenceModel[Any], tokenizer: Tokenizer, source: Sequence[int], target: Sequence[int]
) -> list[AttentionMap]:
    """Every attention of the model while it writes `target` for `source`.

    A decoder row is named by the token it writes; the decoder's columns by the tokens it has already read.
    """
    from regard.data.batching import collate

    specials = tokenizer.specials
    batch: Batch = collate([(source, target)], specials)
    device = next(model.parameters()).device
    with watching(model.eval()) as seen:
        model(batch.to(device))
    read = tokenizer.labels([*source, specials.end])
    written = tokenizer.labels([*target, specials.end])
    fed = tokenizer.labels([specials.start, *target])
    labels = {"encoder": (read, read), "decoder": (written, fed), "cross": (written, read)}
    maps = []
    for name, weights_BHQK in seen.items():
        stack, layer, role = name.split(".")[:3]
        kind = "cross" if role == "cross_attention" else stack
        maps.append(AttentionMap(kind, int(layer), *labels[kind], weights_BHQK[0].float().cpu().numpy()))
    return maps
