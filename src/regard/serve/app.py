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
from regard.serve import libretranslate, openai, own, own_music, pages
from regard.serve.desk import Desk
from regard.serve.gate import LOOPBACK, Gate
from regard.serve.problems import Kind, Problem, body_of, problem_of
from regard.version import VERSION

TITLE = "Regard"


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
    problem = _problem(error)
    # In ASCII: a message may name what no encoding can hold.
    body = json.dumps(body_of(problem, request.url.path))
    return Response(body, problem.status, problem.headers, "application/json")


def _problem(error: Exception) -> Problem:
    if isinstance(error, RequestValidationError):
        return _invalid(error)
    if isinstance(error, HTTPException):
        kind: Kind = "missing" if error.status_code == 404 else "usage"
        return Problem(error.status_code, kind, f"{error.detail}. See /openapi.json for what there is.",
                       headers=error.headers)  # fmt: skip
    return problem_of(error)


def _invalid(error: RequestValidationError) -> Problem:
    """The first thing that is wrong with a body; its value is not repeated, because it may be anything."""
    first = error.errors()[0]
    place = [str(part) for part in first["loc"] if part not in ("body", "query", "path")]
    field = ".".join(place)[:100] or None
    if first["type"] == "json_invalid":
        return Problem(400, "data", "body: must be JSON, but is not. Send an object with the fields of this route.")
    return Problem(422, "usage", f"{field or 'body'}: {first['msg'][:200]}. See /openapi.json for its rule.", field)
