"""Texts that a language model writes: after a prompt or after nothing, all at once or as they come."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Generator as Walk
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from queue import Queue
from threading import Event, Thread
from typing import Any

from regard.counts import so_many
from regard.decoding.sampling import Drawn, Finish, OnToken, Sample, SamplingSettings, drawing, sample
from regard.decoding.stepping import recorded
from regard.memory import Halves, NoRoomError
from regard.models.interface import SequenceModel
from regard.text.streaming import TextStream, last_line
from regard.text.tokenizer import Tokenizer

ROWS = 64  # texts drawn at a time


@dataclass(frozen=True)
class Generation:
    """What a model wrote after a prompt, token by token."""

    text: str
    """Joined to the prompt, it gives the whole text."""
    tokens: tuple[str, ...]
    log_probabilities: tuple[float, ...]
    """Of each token, by the model alone: no temperature, no filter."""
    top: tuple[tuple[tuple[str, float], ...], ...]
    """For each place the likeliest tokens with their probabilities, if they were asked for."""
    finish_reason: Finish
    """The model ended the text, or `max_tokens` did, or whoever was told of its tokens."""
    prompt_cut: int = 0
    """How many tokens at the beginning of the prompt the model had no room for."""

    def to_json(self) -> dict[str, object]:
        """As `regard generate --json` prints it; docs/generate.md describes it."""
        return {
            "text": self.text,
            "tokens": self.tokens,
            "log_probabilities": self.log_probabilities,
            "top": self.top,
            "finish_reason": self.finish_reason,
        }


class Generator:
    """A language model and its vocabulary; `running`, if it learned from running text, where an end ends a line."""

    def __init__(self, network: SequenceModel[Any], tokenizer: Tokenizer, running: bool = False) -> None:
        # Made once: recordings of one text serve the next.
        self.network, self.tokenizer, self.running = recorded(network), tokenizer, running
        self._halves = Halves()

    def generations(
        self, prompts: Sequence[str], sampling: SamplingSettings, seed: int, count: int
    ) -> list[list[Generation]]:
        """`count` texts for each prompt, by the seeds `seed`, `seed + 1`, …; the same ones in any company."""
        texts = self.each(prompts, sampling, seed, count)
        return [list(islice(texts, count)) for _ in prompts]

    def each(self, prompts: Sequence[str], sampling: SamplingSettings, seed: int, count: int) -> Iterator[Generation]:
        """What `generations` gives, one text after another; no more than `ROWS` of them are held at a time."""
        encoded = [self.encode(prompt, sampling) for prompt in prompts]
        work = ((ids, seed + number) for ids in encoded for number in range(count))

        def draw(some: Sequence[tuple[list[int], int]]) -> list[Sample]:
            ids, seeds = [ids for ids, _ in some], [own for _, own in some]
            return sample(self.network, ids, self.tokenizer.specials, sampling, seeds, running=self.running)

        def no_room(one: tuple[list[int], int]) -> NoRoomError:
            prompt = f"{so_many(len(one[0]), 'token')} and up to {sampling.max_tokens:,} more"
            return NoRoomError(f"generate: the text after {self.tokenizer.decode(one[0])[:40]!r}", prompt)

        while some := list(islice(work, ROWS)):
            yield from map(self._generation, [ids for ids, _ in some], self._halves.each(some, draw, no_room))

    def writing(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingSettings, seeds: Sequence[int], on_token: OnToken
    ) -> Walk[None, None, list[Generation]]:
        """One text after each prompt of tokens, by its own seed, a step of the model at a time."""
        specials, running = self.tokenizer.specials, self.running
        samples = yield from drawing(self.network, prompts, specials, sampling, seeds, on_token, running=running)
        return [self._generation(ids, drawn) for ids, drawn in zip(prompts, samples, strict=True)]

    def encode(self, prompt: str, sampling: SamplingSettings) -> list[int]:
        """The tokens of a prompt, which may have several lines where a text may."""
        several = self.running or sampling.lines > 1
        return self.tokenizer.encode_lines(prompt) if several else self.tokenizer.encode(prompt)

    def following(self, prompt: Sequence[int]) -> TextStream:
        """The text that follows the tokens of a prompt."""
        specials = self.tokenizer.specials
        return TextStream(self.tokenizer, last_line(prompt, specials.start), specials.end)

    def tell(self, prompt: str, sampling: SamplingSettings, seed: int, hear: Callable[[str], None]) -> Generation:
        """One text; `hear` is called with each piece of it as soon as it is certain."""
        ids = self.encode(prompt, sampling)
        written = self.following(ids)

        def on_token(_: int, drawn: Drawn) -> None:
            if piece := written.push(drawn.token):
                hear(piece)

        specials, running = self.tokenizer.specials, self.running
        (found,) = sample(self.network, [ids], specials, sampling, [seed], on_token, running=running)
        if rest := written.end():
            hear(rest)
        return self._generation(ids, found)

    def stream(self, prompt: str, sampling: SamplingSettings, seed: int) -> Iterator[str]:
        """The pieces of one text as they come; whoever stops listening stops the model."""
        pieces: Queue[str | BaseException | None] = Queue()
        stop = Event()

        def hear(piece: str) -> None:
            if stop.is_set():
                raise _NobodyListens
            pieces.put(piece)

        def work() -> None:
            try:
                with suppress(_NobodyListens):
                    self.tell(prompt, replace(sampling, alternatives=0), seed, hear)
                pieces.put(None)
            except BaseException as error:  # it is raised again, where somebody listens
                pieces.put(error)

        thread = Thread(target=work, daemon=True)
        thread.start()
        try:
            while (piece := pieces.get()) is not None:
                if isinstance(piece, BaseException):
                    raise piece
                yield piece
        finally:
            stop.set()
            thread.join()

    def _generation(self, prompt: Sequence[int], found: Sample) -> Generation:
        written = self.following(prompt)
        text = "".join([*map(written.push, found.tokens), written.end()])
        labels = self.tokenizer.labels
        top = [
            tuple(zip(labels([token for token, _ in each.alternatives]),
                      (math.exp(chance) for _, chance in each.alternatives), strict=True))
            for each in found.drawn if each.alternatives
        ]  # fmt: skip
        chances = tuple(each.log_probability for each in found.drawn)
        return Generation(text, labels(found.tokens), chances, tuple(top), found.finish_reason, found.prompt_cut)


class _NobodyListens(Exception):  # noqa: N818
    """The reader of a stream left."""
