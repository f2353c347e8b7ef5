"""The own API, under /api: what the page asks, and whoever else likes JSON.

Most routes are a function of `regard.exploring`, run in the model's thread. Its answers are plain values already, so
they are sent as they are; the classes of `answers` describe them.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, Protocol

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from regard.api import Model, Options, Wishes
from regard.decoding.sampling import SamplingSettings
from regard.decoding.search import SearchSettings
from regard.errors import UsageError
from regard.exploring import attention, beam, following, inside, pictures, vectors, walk
from regard.exploring.sentences import Tongue
from regard.serve import answers, bodies
from regard.serve.desk import Desk, Served, Stream
from regard.serve.files import add_documents, as_file
from regard.serve.limits import Limits
from regard.serve.papers import translate_text
from regard.serve.problems import body_of, problem_of
from regard.version import VERSION

KEPT = 4  # texts whose attention is kept for each model, each of 64 MB at most
ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": answers.ErrorAnswer, "description": what}
    for code, what in {
        400: "What is asked for cannot be done.",
        401: "The key is missing or wrong.",
        403: "Another page asks, or the server is called by a name that is not its own.",
        404: "There is no such model.",
        408: "The request came too slowly.",
        413: "More than this server allows.",
        422: "A field is missing or breaks its rule.",
        429: "Too many requests wait; Retry-After says when to come again.",
        503: "No model was free in time, or the server is about to end.",
        504: "The answer was not ready in time.",
    }.items()
}

EVENTS = {"text/event-stream": {"schema": {"type": "object", "properties": {"data": {"type": "string"}}}}}


class _Plain(Protocol):
    """What exploring gives."""

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        ...


def router(desk: Desk, limits: Limits) -> APIRouter:
    """All routes under /api."""
    routes = APIRouter(prefix="/api", tags=["own"], responses=ERRORS)
    _add_models(routes, desk, limits)
    _add_translating(routes, desk, limits)
    _add_looking(routes, desk, limits)
    _add_writing(routes, desk, limits)
    _add_showing(routes, desk, limits)
    add_documents(routes, desk, limits)
    return routes


def _add_models(routes: APIRouter, desk: Desk, limits: Limits) -> None:
    @routes.get("/models", summary="The models of this server", responses=_gives(answers.ModelsAnswer))
    async def models() -> Response:
        most = {name: getattr(limits, name) for name in answers.LimitsAnswer.model_fields}
        # From what is known without asking the models: no queue, no waiting.
        listed = [served.model.summary(served.id).to_json() for served in desk.models.values()]
        return _json({"models": listed, "default": next(iter(desk.models)), "limits": most, "version": VERSION})

    kept = {name: _Once(served) for name, served in desk.models.items()}

    @routes.get("/models/{id}/inside", summary="All about a model", responses=_gives(answers.InsideAnswer))
    async def about(id: str, tongue: Tongue = "en") -> Response:  # noqa: A002
        return _json(await kept[desk.find(id).id].about(desk, tongue))


def _add_translating(routes: APIRouter, desk: Desk, limits: Limits) -> None:
    @routes.post("/translate", summary="Translate a text", responses=_gives(answers.TranslateAnswer))
    async def translate(body: bodies.TranslateBody) -> Response:
        begin = time.monotonic()
        limits.check_text(body.text)
        served = desk.find(body.model, "translate")
        _check_length(served, limits, prefix=body.prefix)
        search = _search(served, limits, body.beam, body.alpha, body.nbest)
        wishes = Wishes(body.prefix) if body.prefix else None
        options = Options(language=body.language, alignment=True, wishes=wishes)
        async with desk.in_time():
            told = await translate_text(desk, served, body.text, search, options)
        found, best = told.translations, told.translations[0]
        return _json({
            "translations": [{"text": each.text, "score": each.score, "tokens": each.tokens} for each in found],
            "segments": [{"source": source, "text": each.text, "score": each.score} for source, each in told.segments],
            "source_tokens": best.source_tokens,
            "alignment": best.alignment,
            "flags": best.flags,
            "milliseconds": round(1000 * (time.monotonic() - begin)),
        })  # fmt: skip

    @routes.post(
        "/alternatives", summary="What else could follow a beginning", responses=_gives(answers.AlternativesAnswer)
    )
    async def alternatives(body: bodies.AlternativesBody) -> Response:
        served = desk.find(body.model, "translate")
        _check_length(served, limits, text=body.text, prefix=body.prefix)
        return await _asked(
            desk, served,
            lambda model: following.alternatives(model, body.text, body.prefix, body.count, body.language),
        )  # fmt: skip

    @routes.post("/beam", summary="The tree that a search grows", responses=_gives(answers.BeamAnswer))
    async def tree(body: bodies.BeamBody) -> Response:
        served = desk.find(body.model, "translate")
        _check_length(served, limits, text=body.text)
        limits.check_search(body.beam or 1, 1)
        return await _asked(
            desk, served,
            lambda model: beam.grow(model, body.text, body.beam, body.alpha, body.language),
        )  # fmt: skip


def _add_looking(routes: APIRouter, desk: Desk, limits: Limits) -> None:
    looks = {name: _Looks() for name in desk.models}

    @routes.post("/attention", summary="All heads in numbers", responses=_gives(answers.AttentionAnswer))
    async def summaries(body: bodies.LookBody) -> Response:
        served = _found(desk, limits, body)
        return await _asked(desk, served, lambda model: looks[served.id].at(model, body))

    @routes.post("/attention/head", summary="The weights of one head", responses=_gives(answers.HeadAnswer))
    async def head(body: bodies.HeadBody) -> Response:
        served = _found(desk, limits, body)

        def weights(model: Model) -> dict[str, Any]:
            return looks[served.id].at(model, body).head_json(body.name, body.layer, body.head)

        return _json(await desk.run(served.id, weights))

    @routes.post("/tokens", summary="How likely each token is", responses=_gives(answers.TokensAnswer))
    async def tokens(body: bodies.LookBody) -> Response:
        served, most = desk.find(body.model), limits.look
        if served.task == "generate":  # only the end of a long text is read
            limits.check_text(body.text)
        else:
            _found(desk, limits, body)
        return await _asked(
            desk, served,
            lambda model: following.along(model, body.text, body.target, body.language, most),
        )  # fmt: skip

    @routes.post("/walk", summary="One layer, step by step", responses=_gives(answers.WalkAnswer))
    async def steps(body: bodies.WalkBody) -> Response:
        served = _found(desk, limits, body)
        return await _asked(
            desk, served,
            lambda model: replace(
                walk.walk(
                    model, body.text, body.target, body.stack, body.layer, body.head, body.position, body.language
                ),
                tongue=body.tongue,
            ),
        )  # fmt: skip


def _add_writing(routes: APIRouter, desk: Desk, limits: Limits) -> None:
    @routes.post("/next", summary="The likeliest next tokens", responses=_gives(answers.NextAnswer))
    async def tokens(body: bodies.NextBody) -> Response:
        limits.check_text(body.text)
        sampling = SamplingSettings(body.temperature, body.top_k, body.top_p)
        return await _asked(
            desk, desk.find(body.model, "generate"),
            lambda model: following.next_tokens(model, body.text, sampling, body.count),
        )  # fmt: skip

    @routes.post(
        "/generate", summary="Write on from a text",
        responses=_gives(answers.GenerateAnswer, EVENTS),
    )  # fmt: skip
    async def generate(body: bodies.GenerateBody) -> Response:
        limits.check_text(body.text)
        most = min(200, limits.tokens) if body.max_tokens is None else body.max_tokens
        limits.check_writing(most)
        sampling = SamplingSettings(body.temperature, body.top_k, body.top_p, max_tokens=most, lines=body.lines)
        if body.stream:
            events = _events(desk.stream(body.model, body.text, sampling, body.seed), body.seed)
            return StreamingResponse(events, media_type="text/event-stream")
        ((found,),) = await desk.generate(body.model, [body.text], sampling, body.seed)
        return _json({"text": found.text, "finish_reason": found.finish_reason, "seed": body.seed})


def _add_showing(routes: APIRouter, desk: Desk, limits: Limits) -> None:
    @routes.post("/positions", summary="How positions are told apart", responses=_gives(answers.PositionsAnswer))
    async def positions(body: bodies.PositionsBody) -> Response:
        return await _asked(
            desk,
            desk.find(body.model),
            lambda model: vectors.positions(model, body.length, body.dimensions, body.tongue),
        )

    @routes.post("/neighbours", summary="Words near a word", responses=_gives(answers.NeighboursAnswer))
    async def neighbours(body: bodies.NeighboursBody) -> Response:
        limits.check_text(body.text)
        return await _asked(desk, desk.find(body.model), lambda model: vectors.neighbours(model, body.text, body.count))

    @routes.post(
        "/picture", summary="A picture as a file", response_class=Response,
        responses={200: {"description": "The picture.", "content": {"image/svg+xml": {}, "text/html": {}}}},
    )  # fmt: skip
    async def picture(body: bodies.PictureBody) -> Response:
        served = _found(desk, limits, body)
        limits.check_search(body.beam or 1, 1)

        def draw(model: Model) -> str:
            asked = pictures.Asked(
                body.text, body.target, body.language, body.name, body.layer, body.head, body.beam, body.alpha
            )
            shown = pictures.draw(model, body.what, asked, served.folder)
            return shown.to_svg() if body.format == "svg" else shown.to_html()

        drawn = await desk.run(served.id, draw)
        media_type = "image/svg+xml" if body.format == "svg" else "text/html"
        return Response(drawn, media_type=media_type, headers=as_file(f"{body.what}.{body.format}"))


class _Once:
    """All about a model, computed when somebody first asks: it takes a second or two, and does not change."""

    def __init__(self, served: Served) -> None:
        self._served, self._lock = served, asyncio.Lock()
        self._known: dict[Tongue, dict[str, Any]] = {}

    async def about(self, desk: Desk, tongue: Tongue) -> dict[str, Any]:
        """As plain values, with a picture of the wiring in this language."""
        async with self._lock:
            if tongue not in self._known:
                folder = self._served.folder
                self._known[tongue] = await desk.run(
                    self._served.id, lambda model: inside.inside(model, folder, tongue).to_json()
                )
            return self._known[tongue]


class _Looks:
    """The last few texts a model was looked at with; used in the model's own thread alone."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str | None, str | None], attention.Looked] = OrderedDict()

    def at(self, model: Model, body: bodies.LookBody) -> attention.Looked:
        """The attention of a text, from before or made now."""
        asked = (body.text, body.target, body.language)
        looked = self._kept.get(asked)
        if looked is None:
            looked = attention.look(model, body.text, body.target, body.language)
        # Whoever asks for a head next names what was read, and the target that was found.
        self._kept[asked] = self._kept[looked.source or body.text, looked.target, body.language] = looked
        self._kept.move_to_end(asked)
        while len({id(each) for each in self._kept.values()}) > KEPT:
            self._kept.popitem(last=False)
        return looked


def _gives(answer: type[Any], content: dict[str, Any] | None = None) -> dict[int | str, dict[str, Any]]:
    return {200: {"model": answer, **({"content": content} if content else {})}}


def _json(value: object) -> Response:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text, media_type="application/json")


async def _asked(desk: Desk, served: Served, function: Callable[[Model], _Plain]) -> Response:
    return _json(await desk.run(served.id, lambda model: function(model).to_json()))


def _found(desk: Desk, limits: Limits, body: bodies.LookBody) -> Served:
    served = desk.find(body.model)
    _check_length(served, limits, text=body.text, target=body.target or "")
    return served


def _check_length(served: Served, limits: Limits, **texts: str) -> None:
    """Raise LimitError for a text that is too long to be looked at."""
    for field, text in texts.items():
        limits.check_text(text, field)
        tokenizer = served.model.tokenizer
        tokens = (tokenizer.source if field == "text" and served.task == "translate" else tokenizer).encode(text)
        limits.check(len(tokens), limits.look, field, "tokens")


def _search(
    served: Served, limits: Limits, beams: int | None, alpha: float | None, nbest: int | None
) -> SearchSettings:
    """The model's own way to search, changed by what is asked for; who asks for more translations than beams gets as
    many beams."""
    search = served.model.recipe.search
    nbest = search.nbest if nbest is None else nbest
    width = max(search.beam, nbest) if beams is None else beams
    limits.check_search(width, nbest)
    groups = search.groups if width % search.groups == 0 else 1
    try:
        return replace(search, beam=width, nbest=nbest, alpha=search.alpha if alpha is None else alpha, groups=groups)
    except ValueError as error:
        raise UsageError(f"translate: {error}.") from error


async def _events(stream: Stream, seed: int) -> AsyncIterator[str]:
    """A text as server-sent events; closing it stops the model."""
    try:
        async for piece in stream:
            yield _event({"text": piece})
        assert stream.generation is not None
        yield _event({"done": True, "finish_reason": stream.generation.finish_reason, "seed": seed})
    except Exception as error:  # the status is sent already, so the last event says it
        yield _event(body_of(problem_of(error), "/api/generate"))
    finally:
        stream.close()


def _event(value: object) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
