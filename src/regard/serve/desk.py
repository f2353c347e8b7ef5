"""Where requests meet models: one desk a process, one worker a model.

Every question is asked with `await`, under the same rules: a full queue raises BusyError, a deadline that passed
LateError, and a question whose asker leaves (whose task is cancelled) is dropped, or stopped at the model's next step.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

from regard.api import Generation, Model, Options, Translation
from regard.decoding.sampling import SamplingSettings
from regard.decoding.search import SearchSettings
from regard.errors import MissingError, UsageError, proposal
from regard.exploring.inside import Task
from regard.serve.limits import Limits
from regard.serve.metrics import Metrics
from regard.serve.problems import BusyError, LateError
from regard.serve.worker import Job, Running, Streaming, Translating, Worker, Writing

T = TypeVar("T")
Prompt = str | Sequence[int]
"""A text, or its tokens."""


@dataclass(frozen=True)
class Served:
    """A model behind the desk."""

    id: str
    model: Model
    worker: Worker
    folder: Path | None = None
    """Where it was loaded from, if it was."""

    @property
    def task(self) -> Task:
        """What it does."""
        return self.model.task


class Stream:
    """The pieces of a text as they are written: `async for piece in stream`.

    `generation` is known after the last piece. Whoever goes before that calls `close`, which stops the model.
    """

    def __init__(self, job: Streaming, worker: Worker, seconds: float) -> None:
        self._job, self._worker, self._seconds = job, worker, seconds
        self.generation: Generation | None = None

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> str:
        if self.generation is not None:
            raise StopAsyncIteration
        try:
            async with _deadline(self._job, self._seconds):
                piece = await self._job.pieces.get()
        except BaseException:
            self.close()
            raise
        if piece is not None:
            return piece
        (self.generation,) = self._job.answer.result()
        raise StopAsyncIteration

    def close(self) -> None:
        """Stop listening, and with it the model."""
        if not self._job.answer.done():
            self._worker.leave(self._job)
            self._job.answer.cancel()

    def __del__(self) -> None:
        # Not `close`: whoever collects garbage may be any thread. The worker looks at this before its next step.
        self._job.gone = True


class Desk:
    """All models of a server, and the way to ask them."""

    def __init__(
        self, models: Mapping[str, Model], limits: Limits | None = None, folders: Mapping[str, Path] | None = None
    ) -> None:
        if not models:
            raise UsageError("serve: needs at least one model, but there is none. Name a model folder.")
        for name, model in models.items():
            if model.task == "fill":
                raise UsageError(
                    f"serve: a model must translate, write or give labels, but `{name}` fills gaps, which nobody can "
                    "ask a server for. Use `regard fill`."
                )
        self.limits = limits or Limits()
        self.metrics = Metrics()
        self.models = {
            name: Served(name, model, Worker(name, model, self.limits, self.metrics), (folders or {}).get(name))
            for name, model in models.items()
        }
        # One thread for all: each thread in which Python works hard takes a share of the time from those of the models.
        self._reader, self._documents = ThreadPoolExecutor(1, "regard-reader"), 0
        self.metrics.waiting = {name: served.worker.waiting for name, served in self.models.items()}
        self.draining = False
        """No new requests: the server is about to end."""

    def find(self, model_id: str | None, task: Task | None = None) -> Served:
        """The model of this name; without a name the only one, or the first that can do the task."""
        able = [served for served in self.models.values() if task is None or served.task == task]
        if model_id is None:
            if not able:
                raise UsageError(f"model: needs one that can {task}, but none here does. See the list of models.")
            return able[0]
        if model_id not in self.models:
            known = ", ".join(f"`{name}`" for name in self.models)
            raise MissingError(
                f"model: must be one of those served here ({known}), but is `{model_id[:60]}`. "
                + proposal(model_id[:60], self.models, "Name one of them.")
            )
        return self.models[model_id]

    async def translate(
        self, model_id: str | None, texts: Sequence[str], search: SearchSettings | None = None,
        options: Options | None = None,
    ) -> list[list[Translation]]:  # fmt: skip
        """The `search.nbest` best translations of each text; the same as `Model.translations` gives.

        More than `limits.rows` texts, or than `limits.text` characters of them, are translated some at a time, with a
        deadline for each, and others in between.
        """
        served = self.find(model_id, "translate")
        served.model.must_translate("translate")
        search, options = search or served.model.recipe.search, options or Options()
        found: list[list[Translation]] = []
        for some in _helpings(texts, self.limits):
            job = Translating(self.limits.deadline, some, search, options)
            found += cast(list[list[Translation]], await self._ask(served, job))
        return found

    async def generate(
        self, model_id: str | None, prompts: Sequence[Prompt], sampling: SamplingSettings | None = None, seed: int = 1,
        count: int = 1,
    ) -> list[list[Generation]]:  # fmt: skip
        """`count` texts after each prompt, by `seed`, `seed + 1`, …; the same as `Model.generations` gives."""
        served = self._writer(model_id)
        sampling = sampling or SamplingSettings()
        encoded = [self._encode(served, prompt, sampling) for prompt in prompts]
        if not encoded or count < 1:
            return [[] for _ in encoded]
        work = [(ids, seed + number) for ids in encoded for number in range(count)]
        found: list[Generation] = []
        for first in range(0, len(work), self.limits.rows):
            ids, seeds = zip(*work[first : first + self.limits.rows], strict=True)
            job = Writing(self.limits.deadline, ids, sampling, seeds)
            found += cast(list[Generation], await self._ask(served, job))
        return [found[first : first + count] for first in range(0, len(found), count)]

    def stream(
        self, model_id: str | None, prompt: Prompt, sampling: SamplingSettings | None = None, seed: int = 1
    ) -> Stream:
        """One text, piece by piece; it is in the queue when this returns."""
        served = self._writer(model_id)
        sampling = sampling or SamplingSettings()
        ids, writer = self._encode(served, prompt, sampling), served.worker.writer
        job = Streaming(self.limits.deadline, ids, sampling, seed, writer.following(ids))
        served.worker.submit(job)
        return Stream(job, served.worker, self.limits.deadline)

    async def run(self, model_id: str | None, function: Callable[[Model], T]) -> T:
        """Any function of a model, in the model's own thread, while nobody else uses it."""
        return cast(T, await self._ask(self.find(model_id), Running(self.limits.deadline, function)))

    @asynccontextmanager
    async def large_document(self) -> AsyncIterator[None]:
        """Room for a large document; raises BusyError where there is none."""
        if self._documents >= self.limits.documents:
            raise BusyError(
                f"documents: at most {self.limits.documents} large ones are translated at a time, but as many are. Try "
                "again after the seconds that Retry-After says.", 5,
            )  # fmt: skip
        self._documents += 1
        try:
            yield
        finally:
            self._documents -= 1

    async def aside(self, function: Callable[[], T]) -> T:
        """Run what needs no model, but time: one after the other, in a thread of its own."""
        async with self.in_time():
            return await asyncio.wrap_future(self._reader.submit(function))

    @asynccontextmanager
    async def in_time(self) -> AsyncIterator[None]:
        """One deadline for several questions, of which each has its own; raises LateError."""
        try:
            async with asyncio.timeout(self.limits.deadline):
                yield
        except TimeoutError:
            raise LateError(self.limits.deadline, began=True) from None

    def close(self) -> None:
        """Finish what was taken on, and end the workers."""
        self._reader.shutdown(cancel_futures=True)
        for served in self.models.values():
            served.worker.close()

    async def _ask(self, served: Served, job: Job) -> object:
        served.worker.submit(job)
        try:
            async with _deadline(job, self.limits.deadline):
                return await job.answer
        finally:
            if not job.answer.done() or job.answer.cancelled():
                served.worker.leave(job)

    def _writer(self, model_id: str | None) -> Served:
        served = self.find(model_id, "generate")
        if served.task != "generate":
            does = "translates" if served.task == "translate" else "gives labels"
            raise UsageError(
                f"model: needs a language model, but `{served.id}` {does}. Have it {served.task}, or name another."
            )
        return served

    @staticmethod
    def _encode(served: Served, prompt: Prompt, sampling: SamplingSettings) -> list[int]:
        tokenizer = served.model.tokenizer
        if isinstance(prompt, str):
            return served.worker.writer.encode(prompt, sampling)
        for token in prompt:
            if not 0 <= token < tokenizer.size:
                raise UsageError(f"prompt: tokens must be from 0 to {tokenizer.size - 1:,}, but one is {token}.")
        return list(prompt)


def _helpings(texts: Sequence[str], limits: Limits) -> Iterator[list[str]]:
    """Texts, in order, so many together as a model may work on without a pause for others."""
    some: list[str] = []
    for text in texts:
        if some and (len(some) == limits.rows or sum(map(len, some)) + len(text) > limits.text):
            yield some
            some = []
        some.append(text)
    if some:
        yield some


@asynccontextmanager
async def _deadline(job: Job, seconds: float) -> AsyncIterator[None]:
    """Raise LateError where the job's deadline passes."""
    try:
        async with asyncio.timeout(job.deadline - time.monotonic()):
            yield
    except TimeoutError:
        raise LateError(seconds, job.began) from None
