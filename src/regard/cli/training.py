"""`regard demo` and `regard train`."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from regard.cli.common import STOPPED_BY
from regard.errors import UsageError


def demo(
    out: Annotated[Path, typer.Option(help="Where to put the model and the picture.")] = Path("demo"),
) -> None:
    """A tour in two minutes, offline: train a small Transformer, score it, translate, and look at its attention."""
    from regard.demo import run

    signal = run(out)
    if signal is not None:
        print(f"Stopped by {signal}. To begin again: regard demo", file=sys.stderr)
        raise typer.Exit(STOPPED_BY[signal])


def train(
    recipe: Annotated[str | None, typer.Argument(metavar="RECIPE", help="A recipe file or a preset's name.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings on top, as training.steps=500.")
    ] = None,
    source: Annotated[str | None, typer.Option(help="Sentences to translate from, one a line.")] = None,
    target: Annotated[str | None, typer.Option(help="Their translations, line by line.")] = None,
    out: Annotated[Path | None, typer.Option(help="The model folder to write.", show_default="runs/NAME")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint of --out.")] = False,
) -> None:
    """Train a model from a recipe, or from two text files: regard train --source a.en --target a.de"""
    from regard import experiment, folder
    from regard.recipe import load_recipe
    from regard.settings.tree import text_of

    arguments = [recipe, *(overrides or [])] if recipe is not None else []
    changes = [argument for argument in arguments if "=" in argument]
    names = [argument for argument in arguments if "=" not in argument]
    if len(names) > 1:
        raise UsageError(f"train: takes one recipe, but got {len(names)}: {', '.join(names)}. Keep one.")
    if (source is None) != (target is None):
        raise UsageError("train: --source and --target must be given together, but one is missing. Give both.")
    if source is not None:
        changes = [f"data={{kind='files', source={text_of(source)}, target={text_of(target)}}}", *changes]
    if resume:
        if out is None or names:
            raise UsageError("regard train --resume: needs --out and no recipe: the folder holds its own.")
        plan = folder.read_recipe(out, changes)
    elif not names and source is None:
        raise UsageError("train: needs a recipe or --source and --target. See: regard train --help")
    else:
        plan = load_recipe(names[0] if names else "small", changes)
    place = out or Path("runs") / plan.name
    outcome = experiment.train(plan, place, resume)
    _exit_if_stopped(outcome.signal, place)
    print(
        f"All {outcome.step:,} steps done. The model is in {place}. Try: regard translate {quote(str(place))}",
        file=sys.stderr,
    )


def _exit_if_stopped(signal: str | None, out: Path) -> None:
    """Say how to go on after a signal, and leave with the code shells expect of it."""
    if signal is not None:
        print(
            f"Stopped by {signal}; nothing is lost. Go on with: regard train --resume --out {quote(str(out))}",
            file=sys.stderr,
        )
        raise typer.Exit(STOPPED_BY[signal])
