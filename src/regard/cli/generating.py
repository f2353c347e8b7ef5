"""`regard generate`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.common import AsJson, ModelFolder, Precision, load_model, making_settings
from regard.cli.composing import Music
from regard.errors import UsageError
from regard.windows import windows

if TYPE_CHECKING:
    from regard.api import Model
    from regard.decoding.sampling import SamplingSettings

STDIN = "-"
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
        music.check(prompt, stream, as_json, lines)
    loaded = load_model(model, precision)
    usual = MUSIC_TOKENS if music.wanted else TEXT_TOKENS
    most = usual if max_tokens is None else max_tokens
    alternatives = ALTERNATIVES if as_json else 0
    sampling = _sampling(temperature, top_k, top_p, min_p, repetition_penalty, most, alternatives, lines)
    if music.wanted:
        music.write(loaded, sampling, seed, count)
        return
    first = True
    for prompts in _prompts(prompt):
        _warn_of_long_prompts(loaded, prompts)
        write = _streamed if stream else _as_objects if as_json else _whole
        for text in write(loaded, prompts, sampling, seed, count):
            if not first and not as_json:
                print(BETWEEN)
            first = False
            for piece in text:
                print(piece, end="", flush=True)
            print(flush=True)


def _sampling(
    temperature: float, top_k: int, top_p: float, min_p: float, penalty: float, most: int, alternatives: int,
    lines: int,
) -> SamplingSettings:  # fmt: skip
    from regard.decoding.sampling import SamplingSettings

    with making_settings("generate"):
        return SamplingSettings(temperature, top_k, top_p, min_p, penalty, most, alternatives, lines=lines)


def _prompts(prompt: str | None) -> Iterator[list[str]]:
    """The prompts, some at a time: the one that is given, those of stdin, or an empty one at a terminal."""
    from regard.data.formats import lines_of

    if prompt is None:
        prompt = "" if sys.stdin.isatty() else STDIN
    if prompt != STDIN:
        yield [prompt]
        return
    yield from windows(lines_of(sys.stdin.buffer, "stdin"), 1 if sys.stdin.isatty() else PROMPTS)


def _warn_of_long_prompts(model: Model, prompts: Sequence[str]) -> None:
    context = model.network.context
    for prompt, ids in zip(prompts, model.tokenizer.encode_all(prompts), strict=True):
        if context is not None and len(ids) >= context:
            print(
                f"warning: the prompt {prompt[:30]!r} has {len(ids):,} tokens, but the model reads {context:,} at most."
                " It goes on from the last of them.",
                file=sys.stderr,
            )


def _whole(
    model: Model, prompts: Sequence[str], sampling: SamplingSettings, seed: int, count: int
) -> Iterator[Iterable[str]]:
    """Each text in one piece."""
    for texts in model.generations(prompts, sampling, seed, count):
        yield from ([found.text] for found in texts)


def _as_objects(
    model: Model, prompts: Sequence[str], sampling: SamplingSettings, seed: int, count: int
) -> Iterator[Iterable[str]]:
    """Each text as JSON."""
    for texts in model.generations(prompts, sampling, seed, count):
        yield from ([json.dumps(found.to_json(), ensure_ascii=False)] for found in texts)


def _streamed(
    model: Model, prompts: Sequence[str], sampling: SamplingSettings, seed: int, count: int
) -> Iterator[Iterable[str]]:
    """Each text in the pieces in which it comes."""
    for prompt in prompts:
        for number in range(count):
            yield model.stream(prompt, sampling, seed + number)
