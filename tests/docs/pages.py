"""Reading the project's pages, and running the commands they show."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from regard.cli import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:(?P<feed>.+?) \| )?regard (?P<arguments>.*?)(?: > (?P<file>\S+))?$")


@dataclass(frozen=True)
class Block:
    """A fenced block: what it says it is, and what is in it."""

    language: str
    text: str


def blocks(page: Path, *languages: str) -> list[Block]:
    """The fenced blocks of a page in the given languages, in order."""
    found = [Block(*fence) for fence in FENCE.findall(page.read_text(encoding="utf-8"))]
    return [block for block in found if block.language in languages]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def table_rows(text: str) -> list[list[str]]:
    """The cells of all table rows in a text, without headings and rules."""
    lines = text.split("\n")
    bodies = [
        line for before, line in zip(["", *lines], lines, strict=False)
        if line.startswith("|") and not line.startswith("|---") and before.startswith("|")
    ]  # fmt: skip
    # A bar inside a cell is written \|.
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in bodies]


@dataclass(frozen=True)
class Answer:
    """What a command wrote, and how it ended."""

    code: int
    output: str
    errors: str


def run(line: str) -> Answer:
    """Run one line of a page: `regard …`, fed by a pipe or written to a file; anything else in a shell.

    `regard` runs inside this process: importing torch anew for each line would take most of the time.
    """
    found = COMMAND.match(line)
    if found is None:
        done = subprocess.run(line, shell=True, capture_output=True, text=True, check=False)
        return Answer(done.returncode, done.stdout, done.stderr)
    fed = b"" if found["feed"] is None else subprocess.run(found["feed"], shell=True, capture_output=True).stdout
    output, errors = io.StringIO(), io.StringIO()
    leaves = pytest.raises(SystemExit)
    with _arguments(found["arguments"], fed), redirect_stdout(output), redirect_stderr(errors), leaves as stop:
        main()
    if found["file"] is not None:
        Path(found["file"]).write_text(output.getvalue(), encoding="utf-8")
        output = io.StringIO()
    code = stop.value.code
    return Answer(code if isinstance(code, int) else 0, output.getvalue(), errors.getvalue())


@contextmanager
def _arguments(text: str, fed: bytes) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["regard", *shlex.split(text)])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(fed), encoding="utf-8"))
        yield
