"""What a server bears: shared batches against one request at a time, many clients for long, and abuse.

    python -m benchmarks.serving                          all three, with a small model of random weights
    python -m benchmarks.serving --model FOLDER           with a trained one
    python -m benchmarks.serving --seconds 5 --load 20    shorter

Each part starts `regard serve` as a process of its own and asks it for translations over connections that stay open;
clients and server share the machine. `throughput`: 16 clients, each with one question at a time; the same server with
--batch 64 and with --batch 1. `load`: 64 clients, 16 seats in the queue; what they are answered, and how much memory
the server has after a quarter of the time and at the end. `abuse`: the median round trip of one client that behaves,
alone and while six others send huge bodies, bad bytes, wrong names and half requests.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from regard.data.generated import Generated, generate

TEXTS = [pair.source for pair in generate(Generated(pairs=1, valid=0, test=64)).test]
THROUGHPUT_CLIENTS, LOAD_CLIENTS = 16, 64


def random_model(place: Path) -> Path:
    """A folder with a small translation model of random weights, which writes 12 tokens more than it reads."""
    import torch

    from regard import folder
    from regard.models.build import build
    from regard.recipe import build_recipe
    from regard.text.tokenizer import Tokenizer

    settings = [
        "name=random", "tokenizer.vocabulary=300", "search.extra_length=12",
        "model={encoder_layers=2, decoder_layers=2, d_model=96, d_ff=384, heads=4, dropout=0.0}",
    ]  # fmt: skip
    recipe = build_recipe({}, settings, "random")
    tokenizer = Tokenizer.learn(TEXTS, recipe.tokenizer)
    torch.manual_seed(1)
    model = build(recipe.model, tokenizer.size)
    folder.write_beginning(place, recipe, tokenizer)
    (place / folder.METRICS).touch()
    folder.write_end(place, {name: weight.clone() for name, weight in model.state_dict().items()}, "# random")
    return place


@dataclass
class Served:
    """A server that runs."""

    host: str
    port: int
    process: subprocess.Popen[str]

    def memory(self) -> float:
        """Its resident memory, in MB."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def worked(self) -> float:
        """The seconds its threads have computed, all together."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def served(model: Path, *options: str) -> Iterator[Served]:
    """`regard serve` on a free port."""
    command = [sys.executable, "-m", "regard", "serve", str(model), "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        if " on http://" not in line:
            raise SystemExit(line + process.stderr.read())
        host, _, port = line.split(" on http://")[1].split()[0].partition(":")
        try:
            yield Served(host, int(port), process)
        finally:
            process.terminate()
            process.wait(60)


class Client:
    """As little HTTP as is needed, so that clients cost the machine less than the server does."""

    def __init__(self, server: Served) -> None:
        self._server = server
        self._lines: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes, head: str = "") -> int:
        """The status of the answer; 0 if the connection ended without one."""
        request = (
            f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{head}"
            f"content-length: {len(body)}\r\n\r\n"
        ).encode() + body
        try:
            if self._lines is None:
                self._lines = await asyncio.open_connection(self._server.host, self._server.port)
            reader, writer = self._lines
            writer.write(request)
            await writer.drain()
            headers = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(headers.split(b"content-length:")[1].split(b"\r\n")[0]))
            if b"connection: close" in headers:
                self.close()
            return int(headers.split()[1])
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            return 0

    def close(self) -> None:
        """Hang up."""
        if self._lines is not None:
            self._lines[1].close()
            self._lines = None


def question(number: int) -> bytes:
    return json.dumps({"text": TEXTS[number % len(TEXTS)], "beam": 4}).encode()


async def ask(server: Served, number: int, until: float, found: Counter[int]) -> None:
    """One client, one question at a time; whoever is told to come later does so."""
    client = Client(server)
    while time.monotonic() < until:
        status = await client.post("/api/translate", question(number))
        found[status] += 1
        number += 7
        if status == 429:
            await asyncio.sleep(0.1)
    client.close()


def throughput(model: Path, seconds: float) -> None:
    rates, costs = {}, {}
    for rows in (64, 1):
        with served(model, "--batch", str(rows)) as server:

            async def clients(server: Served, length: float) -> Counter[int]:
                found: Counter[int] = Counter()
                until = time.monotonic() + length
                await asyncio.gather(*(ask(server, number, until, found) for number in range(THROUGHPUT_CLIENTS)))
                return found

            asyncio.run(clients(server, 1.0))  # warm
            begin, worked = time.monotonic(), server.worked()
            found = asyncio.run(clients(server, seconds))
            rates[rows] = found[200] / (time.monotonic() - begin)
            costs[rows] = 1000 * (server.worked() - worked) / found[200]
            others = {status: count for status, count in found.items() if status != 200} or "all 200"
            figures = f"{rates[rows]:8.1f} answers/s, {costs[rows]:.1f} ms of CPU each"
            print(f"throughput  --batch {rows:<3} {figures}, {others}", flush=True)
    print(f"throughput  ratio {rates[64] / rates[1]:.2f}, of CPU {costs[1] / costs[64]:.2f}", flush=True)


def load(model: Path, seconds: float) -> None:
    with served(model, "--max-queue", "16") as server:

        async def clients() -> tuple[Counter[int], float]:
            found: Counter[int] = Counter()
            until = time.monotonic() + seconds
            tasks = [asyncio.ensure_future(ask(server, number, until, found)) for number in range(LOAD_CLIENTS)]
            await asyncio.sleep(seconds / 4)
            early = server.memory()
            await asyncio.gather(*tasks)
            return found, early

        found, early = asyncio.run(clients())
        statuses = ", ".join(f"{count} × {status}" for status, count in sorted(found.items()))
        print(f"load        {LOAD_CLIENTS} clients, {seconds:.0f} s: {statuses}", flush=True)
        print(f"load        memory {early:.0f} MB after a quarter, {server.memory():.0f} MB at the end", flush=True)


async def half_a_request(server: Served) -> int:
    """Begin a request, and wait until the server has enough of it."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    writer.write(b"POST /api/translate HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n{")
    answer = await reader.read()
    writer.close()
    return int(answer.split()[1]) if answer else 0


async def healthy(server: Served, times: int) -> float:
    """The median round trip of a client that behaves, in milliseconds."""
    client, taken = Client(server), []
    for number in range(times):
        begin = time.monotonic()
        assert await client.post("/api/translate", question(number)) == 200
        taken.append(1000 * (time.monotonic() - begin))
    client.close()
    return statistics.median(taken)


def abuse(model: Path) -> None:
    with served(model) as server:

        async def annoy(action: Callable[[], Awaitable[int]], found: Counter[int]) -> None:
            while True:
                found[await action()] += 1
                await asyncio.sleep(0.05)

        async def both() -> tuple[list[float], Counter[int]]:
            await healthy(server, 20)
            begin = server.worked()
            alone = await healthy(server, 200)
            middle = server.worked()
            found: Counter[int] = Counter()
            bodies = [b" " * 300_000, b"\xff" * 2_000, b'{"text":"x","n":1000000000}', b"[" * 100_000]
            actions: list[Callable[[], Awaitable[int]]] = [
                *(lambda body=body: Client(server).post("/api/translate", body) for body in bodies),  # type: ignore[misc]
                lambda: Client(server).post("/page/../../etc/passwd", b"{}", "origin: http://evil.example\r\n"),
                lambda: half_a_request(server),
            ]
            tasks = [asyncio.ensure_future(annoy(action, found)) for action in actions]
            annoyed = await healthy(server, 200)
            end = server.worked()
            for task in tasks:
                task.cancel()
            return [alone, annoyed, middle - begin, end - middle], found

        (alone, annoyed, before, during), found = asyncio.run(both())
        print(f"abuse       median {alone:.1f} ms alone, {annoyed:.1f} ms under abuse: {annoyed / alone:.2f} times")
        print(f"abuse       CPU of the server {before:.2f} s alone, {during:.2f} s with all the abuse in it")
        print(f"abuse       was answered {dict(sorted(found.items()))}", flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each throughput run")
    parser.add_argument("--load", type=float, default=120.0, help="seconds of load")
    parser.add_argument("--only", choices=["throughput", "load", "abuse"])
    asked = parser.parse_args([] if arguments is None else arguments)
    with tempfile.TemporaryDirectory() as place:
        model = asked.model or random_model(Path(place) / "random")
        if asked.only in (None, "throughput"):
            throughput(model, asked.seconds)
        if asked.only in (None, "load"):
            load(model, asked.load)
        if asked.only in (None, "abuse"):
            abuse(model)


if __name__ == "__main__":
    main(sys.argv[1:])
