"""`regard view`, `inspect`, `reproduce` and `schema`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.common import AsJson, ModelFolder, load_model
from regard.errors import UsageError


def view(
    model: ModelFolder,
    text: Annotated[str, typer.Argument(help="A sentence to translate and look at.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("attention.html"),
) -> None:
    """Draw every attention of the model while it translates a sentence, into one HTML file."""
    from regard.files import write_file

    if out.suffix not in (".html", ".htm"):
        raise UsageError(f"{out}: the picture is a page, so its name must end in .html, but ends in `{out.suffix}`.")
    picture = load_model(model).look(text)
    write_file(out, picture.to_html())
    print(picture.translation)
    print(f"The picture is in {out}; open it in a browser.", file=sys.stderr)


def inspect(
    model: Annotated[str, typer.Argument(metavar="MODEL|PRESET", help="A model folder, a recipe file or a preset.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings on top, as model.heads=4.")
    ] = None,
    vocabulary: Annotated[int | None, typer.Option(help="Tokens there are.", show_default="the model's")] = None,
    length: Annotated[
        int | None, typer.Option(help="Tokens of a row, on each side.", show_default="25, or a language model's limit")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a model's wiring, its matrices, and what it costs to train and to use."""
    from regard.api import inspect as look_inside

    found = look_inside(model, overrides or (), vocabulary, length)
    print(json.dumps(found.to_json(), ensure_ascii=False) if as_json else found.to_text())


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to reproduce: table1.", show_default=False)],
    lengths: Annotated[
        str | None, typer.Option(help="Sequence lengths, as 64,128,256.", show_default="by device")
    ] = None,
    width: Annotated[int, typer.Option(help="The size of a token's vector.")] = 512,
    out: Annotated[Path, typer.Option(help="The SVG file to write.")] = Path("table1.svg"),
) -> None:
    """Compute and measure a table of the paper: table1 compares layer types by cost and by path length."""
    if name != "table1":
        raise UsageError(f"regard reproduce: NAME must be one of: table1; but is `{name}`. Choose one that exists.")
    if out.suffix != ".svg":
        raise UsageError(f"{out}: the curves are SVG, so the name must end in .svg, but ends in `{out.suffix}`.")
    from regard.experiment import choose_device
    from regard.files import destination, write_file
    from regard.reproduce import table1

    destination(out)  # half a minute of measuring should not end at a folder that is not there

    found = table1.reproduce(choose_device("auto"), width, table1.read_lengths(lengths) if lengths else None)
    print(found.to_text())
    write_file(out, found.to_svg())
    print(f"The curves are in {out}; open it in a browser.", file=sys.stderr)


def schema() -> None:
    """Print the JSON schema of recipes, for editors that complete and check TOML."""
    from regard import settings
    from regard.recipe import Recipe

    print(json.dumps(settings.schema(Recipe), indent=2, ensure_ascii=False))
