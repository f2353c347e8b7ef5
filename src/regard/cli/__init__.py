"""The command line. Results go to stdout, everything else to stderr; a user's mistake gets a sentence.

Nothing heavy is imported at the top of these modules: `regard --help` must answer at once, without torch.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from regard import __version__
from regard.cli import (
    exchanging,
    filling,
    generating,
    labelling,
    looking,
    reproducing,
    scoring,
    serving,
    training,
    translating,
    verifying,
)
from regard.cli.common import READER_LEFT, STOPPED_BY, Closed
from regard.cli.keeping import keep_inputs
from regard.errors import DataError, RegardError, printable
from regard.files import FULL


def _without_types(parameters: list[Any]) -> list[Any]:
    """A flag takes no value, so its help names no type."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        keep_inputs(ctx.params)
        return super().invoke(ctx)


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # Whoever has something to keep has said so, and left with a code of its own.
            _say_interrupted(f"regard {ctx.invoked_subcommand}")
            raise


def _say_interrupted(who: str) -> None:
    begin = "\n" if sys.stderr.isatty() else ""  # a terminal shows ^C first
    print(f"{begin}{who}: stopped by SIGINT before its end.", file=sys.stderr)


app = typer.Typer(
    name="regard",
    cls=_Group,
    help="Train, run and see attention models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _regard(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        print(f"regard {__version__}")
        raise typer.Exit


# In the order in which `regard --help` lists them.
for command in (
    training.demo,
    training.train,
    translating.translate,
    generating.generate,
    filling.fill,
    labelling.classify,
    labelling.tag,
    scoring.evaluate,
    scoring.compare,
    scoring.score,
    scoring.align,
    looking.view,
    looking.inspect,
    serving.serve,
    verifying.verify,
    exchanging.export,
    reproducing.reproduce,
    looking.schema,
):
    app.command(cls=_Command)(command)
app.command("import", cls=_Command)(exchanging.import_)  # a word that Python keeps for itself


def main() -> None:
    """Run the command line; turn every mistake we can name into a sentence and an exit code.

    Typer answers for what it knows itself: wrong options (2), Ctrl-C (130). Where nobody reads on, as behind `| head`,
    it ends without a word.
    """
    _have_streams()
    try:
        _run()
    except KeyboardInterrupt:  # before Typer knew which command it is
        _say_interrupted("regard")
        sys.exit(STOPPED_BY["SIGINT"])
    except BrokenPipeError:
        _leave_with_the_reader()
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # Typer has seen it first, and would leave with 1
            _leave_with_the_reader()
        raise


def _have_streams() -> None:
    """Where stderr was closed before we began (`2>&-`), what is told there goes nowhere; a result has to go somewhere.

    Each gets a file of its own, which keeps its number: the next file that is opened would have it otherwise, and what
    a library prints would go there.
    """
    if sys.stdout is None:
        sys.stdout = Closed(os.fdopen(os.open(os.devnull, os.O_WRONLY), "wb"), encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")


def _run() -> None:
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
        raise
    except OSError as error:
        # No permission, a full disk: the system's own words say it best. What names no file is stdout, as a rule.
        fix = "Make room on its disk, or write elsewhere." if error.errno in FULL else "Check the path and the disk."
        _fail(f"{error.filename or 'the output'}: {error.strerror or error}. {fix}", 66)
    except Exception as error:
        if os.environ.get("REGARD_DEBUG"):
            raise
        if _ran_out_of_memory(error):
            _fail(
                "memory: what is done at a time must fit into the memory of the device, but does not "
                f"({str(error).partition(' Including ')[0]}). See whether others use it (nvidia-smi), or ask for less: "
                "fewer beams, smaller batches, --precision bf16. Set CUDA_VISIBLE_DEVICES to nothing to compute on the "
                "CPU. A training run goes on from its newest checkpoint with --resume.",
                DataError.exit_code,
            )
        _fail(
            f"internal error ({type(error).__name__}: {error}). Set REGARD_DEBUG=1 to see where; please report it.", 70
        )


def _leave_with_the_reader() -> NoReturn:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):  # what is left in them has to go somewhere, or Python complains at its end
        os.dup2(nowhere, stream.fileno())
    sys.exit(READER_LEFT)


def _ran_out_of_memory(error: Exception) -> bool:
    if "torch" not in sys.modules:  # then it was not torch that ran out of it, nor is this the moment to import it
        return isinstance(error, MemoryError)
    from regard.memory import ran_out

    return ran_out(error)


def _fail(message: str, code: int) -> NoReturn:
    print("regard: " + printable(message, kept="\n\t"), file=sys.stderr)  # it may quote a stranger's file
    sys.exit(code)
