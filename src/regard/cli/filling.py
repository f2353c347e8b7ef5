"""`regard fill`."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from regard.cli.common import STDIN, AsJson, ModelFolder, Precision, load_model


def fill(
    model: ModelFolder,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="A text with gaps; - reads one a line.", show_default="stdin")
    ] = STDIN,
    count: Annotated[int, typer.Option(help="How many tokens to tell of each gap.")] = 5,
    gap: Annotated[str, typer.Option(help="How a gap is written; each is one token.")] = "_",
    precision: Precision = "auto",
    as_json: AsJson = False,
) -> None:
    """Fill the gaps of a text with a model that sees both sides of them: a bert or an xlnet."""
    from regard.data.formats import lines_of
    from regard.data.streams import standard_input
    from regard.errors import UsageError
    from regard.filling import Filled

    if not gap:
        raise UsageError("fill: `--gap` must be a sign that stands for a gap, but is empty. Leave it out for _.")
    loaded = load_model(model, precision)
    loaded.fill([], count, gap)  # a model of another kind says so before anything is read
    for line in lines_of(standard_input(), "stdin") if text == STDIN else [text]:
        # Of many lines, those without a gap are whole already; a single text without one is a mistake.
        whole = text == STDIN and gap not in line
        (found,) = [Filled(line, ())] if whole else loaded.fill([line], count, gap)
        if as_json:
            print(json.dumps(found.to_json(), ensure_ascii=False), flush=True)
            continue
        print(found.text)
        for number, each in enumerate(found.gaps, 1):
            chances = zip(each.tokens, each.probabilities, strict=True)
            print(
                f"  gap {number}:  " + "  ".join(f"{_visible(token)} {100 * chance:.1f} %" for token, chance in chances)
            )
        sys.stdout.flush()


def _visible(token: str) -> str:
    """A token of which all can be seen, on one line: a tab as \\t."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in token)
