"""How much the test sentences of the shipped translators are like what these learned from.

    python -m benchmarks.twins [--data data/everyday]

A twin of a sentence is one of the training part of Tatoeba that has the same words but for one, which is another, too
many or missing; capitals and punctuation do not count. Prints how many test sentences have a twin, and BLEU on those
and on the rest. docs/shipped.md says how the files are made.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import regard
from benchmarks.runs import mistakes_told
from regard.data.formats import open_text
from regard.evaluation.metrics import score

SIDES = {"everyday-en-de": (0, 1), "everyday-de-en": (1, 0)}  # the columns of source and target


def pairs(file: Path) -> list[list[str]]:
    """The lines of a table."""
    with open_text(file) as lines:
        return [line.decode().rstrip("\n").split("\t")[:2] for line in lines]


def traces(text: str) -> Iterator[tuple[str, ...]]:
    """Its words, and its words with a hole in the place of each, or between two: twins have one of these in common."""
    words = tuple(re.findall(r"\w+", text.lower()))
    yield words
    for place in range(len(words) + 1):
        yield (*words[:place], "", *words[place:])
        yield (*words[:place], "", *words[place + 1 :])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("data/everyday"), metavar="DIR", help="where the tables are")
    data = parser.parse_args(arguments or []).data
    if arguments is None and not data.is_dir():
        print(f"  skipped: {data} is not there")
        return
    with mistakes_told("twins"):
        train, test = pairs(data / "tatoeba-train.tsv.xz"), pairs(data / "tatoeba-test.tsv")
    for name, (source, target) in SIDES.items():
        seen = {trace for pair in train for trace in traces(pair[source])}
        sources, references = ([pair[side] for pair in test] for side in (source, target))
        found = regard.load(name).translate(sources)
        alike = [not seen.isdisjoint(traces(text)) for text in sources]
        for what, wanted in (("with a twin", True), ("without", False)):
            lines = [number for number, is_alike in enumerate(alike) if is_alike == wanted]
            scores = score([found[line] for line in lines], [references[line] for line in lines])
            bleu = next(each.value for each in scores if each.name == "BLEU")
            print(f"{name}: {len(lines):,} test sentences {what}, BLEU {bleu:.2f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
