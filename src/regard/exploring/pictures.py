"""Every picture of a model, asked for by its name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from regard.errors import UsageError
from regard.evaluation.alignment import word_attention
from regard.exploring.attention import Looked, look, look_at_reading
from regard.exploring.beam import grow
from regard.exploring.bundle import Bundle, must_hold_words, must_translate
from regard.exploring.chances_svg import along_svg
from regard.exploring.following import along, next_tokens
from regard.exploring.inside import learning_curves
from regard.exploring.tree_svg import tree_svg
from regard.exploring.vectors import neighbours, positions
from regard.exploring.vectors_svg import neighbours_svg, positions_svg
from regard.models.bert import Bert
from regard.models.labelling import LabelModel
from regard.translation.alignment import aligning_layer
from regard.viewing.figures import AttentionMap, Head, attention_html, matrix_svg
from regard.viewing.gaze import arcs_svg, heads_svg
from regard.viewing.matrix import Grid, grid_svg
from regard.viewing.raster import to_png
from regard.viewing.svg import page

What = Literal["page", "matrix", "arcs", "heads", "alignment", "beam", "next", "positions", "neighbours", "curves"]
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
    looked = look_at_reading(network, bundle.tokenizer, asked.text)
    return _looked(looked, f"What {bundle.recipe.name} looks at", what, asked)


def _attention(bundle: Bundle, what: What, asked: Asked) -> Shown:
    looked = look(bundle, asked.text, asked.target, asked.language)
    return _looked(looked, f"What {bundle.recipe.name} looks at", what, asked)


def _looked(looked: Looked, title: str, what: What, asked: Asked) -> Shown:
    told = None if looked.source is None else looked.target
    if what == "page":
        document = attention_html(looked.maps(), title=title, source=looked.source or looked.target, target=told)
        return Shown(title, None, document, told, looked.source)
    if what == "heads":
        maps = [each for each in looked.maps() if asked.name in (None, each.name)]
        return _drawn(title, heads_svg(maps or [chosen(looked, asked)], title), told, looked.source)
    head: Head = "mean" if asked.head is None else asked.head
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
