"""Completions as OpenAI's API tells them: choices, log-probabilities, stop texts, chunks."""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from regard.api import Generation, Model
from regard.batch import IGNORED, Batch, Tokens
from regard.decoding.sampling import SamplingSettings
from regard.errors import UsageError
from regard.serve.desk import Desk, Served, Stream
from regard.serve.problems import body_of, problem_of
from regard.text.words import SPACE
from regard.version import VERSION

FINISHED = {"end": "stop", "stop": "stop", "length": "length"}
LEAST = -9999.0  # what stands for a probability of 0, which has no logarithm that JSON can hold
Choice = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """A request that was checked."""

    served: Served
    prompts: list[list[int]]
    sampling: SamplingSettings
    stops: tuple[str, ...]
    seed: int
    count: int
    logprobs: int | None
    echo: bool
    writes: bool
    """Whether anything is written at all: a prompt may be echoed with its log-probabilities, and nothing more."""
    id: str = field(default_factory=lambda: f"cmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def envelope(self, choices: Sequence[Choice]) -> dict[str, Any]:
        """An answer around choices."""
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.served.id,
            "system_fingerprint": f"regard-{VERSION}",
            "choices": list(choices),
        }

    def usage(self, written: int) -> dict[str, int]:
        """The tokens that were read and written."""
        read = sum(map(len, self.prompts))
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


@dataclass(frozen=True)
class Said:
    """A token of a text: how it is written, how likely it was, and what else was likely."""

    token: str
    log_probability: float | None
    top: tuple[tuple[str, float], ...] | None


# ---- at once


async def completed(desk: Desk, asked: Asked) -> dict[str, Any]:
    """The whole answer."""
    choices, written = await _choices(desk, asked)
    return {**asked.envelope(choices), "usage": asked.usage(written)}


async def _choices(desk: Desk, asked: Asked) -> tuple[list[Choice], int]:
    """All choices, and how many tokens were written for them."""
    found: list[list[Generation | None]] = [[None] * asked.count for _ in asked.prompts]
    if asked.writes:
        texts = await desk.generate(asked.served.id, asked.prompts, asked.sampling, asked.seed, asked.count)
        found = [list(some) for some in texts]
    read: list[list[Said]] = [[] for _ in asked.prompts]
    if asked.echo and asked.logprobs is not None:
        count = asked.logprobs
        read = [await desk.run(asked.served.id, _reading(ids, count)) for ids in asked.prompts]
    choices: list[Choice] = []
    written = 0
    for place, some in enumerate(found):
        before = _text_of(asked.served.model, asked.prompts[place]) if asked.echo else ""
        for generation in some:
            text, said, reason = _cut(generation, asked.stops)
            written += len(said)
            logprobs = None if asked.logprobs is None else _logprobs(before + text, [*read[place], *said])
            choices.append(_choice(len(choices), before + text, reason, logprobs))
    return choices, written


def _text_of(model: Model, prompt: Sequence[int]) -> str:
    return model.tokenizer.decode_lines(prompt) if model.running else model.tokenizer.decode(prompt)


def _choice(index: int, text: str, reason: str | None = None, logprobs: dict[str, Any] | None = None) -> Choice:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}


def _cut(generation: Generation | None, stops: Sequence[str]) -> tuple[str, list[Said], str]:
    """A text up to the first stop, the tokens that begin before it, and why it ends."""
    if generation is None:
        return "", [], "length"
    tops: Sequence[tuple[tuple[str, float], ...] | None] = generation.top or [None] * len(generation.tokens)
    said = [
        Said(_spelled(token), chance, top and tuple((_spelled(label), _log(p)) for label, p in top))
        for token, chance, top in zip(generation.tokens, generation.log_probabilities, tops, strict=True)
    ]
    ends = [place for stop in stops if (place := generation.text.find(stop)) >= 0]
    if not ends:
        return generation.text, said, FINISHED[generation.finish_reason]
    offsets = _offsets(generation.text, [each.token for each in said])
    kept = [each for each, offset in zip(said, offsets, strict=True) if offset < min(ends)]
    return generation.text[: min(ends)], kept, "stop"


def _spelled(label: str) -> str:
    return label.replace(SPACE, " ")


def _log(probability: float) -> float:
    return math.log(probability) if probability > 0 else LEAST


def _offsets(text: str, tokens: Sequence[str]) -> list[int]:
    """Where each token begins in the text; one that is not there as it is spelled (half a character) begins where the
    one before it ended."""
    found, place = [], 0
    for token in tokens:
        found.append(place)
        # At the beginning of a text a vocabulary may leave out the space before a word.
        for spelling in (token, token.lstrip(" ")):
            if spelling and text.startswith(spelling, place):
                place += len(spelling)
                break
    return found


def _logprobs(text: str, said: Sequence[Said]) -> dict[str, Any]:
    tokens = [each.token for each in said]
    tops = [None if each.top is None else {**dict(each.top), each.token: each.log_probability} for each in said]
    return {
        "tokens": tokens,
        "token_logprobs": [each.log_probability for each in said],
        "top_logprobs": tops if any(tops) else None,
        "text_offset": _offsets(text, tokens),
    }


def _reading(ids: Sequence[int], count: int) -> Callable[[Model], list[Said]]:
    """How likely each token of a prompt is after those before it; the first has none before it, so nobody says."""

    @torch.inference_mode()
    def read(model: Model) -> list[Said]:
        tokenizer, network = model.tokenizer, model.network
        if network.context is not None and len(ids) > network.context:
            raise UsageError(
                f"prompt: must have at most {network.context:,} tokens to be echoed with `logprobs`, but has "
                f"{len(ids):,}. Shorten it."
            )
        if not ids:
            return []
        fed = torch.tensor([[tokenizer.specials.start, *ids[:-1]]], device=model.device)
        features_TD = network.features(Batch(None, Tokens.whole(fed), torch.full_like(fed, IGNORED)))[0]
        said = []
        answers, labels = list(ids), list(tokenizer.labels(ids))
        for place, token in enumerate(ids if model.running else ()):
            if token == tokenizer.specials.start:  # it begins a line, and what is foreseen is the end of the last
                answers[place], labels[place] = tokenizer.specials.end, "\n"
        for token, label, features_D in zip(answers, labels, features_TD, strict=True):
            scores_V = network.logits(features_D[None, None])[0, 0].float().log_softmax(dim=-1)
            values, best = scores_V.topk(min(count, len(scores_V)))
            others = map(_spelled, tokenizer.labels(best.tolist()))
            top = tuple(zip(others, values.tolist(), strict=True)) if count else None
            said.append(Said(_spelled(label), float(scores_V[token]), top))
        return [Said(said[0].token, None, None), *said[1:]]

    return read


# ---- as it comes


class Stops:
    """A text as it comes, up to the first of some stop texts; what may be the beginning of one is held back."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops, self._held = stops, ""
        self.reached = False

    def push(self, piece: str) -> str:
        """What is certain to belong to the text now."""
        text = self._held + piece
        ends = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if ends:
            self.reached, self._held = True, ""
            return text[: min(ends)]
        held = max(
            (size for stop in self._stops for size in range(1, len(stop)) if text.endswith(stop[:size])), default=0
        )
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def end(self) -> str:
        """The rest: no stop came."""
        return self._held


async def streamed(desk: Desk, asked: Asked, usage: bool) -> AsyncIterator[str]:
    """The answer as server-sent events. What cannot be done is raised here, before the first of them.

    With log-probabilities, or with nothing to write, the texts are made at once, and then sent piece by piece.
    """
    if asked.logprobs is not None or not asked.writes:
        choices, written = await _choices(desk, asked)
        return _events(asked, usage, _from_memory(choices, written))
    streams: list[Stream] = []
    try:
        for ids in asked.prompts:
            for number in range(asked.count):
                streams.append(desk.stream(asked.served.id, ids, asked.sampling, asked.seed + number))
    except Exception:
        for stream in streams:
            stream.close()
        raise
    return _events(asked, usage, _as_written(asked, streams))


Piece = Choice | int
"""A choice to send, or at the end the number of tokens that were written."""


async def _events(asked: Asked, usage: bool, pieces: AsyncIterator[Piece]) -> AsyncIterator[str]:
    try:
        async for piece in pieces:
            if not isinstance(piece, int):
                yield _event({**asked.envelope([piece]), **({"usage": None} if usage else {})})
            elif usage:
                yield _event({**asked.envelope([]), "usage": asked.usage(piece)})
    except Exception as error:  # the status is sent already, so the last event says it
        yield _event(body_of(problem_of(error), "/v1/completions"))
    yield "data: [DONE]\n\n"


def _event(value: object) -> str:
    return f"data: {json.dumps(value)}\n\n"


async def _from_memory(choices: Sequence[Choice], written: int) -> AsyncIterator[Piece]:
    """Choices that are whole, token by token."""
    for choice in choices:
        logprobs = choice["logprobs"]
        offsets = logprobs["text_offset"] if logprobs and logprobs["tokens"] else [0]
        for place, (begin, end) in enumerate(zip(offsets, [*offsets[1:], len(choice["text"])], strict=True)):
            part = logprobs and {name: values and values[place : place + 1] for name, values in logprobs.items()}
            yield _choice(choice["index"], choice["text"][begin:end], None, part)
        yield _choice(choice["index"], "", choice["finish_reason"])
    yield written


async def _as_written(asked: Asked, streams: Sequence[Stream]) -> AsyncIterator[Piece]:
    """The pieces of all texts in the order in which they come."""
    queue: asyncio.Queue[Choice | int | Exception] = asyncio.Queue()
    tasks = [asyncio.create_task(_listen(asked, index, stream, queue)) for index, stream in enumerate(streams)]
    try:
        written, left = 0, len(tasks)
        while left:
            piece = await queue.get()
            if isinstance(piece, Exception):
                raise piece
            if isinstance(piece, int):
                written, left = written + piece, left - 1
                continue
            yield piece
        yield written
    finally:
        for task, stream in zip(tasks, streams, strict=True):
            task.cancel()
            stream.close()


async def _listen(asked: Asked, index: int, stream: Stream, queue: asyncio.Queue[Choice | int | Exception]) -> None:
    """Put the pieces of one text into the queue, then the number of its tokens."""
    stops, tokenizer, sent = Stops(asked.stops), asked.served.model.tokenizer, []
    try:
        if asked.echo:
            queue.put_nowait(_choice(index, _text_of(asked.served.model, asked.prompts[index // asked.count])))
        async for piece in stream:
            if text := stops.push(piece):
                sent.append(text)
                queue.put_nowait(_choice(index, text))
            if stops.reached:
                stream.close()
                break
        if stops.reached:
            # The tokens are gone with the rest of the text; those of what was sent are about as many.
            reason, written = "stop", len(tokenizer.encode("".join(sent)))
        else:
            assert stream.generation is not None
            if rest := stops.end():
                queue.put_nowait(_choice(index, rest))
            reason, written = FINISHED[stream.generation.finish_reason], len(stream.generation.tokens)
        queue.put_nowait(_choice(index, "", reason))
        queue.put_nowait(written)
    except Exception as error:  # whoever reads the queue raises it
        queue.put_nowait(error)
