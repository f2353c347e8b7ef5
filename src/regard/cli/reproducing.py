"""`regard reproduce`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.common import STOPPED_BY, AsJson
from regard.errors import MissingError, UsageError

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
        Path | None, typer.Option(help="A model folder to compare with the published figures.", show_default=False)
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
    if name is None:
        _list(as_json)
    elif check is not None:
        _check(name, check, data, as_json)
    elif name == "table1":
        _table1(lengths, width, out or Path("table1.svg"))
    else:
        _study(name, overrides or [], out, data, rows, steps, render, as_json)


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
    from regard.reproduce.published import check

    verdicts = check(name, folder, data)
    holds = all(each.holds for each in verdicts)
    if as_json:
        found = {"name": name, "holds": holds, "figures": [each.to_json() for each in verdicts]}
        print(json.dumps(found, ensure_ascii=False))
    else:
        for each in verdicts:
            print(each)
        missed = sum(not each.holds for each in verdicts)
        said = f"{missed} of {len(verdicts)} published figures are missed" if missed else "has its published figures"
        print(f"{name}: {said if missed else f'{folder} {said}'}.")
    if not holds:
        raise typer.Exit(1)


def _table1(lengths: str | None, width: int | None, out: Path) -> None:
    if out.suffix != ".svg":
        raise UsageError(f"{out}: the curves are SVG, so the name must end in .svg, but ends in `{out.suffix}`.")
    from regard.files import destination, write_file
    from regard.machine import choose_device
    from regard.reproduce import table1

    destination(out)  # half a minute of measuring should not end at a folder that is not there
    found = table1.reproduce(
        choose_device("auto"), 512 if width is None else width, table1.read_lengths(lengths) if lengths else None
    )
    print(found.to_text())
    write_file(out, found.to_svg())
    print(f"The curves are in {out}; open it in a browser.", file=sys.stderr)


def _study(
    name: str,
    overrides: list[str],
    out: Path | None,
    data: Path | None,
    rows: str | None,
    steps: int | None,
    render: bool,
    as_json: bool,
) -> None:
    """Run what is not done of a study, unless only its table is asked for, and print the table."""
    from regard.reproduce import rendering, running
    from regard.reproduce.published import published
    from regard.reproduce.studies import STUDIES
    from regard.reproduce.study import Asked

    if name in (models := published().models):
        print(published().about(name))
        return
    if name not in STUDIES:
        known = ", ".join(["table1", *STUDIES, *models])
        raise UsageError(f"regard reproduce: NAME must be one of: {known}; but is `{name}`. Choose one that exists.")
    study, place = STUDIES[name], out or Path("runs") / name
    signal = None
    if not render:
        asked = Asked(data, steps, tuple(overrides))
        signal = running.run(study, study.chosen(rows), place, asked, _say).signal
    elif not place.is_dir():
        raise MissingError(f"{place}: must be the folder of a study, but is not there. Check --out.")
    found = rendering.render(study, place)
    print(json.dumps(found.to_json(), ensure_ascii=False) if as_json else found.to_markdown(), end="")
    print(f"The table is in {place / study.name}.md", file=sys.stderr)
    if signal is not None:
        print(f"Stopped by {signal}; the same command goes on.", file=sys.stderr)
        raise typer.Exit(STOPPED_BY[signal])


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
