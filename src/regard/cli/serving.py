"""`regard serve`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard import shipped
from regard.cli.common import Engine, Precision
from regard.errors import MissingError, UsageError

if TYPE_CHECKING:
    from regard.serve.desk import Desk
    from regard.serve.limits import Limits

KEY = "REGARD_API_KEY"


def serve(
    models: Annotated[
        list[Path] | None,
        typer.Argument(metavar="MODEL", help="Model folders, or names of shipped models.",
                       show_default="all that come with Regard"),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on; any but this machine's own needs a key.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any that is free.")] = 8000,
    key: Annotated[
        str | None,
        typer.Option(envvar=KEY, help="The key that requests need. Others on this machine can read a command line; "
                     "the variable and --key-file are safer.", show_default="no key"),
    ] = None,
    key_file: Annotated[Path | None, typer.Option(help="A file with the key.", show_default=False)] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Another name the server is called by, as behind a proxy; repeat for more.",
                     show_default=False),
    ] = None,
    max_text: Annotated[int, typer.Option(min=1, help="The most characters of a text.")] = 5_000,
    max_tokens: Annotated[int, typer.Option(min=1, help="The most tokens that are written.")] = 512,
    max_beam: Annotated[int, typer.Option(min=1, help="The most beams of a search.")] = 16,
    max_queue: Annotated[int, typer.Option(min=1, help="The most requests that wait for one model.")] = 64,
    batch: Annotated[int, typer.Option(min=1, help="The most texts a model works on at a time.")] = 64,
    deadline: Annotated[float, typer.Option(min=0.1, help="Seconds until an answer.")] = 60.0,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, …; auto takes a GPU if there is one.")] = "auto",
    precision: Precision = "auto",
    engine: Engine = "auto",
) -> None:  # fmt: skip
    """Serve models: a page to use and see them, and HTTP for programs."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingError(
            f"serve: needs {error.name}, which is not installed. Run: pip install 'regard[serve]'"
        ) from error
    from regard.serve import running
    from regard.serve.app import build_app
    from regard.serve.limits import Limits

    # What comes with Regard is meant by its place: a folder of that name where the server starts was not asked for.
    folders = [shipped.resolve(place) for place in models or []] or [shipped.path(name) for name in shipped.names()]
    if not folders:
        raise UsageError(
            "serve: needs at least one MODEL, but none is given, and none comes with this copy of Regard. Train one: "
            "regard demo"
        )
    key = _key(key, key_file)
    if key is None and not running.is_loopback(host):
        raise UsageError(
            f"serve: an address that others can reach needs a key, but --host is {host} and there is none. Set {KEY}, "
            "name a file with --key-file, or leave --host out."
        )
    limits = Limits(
        text=max_text, tokens=max_tokens, beam=max_beam, nbest=max_beam, queue=max_queue, rows=batch, deadline=deadline
    )
    with running.open_socket(host, port) as listening:  # before the models, which take longer to say no
        desk = _desk(folders, limits, device, precision, engine)
        app = build_app(desk, key, running.names_of(host, tuple(allow_host or ())))
        line = f"Serving {', '.join(desk.models)} on {running.address_of(listening)} (Ctrl-C stops it)."
        running.serve(app, desk, listening, lambda: print(line, file=sys.stderr, flush=True))


def _key(given: str | None, file: Path | None) -> str | None:
    """The key of a file, of the command line or of the environment."""
    if file is not None:
        if not file.is_file():
            raise MissingError(f"serve: --key-file must be a file with a key, but {file} is none. Write one.")
        given = file.read_text(encoding="utf-8").strip()
    if given is not None and not given.strip():
        raise UsageError(f"serve: the key must have at least one character, but {file or KEY} is empty. Write one.")
    return given


def _desk(folders: Sequence[Path], limits: Limits, device: str, precision: str, engine: str) -> Desk:
    from typing import cast

    from regard.api import load
    from regard.engines import loading
    from regard.models import precision as precisions
    from regard.serve.desk import Desk

    named: dict[str, Path] = {}
    for folder in folders:
        name, number = folder.resolve().name, 1
        while name in named:
            number += 1
            name = f"{folder.resolve().name}-{number}"
        named[name] = folder
    numbers, computes = cast("precisions.Precision", precision), cast("loading.Engine", engine)
    models = {name: load(place, device, numbers, computes) for name, place in named.items()}
    return Desk(models, limits, named)
