"""The routes of OpenAI's completions API, so that clients made for it work with a language model of one's own.

`/v1/models`, `/v1/models/ID` and `/v1/completions`. What a model here cannot do (`best_of`, `suffix`, penalties of
OpenAI's kind, `logit_bias`) is refused in a sentence, not ignored. Beyond OpenAI's fields there are `top_k`, `min_p`
and `repetition_penalty`.
"""

from __future__ import annotations

import json
import secrets
import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from regard.decoding.sampling import SamplingSettings
from regard.serve.completing import Asked, completed, streamed
from regard.serve.desk import Desk, Served
from regard.serve.limits import Limits
from regard.serve.problems import Problem

Token = Annotated[int, Field(ge=0, lt=2**31)]
Given = str | list[str] | list[Token] | list[list[Token]] | None
MOST_LOGPROBS = 20
MOST_STOPS = 16
LONGEST_STOP = 200
SEEDS = 2**53
USUAL_TOKENS = 16  # what OpenAI's API writes if nobody says


class StreamOptions(BaseModel):
    """How to stream."""

    model_config = ConfigDict(extra="forbid")

    include_usage: bool | None = None
    include_obfuscation: bool | None = Field(None, description="Ignored.")


class CompletionBody(BaseModel):
    """A prompt to go on from."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    model: str | None = Field(None, max_length=200)
    prompt: Given = ""
    n: int | None = Field(1, ge=1)
    best_of: int | None = None
    max_tokens: int | None = Field(USUAL_TOKENS, ge=0)
    temperature: float | None = Field(1.0, ge=0, le=2)
    top_p: float | None = Field(1.0, gt=0, le=1)
    top_k: int | None = Field(None, ge=0, lt=2**31)
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, gt=0, le=100)
    stop: str | list[str] | None = None
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    logprobs: int | None = Field(None, ge=0, le=MOST_LOGPROBS)
    echo: bool | None = False
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    suffix: str | None = None
    presence_penalty: float | None = 0
    frequency_penalty: float | None = 0
    logit_bias: dict[str, float] | None = None
    user: str | None = None


class OpenAIError(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIErrorAnswer(BaseModel):
    """An answer that is no result."""

    error: OpenAIError


class ModelCard(BaseModel):
    """A model of this server."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "regard"


class ModelList(BaseModel):
    """The models of this server."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": OpenAIErrorAnswer} for code in (400, 401, 403, 404, 408, 413, 422, 429, 503, 504)
}
SENT = {
    "application/json": {"schema": {"type": "object"}},
    "text/event-stream": {"schema": {"type": "string"}},
}


def router(desk: Desk, limits: Limits) -> APIRouter:
    """All routes under /v1."""
    routes = APIRouter(prefix="/v1", tags=["OpenAI"], responses=ERRORS)
    created = int(time.time())

    @routes.get("/models", summary="The models of this server")
    async def models() -> ModelList:
        return ModelList(data=[ModelCard(id=name, created=created) for name in desk.models])

    @routes.get("/models/{id}", summary="One model")
    async def model(id: str) -> ModelCard:  # noqa: A002
        return ModelCard(id=desk.find(id, "generate").id, created=created)

    @routes.post("/completions", summary="Write on from a prompt", response_class=Response,
                 responses={200: {"content": SENT}})  # fmt: skip
    async def completions(body: CompletionBody) -> Response:
        asked = _asked(desk, limits, body)
        if not body.stream:
            return Response(json.dumps(await completed(desk, asked)), media_type="application/json")
        usage = body.stream_options is not None and bool(body.stream_options.include_usage)
        return StreamingResponse(await streamed(desk, asked, usage), media_type="text/event-stream")

    return routes


def _asked(desk: Desk, limits: Limits, body: CompletionBody) -> Asked:
    """The request, checked."""
    served = desk.find(body.model, "generate")
    if served.task != "generate":
        does = "translates" if served.task == "translate" else "gives labels"
        message = f"model: must be a language model, but `{served.id}` {does}. Use /api/{served.task}, or name another."
        raise Problem(400, "usage", message, "model")
    count, most = body.n or 1, USUAL_TOKENS if body.max_tokens is None else body.max_tokens
    _refuse_what_cannot_be(body, count, most)
    limits.check_writing(most, count)
    prompts = _prompts(served, limits, body.prompt)
    limits.check(len(prompts) * count, limits.texts, "n", "texts in all")
    stops = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if len(stops) > MOST_STOPS or not all(0 < len(stop) <= LONGEST_STOP for stop in stops):
        rule = f"stop: must be at most {MOST_STOPS} texts of 1 to {LONGEST_STOP} characters, but is not. Shorten it."
        raise Problem(400, "usage", rule, "stop")
    sampling = SamplingSettings(
        temperature=1.0 if body.temperature is None else body.temperature,
        top_k=body.top_k or 0,
        top_p=1.0 if body.top_p is None else body.top_p,
        min_p=body.min_p or 0.0,
        repetition_penalty=1.0 if body.repetition_penalty is None else body.repetition_penalty,
        max_tokens=max(1, most),
        alternatives=body.logprobs or 0,
    )
    # As with OpenAI, nobody knows the seed unless it is given.
    seed = secrets.randbelow(SEEDS) if body.seed is None else body.seed % SEEDS
    return Asked(served, prompts, sampling, tuple(stops), seed, count, body.logprobs, bool(body.echo), most > 0)


def _refuse_what_cannot_be(body: CompletionBody, count: int, most: int) -> None:
    """Raise for fields of OpenAI's that mean something no model here does."""
    refused = {
        "best_of": body.best_of not in (None, count),
        "suffix": bool(body.suffix),
        "presence_penalty": bool(body.presence_penalty),
        "frequency_penalty": bool(body.frequency_penalty),
        "logit_bias": bool(body.logit_bias),
    }
    instead = {"best_of": " Ask for `n` texts with `logprobs`, and choose.",
               "presence_penalty": " Use `repetition_penalty`.",
               "frequency_penalty": " Use `repetition_penalty`."}  # fmt: skip
    for field, given in refused.items():
        if given:
            message = f"{field}: must be left out, because no model here can do that, but is given."
            raise Problem(400, "usage", message + instead.get(field, ""), field)
    if not most and not body.echo:
        raise Problem(400, "usage", "max_tokens: must be at least 1 without `echo`, but is 0.", "max_tokens")


def _prompts(served: Served, limits: Limits, given: Given) -> list[list[int]]:
    """The tokens of each prompt; a list of numbers is one prompt of tokens."""
    several: list[Any]
    if given is None or isinstance(given, str):
        several = [given or ""]
    else:
        several = [given] if given and isinstance(given[0], int) else list(given)
    if not several:
        raise Problem(400, "usage", "prompt: must be at least one, but the list is empty.", "prompt")
    limits.check_texts(len(several), "prompt")
    tokenizer = served.model.tokenizer
    found = []
    for prompt in several:
        limits.check(len(prompt), limits.text, "prompt", "characters or tokens")
        if isinstance(prompt, str):
            found.append(tokenizer.encode_lines(prompt) if served.model.running else tokenizer.encode(prompt))
            continue
        if any(token >= tokenizer.size for token in prompt):
            rule = f"prompt: tokens must be below {tokenizer.size:,}, but one is {max(prompt):,}. Use this model's own."
            raise Problem(400, "usage", rule, "prompt")
        found.append(list(prompt))
    return found
