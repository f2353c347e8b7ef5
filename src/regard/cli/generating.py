"""`regard generate`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.common import STDIN, AsJson, ModelFolder, Precision, Progress, load_model, making_settings
from regard.cli.composing import Music
from regard.cli.reading import opened
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.api import Model
    from regard.decoding.sampling import SamplingSettings

PROMPTS = 256  # read ahead
BETWEEN = "---"
ALTERNATIVES = 10
TEXT_TOKENS, MUSIC_TOKENS = 200, 1_024


def generate(
    model: ModelFolder,
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", help="What the text begins with; - reads one a line.",
                       show_default="stdin, or nothing at a terminal"),
    ] = None,
    temperature: Annotated[float, typer.Option(help="Above 1 more surprising, below less; 0 no chance at all.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Draw from the so many likeliest tokens; 0 is all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Draw from the likeliest tokens that hold this probability.")] = 1.0,
    min_p: Annotated[
        float, typer.Option(help="Draw from tokens at least so many times as likely as the likeliest.")
    ] = 0.0,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1 avoids what was written before.")] = 1.0,
    max_tokens: Annotated[
        int | None, typer.Option(help="The most tokens of a text.", show_default="200; for music 1,024")
    ] = None,
    lines: Annotated[int, typer.Option(help="The most lines of a text, for a model of running text.")] = 1,
    seed: Annotated[int, typer.Option(help="The same seed gives the same text.")] = 1,
    count: Annotated[int, typer.Option(help="Texts for each prompt, by the seeds that follow.")] = 1,
    stream: Annotated[bool, typer.Option("--stream", help="Print the text while it is written.")] = False,
    midi: Annotated[Path | None, typer.Option(help="A MIDI file to write the music into.", show_default="none")] = None,
    primer: Annotated[
        Path | None, typer.Option(help="A MIDI file whose music is to go on.", show_default="none")
    ] = None,
    roll: Annotated[
        Path | None, typer.Option(help="An SVG of the notes, with attention.", show_default="none")
    ] = None,
    precision: Precision = "auto",
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Write a text with a language model, after a prompt or after nothing; or music, as a MIDI file."""
    if stream and as_json:
        raise UsageError("generate: --stream prints text and --json whole objects, but both are given. Choose one.")
    if count < 1:
        raise UsageError(f"generate: --count must be at least 1, but is {count}. Ask for more.")
    music = Music(midi, primer, roll)
    if music.wanted:
        music.check(prompt, stream, as_json, lines, count)
    loaded = load_model(model, precision)
    usual = MUSIC_TOKENS if music.wanted else TEXT_TOKENS
    most = usual if max_tokens is None else max_tokens
    alternatives = ALTERNATIVES if as_json else 0
    sampling = _sampling(temperature, top_k, top_p, min_p, repetition_penalty, most, alternatives, lines)
    if music.wanted:
        music.write(loaded, sampling, seed, count)
        return
    loaded.generations([], sampling)  # a model of another kind says so before anything is read
    _print_all(loaded, prompt, _Wanted(sampling, seed, count, stream, as_json))


def _print_all(model: Model, prompt: str | None, wanted: _Wanted) -> None:
    size = None if prompt is None or prompt == STDIN else len(prompt.encode()) + 1
    first, told = True, False
    # At a terminal the texts themselves show how far it is.
    with Progress(size, quiet=sys.stdout.isatty(), what="texts", each=wanted.count) as progress:
        for prompts in _prompts(prompt):
            _warn_of_long_prompts(model, prompts)
            told = told or _warn_of_unknown(model, prompts, wanted.sampling.lines)
            progress.window(prompts)
            for text in wanted.texts(model, prompts, progress.add):
                if not first and not wanted.as_json:
                    print(BETWEEN)
                first = False
                for piece in text:
                    print(piece, end="", flush=True)
                print(flush=True)


@dataclass(frozen=True)
class _Wanted:
    """How many texts of which kind, and how they are to be printed."""

    sampling: SamplingSettings
    seed: int
    count: int
    stream: bool
    as_json: bool

    def texts(self, model: Model, prompts: Sequence[str], done: Callable[[int, int], None]) -> Iterator[Iterable[str]]:
        """Each text as soon as it is there: in one piece, as JSON, or in the pieces in which it comes."""
        if self.stream:
            for prompt in prompts:
                for number in range(self.count):
                    yield model.stream(prompt, self.sampling, self.seed + number)
                    done(1, 0)
            return
        for found in model.each_generation(prompts, self.sampling, self.seed, self.count):
            done(1, len(found.tokens))
            yield [json.dumps(found.to_json(), ensure_ascii=False) if self.as_json else found.text]


def _sampling(
    temperature: float, top_k: int, top_p: float, min_p: float, penalty: float, most: int, alternatives: int,
    lines: int,
) -> SamplingSettings:  # fmt: skip
    from regard.decoding.sampling import SamplingSettings

    with making_settings("generate"):
        return SamplingSettings(temperature, top_k, top_p, min_p, penalty, most, alternatives, lines=lines)


def _prompts(prompt: str | None) -> Iterator[list[str]]:
    """The prompts, some at a time: the one that is given, those of stdin, or an empty one at a terminal."""
    if prompt is not None and prompt != STDIN:
        yield [prompt]
    elif prompt is None and sys.stdin is not None and sys.stdin.isatty():
        yield [""]
    else:
        with opened(STDIN, PROMPTS) as (windows, _):
            yield from windows


def _warn_of_long_prompts(model: Model, prompts: Sequence[str]) -> None:
    context = model.network.context
    for prompt, ids in zip(prompts, model.tokenizer.encode_all(prompts), strict=True):
        if context is not None and len(ids) >= context:
            print(
                f"warning: the prompt {prompt[:30]!r} has {len(ids):,} tokens, but the model reads {context:,} at most."
                " It goes on from the last of them.",
                file=sys.stderr,
            )


def _warn_of_unknown(model: Model, prompts: Sequence[str], lines: int) -> bool:
    """Whether a prompt holds what the vocabulary lacks; the first such word is told of."""
    unknown = model.tokenizer.unknown
    for prompt in prompts if unknown is not None else ():
        # Of a text of several lines, what ends one is a token of its own.
        plain = " \n" if lines > 1 or model.running else " "
        blanks = (char for char in dict.fromkeys(prompt) if char.isspace() and char not in plain)
        for word in (*prompt.split(), *blanks):
            if unknown in model.tokenizer.encode(word):
                print(
                    f"warning: the prompt {prompt[:30]!r} holds {word[:30]!r}, which the vocabulary lacks, or parts of "
                    "it. The model reads them as unknown.",
                    file=sys.stderr,
                )
                return True
    return False
