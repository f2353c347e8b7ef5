"""Running the app: a socket, uvicorn, and an end that leaves nobody without an answer.

The first SIGTERM or Ctrl-C begins the end: `/readyz` says so, new requests are sent away, answers close their
connections. `LAST_CALL` seconds later the socket closes, what was taken on is finished, and the process ends with 0. A
second signal does not wait.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket
import time
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.errors import UsageError
from regard.serve.desk import Desk
from regard.serve.gate import LOOPBACK
from regard.serve.limits import Limits

LAST_CALL = 1.0  # seconds in which who is connected learns that this is the end
BACKLOG = 256
IDLE = 30  # seconds that a connection may be silent between two requests


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def names_of(host: str, others: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The names a server at this address may be called by; none, which is any, where others can reach it."""
    return (*LOOPBACK, host, *others) if is_loopback(host) or others else ()


def open_socket(host: str, port: int) -> socket.socket:
    """A socket that listens there; raises UsageError where that cannot be."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        opened = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageError(f"serve: --host must be an address of this machine, but `{host}` is not: {error}.") from error
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen(BACKLOG)
    except OSError as error:
        opened.close()
        if error.errno == errno.EADDRINUSE:
            raise UsageError(
                f"serve: the port must be free, but something listens on {host}:{port} already. Choose another with "
                "--port, or 0 for any."
            ) from error
        raise UsageError(f"serve: cannot listen on {host}:{port}: {error.strerror}. Choose another.") from error
    return opened


def address_of(opened: socket.socket) -> str:
    """The URL of a socket that listens."""
    host, port = opened.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def connection_class(limits: Limits) -> type[H11Protocol]:
    """Connections that end when the head of a request takes too long, and that are refused when there are too many."""

    class Connection(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._hurry = self.loop.call_later(limits.patience, self._give_up)
            if len(self.connections) > limits.connections:
                transport.abort()

        def handle_events(self) -> None:
            before = self.cycle
            super().handle_events()
            if self.cycle is not before:  # the head of a request is here; for its body the gate has a clock of its own
                self._hurry.cancel()
            elif self._idle() and self._hurry.cancelled() and self.conn.trailing_data[0]:
                self._hurry = self.loop.call_later(limits.patience, self._give_up)

        def connection_lost(self, exc: Exception | None) -> None:
            self._hurry.cancel()
            super().connection_lost(exc)

        def _idle(self) -> bool:
            return self.cycle is None or self.cycle.response_complete

        def _give_up(self) -> None:
            if self._idle():
                self.transport.abort()

    return Connection


class Server(uvicorn.Server):
    """uvicorn, with the end that this module describes; `ready` is called once it answers, and signals find it."""

    def __init__(self, app: FastAPI, desk: Desk, ready: Callable[[], None] = lambda: None) -> None:
        super().__init__(
            uvicorn.Config(
                app, http=connection_class(desk.limits), ws="none", loop="asyncio", lifespan="on", access_log=False,
                log_config=None, server_header=False, timeout_keep_alive=IDLE, backlog=BACKLOG,
            )
        )  # fmt: skip
        self._desk, self._ready = desk, ready
        self._last_call: float | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer. The handlers of signals stand by now, so whoever reads that it is ready may send one."""
        await super().startup(sockets)
        if self.started:
            self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin the end; the second time, end."""
        if self._desk.draining:
            self.should_exit = self.force_exit = True
        self.drain()

    def drain(self) -> None:
        """Begin the end."""
        if not self._desk.draining:
            self._desk.draining = True
            self._last_call = time.monotonic() + LAST_CALL

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: is it time to close?"""
        if self._last_call is not None and time.monotonic() >= self._last_call:
            self.should_exit = True
        return await super().on_tick(counter)


def serve(app: FastAPI, desk: Desk, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until a signal says to stop; `ready` is called when it has begun."""
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    Server(app, desk, ready).run([listening])
