"""The app: all routes over one desk, behind the gate."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException

from regard.errors import RegardError
from regard.serve import libretranslate, openai, own, own_labels, own_music, pages
from regard.serve.desk import Desk
from regard.serve.gate import LOOPBACK, Gate
from regard.serve.problems import Kind, Problem, body_of, broken_rule, problem_of, wrong_method, wrong_type
from regard.version import VERSION

TITLE = "Regard"
# What the framework refuses by itself, which says it in other words.
SAID: dict[int, tuple[Kind, str]] = {
    400: ("data", "body: must be JSON or a form that can be read here, but is not. Look for numbers of thousands of "
          "digits, for more than 1,000 fields or files, or for an end that is missing."),
    404: ("missing", "path: must be a route of this server, but is none. See /openapi.json for what there is."),
}  # fmt: skip


def build_app(desk: Desk, key: str | None = None, hosts: Iterable[str] = LOOPBACK) -> FastAPI:
    """An ASGI app that serves the models of a desk.

    With a key, every route but the probes and the page's files needs it. `hosts` are the names it may be called by;
    none means any.
    """

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        desk.close()

    app = FastAPI(title=TITLE, version=VERSION, docs_url=None, redoc_url=None, lifespan=life, openapi_url=None)
    app.include_router(own.router(desk, desk.limits))
    app.include_router(own_music.router(desk, desk.limits))
    app.include_router(own_labels.router(desk, desk.limits))
    app.include_router(openai.router(desk, desk.limits))
    app.include_router(libretranslate.router(desk, desk.limits))
    app.include_router(pages.router())
    _add_probes(app, desk)
    _add_descriptions(app)
    for kind in (RegardError, Problem, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _answer_error)
    app.add_middleware(Gate, desk=desk, limits=desk.limits, key=key, hosts=list(hosts))
    return app


def _add_probes(app: FastAPI, desk: Desk) -> None:
    @app.get("/livez", tags=["probes"], summary="Whether the process answers", response_class=PlainTextResponse)
    async def livez() -> Response:
        return PlainTextResponse("ok\n")

    @app.get(
        "/readyz", tags=["probes"], summary="Whether it takes requests", response_class=PlainTextResponse,
        responses={503: {"description": "It is about to end.", "content": {"text/plain": {}}}},
    )  # fmt: skip
    async def readyz() -> Response:
        return PlainTextResponse("ending\n", 503) if desk.draining else PlainTextResponse("ok\n")

    @app.get("/metrics", tags=["probes"], summary="Counts for Prometheus", response_class=PlainTextResponse)
    async def metrics() -> Response:
        return Response(desk.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_descriptions(app: FastAPI) -> None:
    """What the server can do, as OpenAPI: all of it, and its own part."""
    known: dict[str, Any] = {}

    def described(name: str, prefix: str) -> dict[str, Any]:
        if name not in known:
            whole = get_openapi(title=TITLE, version=VERSION, routes=app.routes)
            whole["paths"] = {path: item for path, item in whole["paths"].items() if path.startswith(prefix)}
            known[name] = whole
        found: dict[str, Any] = known[name]
        return found

    @app.get("/openapi.json", include_in_schema=False)
    async def everything() -> Response:
        return JSONResponse(described("all", "/"))

    @app.get("/api/openapi.json", include_in_schema=False)
    async def own_part() -> Response:
        return JSONResponse(described("own", "/api/"))


async def _answer_error(request: Request, error: Exception) -> Response:
    problem = _problem(request, error)
    # In ASCII: a message may name what no encoding can hold.
    body = json.dumps(body_of(problem, request.url.path))
    return Response(body, problem.status, problem.headers, "application/json")


def _problem(request: Request, error: Exception) -> Problem:
    if isinstance(error, RequestValidationError):
        found = error.errors()
        if isinstance(found[0].get("input"), bytes):  # nobody read it, because nobody said that it is JSON
            return wrong_type(request.headers.get("content-type"), str(request.url.replace(query="")))
        return broken_rule(found, 422, error.body)
    if isinstance(error, HTTPException):
        if error.status_code == 405:
            return wrong_method(request.method, error.headers)
        kind, message = SAID.get(error.status_code, SAID[400])
        return Problem(error.status_code, kind, message, headers=error.headers)
    return problem_of(error)
