"""`regard reproduce`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.common import STOPPED_BY, AsJson, must_have_a_reader
from regard.errors import MissingError, UsageError, proposal

if TYPE_CHECKING:
    from regard.reproduce.rendering import Table

TABLE1 = "Table 1 of Attention Is All You Need: layer types by cost, by path length and by time"


def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="What to reproduce.", show_default="a list")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="For a study: settings on top of every row.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder of a study, or table1's SVG file.", show_default="runs/NAME")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="The folder of all corpora.", show_default="$REGARD_DATA")] = None,
    rows: Annotated[str | None, typer.Option(help="Rows of a study, as base,big.", show_default="all")] = None,
    steps: Annotated[int | None, typer.Option(help="Fewer steps for each row, for a try.", show_default=False)] = None,
    render: Annotated[bool, typer.Option("--render", help="Train nothing: print what is done so far.")] = False,
    check: Annotated[
        Path | None, typer.Option(help="A model folder, or a shipped model's name, to be checked.", show_default=False)
    ] = None,
    lengths: Annotated[
        str | None, typer.Option(help="For table1: sequence lengths, as 64,128,256.", show_default="by device")
    ] = None,
    width: Annotated[int | None, typer.Option(help="For table1: the size of a vector.", show_default="512")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a table of the paper or of docs/results.md anew, or check a model against published figures.

    Without a name it lists all there is.

    A study trains its rows one by one, goes on where it was stopped, and prints its table. Several processes may work
    on the same folder.
    """
    given = {
        "KEY=VALUE": overrides, "--out": out, "--data": data, "--rows": rows, "--steps": steps, "--render": render,
        "--check": check, "--lengths": lengths, "--width": width,
    }  # fmt: skip
    asked = [option for option, value in given.items() if value is not None and value is not False and value != []]
    if name is None:
        if check is not None:
            raise UsageError(
                "reproduce: --check compares a model with a published one, but which one is not said. Write its name "
                f"before --check {check}; `regard reproduce` lists them."
            )
        _refuse_others(asked, "the list of all there is")
        _list(as_json)
    elif check is not None:
        _refuse_others(asked, "a check", "--check", "--data")
        _check(name, check, data, as_json)
    elif name == "table1":
        _refuse_others(asked, name, "--out", "--lengths", "--width")
        _table1(lengths, width, out or Path("table1.svg"), as_json)
    elif not _is_study(name):
        if "--data" in asked:
            raise UsageError(f"reproduce: --data is for a check of {name}. Add --check FOLDER, or leave it out.")
        _refuse_others(asked, f"{name}, a published model,")
        _about(name, as_json)
    elif render:
        _refuse_others(asked, "--render, which trains nothing,", "--render", "--out", "--rows")
        _render(name, out, rows, as_json)
    else:
        _refuse_others(asked, f"{name}, a study", "--out", "--data", "--rows", "--steps", "KEY=VALUE")
        _study(name, overrides or [], out, data, rows, steps, as_json)


def _refuse_others(asked: list[str], what: str, *own: str) -> None:
    """Raise where an option was given that does nothing here."""
    others = [option for option in asked if option not in own]
    if others:
        takes = f"takes {', '.join([*own, '--json'])}" if own else "takes --json alone"
        raise UsageError(f"reproduce: {what} {takes}, but was given {', '.join(others)}. Leave that out.")


def _is_study(name: str) -> bool:
    """Whether it is a study, not a published model; raises for what is neither."""
    from regard.reproduce.published import published
    from regard.reproduce.studies import STUDIES

    if name not in (names := ["table1", *STUDIES, *published().models]):
        raise UsageError(
            f"reproduce: NAME must be one of: {', '.join(names)}; but is `{name}`. "
            + proposal(name, names, "Choose one that exists.")
        )
    return name in STUDIES


def _about(name: str, as_json: bool) -> None:
    """What was published of a model."""
    from regard.reproduce.published import published

    known = published()
    print(json.dumps(known.to_json(name), ensure_ascii=False) if as_json else known.about(name))


def _list(as_json: bool) -> None:
    """All there is, with a sentence each."""
    from regard.evaluation.report import table
    from regard.reproduce.published import published
    from regard.reproduce.studies import STUDIES

    studies = {"table1": TABLE1, **{study.name: study.sentence for study in STUDIES.values()}}
    models = {name: model.what for name, model in published().models.items()}
    if as_json:
        print(json.dumps({"tables": studies, "published": models}, ensure_ascii=False))
        return
    print("Made anew: regard reproduce NAME\n")
    print(table(list(studies.items())))
    print("\nPublished, to be checked: regard reproduce NAME --check FOLDER\n")
    print(table(list(models.items())))


def _check(name: str, folder: Path, data: Path | None, as_json: bool) -> None:
    """Compare a model folder with published figures; 1 is the exit code where one is missed."""
    from regard.reproduce.published import check, published

    must_have_a_reader()
    verdicts = check(name, folder, data)
    holds = all(each.holds for each in verdicts)
    if as_json:
        found = {"name": name, "holds": holds, "figures": [each.to_json() for each in verdicts]}
        print(json.dumps(found, ensure_ascii=False))
    else:
        for each in verdicts:
            print(each)
        missed = sum(not each.holds for each in verdicts)
        if missed:
            print(f"{name}: missed {missed} of {len(verdicts)} published figures. {published().models[name].reminder}")
        else:
            print(f"{name}: {folder} has its published figures.")
    if not holds:
        raise typer.Exit(1)


def _table1(lengths: str | None, width: int | None, out: Path, as_json: bool) -> None:
    if out.suffix != ".svg":
        raise UsageError(f"{out}: the curves are SVG, so the name must end in .svg, but ends in `{out.suffix}`.")
    from regard.files import destination, write_file
    from regard.machine import choose_device
    from regard.reproduce import table1

    destination(out)  # half a minute of measuring should not end at a folder that is not there
    found = table1.reproduce(
        choose_device("auto"), 512 if width is None else width, table1.read_lengths(lengths) if lengths else None
    )
    print(json.dumps(found.to_json(), ensure_ascii=False) if as_json else found.to_text())
    write_file(out, found.to_svg())
    print(f"The curves are in {out}; open it in a browser.", file=sys.stderr)


def _study(
    name: str,
    overrides: list[str],
    out: Path | None,
    data: Path | None,
    rows: str | None,
    steps: int | None,
    as_json: bool,
) -> None:
    """Run what is not done of a study, and print the table of all that is."""
    from regard.reproduce import rendering, running
    from regard.reproduce.studies import STUDIES
    from regard.reproduce.study import Asked

    study, place = STUDIES[name], out or Path("runs") / name
    ran = running.run(study, study.chosen(rows), place, Asked(data, steps, tuple(overrides)), _say)
    _print_and_point(rendering.render(study, place), place, as_json)
    if ran.elsewhere:
        _say(f"Others are at work: {', '.join(ran.elsewhere)}. When they are done, --render prints the whole table.")
    for row, needs in ran.waiting.items():
        wish = ",".join(each.name for each in study.rows if each.name in (*needs, row))
        _say(f"Missing: {row}, which needs {' and '.join(needs)} first. The same command with --rows {wish} goes on.")
    if ran.signal is not None:
        _say(f"Stopped by {ran.signal}; the same command goes on.")
        raise typer.Exit(STOPPED_BY[ran.signal])
    if ran.waiting:
        raise typer.Exit(1)


def _render(name: str, out: Path | None, rows: str | None, as_json: bool) -> None:
    """Print the table of what is done of a study, and write it; of some rows it is printed alone."""
    from regard.reproduce import rendering, running
    from regard.reproduce.studies import STUDIES

    study, place = STUDIES[name], out or Path("runs") / name
    chosen = study.chosen(rows)
    running.check_folder(place)
    # Files are written beside the rows: never into a folder of something else.
    if not running.begun(study, place):
        raise MissingError(f"{place}: must be the folder of {name}, but there is no row of it. Check --out.")
    table = rendering.Table.read(study, place, chosen)
    if not table.outcomes:
        raise MissingError(
            f"{place}: must hold the figures of a row to print, but {', '.join(table.missing)} "
            f"{'is' if len(table.missing) == 1 else 'are'} not done. Ask for rows that are, or run the study without "
            "--render."
        )
    if rows is None:
        _print_and_point(rendering.render(study, place), place, as_json)
    else:
        _print(table, as_json)


def _print(table: Table, as_json: bool) -> None:
    print(json.dumps(table.to_json(), ensure_ascii=False) if as_json else table.to_markdown().removesuffix("\n"))


def _print_and_point(table: Table, place: Path, as_json: bool) -> None:
    _print(table, as_json)
    if table.outcomes:
        print(f"The table is in {place / table.study.name}.md", file=sys.stderr)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
