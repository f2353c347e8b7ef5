"""Pictures of attention: one self-contained HTML page, or one head as SVG.

The page needs no network: style, script and weights are inside the file, and a content security policy
with hashes lets nothing else run. Weights travel as 16-bit codes, `round(65535 · w)`, so what the page shows
differs from what the model computed by at most 1/131070. Colour and opacity grow with the *square root* of a weight:
with forty words to look at, an even gaze gives 0.025 to each, which a linear scale would hide.

Nothing here knows about torch or about models; `regard.viewing.capture` fills the `AttentionMap`s.
"""

import base64
import hashlib
import html
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard.counts import so_many
from regard.errors import DataError, UsageError
from regard.viewing.matrix import SMALLEST_DRAWN, Grid, grid_svg

__all__ = ["CODES", "SMALLEST_DRAWN", "AttentionMap", "attention_html", "matrix_svg"]

CODES = 65535  # the code of weight 1.0 in the page

Head = int | Literal["mean"]


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """What every head of one layer looked at: `weights[h, q, k]` is how much query `q` looks at key `k`.

    `weights` may be given as nested lists or any array; it is kept as float32.
    """

    name: str
    layer: int
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    weights: NDArray[np.floating[Any]]
    marks: tuple[int, ...] = ()
    """The places of keys that only separate: the start, the end, punctuation."""

    def __post_init__(self) -> None:
        try:
            weights = np.asarray(self.weights, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"{self.place}: weights must be numbers of shape [heads, queries, keys], but are not ({error}). "
                "Pass a numpy array or evenly nested lists."
            ) from error
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "queries", tuple(self.queries))
        object.__setattr__(self, "keys", tuple(self.keys))
        self._check()

    @property
    def place(self) -> str:
        """Where this map sits, in words, layers counted from 1 as in the pictures."""
        return f"{self.name} attention, layer {self.layer + 1}"

    def caption(self, head: Head) -> str:
        """What a picture of one head or of the mean of all is called; an only head needs no number."""
        heads = len(self.weights)
        number = f", mean of {heads} heads" if head == "mean" else f", head {head + 1}"
        which = self.place + (number if heads > 1 else "")
        return which[0].upper() + which[1:]

    def _check(self) -> None:
        expected = f"[heads, {so_many(len(self.queries), 'query', 'queries')}, {so_many(len(self.keys), 'key')}]"
        shape = self.weights.shape
        if len(shape) != 3 or shape[1:] != (len(self.queries), len(self.keys)):
            raise DataError(
                f"{self.place}: weights must have the shape of their labels, {expected}, but have {list(shape)}. "
                "Pass one label for every row and every column."
            )
        if self.weights.size == 0:
            raise DataError(
                f"{self.place}: there must be at least one head, query and key, but the shape is {list(shape)}. "
                "Leave empty maps out."
            )
        if not np.isfinite(self.weights).all():
            bad = int(np.count_nonzero(~np.isfinite(self.weights)))
            raise DataError(
                f"{self.place}: weights must be finite, but {bad} of {self.weights.size} are not. "
                "Look for a row whose keys are all masked, or a model that diverged."
            )
        if self.weights.min() < 0:
            raise DataError(
                f"{self.place}: weights must not be negative, but one is {self.weights.min():.4g}. "
                "Pass weights after the softmax."
            )
        # Half-precision weights sum to 1 only roughly; dropout or raw scores miss it by far more than this.
        sums = self.weights.sum(axis=-1, dtype=np.float64)
        worst = float(sums.flat[np.abs(sums - 1).argmax()])
        if abs(worst - 1) > 0.02:
            raise DataError(
                f"{self.place}: each row of weights must sum to 1, but one sums to {worst:.4g}. "
                "Pass weights after the softmax, without dropout."
            )

    def mean(self) -> "AttentionMap":
        """The same map with its heads averaged into one."""
        mean = self.weights.mean(axis=0, keepdims=True)
        return AttentionMap(self.name, self.layer, self.queries, self.keys, mean, self.marks)

    def one(self, head: Head) -> "AttentionMap":
        """The same map with a single head, which may be the mean of all."""
        if head == "mean":
            return self.mean()
        heads = len(self.weights)
        if not 0 <= head < heads:
            raise UsageError(
                f"attention: {self.place} has heads 1 to {heads}, but head {head + 1} ({head}, counted from 0) was "
                "asked for. Choose one of these, or the mean of all."
            )
        return AttentionMap(self.name, self.layer, self.queries, self.keys, self.weights[head : head + 1], self.marks)

    def entropy(self) -> NDArray[np.float64]:
        """For each head the entropy of a row in nats, averaged over rows: 0 looks at one key, ln(keys) at all alike."""
        weights = self.weights.astype(np.float64)
        # log(1) = 0 stands in where the weight is 0, because w·log w tends to 0 there.
        logs = np.log(np.where(weights > 0, weights, 1.0))
        return np.asarray(-(weights * logs).sum(axis=-1).mean(axis=-1))

    def distance(self) -> NDArray[np.float64]:
        """For each head how many positions from its own a query looks, |q - k| weighted and averaged over rows."""
        apart = np.abs(np.arange(len(self.queries))[:, None] - np.arange(len(self.keys))[None, :])
        return np.asarray((self.weights.astype(np.float64) * apart).sum(axis=-1).mean(axis=-1))

    def separators(self) -> NDArray[np.float64]:
        """For each head how much of its weight lies on keys that only separate, averaged over rows."""
        return np.asarray(self.weights[:, :, list(self.marks)].sum(axis=-1, dtype=np.float64).mean(axis=-1))


def attention_html(
    maps: Sequence[AttentionMap],
    *,
    title: str,
    source: str,
    target: str | None,
    opened: tuple[str, int, Head] | None = None,
) -> str:
    """One HTML page, complete in itself, to explore `maps`: all layers and heads at a glance, one of them large.

    A language model reads `source` and has no `target`. The page begins with the head that is `opened`: the name of its
    attention, its layer, itself. Unless one is, with the mean of the last layer that looks at the source.
    """
    if not maps:
        raise UsageError(
            "attention_html: there must be at least one attention map, but none was given. "
            "Capture a translation with a model that has attention."
        )
    seen: set[tuple[str, int]] = set()
    for attention in maps:
        if (attention.name, attention.layer) in seen:
            raise UsageError(
                f"attention_html: each layer may appear once, but {attention.place} appears twice. "
                "Pass the maps of one sentence only."
            )
        seen.add((attention.name, attention.layer))
    style, script = _resource("attention.css"), _resource("attention.js")
    return _fill(
        _resource("attention.html"),
        {
            "title": _html_text(title),
            "sentences": _sentences(source, target),
            "style": style,
            "style_hash": _content_hash(style),
            "script": script,
            "script_hash": _content_hash(script),
            "page": _page_json(maps, opened),
            "weights": "\n".join(_weights_element(i, attention) for i, attention in enumerate(maps)),
        },
    )


def _sentences(source: str, target: str | None) -> str:
    pairs = [("reads", source)] + ([] if target is None else [("writes", target)])
    return "\n    ".join(f'<dt>{what}</dt><dd lang="" dir="auto">{_html_text(text)}</dd>' for what, text in pairs)


def _resource(name: str) -> str:
    return files("regard.viewing").joinpath(name).read_text(encoding="utf-8")


def _fill(template: str, values: Mapping[str, str]) -> str:
    # One pass over the template, so that a sentence which itself contains {{script}} stays a sentence.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], template)


def _content_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _html_text(text: str) -> str:
    # A lone surrogate cannot be written as UTF-8, and one odd token must not cost the whole page.
    return html.escape(text.encode("utf-8", "replace").decode())


def _page_json(maps: Sequence[AttentionMap], opened: tuple[str, int, Head] | None) -> str:
    labels: list[tuple[str, ...]] = []
    for attention in maps:
        for each in (attention.queries, attention.keys):
            if each not in labels:
                labels.append(each)
    entries = [
        {
            "name": attention.name,
            "layer": attention.layer,
            "queries": labels.index(attention.queries),
            "keys": labels.index(attention.keys),
            "heads": _summaries(attention),
            "mean": _summaries(attention.mean())[0],
        }
        for attention in maps
    ]
    content: dict[str, object] = {"labels": labels, "maps": entries}
    if opened is not None:
        name, layer, head = opened
        place = [(attention.name, attention.layer) for attention in maps].index((name, layer))
        content["opened"] = {"map": place, "head": None if head == "mean" else head}
    # ASCII output escapes U+2028 and lone surrogates; an escaped "<" cannot begin "</script>" or "<!--".
    return json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")


def _summaries(attention: AttentionMap) -> list[dict[str, float]]:
    numbers = zip(attention.entropy(), attention.distance(), attention.separators(), strict=True)
    return [
        {"entropy": round(float(e), 4), "distance": round(float(d), 4), "separators": round(float(s), 4)}
        for e, d, s in numbers
    ]


def _weights_element(index: int, attention: AttentionMap) -> str:
    codes = np.rint(np.clip(attention.weights, 0, 1) * CODES).astype("<u2")
    # All low bytes, then all high bytes: the high ones are mostly zero and compress to almost nothing.
    planes = codes.reshape(-1).view(np.uint8).reshape(-1, 2).T
    packed = base64.b64encode(zlib.compress(planes.tobytes())).decode()
    return f'<script type="text/plain" id="weights-{index}">{packed}</script>'


def matrix_svg(attention: AttentionMap, head: Head) -> str:
    """One head, or the mean of all, as a standalone SVG matrix.

    A cell's opacity is the square root of its weight; its title tells the weight to three decimals.
    """
    weights = attention.one(head).weights[0]
    return grid_svg(Grid(attention.caption(head), attention.queries, attention.keys, weights))
