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
import unicodedata
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError, UsageError

CODES = 65535  # the code of weight 1.0 in the page
SMALLEST_DRAWN = 0.0005  # a weight that prints as 0.000 gets no cell in an SVG


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

    def _check(self) -> None:
        expected = f"[heads, {len(self.queries)} queries, {len(self.keys)} keys]"
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
        return AttentionMap(self.name, self.layer, self.queries, self.keys, mean)

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


def attention_html(maps: Sequence[AttentionMap], *, title: str, source: str, target: str) -> str:
    """One HTML page, complete in itself, to explore `maps`: all layers and heads at a glance, one of them large."""
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
            "source": _html_text(source),
            "target": _html_text(target),
            "style": style,
            "style_hash": _content_hash(style),
            "script": script,
            "script_hash": _content_hash(script),
            "page": _page_json(maps),
            "weights": "\n".join(_weights_element(i, attention) for i, attention in enumerate(maps)),
        },
    )


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


def _page_json(maps: Sequence[AttentionMap]) -> str:
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
    # ASCII output escapes U+2028 and lone surrogates; an escaped "<" cannot begin "</script>" or "<!--".
    return json.dumps({"labels": labels, "maps": entries}, separators=(",", ":")).replace("<", "\\u003c")


def _summaries(attention: AttentionMap) -> list[dict[str, float]]:
    pairs = zip(attention.entropy(), attention.distance(), strict=True)
    return [{"entropy": round(float(e), 4), "distance": round(float(d), 4)} for e, d in pairs]


def _weights_element(index: int, attention: AttentionMap) -> str:
    codes = np.rint(np.clip(attention.weights, 0, 1) * CODES).astype("<u2")
    # All low bytes, then all high bytes: the high ones are mostly zero and compress to almost nothing.
    planes = codes.reshape(-1).view(np.uint8).reshape(-1, 2).T
    packed = base64.b64encode(zlib.compress(planes.tobytes())).decode()
    return f'<script type="text/plain" id="weights-{index}">{packed}</script>'


_SVG_STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif; fill: #1e2228; }
.quiet { fill: #5f636c; } .panel { fill: #fff; } .empty { fill: #f2f4f9; } .cell { fill: #1d4bb0; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e5df; } .quiet { fill: #9a9fa6; } .panel { fill: #15171c; } .empty { fill: #1d2126; }
  .cell { fill: #7cc4ff; }
}
"""
_PITCH, _GAP, _MARGIN = 28, 2, 20


def matrix_svg(attention: AttentionMap, head: int) -> str:
    """One head as a standalone SVG matrix; for the average of all heads pass `attention.mean()` and head 0.

    A cell's opacity is the square root of its weight; its title tells the weight to three decimals.
    """
    heads = len(attention.weights)
    if not 0 <= head < heads:
        raise UsageError(
            f"matrix_svg: {attention.place} has heads 0 to {heads - 1}, but head {head} was asked for. "
            "Choose one of these, or pass attention.mean() and head 0."
        )
    queries = [_svg_text(label) for label in attention.queries]
    keys = [_svg_text(label) for label in attention.keys]
    left = _MARGIN + max(map(_text_width, attention.queries)) + 10
    # Column labels lean at 45 degrees: each needs its width over the root of 2, upwards and to the right.
    lean = [_text_width(label) * 0.71 + 12 for label in attention.keys]
    top = _MARGIN + 28 + max(lean)
    right = max([_PITCH * (k + 0.5) + lean[k] for k in range(len(keys))] + [_PITCH * len(keys), 210])
    width, height = left + right + _MARGIN, top + _PITCH * len(queries) + 64
    which = attention.place + (f", head {head + 1}" if heads > 1 else "")
    caption = _svg_text(which[0].upper() + which[1:])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{caption}">',
        f"<style>{_SVG_STYLE}</style>",
        '<rect class="panel" width="100%" height="100%" rx="10"/>',
        f'<text class="quiet" x="{_MARGIN}" y="{_MARGIN + 12}">{caption}</text>',
        *_svg_labels(queries, keys, left, top),
        *_svg_cells(attention.weights[head], queries, keys, left, top),
        *_svg_legend(left, height - 40),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _svg_labels(queries: Sequence[str], keys: Sequence[str], left: float, top: float) -> list[str]:
    rows = [
        f'<text x="{left - 10:.1f}" y="{top + _PITCH * (q + 0.5) + 4.5:.1f}" text-anchor="end">{label}</text>'
        for q, label in enumerate(queries)
    ]
    columns = []
    for k, label in enumerate(keys):
        x, y = left + _PITCH * (k + 0.5) + 3, top - 8
        columns.append(f'<text transform="translate({x:.1f} {y:.1f}) rotate(-45)">{label}</text>')
    return rows + columns


def _svg_cells(
    weights: NDArray[np.floating[Any]], queries: Sequence[str], keys: Sequence[str], left: float, top: float
) -> list[str]:
    side = _PITCH - _GAP
    empty = (
        f'<rect class="empty" x="{left:.1f}" y="{top:.1f}" width="{_PITCH * len(keys) - _GAP}" '
        f'height="{_PITCH * len(queries) - _GAP}" rx="2"/>'
    )
    cells = []
    for q, k in np.argwhere(weights >= SMALLEST_DRAWN):
        weight = float(weights[q, k])
        cells.append(
            f'<rect class="cell" x="{left + _PITCH * k:.1f}" y="{top + _PITCH * q:.1f}" width="{side}" '
            f'height="{side}" rx="2" fill-opacity="{min(weight, 1) ** 0.5:.4f}">'
            f"<title>«{queries[q]}» looks at «{keys[k]}» {weight:.3f}</title></rect>"
        )
    return [empty, *cells]


def _svg_legend(left: float, top: float) -> list[str]:
    parts = []
    for place, weight in enumerate((0.01, 0.1, 0.25, 0.5, 1.0)):
        x = left + 42 * place
        parts.append(
            f'<rect class="empty" x="{x:.1f}" y="{top:.1f}" width="40" height="8"/>'
            f'<rect class="legend cell" x="{x:.1f}" y="{top:.1f}" width="40" height="8" '
            f'fill-opacity="{weight**0.5:.4f}"/>'
            f'<text class="quiet" x="{x + 20:.1f}" y="{top + 24:.1f}" text-anchor="middle">{weight:g}</text>'
        )
    return parts


def _svg_text(text: str) -> str:
    # XML has no way to write these characters at all, not even escaped.
    return html.escape(re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text))


def _text_width(text: str) -> float:
    # An SVG cannot measure its own text. These widths of 13 px type are on the generous side.
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return 7.8 * (len(text) - wide) + 13.5 * wide
