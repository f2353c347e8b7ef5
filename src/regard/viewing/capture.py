"""The attention weights of a call, taken while it runs.

Shapes: H heads, Q queries, K keys.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.batch import Batch, Tokens
from regard.data.batching import collate
from regard.errors import UsageError
from regard.models.bert import Bert
from regard.models.interface import SequenceModel
from regard.models.labelling import LabelModel
from regard.text.tokenizer import Tokenizer
from regard.viewing.figures import AttentionMap
from regard.viewing.labels import readable, separators

HIDDEN = "_"  # what a hidden token is called

Place = tuple[str, int]
"""What an attention looks at (encoder, decoder, cross, pooling), and its layer, from 0."""


@dataclass(frozen=True)
class Sight:
    """Who looks at whom in one kind of attention: labels of queries and keys, and which keys only separate."""

    queries: tuple[str, ...]
    keys: tuple[str, ...]
    marks: tuple[int, ...] = ()


@contextmanager
def watching(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Collect the weights of every attention inside the block, by module name: [B, H, Q, K] each."""
    seen: dict[str, Tensor] = {}
    with _watched(model, seen.__setitem__):
        yield seen


@contextmanager
def _watched(model: nn.Module, hand: Callable[[str, Tensor], None], only: Place | None = None) -> Iterator[None]:
    """Hand over the weights of every attention as it computes them, or of only one; all others run fused."""
    watched = {
        name: module for name, module in model.named_modules()
        if hasattr(module, "watcher") and only in (None, role(name))
    }  # fmt: skip
    for name, module in watched.items():
        setattr(module, "watcher", lambda weights, name=name: hand(name, weights.detach()))  # noqa: B010
    try:
        yield
    finally:
        for module in watched.values():
            setattr(module, "watcher", None)  # noqa: B010


class Watched(ABC):
    """A call of a model, ready to run as often as somebody wants to see its attention."""

    sights: Mapping[str, Sight]

    def __init__(self, model: nn.Module) -> None:
        self.watched = model

    @abstractmethod
    def run(self) -> None:
        """Call the model."""

    @torch.inference_mode()
    def show(self, use: Callable[[AttentionMap], None], only: Place | None = None) -> None:
        """Run the model, and hand over the map of each layer as it comes, or of only one layer."""

        def hand(name: str, weights_BHQK: Tensor) -> None:
            use(_map(name, weights_BHQK, self.sights))

        with _watched(self.watched.eval(), hand, only):
            self.run()

    def maps(self) -> list[AttentionMap]:
        """All of them, by kind and layer as they come; raises UsageError for a model without any."""
        found: list[AttentionMap] = []
        self.show(found.append)
        if not found:
            raise UsageError(
                f"view: needs a model that attends, but {type(self.watched).__name__} as it is set up has no attention "
                "to look at. Choose a model with attention."
            )
        return found


class Call(Watched):
    """A text to be looked at: what the model reads and writes, ready to run as often as somebody wants to see.

    A decoder row is named by the token it writes; the decoder's columns by the tokens it has already read. In a stack
    that reads all there is, that of a language model or of a decoder alone, rows are named by the token that looks.
    """

    def __init__(
        self, model: SequenceModel[Any], tokenizer: Tokenizer, source: Sequence[int] | None, target: Sequence[int]
    ) -> None:
        super().__init__(model)
        specials = tokenizer.specials
        self.model, self.batch = model, _batch(model, tokenizer, source, target)
        read, fed, written = [*(source or ()), specials.end], [specials.start, *target], [*target, specials.end]
        reads, feeds = readable(tokenizer.source, read), readable(tokenizer, fed)
        writes = feeds if source is None else readable(tokenizer, written)
        ends = separators(tokenizer.source, read)
        if source is not None and model.joins_source:
            both = reads + feeds
            marks = (*ends, *(len(reads) + place for place in separators(tokenizer, fed)))
            self.sights = {"decoder": Sight(both, both, marks)}
            return
        self.sights = {
            "encoder": Sight(reads, reads, ends),
            "decoder": Sight(writes, feeds, separators(tokenizer, fed)),
            "cross": Sight(writes, reads, ends),
        }

    def run(self) -> None:
        """Read the source, and the target as it would be written."""
        self.model.features(self.batch)


def _batch(
    model: SequenceModel[Any], tokenizer: Tokenizer, source: Sequence[int] | None, target: Sequence[int]
) -> Batch:
    batch = collate([(source or (), target)], tokenizer.specials)
    if source is None:
        batch = replace(batch, source=None)
    return batch.to(next(model.parameters()).device)


def attention_maps(
    model: SequenceModel[Any], tokenizer: Tokenizer, source: Sequence[int] | None, target: Sequence[int]
) -> list[AttentionMap]:
    """Every attention of the model while it writes `target` for `source`; a language model has no source."""
    return Call(model, tokenizer, source, target).maps()


class Reading(Watched):
    """A text that is read and not written, by a classifier, a tagger or a BERT; `text` ends with its end token.

    The tokens at `gaps` are hidden from a BERT. A classifier also shows what it decides from.
    """

    def __init__(
        self, model: LabelModel | Bert, tokenizer: Tokenizer, text: Sequence[int], gaps: Sequence[int] = ()
    ) -> None:
        super().__init__(model)
        labels, ids = list(readable(tokenizer, text)), list(text)
        if isinstance(model, Bert):
            for place in gaps:
                labels[place], ids[place] = HIDDEN, model.mask
        self.model, self.text = model, Tokens.whole(torch.tensor([ids], device=next(model.parameters()).device))
        read, marks = tuple(labels), separators(tokenizer, text)
        self.sights = {"encoder": Sight(read, read, marks), "pooling": Sight(("the text",), read, marks)}

    def run(self) -> None:
        """Read the text."""
        self.model(self.text)


def label_maps(model: LabelModel, tokenizer: Tokenizer, text: Sequence[int]) -> list[AttentionMap]:
    """Every attention of a classifier or tagger while it reads `text`; none, if it has none."""
    found: list[AttentionMap] = []
    Reading(model, tokenizer, text).show(found.append)
    return found


def _map(module: str, weights_BHQK: Tensor, sights: Mapping[str, Sight]) -> AttentionMap:
    kind, layer = role(module)
    sight = sights[kind]
    return AttentionMap(kind, layer, sight.queries, sight.keys, weights_BHQK[0].float().cpu().numpy(), sight.marks)


def role(module: str) -> Place:
    """What an attention looks at, and its layer: `decoder.2.attention` is the decoder's own, in layer 2.

    A model with a single attention (a recurrent one) has it between decoder and source. What stands in no encoder
    belongs to a decoder: the layers of a language model are one.
    """
    path = module.split(".")
    layer = next((int(word) for word in path if word.isdecimal()), 0)
    if path[-1] == "cross_attention" or path == ["attention"]:
        return "cross", layer
    return next((kind for kind in ("pooling", "encoder") if kind in path), "decoder"), layer
