"""What heads do, in numbers: where their weight lies, and how often their largest weight follows a rule.

Shapes: L layers, H heads, N links, O offsets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.heads_rules import Link
from regard.viewing.figures import AttentionMap

NEAR = range(-4, 5)  # offsets that a head may follow
FAR = range(-15, 16)  # offsets among which the baseline of a rule is chosen
MOST = 0.5  # of the weight: from here on, a head is named after where it lies
EVEN = 0.75  # of the entropy of a head that looks at all alike: from here on, a head is broad
DIAGONAL = 0.9
FEWEST = 20  # links; with fewer, a rule is not scored

Floats = NDArray[np.float64]
Pair = tuple[str, str]
"""A source and its translation."""


# ---- where the weight lies


def habits(attention: AttentionMap) -> dict[str, Floats]:
    """Figures of one sentence, one number for each head [H], averaged over rows.

    `offset ±n` is the share of weight n tokens after or before the one that looks, over rows where there is one;
    `mark` that on the end of the source, or for the decoder on the start; `punctuation` that on other separators;
    `evenness` the entropy, over that of a head that looks at all it sees alike; `diagonal` of cross-attention, the
    correlation between rows and the centre of their weight, that on the end left out.
    """
    weights_HQK = attention.weights.astype(np.float64)
    _, queries, keys = weights_HQK.shape
    causal = attention.name == "decoder"
    mark = weights_HQK[:, :, 0 if causal else -1].mean(axis=1)
    uniform = np.log(np.arange(1, queries + 1)).mean() if causal else np.log(keys)
    found = {
        "mark": mark,
        "punctuation": attention.separators() - mark,
        "distance": attention.distance(),
        "entropy": attention.entropy(),
        "evenness": attention.entropy() / max(float(uniform), 1e-9),
    }
    if attention.name == "cross":
        found["diagonal"] = _diagonal(weights_HQK[:, :, :-1])
        return found
    for offset in NEAR:
        rows = [row for row in range(queries) if 0 <= row + offset < keys]
        if rows and not (causal and offset > 0):
            found[f"offset {offset:+d}"] = weights_HQK[:, rows, [row + offset for row in rows]].mean(axis=1)
    return found


def _diagonal(weights_HQK: Floats) -> Floats:
    _, queries, keys = weights_HQK.shape
    if min(queries, keys) < 2:
        return np.zeros(len(weights_HQK))
    centres_HQ = (weights_HQK * np.arange(keys)).sum(axis=-1) / np.maximum(weights_HQK.sum(axis=-1), 1e-12)
    rows_Q = np.arange(queries) - (queries - 1) / 2
    centres_HQ = centres_HQ - centres_HQ.mean(axis=1, keepdims=True)
    spread_H = np.sqrt((centres_HQ**2).sum(axis=1) * (rows_Q**2).sum())
    return np.asarray((centres_HQ * rows_Q).sum(axis=1) / np.maximum(spread_H, 1e-12))


class Averages:
    """Figures of many sentences, averaged: `found[kind][figure]` is [L, H]."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, int, str], Floats] = {}
        self._counts: dict[tuple[str, int, str], int] = defaultdict(int)

    def add(self, maps: Sequence[AttentionMap]) -> None:
        """Add the maps of one sentence."""
        for attention in maps:
            for figure, values in habits(attention).items():
                place = (attention.name, attention.layer, figure)
                self._sums[place] = self._sums.get(place, np.zeros(len(values))) + values
                self._counts[place] += 1

    def found(self) -> dict[str, dict[str, Floats]]:
        """The averages."""
        tables: dict[str, dict[str, list[Floats]]] = defaultdict(lambda: defaultdict(list))
        for (kind, layer, figure), total in sorted(self._sums.items()):
            tables[kind][figure].append(total / self._counts[kind, layer, figure])
        return {kind: {name: np.stack(rows) for name, rows in figures.items()} for kind, figures in tables.items()}


def called(kind: str, figures: Mapping[str, float]) -> str:
    """What kind of head this is, in a word or two; empty where no rule says."""
    if figures["mark"] >= MOST:
        return "start mark" if kind == "decoder" else "end mark"
    offsets = {name: value for name, value in figures.items() if name.startswith("offset")}
    nearest = max(offsets, key=offsets.__getitem__, default="")
    if nearest and offsets[nearest] >= MOST:
        return nearest
    if figures["punctuation"] >= MOST:
        return "punctuation"
    if figures.get("diagonal", 0.0) >= DIAGONAL:
        return "diagonal"
    return "broad" if figures["evenness"] >= EVEN else ""


# ---- how often a rule is followed


@dataclass(frozen=True)
class Follower:
    """The head that follows a rule best, and what the best fixed offset does: shares of links, from 0 to 1.

    Both are chosen on one half of the links and measured on the other. `weight` is how much of its weight the head
    puts on the right tokens.
    """

    kind: str
    rule: str
    links: int
    layer: int
    head: int
    share: float
    weight: float
    offset: int
    baseline: float


class Followers:
    """Collects, link by link, which heads have their largest weight on the right token."""

    def __init__(self) -> None:
        self._hits: dict[tuple[str, str], list[NDArray[np.bool_]]] = defaultdict(list)
        self._weights: dict[tuple[str, str], list[Floats]] = defaultdict(list)
        self._offsets: dict[tuple[str, str], list[NDArray[np.bool_]]] = defaultdict(list)
        self._pairs: dict[tuple[str, str], list[Pair]] = defaultdict(list)

    def add(self, maps: Sequence[AttentionMap], kind: str, links: Sequence[Link], pair: Pair) -> None:
        """Add one sentence and its translation: the maps of a kind, in the order of layers, and its links."""
        weights_LHQK = np.stack([each.weights for each in maps if each.name == kind]) if links else np.zeros(0)
        for link in links:
            rows_LHK = weights_LHQK[:, :, link.row]
            keys = sorted(link.keys)
            self._hits[kind, link.rule].append(np.isin(rows_LHK.argmax(axis=-1), keys))
            self._weights[kind, link.rule].append(rows_LHK[:, :, keys].sum(axis=-1))
            self._offsets[kind, link.rule].append(np.array([link.row + offset in link.keys for offset in FAR]))
            self._pairs[kind, link.rule].append(pair)

    def example(self, follower: Follower) -> Pair | None:
        """The shortest pair in which a head looks where the rule says."""
        place = (follower.kind, follower.rule)
        hits = [
            pair for hit_LH, pair in zip(self._hits[place], self._pairs[place], strict=True)
            if hit_LH[follower.layer, follower.head]
        ]  # fmt: skip
        return min(hits, key=lambda pair: len(pair[0]), default=None)

    def found(self) -> list[Follower]:
        """The best head for each rule that has at least FEWEST links."""
        return [self._best(*rule) for rule, hits in self._hits.items() if len(hits) >= FEWEST]

    def _best(self, kind: str, rule: str) -> Follower:
        hits_NLH, offsets_NO = np.stack(self._hits[kind, rule]), np.stack(self._offsets[kind, rule])
        weights_NLH = np.stack(self._weights[kind, rule])
        # Every second link: chosen and measured on the same ones, the best of many heads would look too good.
        chosen = hits_NLH[::2].mean(axis=0)
        layer, head = np.unravel_index(int(chosen.argmax()), chosen.shape)
        offset = int(offsets_NO[::2].mean(axis=0).argmax())
        return Follower(
            kind,
            rule,
            len(hits_NLH),
            int(layer),
            int(head),
            float(hits_NLH[1::2, layer, head].mean()),
            float(weights_NLH[1::2, layer, head].mean()),
            FAR[offset],
            float(offsets_NO[1::2, offset].mean()),
        )
