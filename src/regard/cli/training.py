"""`regard demo` and `regard train`."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.common import STOPPED_BY
from regard.errors import MissingError, UsageError

if TYPE_CHECKING:
    from regard.choosing import Choice
    from regard.machine import Machine
    from regard.recipe import Recipe


def demo(
    out: Annotated[Path, typer.Option(help="Where to put the model and the picture.")] = Path("demo"),
) -> None:
    """A tour in two minutes, offline: see a shipped model translate; then train a small Transformer, score it,
    translate, and look at its attention."""
    from regard.demo import DEMO, command, run

    signal = run(out)
    if signal is not None:
        place = "" if out == Path(DEMO) else f" --out {quote(str(out))}"
        print(f"Go on with: {command()} demo{place}", file=sys.stderr)
        raise typer.Exit(STOPPED_BY[signal])


def train(
    recipe: Annotated[str | None, typer.Argument(metavar="RECIPE", help="A recipe file or a preset's name.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings on top, as training.steps=500.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Sentences to translate from, one a line, or both sides in a .tsv or .jsonl.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Their translations, line by line.")] = None,
    out: Annotated[Path | None, typer.Option(help="The model folder to write.", show_default="runs/NAME")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint of --out.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Print what it would take, and train nothing.")] = False,
    world: Annotated[int, typer.Option(help="With --plan: processes, each with a device of its own.", min=1)] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="With --plan: print JSON, made for programs.")] = False,
) -> None:
    """Train a model from a recipe, or from two text files: regard train --source a.en --target a.de"""
    from regard import experiment

    if not plan and (as_json or world > 1):
        raise UsageError("train: --json and --world go with --plan. Add --plan, or start processes with torchrun.")
    asked = _Asked.of(recipe, overrides or [], source, target, out, resume)
    if plan:
        _print_plan(asked, world, as_json)
        return
    found = asked.recipe()
    place = out or Path("runs") / found.name
    outcome = experiment.train(found, place, resume)
    if outcome.unfinished:
        _say_how_to_go_on(place)
    elif _speaks():
        _say_what_next(found, place)
    if outcome.signal is not None:
        raise typer.Exit(STOPPED_BY[outcome.signal])


def _say_what_next(found: Recipe, place: Path) -> None:
    verb = {"text": "generate", "music": "generate"}.get(found.data.kind, "translate")
    verb = {"classifier": "classify", "tagger": "tag", "bert": "fill"}.get(found.model.kind, verb)
    rest = " --midi out.mid" if found.data.kind == "music" else ""
    print(f"The model is in {place}. Try: regard {verb} {quote(str(place))}{rest}", file=sys.stderr)


@dataclass(frozen=True)
class _Asked:
    """What a command line asks to train: a recipe by name, or the one of a folder, or one to be chosen."""

    name: str | None
    changes: list[str]
    sides: dict[str, str]
    arguments: list[str]
    """As they were typed, for the corpus."""
    out: Path | None
    resume: bool

    @classmethod
    def of(
        cls, recipe: str | None, overrides: list[str], source: str | None, target: str | None, out: Path | None,
        resume: bool,
    ) -> _Asked:  # fmt: skip
        """Sort the arguments into the recipe and its changes."""
        from regard.data.formats import format_by_name

        arguments = [recipe, *overrides] if recipe is not None else []
        names = [argument for argument in arguments if _is_recipe(argument)]
        changes = [argument for argument in arguments if not _is_recipe(argument)]
        if len(names) > 1:
            raise UsageError(f"train: takes one recipe, but got {len(names)}: {', '.join(names)}. Keep one.")
        if target is None and source is not None and format_by_name(source) is None:
            raise UsageError(
                f"train: --source and --target must be given together, but --target is missing and {source} does not "
                "end in .tsv, .csv, .jsonl or .tmx, as a file with both sides would. Give both; or save one such file, "
                "with a sentence and its translation in each row of a .csv, say."
            )
        if source is None and target is not None:
            raise UsageError("train: --source and --target must be given together, but --source is missing. Give both.")
        if resume and (out is None or names):
            raise UsageError("train --resume: needs --out and no recipe: the folder holds its own.")
        begun = any(change.startswith("init=") for change in changes)
        if not (resume or names or begun) and source is None:
            raise UsageError(
                "train: needs a recipe or --source and --target, or a model to go on from, as init=FOLDER. "
                "See: regard train --help"
            )
        sides = {name: place for name, place in (("source", source), ("target", target)) if place is not None}
        typed = [word for name, place in sides.items() for word in (f"--{name}", quote(place))]
        return cls(names[0] if names else None, changes, sides, typed, out, resume)

    @property
    def data(self) -> list[str]:
        """The sides of the corpus as a setting."""
        from regard.settings.tree import text_of

        keys = "".join(f", {name}={text_of(place)}" for name, place in self.sides.items())
        return [f"data={{kind='files'{keys}}}"] if self.sides else []

    def recipe(self) -> Recipe:
        """The recipe; one that was chosen here is told first."""
        from regard.training.team import world_size

        known = self.given()
        if known is not None:
            return known
        if world_size() > 1 and not self._begun:  # what is chosen for a model that goes on is the same on any machine
            raise UsageError(
                "train: several processes must be given one recipe, but none was. Let `regard train --source … "
                "--target … --plan` choose one, and use the command it prints."
            )
        choice = self.choose()
        if _speaks():
            print(choice.to_text(self.arguments), file=sys.stderr)
        return self._own(choice.recipe)

    def given(self) -> Recipe | None:
        """The recipe that was named, or that is in the folder; None where one has to be chosen."""
        from regard import folder
        from regard.recipe import load_recipe

        if self.resume and self.out is not None:
            if not (self.out / folder.RECIPE).is_file():
                raise MissingError(
                    f"{self.out}: must hold a run to go on with, but has no {folder.RECIPE}: nothing was begun there. "
                    "Give the whole command, without --resume."
                )
            return folder.read_recipe(self.out, [*self.data, *self.changes])
        return None if self.name is None else load_recipe(self.name, self.changes, self.sides)

    def choose(self) -> Choice:
        """A recipe for this corpus and this machine, or the course of a model that goes on with its own."""
        from regard import folder, shipped
        from regard.choosing import TYPED, choose, choose_further
        from regard.data.glance import check_there, measure
        from regard.recipe import load_recipe

        if self._begun:
            own = str(shipped.resolve(self._begun[-1].removeprefix("init=").strip("\"'")) / folder.RECIPE)
            settings = load_recipe(own, self.changes, self.sides)
            check_there(settings.data)
            return choose_further(own, measure(settings.data), _machine(settings), self.changes, self.sides)
        settings = load_recipe("small", [*self.data, *self.changes], place=TYPED)
        check_there(settings.data)
        return choose(measure(settings.data), _machine(settings), self.data, self.changes)

    @property
    def _begun(self) -> list[str]:
        return [change for change in self.changes if change.startswith("init=")]

    def _own(self, recipe: Recipe) -> Recipe:
        """A recipe that nobody named, as one of its own: called as its folder, and nobody's licence goes with it."""
        typed = {change.partition("=")[0].strip() for change in self.changes}
        otherwise = f"{recipe.name}-further" if self._begun else recipe.name
        name = otherwise if self.out is None else self.out.resolve().name
        return replace(
            recipe,
            name=recipe.name if "name" in typed else name,
            licence=recipe.licence if "licence" in typed else None,
        )


def _is_recipe(argument: str) -> bool:
    """Whether an argument is a recipe and no change to one: it has no =, or is a path with one, as lr=0.1/r.toml."""
    key, equals, _ = argument.partition("=")
    return not equals or (argument.endswith(".toml") and ("/" in key or Path(argument).is_file()))


def _machine(recipe: Recipe) -> Machine:
    from regard.machine import choose_device, this_machine

    return this_machine(choose_device(recipe.device))


def _print_plan(asked: _Asked, world: int, as_json: bool) -> None:
    from regard import planning
    from regard.data.glance import measure

    recipe, choice = asked.given(), None
    if recipe is None:
        choice = asked.choose()
        recipe = choice.recipe
    if choice is not None and world == 1:
        found = choice.plan
    else:
        found = planning.plan(recipe, _machine(recipe), measure(recipe.data), world)
    if as_json:
        print(json.dumps(found.to_json(), ensure_ascii=False))
        return
    print(found.to_text() if choice is None else replace(choice, plan=found).to_text(asked.arguments))


def _say_how_to_go_on(out: Path) -> None:
    from regard.training.team import world_size

    if _speaks():
        # The recipe and its changes are in the folder, so these are all the arguments, for one process or for several.
        how = "with: regard train" if world_size() == 1 else "with the same torchrun command, and after `train` only:"
        print(f"Go on {how} --resume --out {quote(str(out))}", file=sys.stderr)


def _speaks() -> bool:
    """Of several processes one speaks."""
    return os.environ.get("RANK", "0") == "0"
