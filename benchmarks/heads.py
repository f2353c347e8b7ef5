"""What the heads of a trained translator look at: position, marks, words that belong together, and who `it` is.

    python -m benchmarks.heads --model FOLDER --source FILE … --out DIR [--lines 3000] [--translated 300]

The rules are those of benchmarks/heads_rules.py, the riddles those of benchmarks/heads_pronouns.py, in English and
German. The encoder reads --lines lines; the first --translated of them are translated, too, for all other attention.
Results go to DIR: table.md, heads.json and pictures.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.heads_drawing import draw
from benchmarks.heads_measures import Averages, Floats, Follower, Followers, called
from benchmarks.heads_pronouns import RIDDLES, Mover, Solved, line_of, movers, solve
from benchmarks.heads_rules import Line, copied_links, read_links, written_links
from benchmarks.runs import mistakes_told
from regard.api import Model, load
from regard.data.corpus import open_text
from regard.status import StatusLine

SHOWN = 8  # movers in the table
KINDS = ("encoder", "decoder", "cross")


@dataclass(frozen=True)
class Found:
    """All that was measured of a model."""

    averages: dict[str, dict[str, Floats]]
    followers: list[Follower]
    solved: list[Solved]
    movers: list[Mover]

    def figures(self, kind: str, layer: int, head: int) -> dict[str, float]:
        """The averages of one head."""
        return {name: float(values[layer, head]) for name, values in self.averages[kind].items()}

    def heads(self, kind: str) -> list[tuple[int, int]]:
        """Layer and head of each head of a kind, from 0."""
        return list(np.ndindex(*self.averages[kind]["entropy"].shape))

    def to_json(self) -> dict[str, object]:
        """As plain values, layers and heads from 0."""
        averages = {
            kind: {name: np.round(values, 4).tolist() for name, values in figures.items()}
            for kind, figures in self.averages.items()
        }
        riddles = [
            {"texts": each.texts, "pronouns": each.pronouns, "right": each.right, "preference": each.preference}
            for each in self.solved
        ]
        return {
            "averages": averages,
            "rules": [asdict(each) for each in self.followers],
            "riddles": riddles,
            "movers": [asdict(each) for each in self.movers],
        }


def measure(model: Model, lines: Sequence[str], translated: int) -> tuple[Found, Followers]:
    """Read `lines`, translate the first so many of them, and solve the riddles."""
    averages, followers, status = Averages(), Followers(), StatusLine()
    translations = model.translate(list(lines[:translated]))
    for number, text in enumerate(lines):
        status.show(partial("line {:,} of {:,}".format, number + 1, len(lines)))
        # What the encoder sees does not depend on what is written, so a single mark is enough where it alone is asked.
        target = translations[number] if number < translated else "."
        looked = model.attention(text, target)
        maps, source = looked.maps(), line_of(model, text)
        followers.add(maps, "encoder", read_links(source), (text, target))
        if number < translated:
            written = Line.of(model.tokenizer, model.tokenizer.encode(target))
            averages.add(maps)
            followers.add(maps, "decoder", written_links(written), (text, target))
            followers.add(maps, "cross", copied_links(source, written), (text, target))
    status.close()
    solved = [solve(model, riddle) for riddle in RIDDLES]
    return Found(averages.found(), followers.found(), solved, movers(solved)), followers


# ---- tables


def table(found: Found) -> str:
    """Everything as Markdown; layers and heads count from 1."""
    parts = [positions_table(found), rules_table(found.followers), riddles_table(found)]
    return "\n\n".join(parts) + "\n"


def rows_of(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def share(value: float | None) -> str:
    """A share in percent; nothing where there is none to have."""
    return "" if value is None else f"{value:.0%}"


def positions_table(found: Found) -> str:
    """Every head in a row, and the kind that a rule gives it."""
    rows = []
    for kind in KINDS:
        for layer, head in found.heads(kind):
            figures = found.figures(kind, layer, head)
            offsets = [share(figures.get(f"offset {offset:+d}")) for offset in (-1, 0, 1)]
            diagonal = f"{figures['diagonal']:.2f}" if "diagonal" in figures else ""
            shares = [share(figures[name]) for name in ("mark", "punctuation")]
            numbers = [f"{figures['distance']:.1f}", f"{figures['entropy']:.2f}", f"{figures['evenness']:.2f}"]
            rows.append(
                [f"{kind} {layer + 1}.{head + 1}", *offsets, *shares, *numbers, diagonal, called(kind, figures)]
            )
    names = [
        "head",
        "before",
        "same",
        "after",
        "mark",
        "punctuation",
        "distance",
        "entropy",
        "evenness",
        "diagonal",
        "kind",
    ]
    return rows_of(names, rows)


def rules_table(followers: Sequence[Follower]) -> str:
    """The best head for each rule beside the best fixed offset."""
    rows = [
        [
            each.kind, each.rule, each.links, f"{each.layer + 1}.{each.head + 1}", f"{each.share:.0%}",
            f"{each.weight:.2f}", f"{each.baseline:.0%} ({each.offset:+d})",
        ]
        for each in followers
    ]  # fmt: skip
    return rows_of(["attention", "rule", "links", "head", "right", "weight", "best fixed offset"], rows)


def riddles_table(found: Found) -> str:
    """What the model made of each riddle, and which heads moved; leans are those of the head that looks most."""
    rows, most = [], max(found.movers, key=lambda each: each.looks)
    for each in found.solved:
        riddle = each.riddle
        gain = "" if each.preference is None else f"{each.preference:+.2f}"
        wanted = f"{riddle.first_pronoun}, {riddle.second_pronoun}"
        wrote = ", ".join(pronoun or "none" for pronoun in each.pronouns)
        nouns = f"{riddle.first}, {riddle.second}: {riddle.of_first}, {riddle.of_second}"
        leans = ", ".join(f"{lean:+.2f}" for lean in each.leans_2LH[:, most.layer, most.head])
        rows.append([nouns, wanted, wrote, leans, gain, *each.texts])
    lean = f"lean of {most.layer + 1}.{most.head + 1}"
    names = ["riddle", "wanted", "wrote", lean, "gain in nats", "about the first", "about the second"]
    riddles = rows_of(names, rows)
    heads = [
        [
            f"{each.layer + 1}.{each.head + 1}", f"{each.move:+.3f}", f"{each.up} of {each.riddles}",
            f"{each.looks:.2f}", f"{each.chance:.2g}",
            f"{each.agrees} of {each.spoken}",
        ]
        for each in (*found.movers[:SHOWN], *found.movers[-2:])
    ]  # fmt: skip
    return riddles + "\n\n" + rows_of(["head", "mean move", "up", "weight on both", "by chance", "as written"], heads)


def main(arguments: list[str] | None = None) -> None:
    if arguments is None:
        print("  skipped: needs a trained translator; python -m benchmarks.heads --help")
        return
    parser = argparse.ArgumentParser("python -m benchmarks.heads", description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--source", type=Path, nargs="+", required=True, help="files of English lines")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=3000)
    parser.add_argument("--translated", type=int, default=300)
    asked = parser.parse_args(arguments)
    with mistakes_told("heads"):
        lines = [line for file in asked.source for line in lines_of(file)]
        model = load(asked.model)
        model.must_translate("heads")
    found, followers = measure(model, lines[: asked.lines], asked.translated)
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "heads.json").write_text(json.dumps(found.to_json(), indent=1, ensure_ascii=False) + "\n")
    (asked.out / "table.md").write_text(table(found))
    for name, svg in draw(model, found.averages, followers, found.solved, found.movers):
        (asked.out / f"{name}.svg").write_text(svg)
    print(table(found))


def lines_of(file: Path) -> list[str]:
    """The lines of a text file, packed or not."""
    with open_text(file) as stream:
        return stream.read().decode().rstrip("\n").split("\n")


if __name__ == "__main__":
    main(sys.argv[1:])
