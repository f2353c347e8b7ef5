"""A real server in a thread, on a port of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from regard.api import load
from regard.serve.app import build_app
from regard.serve.desk import Desk
from regard.serve.gate import LOOPBACK
from regard.serve.limits import Limits
from regard.serve.running import Server, address_of, open_socket


@dataclass
class Running:
    """A server that answers at `address`."""

    address: str
    desk: Desk
    server: Server

    def client(self, **settings: object) -> httpx.Client:
        return httpx.Client(base_url=self.address, timeout=30, **settings)  # type: ignore[arg-type]


@contextmanager
def running(
    folders: Mapping[str, Path],
    limits: Limits | None = None,
    key: str | None = None,
    hosts: tuple[str, ...] = LOOPBACK,
) -> Iterator[Running]:
    """Serve these model folders until the block ends."""
    desk = Desk({name: load(folder) for name, folder in folders.items()}, limits, folders)
    listening = open_socket("127.0.0.1", 0)
    server = Server(build_app(desk, key, hosts), desk)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield Running(address_of(listening), desk, server)
    finally:
        server.should_exit = True
        thread.join(60)  # what is being answered is answered first, and the machine may be busy
        assert not thread.is_alive()
