"""What every request passes before a route sees it, and every answer before it leaves.

In this order: the name the server was called by, the page that asks, the key, the body, the number of requests. A
request is here as a whole before it counts as one and a route begins, so a slow sender holds a buffer and nothing else;
where too many send at a time, the slowest is left. While the route works, the gate watches the connection: when the
client goes, the route's task is cancelled, and with it what it asked the desk.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.serve.desk import Desk
from regard.serve.limits import Limits
from regard.serve.problems import BusyError, LimitError, Problem, body_of, problem_of

LOOPBACK = ("localhost", "127.0.0.1", "::1")
PROBES = ("/livez", "/readyz")
WITHOUT_KEY = ("/", "/favicon.ico", "/page")  # the page itself, which asks for the key
PAGE = "/page/"
GONE = 499  # what counts for a client that left before its answer
MOST_HEAD = 32_768  # bytes of an address and its headers
UPLOADS = ("/api/documents", "/translate_file")
LAST_WORDS = 2.0  # seconds, and
LAST_BYTES = 2**24  # bytes, for which a request that is too large is heard out, so that its sender hears the answer
HEADERS = {
    "content-security-policy": (
        "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
# One that does not end goes to the end of the body: otherwise each quote in it would be tried anew, in square time.
STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
KEY_FIELD = re.compile(rb'name="api_key"\r\n\r\n([^\r\n]*)\r\n')
log = logging.getLogger("regard.serve")


class Gate:
    """An ASGI app around another."""

    def __init__(self, app: ASGIApp, desk: Desk, limits: Limits, key: str | None, hosts: Iterable[str]) -> None:
        self.app, self.desk, self.limits, self.key = app, desk, limits, key
        self.hosts = {host.lower() for host in hosts}  # none: any name will do
        self.inside = 0
        self.known, self.strangers = _Arrivals(limits.arriving), _Arrivals(limits.strangers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer it here."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        visit = _Visit(scope, send, self.limits.patience, self.desk)
        begin = time.monotonic()
        try:
            await self._handle(scope, receive, visit)
        except _GoneError:
            visit.status = GONE
        except _TooLargeError as error:
            await visit.fail(error, lambda: _hear_out(receive))
        except Exception as error:
            await visit.fail(error)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.desk.metrics.answered(route, visit.status, time.monotonic() - begin)

    async def _handle(self, scope: Scope, receive: Receive, visit: _Visit) -> None:
        headers = Headers(scope=scope)
        path = scope["path"]
        _check_head(scope)
        self._check_host(headers)
        _check_origin(headers, scope["method"])
        if path in PROBES:
            await self.app(scope, receive, visit.send)
            return
        if self.desk.draining:
            raise Problem(503, "busy", "the server is about to end, and takes no new requests.",
                          headers={"connection": "close", "retry-after": "5"})  # fmt: skip
        open_to_all = self.key is None or path in WITHOUT_KEY or path.startswith(PAGE)
        known = open_to_all or self._is_key(_bearer(headers))
        if not known and not _may_hold_key(path, headers):
            raise _wrong_key()
        body = await self._body(scope, headers, receive, self.known if known else self.strangers)
        if not known and not self._is_key(_key_in(headers, body)):
            raise _wrong_key()
        if self.inside >= self.limits.requests:
            raise BusyError(f"requests: at most {self.limits.requests} are handled at a time, but as many are.", 1)
        self.inside += 1
        try:
            await _while_there(self.app, scope, body, receive, visit.send)
        finally:
            self.inside -= 1

    def _check_host(self, headers: Headers) -> None:
        """A page elsewhere may give its own name our address, and ask us as if we were its server (DNS rebinding)."""
        if len(headers.getlist("host")) > 1:
            raise Problem(400, "usage", "Host: must be given once, but is given several times.")
        name = _name_in(headers.get("host", ""))
        if self.hosts and (name is None or name not in self.hosts):
            raise Problem(
                403, "usage", "Host: must be a name of this server, but is another. Use the address it printed, or "
                "start it with --allow-host NAME.",
            )  # fmt: skip

    def _is_key(self, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(
            # JSON can write half a character, which is in no key.
            given.encode(errors="surrogatepass"), (self.key or "").encode(errors="surrogatepass")
        )  # fmt: skip

    async def _body(self, scope: Scope, headers: Headers, receive: Receive, arrivals: _Arrivals) -> bytes:
        """The whole body, if it comes in time and is not too large."""
        most = self.limits.body
        if scope["path"] in UPLOADS and headers.get("content-type", "").startswith("multipart/form-data"):
            most = self.limits.file
        announced = headers.get("content-length", "0")
        if announced.isdecimal() and len(announced) < 20 and int(announced) > most:
            raise _TooLargeError(most)
        parts, size = [], 0
        try:
            async with arrivals.one(self.limits.patience):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _GoneError
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        raise _TooLargeError(most)
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            raise Problem(
                408, "limit", f"body: must be here within {self.limits.patience:g} seconds, and sooner while many "
                "send at a time, but is not. Send it again, all at once.",
                headers={"connection": "close"},
            ) from None  # fmt: skip
        body = b"".join(parts)
        _check_shape(headers.get("content-type", ""), body, self.limits)
        return body


class _Arrivals:
    """Bodies that are on their way, so many at most: one more, and the one that has taken longest is given up.

    Who sends a body at once is done before it is the one. So whoever sends slowly, on however many connections, is in
    the way of nobody but others like himself.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._clocks: list[asyncio.Timeout] = []  # the oldest first

    @asynccontextmanager
    async def one(self, patience: float) -> AsyncIterator[None]:
        """Raise TimeoutError where a body is not here in time, or is given up."""
        while len(self._clocks) >= self._most:
            oldest = self._clocks.pop(0)
            if not oldest.expired():
                oldest.reschedule(0)
        async with asyncio.timeout(patience) as clock:
            self._clocks.append(clock)
            try:
                yield
            finally:
                if clock in self._clocks:
                    self._clocks.remove(clock)


class _Visit:
    """One request's way back: adds headers to its answer, remembers the status, and does not wait for ever."""

    def __init__(self, scope: Scope, send: Send, patience: float, desk: Desk) -> None:
        self._scope, self._send, self._patience, self._desk = scope, send, patience, desk
        self.status, self.began = 500, False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-store")
            if self._desk.draining:
                headers["connection"] = "close"
            self.status, self.began = message["status"], True
        try:
            async with asyncio.timeout(self._patience):
                await self._send(message)
        except TimeoutError:
            raise _GoneError from None

    async def fail(self, error: Exception, before_end: Callable[[], Awaitable[None]] | None = None) -> None:
        """Answer with a problem, if nothing was answered yet; otherwise the connection ends in the middle.

        `before_end` is awaited when all is sent, and before the connection closes.
        """
        problem = problem_of(error)
        if problem.status == 500:
            _log(error)
        if self.began:
            return
        body = json.dumps(body_of(problem, self._scope["path"]), ensure_ascii=True).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), **problem.headers}
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": problem.status, "headers": raw})
        if before_end is not None:
            await self.send({"type": "http.response.body", "body": body, "more_body": True})
            await before_end()
            body = b""
        await self.send({"type": "http.response.body", "body": body})


class _GoneError(Exception):
    """The client is gone, or does not take what it is sent."""


class _TooLargeError(LimitError):
    """A body of too many bytes, of which not all are here."""

    def __init__(self, most: int) -> None:
        super().__init__(
            f"body: must have at most {most:,} bytes, but has more. Send less at a time.", "body", close=True
        )


async def _hear_out(receive: Receive) -> None:
    """Take the rest of a body for a moment. Many clients listen only when they have sent all, and hang up without the
    answer if the connection closes before."""
    size = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(LAST_WORDS):
            while size < LAST_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return


async def _while_there(app: ASGIApp, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
    """Run an app on a body that is here; cancel it when the client goes."""
    gone = asyncio.Event()
    unread = [{"type": "http.request", "body": body, "more_body": False}]

    async def from_memory() -> Any:
        if unread:
            return unread.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    work = asyncio.ensure_future(app(scope, from_memory, send))
    watcher = asyncio.ensure_future(watch())
    try:
        await asyncio.wait((work, watcher), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            await asyncio.wait((work,))
        if work.cancelled():
            raise _GoneError
        work.result()
    finally:
        for task in (work, watcher):
            task.cancel()


def _check_head(scope: Scope) -> None:
    size = len(scope["raw_path"]) + len(scope["query_string"]) + sum(len(n) + len(v) for n, v in scope["headers"])
    if size > MOST_HEAD:
        message = f"headers: address and headers must have at most {MOST_HEAD:,} bytes, but have {size:,}. Send less."
        raise Problem(431, "limit", message, headers={"connection": "close"})


def _check_origin(headers: Headers, method: str) -> None:
    """Browsers say which page asks. Ours may; others may not use a visitor's browser to reach this server."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    foreign = origin is not None and _authority_of(origin) != headers.get("host", "").lower()
    if foreign or (site == "cross-site" and method not in ("GET", "HEAD")):
        raise Problem(403, "usage", "Origin: requests from pages must come from this server's own, but another asks.")


def _check_shape(content_type: str, body: bytes, limits: Limits) -> None:
    """Refuse what is small in bytes and large in memory, before it is parsed."""
    if content_type.startswith("application/x-www-form-urlencoded"):
        limits.check(body.count(b"&") + 1, limits.fields, "body", "fields")
        return
    if content_type.startswith("multipart/"):
        return
    if content_type.startswith("application/json"):
        try:
            body.decode("utf-8")
        except UnicodeDecodeError as error:
            message = f"body: must be UTF-8, but byte {error.start:,} is not. Encode the text as UTF-8."
            raise Problem(400, "data", message) from None
    marks = STRINGS.sub(b"", body)
    limits.check(sum(map(marks.count, (b",", b"[", b"{"))), limits.fields, "body", "values")
    deep = 0
    for mark in re.finditer(rb"[][{}]", marks):
        deep += 1 if mark[0] in b"[{" else -1
        limits.check(deep, limits.depth, "body", "levels of lists and objects")


def _bearer(headers: Headers) -> str | None:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    return value.strip() if scheme.lower() == "bearer" else None


def _may_hold_key(path: str, headers: Headers) -> bool:
    """LibreTranslate's clients write the key into the body."""
    return path in ("/translate", "/detect", "/translate_file", "/languages") and "authorization" not in headers


def _key_in(headers: Headers, body: bytes) -> str | None:
    content_type = headers.get("content-type", "")
    try:
        if content_type.startswith("application/json"):
            content = json.loads(body)
            value = content.get("api_key") if isinstance(content, dict) else None
        elif content_type.startswith("multipart/"):
            found = KEY_FIELD.search(body)
            value = found[1].decode() if found else None
        else:
            value = parse_qs(body.decode()).get("api_key", [None])[0]
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, str) else None


def _wrong_key() -> Problem:
    return Problem(
        401, "usage", "key: this server needs one, but it is missing or wrong. Send `Authorization: Bearer KEY`.",
        headers={"www-authenticate": "Bearer"},
    )  # fmt: skip


def _authority_of(origin: str) -> str | None:
    """The host and port of an origin; None where it has none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _name_in(host: str) -> str | None:
    """The name in a Host header, without the port; None where it is no such header."""
    if re.fullmatch(r"(?:[\w.-]+|\[[0-9a-fA-F:.]+\])(?::\d{1,5})?", host, re.ASCII) is None:
        return None
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:  # not every row of digits and colons is an address
        return None


def _log(error: Exception) -> None:
    """What broke and where, without its message: that may hold what somebody wrote."""
    where = traceback.extract_tb(error.__traceback__)
    place = f"{where[-1].filename}:{where[-1].lineno}" if where else "nowhere"
    log.error("internal error: %s at %s", type(error).__name__, place)
