"""The command line. Results go to stdout, everything else to stderr; a user's mistake gets a sentence.

Nothing heavy is imported at the top: `regard --help` must answer at once, without torch.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from regard import __version__
from regard.errors import DataError, RegardError, UsageError
from regard.status import StatusLine

if TYPE_CHECKING:
    from regard.api import Model, Translation
    from regard.decoding.search import SearchSettings

app = typer.Typer(
    name="regard",
    help="Train, run and see attention models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

LINES_AT_A_TIME = 2_000
STOPPED_BY = {"SIGINT": 130, "SIGTERM": 143}

ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, made for programs.")]
Beam = Annotated[int | None, typer.Option(help="Beams to search with; 1 is greedy.", show_default="the model's recipe")]
Alpha = Annotated[
    float | None,
    typer.Option(help="Length penalty ((5+length)/6)^alpha; 0 is neutral, more favours longer.",
                 show_default="the model's recipe"),
]  # fmt: skip


@app.callback(invoke_without_command=True)
def _regard(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        print(f"regard {__version__}")
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to put the model and the picture.")] = Path("demo"),
) -> None:
    """A tour in two minutes, offline: train a small Transformer, score it, translate, and look at its attention."""
    from regard.demo import run

    signal = run(out)
    if signal is not None:
        print(f"Stopped by {signal}. To begin again: regard demo", file=sys.stderr)
        raise typer.Exit(STOPPED_BY[signal])


@app.command()
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


@app.command()
def translate(
    model: ModelFolder,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Text to translate; - is stdin.")] = "-",
    beam: Beam = None,
    alpha: Alpha = None,
    nbest: Annotated[int, typer.Option(help="Translations a line, each on a line of its own.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Translate line by line: as many lines come out as went in."""
    from regard.data.corpus import lines_of, open_text

    loaded = _load(model)
    search = _search(loaded.recipe.search, beam, alpha, nbest)
    # At a terminal each line is answered at once; otherwise many lines share the work.
    size = 1 if file == "-" and sys.stdin.isatty() else LINES_AT_A_TIME
    with nullcontext(sys.stdin.buffer) if file == "-" else open_text(Path(file)) as stream, _Progress() as progress:
        lines = lines_of(stream, "stdin" if file == "-" else file)
        while some := list(islice(lines, size)):
            for translations in loaded.translations(some, search, progress.add):
                print(_as_json(translations) if as_json else _as_lines(translations, nbest))
            sys.stdout.flush()


@app.command()
def evaluate(
    model: ModelFolder,
    source: Annotated[
        Path | None, typer.Argument(help="Sentences to translate.", show_default="the recipe's test set")
    ] = None,
    reference: Annotated[Path | None, typer.Argument(help="What they should become.")] = None,
    beam: Beam = None,
    alpha: Alpha = None,
    as_json: AsJson = False,
) -> None:
    """Translate a test set and score it; every score comes with its signature."""
    from regard.data.corpus import open_corpus, read_pairs
    from regard.evaluation.metrics import score

    if (source is None) != (reference is None):
        raise UsageError("evaluate: SOURCE and REFERENCE must be given together, but one is missing. Give both.")
    loaded = _load(model)
    pairs = (
        open_corpus(loaded.recipe.data).test() if source is None or reference is None else read_pairs(source, reference)
    )
    if not pairs:
        raise DataError(f"{model}: its recipe names no test set. Give one: regard evaluate MODEL SOURCE REFERENCE")
    search = _search(loaded.recipe.search, beam, alpha, nbest=1)
    with _Progress() as progress:
        found = loaded.translations([pair.source for pair in pairs], search, progress.add)
    scores = score([translations[0].text for translations in found], [pair.target for pair in pairs])
    if as_json:
        print(json.dumps({"lines": len(pairs), "scores": [vars(score) for score in scores]}))
    else:
        print(*scores, sep="\n")


@app.command()
def view(
    model: ModelFolder,
    text: Annotated[str, typer.Argument(help="A sentence to translate and look at.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("attention.html"),
) -> None:
    """Draw every attention of the model while it translates a sentence, into one HTML file."""
    from regard.files import write_file

    if out.suffix not in (".html", ".htm"):
        raise UsageError(f"{out}: the picture is a page, so its name must end in .html, but ends in `{out.suffix}`.")
    picture = _load(model).look(text)
    write_file(out, picture.to_html())
    print(picture.translation)
    print(f"The picture is in {out}; open it in a browser.", file=sys.stderr)


@app.command()
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


@app.command()
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
    from regard.experiment import choose_device
    from regard.files import write_file
    from regard.reproduce import table1

    found = table1.reproduce(choose_device("auto"), width, table1.read_lengths(lengths) if lengths else None)
    print(found.to_text())
    write_file(out, found.to_svg())
    print(f"The curves are in {out}; open it in a browser.", file=sys.stderr)


@app.command()
def schema() -> None:
    """Print the JSON schema of recipes, for editors that complete and check TOML."""
    from regard import settings
    from regard.recipe import Recipe

    print(json.dumps(settings.schema(Recipe), indent=2, ensure_ascii=False))


def main() -> None:
    """Run the command line; turn every mistake we can name into a sentence and an exit code.

    Typer answers for what it knows itself: wrong options (2), Ctrl-C (130), a reader who left, as `head` does (1).
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # as what is read, whatever the terminal's language
    try:
        try:
            app(prog_name="regard")
        finally:
            sys.stdout.flush()  # here a reader who left can still be answered for
    except RegardError as error:
        _fail(str(error), error.exit_code)
    except BrokenPipeError:
        # Point stdout nowhere, or Python complains while it closes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        # No permission, a full disk: the system's own words say it best.
        _fail(f"{error.filename or 'writing'}: {error.strerror or error}. Check the path and the disk.", 66)
    except Exception as error:
        if os.environ.get("REGARD_DEBUG"):
            raise
        _fail(
            f"internal error ({type(error).__name__}: {error}). Set REGARD_DEBUG=1 to see where; please report it.", 70
        )


def _fail(message: str, code: int) -> NoReturn:
    print(f"regard: {message}", file=sys.stderr)
    sys.exit(code)


def _load(model: Path) -> Model:
    from regard.api import load

    return load(model)


def _search(default: SearchSettings, beam: int | None, alpha: float | None, nbest: int) -> SearchSettings:
    from dataclasses import replace

    beam = default.beam if beam is None else beam
    alpha = default.alpha if alpha is None else alpha
    try:
        return replace(default, beam=beam, alpha=alpha, nbest=nbest)
    except ValueError as error:
        raise UsageError(f"search: {error}.") from error


def _as_lines(translations: Sequence[Translation], count: int) -> str:
    """Exactly `count` lines, so that readers can count on it: a model of bytes may write a line end, an empty
    text has no second translation."""
    texts = [translation.text.replace("\n", " ") for translation in translations]
    return "\n".join(texts + [""] * (count - len(texts)))


def _as_json(translations: Sequence[Translation]) -> str:
    best, *others = [vars(translation) for translation in translations]
    return json.dumps({**best, "alternatives": others}, ensure_ascii=False)


def _exit_if_stopped(signal: str | None, out: Path) -> None:
    """Say how to go on after a signal, and leave with the code shells expect of it."""
    if signal is not None:
        print(
            f"Stopped by {signal}; nothing is lost. Go on with: regard train --resume --out {quote(str(out))}",
            file=sys.stderr,
        )
        raise typer.Exit(STOPPED_BY[signal])


class _Progress:
    """Counts lines on the status line."""

    def __init__(self) -> None:
        self._status, self._done = StatusLine(), 0

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._status.close()

    def add(self, lines: int) -> None:
        self._done += lines
        self._status.show(lambda: f"{self._done:,} lines")
