"""Every picture of a model, asked for by its name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from torch import nn

from regard.decoding.penalties import aligning_layer
from regard.errors import UsageError
from regard.evaluation.alignment import word_attention
from regard.exploring.attention import Looked, look, look_at_reading
from regard.exploring.beam import grow
from regard.exploring.bundle import (
    Bundle,
    must_hold_words,
    must_translate,
    read_as_one,
    read_ids,
    source_ids,
)
from regard.exploring.chances_svg import along_svg
from regard.exploring.following import along, next_tokens
from regard.exploring.inside import attention_stacks, learning_curves
from regard.exploring.tree_svg import tree_svg
from regard.exploring.vectors import neighbours, positions
from regard.exploring.vectors_svg import neighbours_svg, positions_svg
from regard.models.bert import Bert
from regard.models.labelling import LabelModel
from regard.viewing.figures import AttentionMap, Head, attention_html, matrix_svg
from regard.viewing.gaze import arcs_svg, heads_svg
from regard.viewing.matrix import Grid, grid_svg
from regard.viewing.raster import to_png
from regard.viewing.svg import page

What = Literal["page", "matrix", "arcs", "heads", "alignment", "beam", "next", "positions", "neighbours", "curves"]
LARGEST = 64_000_000  # bytes of a picture: Chromium opens 35 MB in 4 s
BYTES_PER_WEIGHT: dict[What, float] = {"page": 1.15, "matrix": 12}  # measured, with weights that pack badly
WITHOUT_TEXT: tuple[What, ...] = ("positions", "curves")


@dataclass(frozen=True)
class Shown:
    """A picture: a drawing, or for `page` an interactive page.

    `told` is what else is to be said, as a translation; `source` what was read for it, which may be the first sentence.
    """

    title: str
    drawing: str | None
    document: str
    told: str | None = None
    source: str | None = None

    def to_html(self) -> str:
        """One file that a browser shows, without a network."""
        return self.document

    def to_svg(self) -> str:
        """The drawing alone; raises UsageError for a page."""
        if self.drawing is None:
            raise UsageError(
                "view: the picture `page` is interactive, so it can only be HTML. Ask for `matrix`, `arcs` or `heads`."
            )
        return self.drawing

    def to_png(self) -> bytes:
        """The drawing as pixels; needs the extra `pictures`."""
        return to_png(self.to_svg())


@dataclass(frozen=True)
class Asked:
    """What to draw: a text, perhaps with its translation, and for one head which; None lets the picture choose.

    `name` is encoder, decoder or cross; layers and heads are counted from 0. `beam` and `alpha` are how to search.
    """

    text: str = ""
    target: str | None = None
    language: str | None = None
    name: str | None = None
    layer: int | None = None
    head: Head | None = None
    beam: int | None = None
    alpha: float | None = None


def draw(bundle: Bundle, what: What, asked: Asked, place: Path | None = None) -> Shown:
    """Draw one picture; learning curves are read from the model's folder, `place`."""
    if what not in get_args(What):
        raise UsageError(f"view: the picture must be one of: {', '.join(get_args(What))}; but is `{what}`.")
    if what not in WITHOUT_TEXT:
        must_hold_words("view", asked.text)
    name = bundle.recipe.name
    match what:
        case "page" | "matrix" | "arcs" | "heads":
            return _attention(bundle, what, asked)
        case "alignment":
            return _alignment(bundle, asked)
        case "beam":
            tree = grow(bundle, asked.text, asked.beam, asked.alpha, asked.language)
            return _drawn(
                f"How {name} searched", tree_svg(tree, f"How {name} searched"), tree.results[0].text, tree.source
            )
        case "next":
            return _chances(bundle, asked)
        case "positions":
            return _drawn(f"Positions of {name}", positions_svg(positions(bundle), f"Positions of {name}"))
        case "neighbours":
            return _drawn(
                f"Words of {name}", neighbours_svg(neighbours(bundle, asked.text), f"What {name} finds alike")
            )
        case "curves":
            curves = learning_curves(bundle, place)
            if curves is None:
                raise UsageError(
                    f"view: learning curves need a model folder with a metrics.jsonl that has steps in it, but "
                    f"`{name}` has none."
                )
            return _drawn(f"How {name} learned", curves)


def _drawn(title: str, svg: str, told: str | None = None, source: str | None = None) -> Shown:
    return Shown(title, svg, page(svg, title), told, source)


def draw_reading(bundle: Bundle, network: LabelModel | Bert, what: What, asked: Asked, place: Path | None) -> Shown:
    """Draw one picture of a model that reads and writes nothing: what it looks at, or how it learned."""
    if what == "curves":
        return draw(bundle, what, asked, place)
    if what not in (known := ("page", "matrix", "arcs", "heads", "curves")):
        raise UsageError(
            f"view: of a `{bundle.recipe.model.kind}` the picture must be one of: {', '.join(known)}; but is `{what}`."
        )
    read = len(bundle.tokenizer.source.encode(asked.text)) + 1
    _must_be_small(network, what, read, read)
    looked = look_at_reading(network, bundle.tokenizer, asked.text)
    return _looked(looked, f"What {bundle.recipe.name} looks at", what, asked)


def _must_be_small(network: nn.Module, what: What, read: int, written: int) -> None:
    """Raise UsageError, before any work, for a picture that no browser would open: weights grow with the square."""
    if what not in BYTES_PER_WEIGHT:
        return
    both = read + written if getattr(network, "joins_source", False) else written
    sizes = {"encoder": read * read, "cross": written * read, "decoder": both * both}
    stacks = attention_stacks(network)
    if what == "page":
        weights = sum(stack.layers * stack.heads * sizes.get(stack.name, read) for stack in stacks)
    else:
        weights = max((sizes.get(stack.name, read) for stack in stacks), default=0)
    size = weights * BYTES_PER_WEIGHT[what]
    if size > LARGEST:
        other = " A picture of all heads at a glance, `heads`, stays small." if what == "page" else ""
        raise UsageError(
            f"view: a picture must have at most {LARGEST / 1e6:.0f} MB, but a `{what}` of {max(read, written):,} "
            f"tokens may have {size / 1e6:,.0f}. Shorten the text.{other}"
        )


def _attention(bundle: Bundle, what: What, asked: Asked) -> Shown:
    if bundle.network.reads_source:
        read = len(source_ids(bundle, read_as_one(bundle, asked.text, asked.target), asked.language))
        # Its own translation is about as long, unless it is given.
        written = read if asked.target is None else len(bundle.tokenizer.encode(asked.target)) + 1
    else:
        read = written = len(read_ids(bundle, asked.text)) + 1
    _must_be_small(bundle.network, what, read, written)
    looked = look(bundle, asked.text, asked.target, asked.language)
    return _looked(looked, f"What {bundle.recipe.name} looks at", what, asked)


def _looked(looked: Looked, title: str, what: What, asked: Asked) -> Shown:
    told = None if looked.source is None else looked.target
    head: Head = "mean" if asked.head is None else asked.head
    if what == "page":
        opened = None
        if (asked.name, asked.layer, asked.head) != (None, None, None):
            first = chosen(looked, asked)
            first.one(head)  # there must be such a head
            opened = (first.name, first.layer, head)
        document = attention_html(
            looked.maps(), title=title, source=looked.source or looked.target, target=told, opened=opened
        )
        return Shown(title, None, document, told, looked.source)
    if what == "heads":
        maps = [each for each in looked.maps() if asked.name in (None, each.name)]
        return _drawn(title, heads_svg(maps or [chosen(looked, asked)], title), told, looked.source)
    return _drawn(
        title, (matrix_svg if what == "matrix" else arcs_svg)(chosen(looked, asked), head), told, looked.source
    )


def chosen(looked: Looked, asked: Asked) -> AttentionMap:
    """The layer asked for; unless it is, the last of what looks at the source, or else of what there is."""
    kinds = [layer.name for layer in looked.layers]
    name = asked.name or ("cross" if "cross" in kinds else kinds[-1])
    layers = [layer.layer for layer in looked.layers if layer.name == name]
    return looked.map(name, max(layers, default=0) if asked.layer is None else asked.layer)


def _alignment(bundle: Bundle, asked: Asked) -> Shown:
    """Target words by source words: the mean head of the layer that follows the words best."""
    must_translate(bundle, "alignment")
    looked = look(bundle, asked.text, asked.target, asked.language)
    title = "Which token of the translation looks at which of the source"
    source = looked.source or asked.text
    sources, targets = source.split(), looked.target.split()
    layers = sorted(layer.layer for layer in looked.layers if layer.name == "cross")
    if not layers:
        raise UsageError(
            f"alignment: needs a model that attends to its source, but `{bundle.recipe.name}` does not. Choose another."
        )
    if min(len(sources), len(targets)) < 2 or bundle.tokenizer.source.languages:
        # Without spaces there are no words to be seen; then the tokens stand for themselves.
        attention = looked.map("cross", layers[aligning_layer(len(layers))]).mean()
        grid = _linked(title, attention.queries[:-1], attention.keys[:-1], attention.weights[0][:-1, :-1])
        return _drawn(title, grid_svg(grid), looked.target, source)
    (words,) = word_attention(bundle.network, bundle.tokenizer, [source], [looked.target])
    aligning = f"{aligning_layer(len(layers)) + 1}."
    best = [number for number, each in enumerate(words.names) if each.startswith(aligning)][-1]
    drawn = grid_svg(_linked(title, tuple(targets), tuple(sources), words.weights_ATS[best][:, :-1]))
    return _drawn(title, drawn, looked.target, source)


def _linked(title: str, rows: tuple[str, ...], columns: tuple[str, ...], weights: np.ndarray) -> Grid:
    rings = tuple((row, int(weights[row].argmax())) for row in range(len(rows)) if weights[row].max() > 0)
    return Grid(title, rows, columns, weights, rings)


def _chances(bundle: Bundle, asked: Asked) -> Shown:
    found = along(bundle, asked.text, asked.target, asked.language)
    title = f"How likely {bundle.recipe.name} finds each token"
    if bundle.network.reads_source:
        return _drawn(title, along_svg(found, title), found.text, found.source)
    return _drawn(title, along_svg(found, title, next_tokens(bundle, asked.text)))
