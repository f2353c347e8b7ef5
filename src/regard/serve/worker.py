"""The thread in which one model works, and what it works on.

Requests wait in a queue. The worker takes the oldest, and with it those that can share its batch: translations that
are searched alike, texts that are drawn alike. An answer is the same in any company, so nobody notices.

Writing goes on step by step: after each step of every text on its way, the queue has its turn, and then the next step.
So no text that is being written makes others wait until it ends. What is too long to be translated in one batch goes on
batch by batch, in turns with the queue. Everything else runs to its end, unless nobody waits for it any more: then it
stops at the model's next step.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Condition, Thread, current_thread
from typing import Any, TypeGuard

from regard.api import Generation, Model, Options, Translation
from regard.counts import so_many
from regard.decoding.sampling import Drawn, SamplingSettings
from regard.decoding.search import SearchSettings
from regard.generation import Generator as Writer
from regard.serve.limits import Limits
from regard.serve.metrics import Metrics
from regard.serve.problems import BusyError
from regard.text.streaming import TextStream
from regard.translation.units import SLOTS_PER_BATCH

WAIT = 0.15  # of the time a batch takes, to wait for others before the next
LONGEST_WAIT = 0.025  # seconds
PAUSE = 0.004  # seconds without a newcomer, and nobody else is waited for
SLOTS_ON_CPU = 4_096  # beams × source tokens translated at a time where others may wait: a few seconds of work at most


class Job:
    """Work that somebody waits for; made in the event loop, done in the worker's thread."""

    def __init__(self, seconds: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Any] = self.loop.create_future()
        self.deadline = time.monotonic() + seconds
        self.began = self.gone = False

    @property
    def wanted(self) -> bool:
        """Whether somebody still waits for it."""
        return not self.gone and time.monotonic() < self.deadline

    def give(self, result: object) -> None:
        """Hand over the answer, from the worker's thread."""
        self._tell(lambda: None if self.answer.done() else self.answer.set_result(result))

    def fail(self, error: Exception) -> None:
        """Hand over an exception instead."""
        self._tell(lambda: None if self.answer.done() else self.answer.set_exception(error))

    def _tell(self, action: Callable[[], object]) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(action)


class Running(Job):
    """Any function of the model; it has the model for itself."""

    def __init__(self, seconds: float, function: Callable[[Model], object]) -> None:
        super().__init__(seconds)
        self.function = function


class Translating(Job):
    """Texts to translate; `likeness` says with whom they can share a batch."""

    def __init__(self, seconds: float, texts: Sequence[str], search: SearchSettings, options: Options) -> None:
        super().__init__(seconds)
        self.texts, self.search, self.options = list(texts), search, options
        self.likeness = search, options
        self.longest = max(map(len, texts), default=0)


class Writing(Job):
    """Texts to write after prompts of tokens, by one seed each."""

    def __init__(
        self, seconds: float, prompts: Sequence[Sequence[int]], sampling: SamplingSettings, seeds: Sequence[int]
    ) -> None:
        super().__init__(seconds)
        self.prompts, self.sampling, self.seeds = prompts, sampling, seeds

    def can_join(self, other: Job) -> TypeGuard[Writing]:
        """Whether both can be written in one batch."""
        return type(self) is Writing and type(other) is Writing and other.sampling == self.sampling

    def hear(self, token: int) -> None:
        """A token was drawn, in the worker's thread."""

    def end(self) -> None:
        """The last token was drawn."""


class Streaming(Writing):
    """One text to write, whose pieces are handed over as they come; it has a batch for itself, to end when it ends."""

    def __init__(
        self, seconds: float, prompt: Sequence[int], sampling: SamplingSettings, seed: int, text: TextStream
    ) -> None:
        super().__init__(seconds, [prompt], sampling, [seed])
        self.text = text
        self.pieces: asyncio.Queue[str | None] = asyncio.Queue()
        self.answer.add_done_callback(lambda _: self.pieces.put_nowait(None))

    def hear(self, token: int) -> None:
        """Hand over what is certain now."""
        self._hand_over(self.text.push(token))

    def end(self) -> None:
        """Hand over the rest."""
        self._hand_over(self.text.end())

    def _hand_over(self, piece: str) -> None:
        if piece:
            self._tell(lambda: self.pieces.put_nowait(piece))


@dataclass
class _Walk:
    """Texts on their way, and whose they are."""

    jobs: list[Writing]
    steps: Generator[None, None, list[Generation]]
    rows: int


@dataclass
class _Turns:
    """Texts that are translated batch by batch, and whose they are."""

    jobs: Sequence[Translating]
    batches: Generator[None, None, list[list[Translation]]]


class NobodyWaitsError(Exception):
    """Raised inside the model's work when nobody waits for its result."""


class Worker:
    """One model, its queue and its thread."""

    def __init__(self, name: str, model: Model, limits: Limits, metrics: Metrics) -> None:
        self.name, self.model, self.limits, self.metrics = name, model, limits, metrics
        self._queue: deque[Job] = deque()
        self._walks: list[_Walk] = []
        self._turns: deque[_Turns] = deque()
        self._changed = Condition()
        self._closed = False
        self._current: Sequence[Job] = ()
        self._pace = 0.1  # seconds a job took lately
        self._company, self._taken = 0, 0.0  # jobs of the last batch, and its seconds
        self._thread = Thread(target=self._work, name=f"regard-{name}", daemon=True)
        if (
            model.device.type == "cpu" and not model.labels
        ):  # on a GPU steps are recorded, and whatever else they did would be, too
            _before_each_step(model.network, self._stop_if_nobody_waits)
        self._thread.start()

    @cached_property
    def writer(self) -> Writer:
        """Writes texts, where the model is a language model."""
        return Writer(self.model.network, self.model.tokenizer, self.model.running)

    def submit(self, job: Job) -> None:
        """Put a job into the queue; raises BusyError if that is full."""
        with self._changed:
            if len(self._queue) >= self.limits.queue:
                raise BusyError(
                    f"queue: at most {so_many(self.limits.queue, 'request')} may wait for `{self.name}`, but as many "
                    "do. Try again after the seconds that Retry-After says.",
                    min(30.0, self._pace * len(self._queue)),
                )
            self._queue.append(job)
            self._changed.notify()

    def leave(self, job: Job) -> None:
        """Nobody waits for this job any more."""
        job.gone = True
        self.metrics.left(self.name)
        with self._changed:
            if job in self._queue:
                self._queue.remove(job)

    def waiting(self) -> int:
        """How many jobs wait."""
        return len(self._queue)

    def close(self) -> None:
        """Finish what was taken on, then end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._walks or self._turns or self._closed)
                if not self._queue and not self._walks and not self._turns:
                    return
                self._gather()
                jobs = self._take()
            first = self._turns.popleft() if self._turns else None  # what begins now has its first turn now
            if jobs:
                self._begin(jobs)
            for walk in list(self._walks):
                self._step(walk)
            if first is not None:
                self._turn(first)

    def _gather(self) -> None:
        """Wait a moment for others to come, if the last batch had company: who was just answered often asks again.

        Costs a small part of what a batch takes, and nothing where one client is alone or texts are being written.
        """
        if self._company < 2 or self._walks or self._turns or not isinstance(self._queue[0], Translating):
            return
        until = time.monotonic() + min(LONGEST_WAIT, WAIT * self._taken)
        there = 0
        while there < len(self._queue) < self.limits.rows and (left := until - time.monotonic()) > 0:
            there = len(self._queue)
            self._changed.wait(min(PAUSE, left))

    def _take(self) -> list[Any]:
        """The oldest job that there is room for, and those of its kind that fit into a batch with it."""
        room = self.limits.rows - sum(walk.rows for walk in self._walks)
        for first in self._queue:
            if not isinstance(first, Writing) or len(first.prompts) <= room or not self._walks:
                break
        else:
            return []
        taken: list[Any] = [first]
        if isinstance(first, Translating):
            taken += self._alike(first)
        elif isinstance(first, Writing):
            room -= len(first.prompts)
            for other in self._queue:
                if other is not first and first.can_join(other) and len(other.prompts) <= room:
                    room -= len(other.prompts)
                    taken.append(other)
        for job in taken:
            self._queue.remove(job)
            job.began = True
        return taken

    def _alike(self, first: Translating) -> list[Translating]:
        """Translations to search together with the first: those nearest in length, as many as a batch holds."""
        others = [
            job for job in self._queue
            if job is not first and isinstance(job, Translating) and job.likeness == first.likeness
        ]  # fmt: skip
        rows, longest, chosen = len(first.texts), first.longest, []
        for job in sorted(others, key=lambda job: abs(job.longest - first.longest)):
            rows, longest = rows + len(job.texts), max(longest, job.longest)
            # There are fewer tokens than characters, so this holds for tokens, too.
            if rows > self.limits.rows or rows * longest * first.search.beam > SLOTS_PER_BATCH:
                break
            chosen.append(job)
        return chosen

    def _begin(self, jobs: Sequence[Any]) -> None:
        jobs = [job for job in jobs if job.wanted]
        begin = time.monotonic()
        if jobs and isinstance(jobs[0], Translating):
            self._translate(jobs)
        elif jobs and isinstance(jobs[0], Writing):
            self._write(jobs)
        elif jobs:
            self.metrics.worked(self.name, 1)
            self._answer(jobs, lambda: [jobs[0].function(self.model)])
        if jobs:
            self._company, self._taken = len(jobs), time.monotonic() - begin
            self._pace = 0.8 * self._pace + 0.2 * self._taken / len(jobs)

    def _translate(self, jobs: Sequence[Translating]) -> None:
        texts = [text for job in jobs for text in job.texts]
        self.metrics.worked(self.name, len(texts))
        slots = SLOTS_ON_CPU if self.model.device.type == "cpu" else None
        self._turn(_Turns(jobs, self.model.translating(texts, jobs[0].search, self._count, jobs[0].options, slots)))

    def _turn(self, turns: _Turns) -> None:
        """One more batch of texts that are translated; if it is not the last, they wait for their next turn."""

        def batch() -> list[object] | None:
            try:
                next(turns.batches)
            except StopIteration as end:
                found = iter(end.value)
                return [[next(found) for _ in job.texts] for job in turns.jobs]
            self._turns.append(turns)
            return None

        if not any(job.wanted for job in turns.jobs):
            return
        if not self._answer(turns.jobs, batch):
            for job in turns.jobs:  # one of them is to blame, and answers for itself
                self._translate([job])

    def _count(self, _: int, tokens: int) -> None:
        self.metrics.wrote(self.name, tokens)

    def _answer(self, jobs: Sequence[Job], work: Callable[[], list[object] | None]) -> bool:
        """Work, and hand over one result a job, if there are any yet; False, and nothing is handed over, if several
        share an exception."""
        self._current = jobs
        try:
            results = work()
            for job, result in zip(jobs, results, strict=True) if results is not None else ():
                job.give(result)
        except NobodyWaitsError:
            pass  # whoever left needs no answer
        except Exception as error:
            if len(jobs) > 1:
                return False
            jobs[0].fail(error)
        finally:
            self._current = ()
        return True

    def _write(self, jobs: Sequence[Writing]) -> None:
        """Let texts begin; they go on in `_step`."""
        owners = [job for job in jobs for _ in job.prompts]
        self.metrics.worked(self.name, len(owners))

        def on_token(row: int, drawn: Drawn) -> bool:
            self.metrics.wrote(self.name, 1)
            owners[row].hear(drawn.token)
            return not owners[row].wanted

        prompts = [prompt for job in jobs for prompt in job.prompts]
        seeds = [seed for job in jobs for seed in job.seeds]
        steps = self.writer.writing(prompts, jobs[0].sampling, seeds, on_token)
        self._walks.append(_Walk(list(jobs), steps, len(owners)))

    def _step(self, walk: _Walk) -> None:
        """One more token for each text of a walk."""
        self._current = walk.jobs
        try:
            next(walk.steps)
            return
        except StopIteration as end:
            found = iter(end.value)
            for job in walk.jobs:
                job.end()
                job.give([next(found) for _ in job.prompts])
        except NobodyWaitsError:
            pass
        except Exception as error:
            for job in walk.jobs:
                job.fail(error)
        finally:
            self._current = ()
        self._walks.remove(walk)

    def _stop_if_nobody_waits(self) -> None:
        if current_thread() is self._thread and self._current and not any(job.wanted for job in self._current):
            raise NobodyWaitsError


def _before_each_step(network: Any, call: Callable[[], None]) -> None:
    """Have a network call something before each of its steps, whoever asks for them."""
    step = network.step

    def watched(*arguments: Any) -> Any:
        call()
        return step(*arguments)

    network.step = watched
