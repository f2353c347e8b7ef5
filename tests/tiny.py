"""A model that learns thirteen words by heart in a second, and the command line run in this process."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch

from regard import folder
from regard.cli import main
from regard.models.build import build
from regard.recipe import Recipe, build_recipe
from regard.settings.tree import text_of
from regard.text.tokenizer import Tokenizer

ENGLISH = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
GERMAN = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf"]


def write_lines(file: Path, lines: Sequence[str]) -> Path:
    file.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return file


def word_recipe(place: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Words by heart: the corpus is written into `place`, and is its own validation and test set."""
    sides = write_lines(place / "words.en", ENGLISH), write_lines(place / "words.de", GERMAN)
    source, target = (text_of(str(side)) for side in sides)
    data = ", ".join(f"{part}source = {source}, {part}target = {target}" for part in ("", "valid_", "test_"))
    settings = [
        "name=words",
        f'data={{kind = "files", {data}}}',
        "tokenizer.vocabulary=120",
        "model={encoder_layers=1, decoder_layers=1, d_model=64, d_ff=128, heads=2, dropout=0.0}",
        "batch.tokens=512",
        "training={steps=40, validate_every=20, save_every=20, keep=2, average=1, label_smoothing=0.0}",
        "training.optimiser={warmup=20, clip=1.0}",
    ]
    return build_recipe({}, [*settings, *overrides], "words")


def generated_recipe(overrides: Sequence[str] = ()) -> Recipe:
    """Thirty steps on some hundred generated pairs, with dropout; it learns nothing worth having."""
    settings = [
        "name=thirty",
        "data={pairs=300, valid=20, test=10}",
        "tokenizer.vocabulary=200",
        "model={encoder_layers=1, decoder_layers=1, d_model=16, d_ff=32, heads=2, dropout=0.2}",
        "batch.tokens=256",
        "search.extra_length=5",
        "training={steps=30, validate_every=15, save_every=10, keep=3, average=2}",
        "training.optimiser={warmup=10}",
    ]
    return build_recipe({}, [*settings, *overrides], "thirty")


def language_model(place: Path, overrides: Sequence[str] = (), lines: Sequence[str] = ENGLISH + GERMAN) -> Path:
    """A folder with a GPT that has learned nothing; its tokenizer knows these lines."""
    settings = [
        "name=babble",
        "tokenizer={kind='bytes', vocabulary=300}",
        "model={kind='gpt', layers=2, d_model=16, d_ff=24, heads=2, max_positions=32, dropout=0.0}",
    ]
    recipe = build_recipe({}, [*settings, *overrides], "babble")
    tokenizer = Tokenizer.learn(lines, recipe.tokenizer)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = build(recipe.model, tokenizer.size)
    folder.write_beginning(place, recipe, tokenizer)
    (place / folder.METRICS).touch()
    folder.write_end(place, {name: weight.clone() for name, weight in model.state_dict().items()}, "# babble")
    return place


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it printed where."""

    code: int
    out: str
    err: str


def regard(*arguments: object, stdin: bytes | None = b"") -> Ran:
    """What `regard ARGUMENTS` does, without the seconds that a new process takes to import torch.

    With None for `stdin`, that is closed.
    """
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="ascii"), io.StringIO()
    argv = ["regard", *map(str, arguments)]
    typed = None if stdin is None else io.TextIOWrapper(io.BytesIO(stdin))
    with mock.patch.object(sys, "argv", argv), mock.patch.object(sys, "stdin", typed):
        try:
            with redirect_stdout(out), redirect_stderr(err):
                main()
            code: object = None
        except SystemExit as stop:
            code = stop.code
    out.flush()
    assert isinstance(out.buffer, io.BytesIO)
    return Ran(code if isinstance(code, int) else 0, out.buffer.getvalue().decode("utf-8"), err.getvalue())


def failed(ran: Ran, code: int, *words: object) -> None:
    """The command ended with this code and one message, which says all of this and shows no traceback."""
    assert ran.code == code, ran.err
    assert ran.out == ""
    assert "Traceback" not in ran.err
    assert "internal error" not in ran.err
    assert "regard: regard" not in ran.err  # who speaks is said once
    for word in words:
        assert str(word) in ran.err
