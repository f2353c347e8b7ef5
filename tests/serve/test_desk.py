"""The desk: answers do not depend on company, nobody waits for ever, nobody works for nobody."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regard.api import Model, Options, Wishes, load
from regard.decoding.sampling import SamplingSettings
from regard.decoding.search import SearchSettings
from regard.errors import MissingError, UsageError
from regard.serve.desk import Desk
from regard.serve.limits import Limits
from regard.serve.problems import BusyError, LateError
from regard.serve.worker import Translating, _Turns
from tests.tiny import ENGLISH, GERMAN, language_model


@pytest.fixture(scope="module")
def words(words_model: Path) -> Model:
    return load(words_model)


@pytest.fixture(scope="module")
def babble(babbling_model: Path) -> Model:
    return load(babbling_model)


@pytest.fixture
def opened() -> Iterator[Callable[..., Desk]]:
    desks: list[Desk] = []

    def make(models: dict[str, Model], **limits: Any) -> Desk:
        desks.append(Desk(models, Limits(**limits)))
        return desks[-1]

    yield make
    for desk in desks:
        desk.close()


def batches(desk: Desk, model: str) -> list[int]:
    """How often the model worked on 1, 2, 4, … texts at a time."""
    return desk.metrics._rows[(("model", model),)].counts


class Blocked:
    """Keeps a worker busy while the block runs, so that what is asked meanwhile has to wait."""

    def __init__(self, desk: Desk, model: str) -> None:
        self.desk, self.model, self.free, self.here = desk, model, threading.Event(), threading.Event()

    async def __aenter__(self) -> None:
        def hold(_: Model) -> None:
            self.here.set()
            assert self.free.wait(20)

        self.task = asyncio.ensure_future(self.desk.run(self.model, hold))
        while not self.here.is_set():
            await asyncio.sleep(0.001)

    async def __aexit__(self, *_: object) -> None:
        self.free.set()
        await self.task


async def waiting(desk: Desk, model: str, count: int) -> None:
    while desk.models[model].worker.waiting() < count:
        await asyncio.sleep(0.001)


def test_translations_that_wait_share_a_batch_and_are_what_they_would_be_alone(
    words: Model, opened: Callable[..., Desk]
) -> None:
    texts = [" ".join(ENGLISH[first : first + 1 + first % 4]) for first in range(13)]
    alone = [words.translations([text])[0] for text in texts]
    desk = opened({"words": words})

    async def ask() -> list[Any]:
        async with Blocked(desk, "words"):
            tasks = [asyncio.ensure_future(desk.translate("words", [text])) for text in texts]
            await waiting(desk, "words", len(texts))
        return [found[0] for found in await asyncio.gather(*tasks)]

    together = asyncio.run(ask())
    for mine, theirs in zip(together, alone, strict=True):
        assert [each.text for each in mine] == [each.text for each in theirs]
        assert mine[0].score == pytest.approx(theirs[0].score, abs=1e-5)
    assert batches(desk, "words")[4] == 1  # nine to sixteen texts at a time, once


def test_what_is_searched_differently_does_not_share_a_batch(words: Model, opened: Callable[..., Desk]) -> None:
    desk = opened({"words": words})
    wide, aligned = SearchSettings(beam=5, nbest=3), Options(alignment=True)

    async def ask() -> list[Any]:
        async with Blocked(desk, "words"):
            tasks = [
                asyncio.ensure_future(desk.translate("words", ["two", "nine"], wide)),
                asyncio.ensure_future(desk.translate("words", ["two"], None, aligned)),
                asyncio.ensure_future(desk.translate("words", ["nine"])),
            ]
            await waiting(desk, "words", 3)
        return await asyncio.gather(*tasks)

    several, linked, plain = asyncio.run(ask())
    assert [len(found) for found in several] == [3, 3]
    assert [found[0].text for found in several] == ["zwei", "neun"]
    assert linked[0][0].alignment
    assert not plain[0][0].alignment
    assert plain[0][0].text == "neun"
    assert sum(batches(desk, "words")) == 4  # the blocking one, and three


def test_a_bad_request_spoils_nobody_elses_answer(words: Model, opened: Callable[..., Desk]) -> None:
    desk = opened({"words": words})

    # There is no room for these words in the translation of a short text.
    options = Options(wishes=Wishes(prefix="eins", required=("vier", "fünf", "sechs")))
    search = SearchSettings(extra_length=0)

    async def ask() -> list[Any]:
        async with Blocked(desk, "words"):
            tasks = [
                asyncio.ensure_future(desk.translate("words", [text], search, options))
                for text in ("two", "two three four five six seven")
            ]
            await waiting(desk, "words", 2)
        return await asyncio.gather(*tasks, return_exceptions=True)

    short, long = asyncio.run(ask())
    assert isinstance(short, UsageError)
    assert long[0][0].text.startswith("eins")
    assert "fünf" in long[0][0].text


def test_many_texts_go_in_parts_and_come_back_in_order(words: Model, opened: Callable[..., Desk]) -> None:
    desk = opened({"words": words}, rows=4)
    found = asyncio.run(desk.translate("words", ENGLISH))
    assert [each[0].text for each in found] == GERMAN
    assert sum(batches(desk, "words")) == 4


def test_a_long_text_lets_others_go_first(
    words: Model, opened: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no break, and takes many batches; whoever comes after it has to wait for one of them."""
    monkeypatch.setattr("regard.serve.worker.SLOTS_ON_CPU", 300)
    desk = opened({"words": words})
    text, answered = "x" * 2_000, list[str]()

    async def ask() -> list[Any]:
        async def one(name: str, text: str, options: Options) -> Any:
            found = await desk.translate("words", [text], None, options)
            answered.append(name)
            return found[0][0].text

        async with Blocked(desk, "words"):
            long = asyncio.ensure_future(one("long", text, Options()))
            await waiting(desk, "words", 1)
            short = asyncio.ensure_future(one("short", "two", Options(alignment=True)))
            await waiting(desk, "words", 2)
        return await asyncio.gather(long, short)

    long, short = asyncio.run(ask())
    assert answered == ["short", "long"]
    assert (long, short) == (words.translate([text])[0], "zwei")


def test_a_long_text_that_nobody_waits_for_gets_no_turn(words: Model, opened: Callable[..., Desk]) -> None:
    worker, taken = opened({"words": words}).models["words"].worker, list[int]()

    async def turn(gone: bool) -> None:
        job = Translating(60, ["two"], SearchSettings(), Options())
        job.gone = gone
        worker._turn(_Turns([job], iter(map(taken.append, [1]))))  # type: ignore[arg-type]

    asyncio.run(turn(gone=True))
    assert not taken
    asyncio.run(turn(gone=False))
    assert taken


def test_texts_written_together_are_what_they_would_be_alone(babble: Model, opened: Callable[..., Desk]) -> None:
    desk = opened({"babble": babble})
    sampling = SamplingSettings(max_tokens=12, top_k=20)
    asked = [("one", 3, 2), ("", 9, 1), ("seven eight", 3, 3)]
    alone = [babble.generations([prompt], sampling, seed, count)[0] for prompt, seed, count in asked]

    async def ask() -> list[Any]:
        async with Blocked(desk, "babble"):
            tasks = [
                asyncio.ensure_future(desk.generate("babble", [prompt], sampling, seed, count))
                for prompt, seed, count in asked
            ]
            await waiting(desk, "babble", 3)
        return [found[0] for found in await asyncio.gather(*tasks)]

    assert [[each.text for each in some] for some in asyncio.run(ask())] == [
        [each.text for each in some] for some in alone
    ]
    assert batches(desk, "babble")[3] == 1  # five to eight texts at a time, once


def test_prompts_may_be_tokens_of_the_vocabulary(babble: Model, opened: Callable[..., Desk]) -> None:
    desk = opened({"babble": babble})
    sampling = SamplingSettings(max_tokens=5)
    ids = babble.tokenizer.encode("two")
    ((found,),) = asyncio.run(desk.generate("babble", [ids], sampling))
    assert found.text == babble.generate(["two"], sampling)[0]
    with pytest.raises(UsageError, match="from 0 to"):
        asyncio.run(desk.generate("babble", [[1, 10**9]], sampling))


def test_a_stream_is_the_text_and_streams_take_turns(babble: Model, opened: Callable[..., Desk]) -> None:
    desk = opened({"babble": babble})
    sampling = SamplingSettings(max_tokens=40, temperature=0.8)
    alone = [babble.generate([""], sampling, seed)[0] for seed in range(3)]
    order: list[int] = []

    async def listen(number: int) -> str:
        pieces = []
        stream = desk.stream("babble", "", sampling, number)
        async for piece in stream:
            pieces.append(piece)
            order.append(number)
        assert stream.generation is not None
        assert stream.generation.finish_reason in ("end", "length")
        return "".join(pieces)

    async def ask() -> list[str]:
        async with Blocked(desk, "babble"):
            tasks = [asyncio.ensure_future(listen(number)) for number in range(3)]
            await waiting(desk, "babble", 3)
        return list(await asyncio.gather(*tasks))

    assert asyncio.run(ask()) == alone
    # Nobody heard the whole text before others heard anything.
    assert set(order[: len(order) // 2]) == {0, 1, 2}


def test_other_requests_get_a_turn_while_a_long_text_is_written(babble: Model, opened: Callable[..., Desk]) -> None:
    desk = opened({"babble": babble})

    async def ask() -> tuple[int, bool]:
        stream = desk.stream("babble", "", SamplingSettings(max_tokens=100_000, temperature=2.0))
        await anext(stream)
        vocabulary = await desk.run("babble", lambda model: model.tokenizer.size)
        unfinished = not stream._job.answer.done()
        stream.close()
        return vocabulary, unfinished

    assert asyncio.run(ask()) == (babble.tokenizer.size, True)


async def _stops(work: Awaitable[Any], desk: Desk, model: str) -> float:
    """Leave after a moment; the seconds until the worker is free again."""
    task = asyncio.ensure_future(work)
    while not desk.models[model].worker._current:
        await asyncio.sleep(0.001)
    task.cancel()
    begin = time.monotonic()
    await desk.run(model, lambda _: None)
    return time.monotonic() - begin


def test_who_leaves_stops_the_model(words: Model, babble: Model, opened: Callable[..., Desk]) -> None:
    desk = opened({"words": words, "babble": babble}, deadline=600)
    endless = SamplingSettings(max_tokens=10**6)
    long = SearchSettings(beam=4, min_length=100_000, extra_length=100_000)  # hours
    assert asyncio.run(_stops(desk.generate("babble", [""], endless), desk, "babble")) < 5
    assert asyncio.run(_stops(desk.translate("words", ["two"], long), desk, "words")) < 5


def test_running_text_goes_on_after_a_line_that_ends_at_once(
    babble: Model, tmp_path: Path, opened: Callable[..., Desk]
) -> None:
    running = load(language_model(tmp_path / "running", ["batch={layout='blocks', tokens=512, row=32}"]))
    sampling = SamplingSettings(max_tokens=12)
    (texts,) = babble.generations(["one"], sampling, count=1_000)
    seed = 1 + [found.finish_reason == "end" and found.text == "" for found in texts].index(True)
    desk = opened({"running": running})

    async def ask() -> tuple[str, str]:
        pieces = [piece async for piece in desk.stream("running", "one", sampling, seed)]
        ((found,),) = await desk.generate("running", ["one"], sampling, seed)
        return "".join(pieces), found.text

    (wanted,) = running.generate(["one"], sampling, seed)
    assert wanted.startswith("\n")
    assert asyncio.run(ask()) == (wanted, wanted)


def test_a_closed_stream_stops_the_model(babble: Model, opened: Callable[..., Desk]) -> None:
    desk = opened({"babble": babble})

    async def ask() -> None:
        stream = desk.stream("babble", "", SamplingSettings(max_tokens=10**6, temperature=3.0))
        await anext(stream)
        stream.close()
        while desk.models["babble"].worker._walks:
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(ask(), 10))


def test_who_leaves_the_queue_is_never_worked_for(words: Model, opened: Callable[..., Desk]) -> None:
    desk = opened({"words": words})
    asked: list[int] = []

    async def ask() -> None:
        async with Blocked(desk, "words"):
            task = asyncio.ensure_future(desk.run("words", lambda _: asked.append(1)))
            await waiting(desk, "words", 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert desk.models["words"].worker.waiting() == 0

    asyncio.run(ask())
    assert not asked


def test_a_full_queue_says_when_to_come_again(words: Model, opened: Callable[..., Desk]) -> None:
    desk = opened({"words": words}, queue=2)

    async def ask() -> BusyError:
        async with Blocked(desk, "words"):
            tasks = [asyncio.ensure_future(desk.translate("words", ["two"])) for _ in range(2)]
            await waiting(desk, "words", 2)
            with pytest.raises(BusyError) as raised:
                await desk.translate("words", ["two"])
        await asyncio.gather(*tasks)
        return raised.value

    assert int(asyncio.run(ask()).headers["retry-after"]) >= 1


def test_deadlines_pass_in_the_queue_and_at_work(words: Model, opened: Callable[..., Desk]) -> None:
    desk = opened({"words": words}, deadline=0.2)
    long = SearchSettings(beam=4, min_length=100_000, extra_length=100_000)

    async def ask() -> tuple[LateError, LateError]:
        with pytest.raises(LateError) as working:
            await desk.translate("words", ["two"], long)
        free = threading.Event()
        holding = asyncio.ensure_future(desk.run("words", lambda _: free.wait(10)))
        await asyncio.sleep(0.05)
        with pytest.raises(LateError) as queued:
            await desk.translate("words", ["two"])
        free.set()
        with pytest.raises(LateError):
            await holding
        return queued.value, working.value

    queued, working = asyncio.run(ask())
    assert (queued.status, working.status) == (503, 504)
    assert asyncio.run(desk.translate("words", ["two"]))[0][0].text == "zwei"


def test_an_exception_reaches_whoever_asked_and_nobody_else(words: Model, opened: Callable[..., Desk]) -> None:
    desk = opened({"words": words})

    def broken(_: Model) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(desk.run("words", broken))
    assert asyncio.run(desk.translate("words", ["six"]))[0][0].text == "sechs"


def test_models_are_found_by_name_or_by_what_they_do(words: Model, babble: Model, opened: Callable[..., Desk]) -> None:
    desk = opened({"words": words, "babble": babble})
    assert desk.find(None).id == "words"
    assert desk.find(None, "generate").id == "babble"
    with pytest.raises(MissingError, match="`words`, `babble`"):
        desk.find("nobody")
    with pytest.raises(UsageError, match="language model"):
        asyncio.run(desk.generate("words", ["x"]))
    with pytest.raises(UsageError, match="translates"):
        asyncio.run(desk.translate("babble", ["x"]))
