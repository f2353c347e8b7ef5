"""`regard view`, `inspect` and `schema`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.common import AsJson, ModelFolder, TargetLanguage, Unknown, load_model
from regard.errors import UsageError

OF_ONE_HEAD = ("page", "matrix", "arcs")
PICTURES = "page, matrix, arcs, heads, alignment, beam, next, positions, neighbours, curves"


def view(
    model: ModelFolder,
    text: Annotated[
        str, typer.Argument(help="A text to look at; positions and curves need none.", show_default=False)
    ] = "",
    what: Annotated[str, typer.Option(help=f"The picture: {PICTURES}.")] = "page",
    name: Annotated[
        str | None, typer.Option(help="Which attention: encoder, decoder or cross.", show_default="cross, if there is")
    ] = None,
    layer: Annotated[int | None, typer.Option(help="Its layer, from 1.", show_default="the last")] = None,
    head: Annotated[int | None, typer.Option(help="Its head, from 1.", show_default="the mean of all")] = None,
    target: Annotated[
        str | None, typer.Option(help="A translation to look at.", show_default="the model's own")
    ] = None,
    to: TargetLanguage = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The file to write: .html, .svg or .png.", show_default="attention.html, or WHAT.svg"),
    ] = None,
) -> None:
    """Draw what a model does with a text: its attention, its search, its probabilities, its vectors."""
    from regard.files import destination

    if what not in PICTURES.split(", "):
        raise UsageError(f"view: --what must be one of: {PICTURES}; but is `{what}`.")
    out = out or Path("attention.html" if what == "page" else f"{what}.svg")
    endings = (".html", ".htm") if what == "page" else (".html", ".htm", ".svg", ".png")
    if out.suffix not in endings:
        rule = "a page, so its name must end in .html" if what == "page" else "one of .html, .svg and .png"
        fix = "Name it so, or ask for a drawing, as --what heads" if what == "page" else f"Name it as --out {what}.svg"
        found = f"ends in `{out.suffix}`" if out.suffix else "has no such ending"
        raise UsageError(f"{out}: the picture is {rule}, but {found}. {fix}.")
    for option, given, read_by in (
        ("--name", name, (*OF_ONE_HEAD, "heads")), ("--layer", layer, OF_ONE_HEAD), ("--head", head, OF_ONE_HEAD),
    ):  # fmt: skip
        if given is not None and what not in read_by:
            raise UsageError(
                f"view: {option} is for --what {', '.join(read_by)}, but --what is {what}. Leave {option} out."
            )
    destination(out)
    _draw(model, what, out, text, target, to, name, layer, head)


def _draw(
    model: Path,
    what: str,
    out: Path,
    text: str,
    target: str | None,
    to: str | None,
    name: str | None,
    layer: int | None,
    head: int | None,
) -> None:
    """Draw, write, and say where it is."""
    from typing import cast

    from regard.exploring.pictures import WITHOUT_TEXT, Asked, What
    from regard.files import write_file

    for option, value in (("--layer", layer), ("--head", head)):
        if value is not None and value < 1:
            raise UsageError(f"view: {option} counts from 1, but is {value}.")
    asked = Asked(text, target, to, name, None if layer is None else layer - 1, None if head is None else head - 1)
    loaded = load_model(model)
    shown = loaded.draw(cast("What", what), asked)
    if out.suffix == ".png":
        write_file(out, shown.to_png())
    else:
        write_file(out, shown.to_svg() if out.suffix == ".svg" else shown.to_html())
    if shown.source not in (None, text):
        print(
            f"This model translates each sentence by itself; the picture shows the first: {shown.source}",
            file=sys.stderr,
        )
    if shown.told is not None:
        print(shown.told)
    print(f"The picture is in {out}; open it in a browser.", file=sys.stderr)
    if what not in WITHOUT_TEXT:
        read = (
            (loaded.tokenizer.source, "text", shown.source or text),
            (loaded.tokenizer, "translation", target or ""),
        )
        for tokenizer, kind, each in read:
            with Unknown(tokenizer, "view", kind, "picture") as unknown:
                unknown.see(repr(each[:40]), each)


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
    """Show a model's wiring, its matrices, and what it costs to train and to use.

    FLOPs are of all products, hidden ones too. A window saves none: it masks what is computed all the same.
    """
    from regard.api import inspect as look_inside

    found = look_inside(model, overrides or (), vocabulary, length)
    print(json.dumps(found.to_json(), ensure_ascii=False) if as_json else found.to_text())


def schema() -> None:
    """Print the JSON schema of recipes, for editors that complete and check TOML."""
    from regard import settings
    from regard.recipe import Recipe

    print(json.dumps(settings.schema(Recipe), indent=2, ensure_ascii=False))
