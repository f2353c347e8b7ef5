"""What several commands share: their options, and how a model is loaded and progress is shown."""

from __future__ import annotations

import os
import re
import select
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper, UnsupportedOperation
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from regard import shipped
from regard.counts import agreeing, so_many
from regard.errors import MissingError, UsageError, printable
from regard.status import StatusLine, clock

if TYPE_CHECKING:
    from regard.api import Model
    from regard.decoding.search import SearchSettings
    from regard.text.tokenizer import Tokenizer

STOPPED_BY = {"SIGINT": 130, "SIGTERM": 143}
READER_LEFT = 141  # as of any tool that SIGPIPE ends, 128 + 13
SHOWN = 20  # of what is unknown in a text
STDIN = "-"
ODD = {
    "empty": "an empty translation",
    "loop": "a translation that repeats itself",
    "copy": "a translation that is the source, or nearly so",
}  # the flags worth a warning

ModelFolder = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="A model folder, or a shipped model's name.", show_default=False,
                   callback=shipped.resolve),
]  # fmt: skip
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, made for programs.")]
Beam = Annotated[int | None, typer.Option(help="Beams to search with; 1 is greedy.", show_default="the model's recipe")]
Alpha = Annotated[
    float | None,
    typer.Option(help="Exponent of the length penalty; 0 is neutral, more favours longer.",
                 show_default="the model's recipe"),
]  # fmt: skip


Penalty = Annotated[
    str | None,
    typer.Option(help="What alpha is the exponent of: gnmt, (5+length)/6; length; or none.",
                 show_default="the model's recipe"),
]  # fmt: skip
Coverage = Annotated[
    float | None,
    typer.Option(help="How much to mind source words nobody looked at; 0 is neutral.",
                 show_default="the model's recipe"),
]  # fmt: skip
ExtraLength = Annotated[
    int | None,
    typer.Option(help="How many tokens longer than its source a translation may get.",
                 show_default="the model's recipe"),
]  # fmt: skip
TargetLanguage = Annotated[
    str | None, typer.Option("--to", help="The target language, for a model that knows several.", show_default=False)
]
Precision = Annotated[
    str, typer.Option(help="Numbers to compute with: fp32, bf16 on a GPU, int8 on a CPU; auto is fp32.")
]

Engine = Annotated[str, typer.Option(help="What computes: torch, ctranslate2 or onnx; auto is what the folder is for.")]


class Closed(TextIOWrapper):
    """Standard output that was closed before we began (`>&-`): whoever prints nothing need not mind."""

    def write(self, text: str) -> int:
        """Raise MissingError, unless there is nothing to write."""
        if not text:
            return 0
        raise MissingError(
            "stdout: must be open for what is printed, but is closed. Send it to a file with > FILE, or nowhere with "
            "> /dev/null."
        )


def must_have_a_reader() -> None:
    """For what prints when all is done: raise now what printing would raise then."""
    if isinstance(sys.stdout, Closed):
        sys.stdout.write("a result")
    with suppress(AttributeError, UnsupportedOperation):  # a system without `poll`, an output that is no file
        asked = select.poll()
        asked.register(sys.stdout.fileno(), 0)
        if any(event & select.POLLERR for _, event in asked.poll(0)):
            raise BrokenPipeError


def load_model(folder: Path, precision: str = "auto", engine: str = "auto") -> Model:
    """The model in a folder; on this process's own GPU where torchrun started several."""
    from typing import cast

    import torch

    from regard.api import load
    from regard.engines import loading
    from regard.models import precision as precisions

    rank = os.environ.get("LOCAL_RANK", "")
    device = f"cuda:{rank}" if rank.isdecimal() and torch.cuda.is_available() else "auto"
    return load(folder, device, cast("precisions.Precision", precision), cast("loading.Engine", engine))


def must_be_there(command: str, model: Path, file: str) -> None:
    """Raise MissingError where there is no FILE to read; whoever wrote a text in its place is told where that goes."""
    place = Path(file)
    with suppress(OSError):  # a text can be too long for a name
        if place.exists():
            return
    fix = f"Check the path; it is relative to {Path.cwd()}."
    if any(map(str.isspace, file)) or not place.suffix:
        fix += f" To {command} a text, write: echo {quote(file)} | regard {command} {quote(shipped.called(model))}"
    raise MissingError(f"{file}: there is no such file. {fix}")


# What settings are called on the command line, where that is not their name with two hyphens before it.
_CALLED = {"groups": "--diverse", "samples": "--mbr", "wishes": "--prefix, --ban and --require"}
_SETTINGS = ("beam", "penalty", "alpha", "coverage", "extra_length", "min_length", "nbest", "no_repeat", "diversity",
             "longest", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "max_tokens", "tokenize",
             "language")  # fmt: skip


@contextmanager
def making_settings(what: str) -> Iterator[None]:
    """Settings that cannot be are the user's mistake, named in the words of whoever typed options."""
    try:
        yield
    except ValueError as error:
        raise UsageError(f"{what}: {with_options(str(error))}.") from error


@contextmanager
def naming_options() -> Iterator[None]:
    """Errors in the words of whoever typed options."""
    try:
        yield
    except UsageError as error:
        raise UsageError(with_options(str(error))) from error


@contextmanager
def naming_lines(file: str, before: int) -> Iterator[None]:
    """Errors about one text of some name the line it is on; so many lines of the file came before them."""
    from regard.translation.translator import TextError

    try:
        yield
    except TextError as error:
        raise UsageError(f"{file}, line {before + error.place + 1:,}: {error.reason}") from error


def with_options(message: str) -> str:
    """A message with the options that settings come from: --no-repeat, not `no_repeat`."""
    names = {**{name: f"--{name.replace('_', '-')}" for name in _SETTINGS}, **_CALLED}
    return re.sub(r"`(\w+)`", lambda found: names.get(found[1], found[0]), message)


def search_settings(default: SearchSettings, changes: Mapping[str, object]) -> SearchSettings:
    """The model's own way to search, changed by what the command line says; None changes nothing."""
    from dataclasses import replace
    from typing import Any, get_args

    from regard.decoding.penalties import Penalty

    given: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
    if given.get("penalty", "none") not in (known := get_args(Penalty)):
        raise UsageError(f"search: --penalty must be one of: {', '.join(known)}; but is `{given['penalty']}`.")
    with making_settings("search"):
        return replace(default, **given)


class Unknown:
    """Counts texts that hold what a model's vocabulary lacks, and tells of them at the end, in one line on stderr.

    `file` is what they are in, `what` each of them is, and `outcome` what comes of it.
    """

    def __init__(self, tokenizer: Tokenizer, file: str, what: str = "line", outcome: str = "translation") -> None:
        self._tokenizer, self._file, self._what, self._outcome = tokenizer, file, what, outcome
        self._count, self._first = 0, ""

    def __enter__(self) -> Unknown:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._count and _is_kept(kind):
            pieces = "words" if self._tokenizer.whole_words else "characters"
            print(
                printable(
                    f"warning: {self._file}: {so_many(self._count, self._what)} "
                    f"{agreeing(self._count, 'has', 'have')} {pieces} that the model does not know, first "
                    f"{self._first}. It reads each of them as the same unknown sign, so the {self._outcome} may be of "
                    "something else."
                ),
                file=sys.stderr,
            )

    def see(self, place: str, text: str) -> None:
        """A text that may hold some."""
        if not (lacking := self._tokenizer.lacks(text)):
            return
        if not self._count:
            rest = f" and {len(lacking) - SHOWN:,} more" if len(lacking) > SHOWN else ""
            self._first = f"{place} ({' '.join(piece[:SHOWN] for piece in lacking[:SHOWN])}{rest})"
        self._count += 1


def _is_kept(kind: type[BaseException] | None) -> bool:
    """Whoever stops a run keeps what is done; after a mistake, that alone is to be told."""
    return kind is None or issubclass(kind, KeyboardInterrupt | typer.Exit)


class Odd:
    """Counts translations that look odd, and tells of them at the end, in one line on stderr.

    `file` is what their texts are in, and `what` each of these is.
    """

    def __init__(self, file: str, what: str = "line") -> None:
        self._file, self._what = file, what
        self._counts: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def __enter__(self) -> Odd:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._counts and _is_kept(kind):
            told = "; ".join(
                f"{so_many(count, self._what)} {agreeing(count, 'has', 'have')} {ODD[flag]}, first {self._first[flag]}"
                for flag, count in sorted(self._counts.items(), key=lambda each: list(ODD).index(each[0]))
            )
            print(printable(f"warning: {self._file}: {told}. Check what came out."), file=sys.stderr)

    def see(self, place: str, flags: Iterable[str]) -> None:
        """The flags of a text's translation."""
        for flag in ODD.keys() & flags:
            self._counts[flag] += 1
            self._first.setdefault(flag, place)


class Progress:
    """Counts lines and tokens on the status line, and says how long it will take where that can be known.

    `size` is the bytes of all lines, None where nobody knows. A quiet one shows nothing. `what` is counted, if not
    lines, and each line of a window gives `each` of them.
    """

    def __init__(self, size: int | None = None, quiet: bool = False, what: str = "lines", each: int = 1) -> None:
        self._status, self._size, self._quiet = StatusLine(), size, quiet
        self._what, self._each = what, each
        self._begin = time.monotonic()
        self._lines = self._tokens = 0
        self.before = self._next = 0  # lines before this window, and before the next one
        self._behind = self._skipped = 0  # bytes of windows behind us, and of those that cost no time
        self._window, self._window_lines, self._window_done = 0, 1, 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._status.close()

    def window(self, lines: Sequence[str]) -> None:
        """These lines come next."""
        self._behind += self._window
        self.before, self._next = self._next, self._next + len(lines)
        self._window, self._window_lines, self._window_done = _bytes(lines), len(lines) * self._each, 0

    def skip(self, lines: Sequence[str]) -> None:
        """These lines need not be done."""
        self._behind += _bytes(lines)
        self._next += len(lines)
        self._skipped += _bytes(lines)

    def add(self, lines: int, tokens: int = 0) -> None:
        """So many lines more are done, and so many tokens were written for them."""
        self._lines, self._tokens = self._lines + lines, self._tokens + tokens
        self._window_done += lines
        if not self._quiet:
            self._status.show(self._words)

    def tell(self, results: Iterable[str]) -> None:
        """Print results now, each on a line of its own: at a terminal the status makes room for them."""
        self._status.clear()
        for result in results:
            print(result)
        sys.stdout.flush()

    def _words(self) -> str:
        seconds = max(time.monotonic() - self._begin, 1e-6)
        words = [
            so_many(self._lines, self._what.removesuffix("s"), self._what),
            f"{self._lines / seconds:,.1f} {self._what}/s",
        ]
        if self._tokens:
            words += [so_many(self._tokens, "token")] * (not self._lines)  # of a long line that is not done
            words.append(f"{self._tokens / seconds:,.0f} tokens/s")
        if self._size:
            here = self._behind + self._window * self._window_done / self._window_lines
            worked = here - self._skipped
            words.append(f"{min(1.0, here / self._size):.0%}")
            if worked > 0:
                words.append(f"{clock(max(0.0, seconds * (self._size - here) / worked))} left")
        return "  ".join(words)


def _bytes(lines: Sequence[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)
