"""The attention weights of a call, taken while it runs.

Shapes: H heads, Q queries, K keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.batch import Tokens
from regard.data.batching import collate
from regard.errors import UsageError
from regard.models.interface import SequenceModel
from regard.models.labelling import LabelModel
from regard.text.tokenizer import Tokenizer
from regard.viewing.figures import AttentionMap

Labels = tuple[str, ...]


@contextmanager
def watching(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Collect the weights of every attention inside the block, by module name: [B, H, Q, K] each."""
    seen: dict[str, Tensor] = {}
    watched = {name: module for name, module in model.named_modules() if hasattr(module, "watcher")}
    for name, module in watched.items():
        setattr(module, "watcher", lambda weights, name=name: seen.__setitem__(name, weights.detach()))  # noqa: B010
    try:
        yield seen
    finally:
        for module in watched.values():
            setattr(module, "watcher", None)  # noqa: B010


@torch.inference_mode()
def attention_maps(
    model: SequenceModel[Any], tokenizer: Tokenizer, source: Sequence[int] | None, target: Sequence[int]
) -> list[AttentionMap]:
    """Every attention of the model while it writes `target` for `source`; a language model has no source.

    A decoder row is named by the token it writes; the decoder's columns by the tokens it has already read.
    """
    specials = tokenizer.specials
    batch = collate([(source or (), target)], specials)
    if source is None:
        batch = replace(batch, source=None)
    device = next(model.parameters()).device
    with watching(model.eval()) as seen:
        model(batch.to(device))
    if not seen:
        raise UsageError(
            f"view: needs a model that attends, but {type(model).__name__} as it is set up has no attention to look "
            "at. Choose a model with attention."
        )
    read = tokenizer.source.labels([*(source or ()), specials.end])
    written = tokenizer.labels([*target, specials.end])
    fed = tokenizer.labels([specials.start, *target])
    return _maps(seen, {"encoder": (read, read), "decoder": (written, fed), "cross": (written, read)})


@torch.inference_mode()
def label_maps(model: LabelModel, tokenizer: Tokenizer, text: Sequence[int]) -> list[AttentionMap]:
    """Every attention of a classifier or tagger while it reads `text`; a classifier also shows what it decides from."""
    tokens = Tokens.whole(torch.tensor([list(text)], device=next(model.parameters()).device))
    with watching(model.eval()) as seen:
        model(tokens)
    read = tokenizer.labels(text)
    return _maps(seen, {"encoder": (read, read), "pooling": (("the text",), read)})


def _maps(seen: Mapping[str, Tensor], labels: Mapping[str, tuple[Labels, Labels]]) -> list[AttentionMap]:
    maps = []
    for name, weights_BHQK in seen.items():
        kind, layer = _role(name)
        maps.append(AttentionMap(kind, layer, *labels[kind], weights_BHQK[0].float().cpu().numpy()))
    return maps


def _role(module: str) -> tuple[str, int]:
    """What an attention looks at, and its layer: `decoder.2.attention` is the decoder's own, in layer 2.

    A model with a single attention (a recurrent one) has it between decoder and source. What stands in no encoder
    belongs to a decoder: the layers of a language model are one.
    """
    path = module.split(".")
    layer = next((int(word) for word in path if word.isdecimal()), 0)
    if path[-1] == "cross_attention" or path == ["attention"]:
        return "cross", layer
    return next((kind for kind in ("pooling", "encoder") if kind in path), "decoder"), layer
