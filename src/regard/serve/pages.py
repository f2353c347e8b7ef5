"""The page and its files, from memory: a path is looked up in a table, and never on the disk."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from regard.serve.problems import Problem

TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
    "png": "image/png",
    "ico": "image/x-icon",
    "txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True)
class File:
    """A file of the page."""

    content: bytes
    media_type: str
    tag: str


@cache
def files() -> dict[str, File]:
    """All files of the page, by their path below it."""
    found: dict[str, File] = {}
    folders = [("", resources.files("regard.serve").joinpath("page"))]
    for before, folder in folders:
        if not folder.is_dir():
            continue
        for entry in folder.iterdir():
            if entry.is_dir():
                folders.append((f"{before}{entry.name}/", entry))
            elif (suffix := entry.name.rpartition(".")[2]) in TYPES:
                content = entry.read_bytes()
                tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
                found[f"{before}{entry.name}"] = File(content, TYPES[suffix], tag)
    return found


def router() -> APIRouter:
    """`/` and `/page/…`."""
    routes = APIRouter(include_in_schema=False)

    @routes.api_route("/", methods=["GET", "HEAD"])
    async def index(request: Request) -> Response:
        return _answer("index.html", request.headers.get("if-none-match"))

    @routes.api_route("/page", methods=["GET", "HEAD"])
    @routes.api_route("/page/", methods=["GET", "HEAD"])
    async def folder() -> Response:
        return RedirectResponse("/", 308)

    @routes.api_route("/page/{path:path}", methods=["GET", "HEAD"])
    async def file(path: str, request: Request) -> Response:
        return _answer(path, request.headers.get("if-none-match"))

    @routes.api_route("/favicon.ico", methods=["GET", "HEAD"])
    async def icon(request: Request) -> Response:
        return _answer("icon.svg", request.headers.get("if-none-match"))

    return routes


def _answer(path: str, known: str | None) -> Response:
    file = files().get(path)
    if file is None:
        raise Problem(404, "missing", "page: must be a file of the page, but there is none of this name.")
    # Asked for each time, and sent only when it changed: a page never mixes files of two versions.
    headers = {"etag": file.tag, "cache-control": "no-cache"}
    if known is not None and file.tag in known:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)
