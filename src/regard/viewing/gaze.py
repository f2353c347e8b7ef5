"""Who looks at whom, token by token: one head as lines between tokens, and all heads at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import UsageError
from regard.viewing.figures import AttentionMap, Head
from regard.viewing.svg import MARGIN, escaped, level_paths, picture, shortened, text, text_width

FAINTEST_LINE = 0.03  # a weaker look gets no line
LONGEST_LABEL = 28
ROOM = 260  # between the two columns of tokens
TILE, APART, BELOW = 96, 18, 34  # a head at a glance, between two of them, and the room for its numbers
MOST_CELLS = 32  # of a tile's side; longer texts are pooled, each cell the largest weight it covers
NAMES = {"encoder": "Encoder", "decoder": "Decoder", "cross": "Cross", "pooling": "Pooling"}


# ---- one head


def arcs_svg(attention: AttentionMap, head: Head) -> str:
    """One head as lines from each token to those it looks at; a thicker and stronger line is a larger weight.

    `head` may be the mean of all. Weights below FAINTEST_LINE get no line.
    """
    one = attention.one(head)
    pitch = 24 if max(len(one.queries), len(one.keys)) <= 60 else 15
    queries, keys = ([shortened(label, LONGEST_LABEL) for label in labels] for labels in (one.queries, one.keys))
    caption = attention.caption(head)
    left = MARGIN + max(max(map(text_width, queries)), text_width("each token")) + 8
    right, top = left + ROOM, MARGIN + 52
    width = right + 8 + max(max(map(text_width, keys)), text_width("looks at")) + MARGIN
    look = "" if pitch >= 20 else "small"
    parts = [
        text(MARGIN, MARGIN + 12, caption, "quiet"),
        text(left, MARGIN + 40, "each token", "quiet", "end"),
        text(right, MARGIN + 40, "looks at", "quiet"),
        *_lines(one, left + 6, right - 6, top, pitch),
        *(text(left, top + pitch * (q + 0.5) + 4.5, label, look, "end") for q, label in enumerate(queries)),
        *(text(right, top + pitch * (k + 0.5) + 4.5, label, look) for k, label in enumerate(keys)),
    ]
    height = top + pitch * max(len(queries), len(keys)) + MARGIN
    return picture(caption, max(width, MARGIN * 2 + text_width(caption)), height, parts)


def _lines(one: AttentionMap, left: float, right: float, top: float, pitch: float) -> list[str]:
    weights, found = one.weights[0], []
    # Strong lines come last, on top of the others.
    places = sorted(np.argwhere(weights >= FAINTEST_LINE).tolist(), key=lambda place: float(weights[*place]))
    for query, key in places:
        weight = float(weights[query, key])
        start, end, middle = top + pitch * (query + 0.5), top + pitch * (key + 0.5), (left + right) / 2
        told = escaped(f"«{one.queries[query]}» looks at «{one.keys[key]}» {weight:.3f}")
        found.append(
            f'<path class="line" d="M{left:.1f} {start:.1f}C{middle:.1f} {start:.1f} {middle:.1f} {end:.1f} '
            f'{right:.1f} {end:.1f}" stroke-width="{0.75 + 4.25 * weight:.3f}" '
            f'stroke-opacity="{min(1, 0.1 + 0.8 * weight):.4f}"><title>{told}</title></path>'
        )
    return found


# ---- all heads


def heads_svg(maps: Sequence[AttentionMap], title: str) -> str:
    """Every head as a small matrix, a row for each layer, with its numbers below.

    H is the entropy of its weights in nats, d how many tokens away it looks, s its share of weight on separators.
    """
    if not maps:
        raise UsageError("heads_svg: there must be at least one attention map, but none was given. Pass what to draw.")
    parts, y = [text(MARGIN, MARGIN + 12, title, "title")], MARGIN + 34.0
    parts.append(
        text(
            MARGIN, y, "H entropy in nats · d mean distance in tokens · s share of weight on separators", "quiet small"
        )
    )
    y += 24
    step = max(TILE + APART, *(text_width(numbers, 11) for attention in maps for numbers in _numbers(attention)))
    kinds = list(dict.fromkeys(attention.name for attention in maps))
    for kind in kinds:
        layers = sorted((each for each in maps if each.name == kind), key=lambda each: each.layer)
        parts.append(text(MARGIN, y + 14, f"{NAMES.get(kind, kind.capitalize())} attention", "strong"))
        y += 26
        for attention in layers:
            parts += _row(attention, y, step)
            y += max(_tile_size(attention)[1], 24) + BELOW
        y += 10
    most = max(len(attention.weights) for attention in maps)
    width = max(MARGIN + 64 + most * step, 520) + MARGIN
    return picture(title, width, y + MARGIN - 10, parts)


def _numbers(attention: AttentionMap) -> list[str]:
    """What stands below each head."""
    numbers = zip(attention.entropy(), attention.distance(), attention.separators(), strict=True)
    return [
        f"H {entropy:.1f} · d {distance:.{0 if distance >= 99.95 else 1}f} · s {separators:.0%}"
        for entropy, distance, separators in numbers
    ]


def _row(attention: AttentionMap, top: float, step: float) -> list[str]:
    wide, high, pitch = _tile_size(attention)
    parts = [text(MARGIN, top + high / 2 + 4, f"layer {attention.layer + 1}", "quiet")]
    numbers = zip(attention.entropy(), attention.distance(), attention.separators(), strict=True)
    below = _numbers(attention)
    for head, (entropy, distance, separators) in enumerate(numbers):
        x = MARGIN + 64 + head * step
        told = (
            f"{attention.caption(head)}: entropy {entropy:.3f} nats, distance {distance:.3f}, "
            f"separators {separators:.3f}"
        )
        parts += [
            f'<rect class="empty" x="{x:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{high:.1f}">'
            f"<title>{escaped(told)}</title></rect>",
            *level_paths(pooled(attention.weights[head]), x, top, pitch),
            text(x, top + high + 14, below[head], "quiet small"),
        ]
    return parts


def _tile_size(attention: AttentionMap) -> tuple[float, float, float]:
    """A tile's width, height and the side of one of its cells."""
    rows, columns = pooled(attention.weights[0]).shape
    pitch = TILE / max(rows, columns)
    return pitch * columns, pitch * rows, pitch


def pooled(weights: NDArray[np.floating[Any]], most: int = MOST_CELLS) -> NDArray[np.floating[Any]]:
    """A matrix of at most `most` rows and columns; each cell is the largest of those it stands for."""
    for axis in (0, 1):
        if weights.shape[axis] > most:
            edges = np.arange(most) * weights.shape[axis] // most
            weights = np.maximum.reduceat(weights, edges, axis=axis)
    return weights
