"""The tree of a beam search as a picture: a column for each round, the best of it on top."""

from __future__ import annotations

from regard.exploring.beam import BeamTree, Node
from regard.viewing.svg import MARGIN, escaped, picture, shortened, text, text_width

ROW, GAP = 34, 46  # from one candidate to the next below, and room for the lines between two rounds
LONGEST_LABEL = 18
_STYLE = """
.chip { fill: #e3ebfb; } .best { fill: #c2490f; } .best-text { fill: #fff; font-weight: 600; }
.branch { fill: none; stroke: #93a3c4; stroke-width: 1.25; } .best-branch { fill: none; stroke: #c2490f; stroke-width: 2.5; }
@media (prefers-color-scheme: dark) {
  .chip { fill: #27364f; } .best { fill: #f19a4b; } .best-text { fill: #15171c; }
  .branch { stroke: #5f708f; } .best-branch { stroke: #f19a4b; }
}
"""  # noqa: E501


def tree_svg(tree: BeamTree, title: str) -> str:
    """Draw a tree: what search went on from stands on a chip, what it dropped is grey, and what ended is ringed.

    The way to the best result is marked. A node's title tells its log-probability and score.
    """
    places = _places(tree)
    best = set(tree.results[0].nodes) if tree.results else set()
    top, bottom = MARGIN + 48, MARGIN + 48 + ROW * max(len(nodes) for nodes in tree.rounds)
    parts = [text(MARGIN, MARGIN + 12, title, "title"), *_heads(tree, places)]
    nodes = [node for nodes in tree.rounds for node in nodes]
    # The marked way comes last, on top of all others.
    for node in sorted(nodes, key=lambda node: node.id in best):
        if node.parent is not None:
            parts.append(_branch(places[node.parent], places[node.id], top, node.id in best))
    parts += [_drawn(node, places[node.id], top, node.id in best) for node in nodes]
    y = bottom + 28
    parts.append(text(MARGIN, y, "found, best first; the score is log P divided by the length penalty", "quiet small"))
    for result in tree.results:
        y += 22
        parts.append(text(MARGIN, y, f"{result.score:.3f}", "quiet"))
        parts.append(text(MARGIN + 64, y, shortened(result.text, 110), "strong" if result is tree.results[0] else ""))
    last = max(x + wide for x, _, wide in places.values())
    width = max(
        last, MARGIN + 64 + max((text_width(shortened(each.text, 110)) for each in tree.results), default=0), 480
    )
    return picture(title, width + MARGIN, y + MARGIN, parts, _STYLE)


Place = tuple[float, int, float]
"""Where a node is: its left side in pixels, its row, its width in pixels."""


def _places(tree: BeamTree) -> dict[int, Place]:
    found: dict[int, Place] = {}
    x = float(MARGIN)
    for nodes in tree.rounds:
        widths = [text_width(_label(node)) + 20 for node in nodes]
        for row, (node, width) in enumerate(zip(nodes, widths, strict=True)):
            found[node.id] = (x, row, width)
        x += max(widths, default=0) + GAP
    return found


def _heads(tree: BeamTree, places: dict[int, Place]) -> list[str]:
    return [
        text(places[nodes[0].id][0], MARGIN + 38, f"{number}", "quiet small")
        for number, nodes in enumerate(tree.rounds, 1)
        if nodes
    ]


def _branch(parent: Place, child: Place, top: float, best: bool) -> str:
    x1, y1 = parent[0] + parent[2], top + ROW * (parent[1] + 0.5)
    x2, y2 = child[0], top + ROW * (child[1] + 0.5)
    middle = (x1 + x2) / 2
    look = "best-branch" if best else "branch"
    return (
        f'<path class="{look}" d="M{x1:.1f} {y1:.1f}C{middle:.1f} {y1:.1f} {middle:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"/>'
    )


def _drawn(node: Node, place: Place, top: float, best: bool) -> str:
    x, row, width = place
    y = top + ROW * row
    told = escaped(f"{node.token}: log P {node.log_probability:.3f}, score {node.score:.3f}")
    shape, look = "", "quiet"
    if best or node.kept or node.ended:
        frame = "best" if best else "chip" if node.kept else "ring"
        shape = f'<rect class="{frame}" x="{x:.1f}" y="{y + 5:.1f}" width="{width:.1f}" height="24" rx="12"/>'
        look = "best-text" if best else ""
    return f'<g data-node="{node.id}"><title>{told}</title>{shape}{text(x + 10, y + 21.5, _label(node), look)}</g>'


def _label(node: Node) -> str:
    return shortened(node.token.strip() or "␣", LONGEST_LABEL)
