"""What every head looked at while a text was translated or read.

Summaries of all heads come at once; weights come head by head, because those of a long text are many: with 512 tokens,
six layers and eight heads, 150 MB. Up to `KEPT` bytes are kept as they come. Of more, only summaries are, and the
model reads the text again for each layer that somebody asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from regard.decoding.search import SearchSettings
from regard.errors import UsageError
from regard.exploring.bundle import (
    Bundle,
    best,
    must_be_one,
    must_fit,
    must_hold_words,
    read_as_one,
    read_ids,
    source_ids,
)
from regard.filling import GAP, cut
from regard.models.bert import Bert
from regard.models.labelling import LabelModel
from regard.text.tokenizer import Tokenizer
from regard.viewing.capture import Call, Place, Reading, Watched
from regard.viewing.figures import AttentionMap, Head

KEPT = 64 * 2**20
DIGITS = 4


@dataclass(frozen=True)
class HeadsSummary:
    """One layer's heads in numbers: how spread out, how far, and how much on separators each looks, averaged.

    The mean of the heads is more spread out than they are on average, so it has an entropy of its own.
    """

    name: str
    layer: int
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    entropy: tuple[float, ...]
    distance: tuple[float, ...]
    separators: tuple[float, ...]
    mean_entropy: float

    @classmethod
    def of(cls, attention: AttentionMap) -> HeadsSummary:
        """The summary of a map."""
        numbers = (attention.entropy(), attention.distance(), attention.separators())
        entropy, distance, separators = (tuple(round(float(one), DIGITS) for one in values) for values in numbers)
        mean = round(float(attention.mean().entropy()[0]), DIGITS)
        place = attention.name, attention.layer, attention.queries, attention.keys
        return cls(*place, entropy, distance, separators, mean)

    def to_json(self) -> dict[str, object]:
        """As plain values."""
        return {
            "name": self.name,
            "layer": self.layer,
            "heads": len(self.entropy),
            "queries": list(self.queries),
            "keys": list(self.keys),
            "entropy": list(self.entropy),
            "distance": list(self.distance),
            "separators": list(self.separators),
            "mean_entropy": self.mean_entropy,
        }


@dataclass(frozen=True)
class Looked:
    """A text, what was written for it (a language model's text itself), and every attention on the way."""

    source: str | None
    target: str
    layers: tuple[HeadsSummary, ...]
    call: Watched = field(repr=False, compare=False)
    _kept: dict[Place, AttentionMap] = field(repr=False, compare=False)

    def to_json(self) -> dict[str, object]:
        """Summaries as plain values; weights are asked for by `head`."""
        return {"source": self.source, "target": self.target, "maps": [layer.to_json() for layer in self.layers]}

    def map(self, name: str, layer: int) -> AttentionMap:
        """One layer with the weights of all its heads."""
        place = (name, layer)
        if place not in self._kept:
            places = [(each.name, each.layer) for each in self.layers]
            if place not in places:
                raise UsageError(
                    f"attention: must be one of {_told(places)}, but is {name} {layer + 1} ({layer}, counted from 0). "
                    "Choose another layer."
                )
            self._kept.clear()  # a layer of a long text takes the place of the one asked for before
            self.call.show(lambda found: self._kept.__setitem__(place, found), only=place)
        return self._kept[place]

    def head(self, name: str, layer: int, head: Head) -> NDArray[np.float32]:
        """The weights of one head or of the mean of all, [queries, keys]."""
        return np.asarray(self.map(name, layer).one(head).weights[0], dtype=np.float32)

    def head_json(self, name: str, layer: int, head: Head) -> dict[str, object]:
        """The same as plain values, rounded to four decimals."""
        return {"weights": np.round(self.head(name, layer, head).astype(np.float64), DIGITS).tolist()}

    def maps(self) -> list[AttentionMap]:
        """All layers, in the order of `layers`."""
        if len(self._kept) == len(self.layers):
            return list(self._kept.values())
        return self.call.maps()


def _told(places: Sequence[Place]) -> str:
    """Which layers there are, as the pictures count them, from 1."""
    kinds: dict[str, list[int]] = {}
    for kind, layer in places:
        kinds.setdefault(kind, []).append(layer + 1)
    return ", ".join(
        f"{kind} 1" if max(layers) == 1 else f"{kind} {min(layers)} to {max(layers)}" for kind, layers in kinds.items()
    )


def look(
    bundle: Bundle,
    text: str,
    target: str | None = None,
    language: str | None = None,
    search: SearchSettings | None = None,
) -> Looked:
    """Look at every attention while the model reads `text` and writes `target`, unless given its own translation.

    Of several sentences, a model that translates each by itself reads the first. A language model reads `text` and has
    no target. Raises UsageError for a model without attention.
    """
    must_hold_words("look", text)
    must_be_one(bundle, "look")
    text, tokenizer = read_as_one(bundle, text, target, search), bundle.tokenizer
    if bundle.network.reads_source:
        source = source_ids(bundle, text, language)
        written = best(bundle, source, search).tokens if target is None else tokenizer.encode(target)
        must_fit("look", bundle, written)
        call = Call(bundle.network, tokenizer, source[:-1], written)
        return _looked(call, text, tokenizer.decode(written))
    if target is not None:
        raise UsageError(
            f"look: `{bundle.recipe.name}` is a language model, which has no target beside its text, but one was "
            "given. Leave it out."
        )
    ids = read_ids(bundle, text)
    must_fit("look", bundle, ids)
    return _looked(Call(bundle.network, tokenizer, None, ids), None, text)


def look_at_reading(network: LabelModel | Bert, tokenizer: Tokenizer, text: str) -> Looked:
    """Look at every attention while a model reads `text` that writes none; gaps in it are hidden from a BERT."""
    must_hold_words("look", text)
    gaps: list[int] = []
    if isinstance(network, Bert) and GAP in text:
        pieces = cut(tokenizer, text)
        ids, gaps = pieces.ids, pieces.gaps
    else:
        ids = tokenizer.source.encode(text)
    if network.context is not None and len(ids) >= network.context:
        raise UsageError(
            f"look: a text must have less than {network.context:,} tokens, which the model can read, but has "
            f"{len(ids):,}. Shorten it."
        )
    call = Reading(network, tokenizer.source, [*ids, tokenizer.specials.end], gaps)
    return _looked(call, None, text)


def _looked(call: Watched, source: str | None, target: str) -> Looked:
    layers: list[HeadsSummary] = []
    kept: dict[Place, AttentionMap] = {}
    size = 0

    def take(found: AttentionMap) -> None:
        nonlocal size
        layers.append(HeadsSummary.of(found))
        size += found.weights.nbytes
        if size <= KEPT:
            kept[found.name, found.layer] = found

    call.show(take)
    if not layers:
        call.maps()  # which says what is missing
    if size > KEPT:
        kept.clear()
    return Looked(source, target, tuple(layers), call, kept)
