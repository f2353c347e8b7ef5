"""Which source token each target token looked at, read from the attention between decoder and source.

Shapes: B rows, H heads, S source tokens, T target tokens.

The weights are those of one layer, averaged over its heads: the decoder's last layer but one, which follows
the words best in deep models; of two layers or fewer it is the last. A model without attention to its source aligns
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.batch import IGNORED, Batch, Specials, Tokens
from regard.decoding.fast import OwnSearch
from regard.decoding.penalties import aligning_layer, attentions_to_source
from regard.models.interface import SequenceModel

TokenLink = tuple[int, int, float]
"""(source token, target token, weight), counted from 0."""

STRONG = 0.1  # weaker links are left out, unless a target token has no stronger one
DIGITS = 4


def aligning_attention(model: nn.Module) -> nn.Module | None:
    """The attention whose weights align, see `aligning_layer`; None without any."""
    crossing = attentions_to_source(model)
    return crossing[aligning_layer(len(crossing))] if crossing else None


@torch.inference_mode()
def align(
    model: SequenceModel[Any], sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], specials: Specials
) -> list[tuple[TokenLink, ...]]:
    """The links of each target, written for its source. Sources end in the end token, targets do not.

    The end tokens are left out, so the weights of a target token may sum to less than one.
    """
    if isinstance(model, OwnSearch):
        return [_links(weights_TS) for weights_TS in model.attention(sources, targets)] if sources else []
    attention = aligning_attention(model)
    if attention is None or not sources:
        return [()] * len(sources)
    device = next(model.parameters()).device
    source = Tokens.padded(sources, specials.padding).to(device)
    target = Tokens.padded([[specials.start, *tokens] for tokens in targets], specials.padding).to(device)
    seen: list[Tensor] = []
    setattr(attention, "watcher", seen.append)  # noqa: B010
    try:
        model.features(Batch(source, target, torch.full_like(target.ids_BT, IGNORED)))
    finally:
        setattr(attention, "watcher", None)  # noqa: B010
    weights_BTS = seen[-1].float().mean(dim=1).cpu()
    return [
        _links(weights_BTS[row, : len(written), : len(read) - 1])
        for row, (read, written) in enumerate(zip(sources, targets, strict=True))
    ]


def _links(weights_TS: Tensor) -> tuple[TokenLink, ...]:
    if not weights_TS.numel():
        return ()
    strongest_T1 = weights_TS.argmax(dim=1, keepdim=True)
    kept_TS = (weights_TS >= STRONG).scatter(1, strongest_T1, True)
    return tuple((i, j, round(float(weights_TS[j, i]), DIGITS)) for j, i in kept_TS.nonzero().tolist())
