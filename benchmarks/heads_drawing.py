"""Pictures of heads that were found, by the drawing code of `regard view`, several beside each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from benchmarks.heads_measures import Floats, Followers
from benchmarks.heads_pronouns import Mover, Riddle, Solved, line_of, row_of_it
from regard.api import Model
from regard.viewing.gaze import arcs_svg
from regard.viewing.matrix import Grid, grid_svg
from regard.viewing.svg import MARGIN, picture, text, text_width

PLAIN = "I would like to thank the Commission for its clear answer."
PAPER = (
    ("making", "difficult", "It is in this spirit that a majority of American governments have passed new laws since "
     "2009 making the registration or voting process more difficult."),
    ("its", "Law", "The Law will never be perfect, but its application should be just."),
)  # fmt: skip
"""A word, another it should look at, and the sentence of the paper's figures 3 and 4 in which they stand."""

ROWS = 6  # heads in one picture
EXAMPLES = 2  # of heads that follow rules
CAPTION = 34  # pixels above each picture for what it shows


def joined(parts: Sequence[tuple[str, str]], across: bool) -> str:
    """Pictures with a caption each, (caption, SVG), from left to right or one below the other, as one SVG."""
    x, y, wide, high, inner = 0.0, 0.0, 0.0, 0.0, []
    for caption, svg in parts:
        size = re.search(r'width="(\d+)" height="(\d+)"', svg)
        assert size is not None  # every picture of the project begins so
        width, height = max(float(size[1]), text_width(caption) + 2 * MARGIN), float(size[2]) + CAPTION
        # An inner picture keeps its own size: a style meant for the outermost would stretch it.
        placed = re.sub(r' style="[^"]*"', "", svg, count=1)
        inner.append(text(x + MARGIN, y + MARGIN + 8, caption, "strong"))
        inner.append(placed.replace("<svg ", f'<svg x="{x:.0f}" y="{y + CAPTION:.0f}" ', 1))
        wide, high = max(wide, x + width), max(high, y + height)
        x, y = (x + width, y) if across else (x, y + height)
    return picture("; ".join(caption for caption, _ in parts), wide, high, inner)


def draw(
    model: Model,
    averages: Mapping[str, Mapping[str, Floats]],
    followers: Followers,
    solved: Sequence[Solved],
    movers: Sequence[Mover],
) -> Iterator[tuple[str, str]]:
    """Each picture with its name."""
    yield "heads-position", _positions(model, averages)
    for kind in ("encoder", "decoder"):
        if parts := _followed(model, kind, followers):
            yield f"heads-{kind}", joined(parts, across=True)
    heads = [(each.layer, each.head) for each in movers[:ROWS]]
    yield "heads-seed", _riddle(model, solved[0].riddle, heads)
    best = max(solved, key=lambda each: float(np.subtract(*each.leans_2LH)[heads[0]]))
    yield "heads-moved", _riddle(model, best.riddle, heads)
    yield "heads-paper", _paper(model)


def _positions(model: Model, averages: Mapping[str, Mapping[str, Floats]]) -> str:
    """The encoder's heads that look most at the token before, at the token after, and at everything."""
    looked, parts = model.attention(PLAIN), []
    shown = {
        "offset -1": "the token before: {:.0%} of its weight",
        "offset +1": "the token after: {:.0%} of its weight",
        "evenness": "all tokens: {:.0%} of the largest entropy",
    }
    for figure, caption in shown.items():
        values_LH = averages["encoder"][figure]
        layer, head = (int(place) for place in np.unravel_index(values_LH.argmax(), values_LH.shape))
        parts.append((caption.format(values_LH[layer, head]), arcs_svg(looked.map("encoder", layer), head)))
    return joined(parts, across=True)


def _followed(model: Model, kind: str, followers: Followers) -> list[tuple[str, str]]:
    """The rules of a kind whose best heads are farthest above the best fixed offset, with an example of each."""
    found = sorted(
        (each for each in followers.found() if each.kind == kind), key=lambda each: each.baseline - each.share
    )
    parts = []
    for follower in found[:EXAMPLES]:
        if example := followers.example(follower):
            looked = model.attention(*example)
            drawn = arcs_svg(looked.map(kind, follower.layer), follower.head)
            parts.append((f"{follower.rule}, right {follower.share:.0%}", drawn))
    return parts


def _riddle(model: Model, riddle: Riddle, heads: Sequence[tuple[int, int]]) -> str:
    """The two sentences of a riddle: where "it" looks."""
    parts = []
    for adjective in (riddle.of_first, riddle.of_second):
        sentence = riddle.sentence(adjective)
        written = model.attention(sentence).target
        parts.append((f"too {adjective}", _row(model, sentence, row_of_it(line_of(model, sentence)), heads, written)))
    return joined(parts, across=False)


def _paper(model: Model) -> str:
    """The paper's sentences: where a word looks, by the heads that look most at the other."""
    parts = []
    for word, other, sentence in PAPER:
        line = line_of(model, sentence)
        row, keys = (line.tokens(line.text.index(each), line.text.index(each) + len(each)) for each in (word, other))
        looked = model.attention(sentence, ".")
        weights_LHQK = np.stack([each.weights for each in looked.maps() if each.name == "encoder"])
        values_LH = weights_LHQK[:, :, row[-1], keys].sum(axis=-1)
        order = np.argsort(-values_LH, axis=None)[:ROWS]
        heads = [(int(one), int(two)) for one, two in zip(*np.unravel_index(order, values_LH.shape), strict=True)]
        parts.append((f"where “{word}” looks; expected: “{other}”", _row(model, sentence, row[-1], heads, "")))
    return joined(parts, across=False)


def _row(model: Model, sentence: str, row: int, heads: Sequence[tuple[int, int]], title: str) -> str:
    """Where one token looks, a line for each head of the encoder."""
    looked = model.attention(sentence, ".")
    maps = [looked.map("encoder", layer) for layer, _ in heads]
    weights = np.stack([each.weights[head, row] for each, (_, head) in zip(maps, heads, strict=True)])
    names = tuple(f"layer {layer + 1}, head {head + 1}" for layer, head in heads)
    return grid_svg(Grid(title or f"from «{maps[0].queries[row]}»", names, maps[0].keys, weights))
