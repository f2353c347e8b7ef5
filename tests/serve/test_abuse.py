"""What people try: everything is refused or limited, nothing breaks, and who behaves hardly notices."""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import socket
import statistics
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from regard.serve.limits import Limits
from tests.documents.files import word
from tests.serve.running import Running, running

XSS = [
    f"{before}{tag}{after}"
    for tag in (
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "<svg/onload=alert(1)>",
        "javascript:alert(1)",
        "<iframe srcdoc='<script>alert(1)</script>'>",
        "<a href='data:text/html,<script>alert(1)</script>'>x</a>",
        "<math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
        "{{constructor.constructor('alert(1)')()}}",
        "<body onload=alert(1)>",
        "\\u003cscript\\u003ealert(1)\\u003c/script\\u003e",
    )
    for before, after in (
        ("", ""), ('"', '"'), ("'", "'"), ("</title>", ""), ("-->", "<!--"), ("]]>", ""), ("</textarea>", ""),
        ("\x00", "\x00"), ("two ", " three"), ("\u202e", ""), ("`", "`"), ("<!--", ""), ("%3C", "%3E"), ("\\", "\\"),
        ("\r\n\r\n", ""), ("'>\">", ""), ("</script>", ""), ("\t", "\t"), ("&lt;", "&gt;"), ("/*", "*/"),
    )
]  # fmt: skip


@pytest.fixture(scope="module")
def small(words_model: Path, babbling_model: Path) -> Iterator[Running]:
    """A server with little patience."""
    limits = Limits(patience=0.5, deadline=5, queue=8, connections=64)
    with running({"words": words_model, "babble": babbling_model}, limits) as found:
        yield found


def test_there_are_two_hundred_strings() -> None:
    assert len(set(XSS)) == 200


def test_markup_comes_back_as_text_in_json_and_escaped_in_pictures(server: Running) -> None:
    async def translate(client: httpx.AsyncClient, some: asyncio.Semaphore, text: str) -> httpx.Response:
        async with some:
            return await client.post("/api/translate", json={"text": text, "beam": 1})

    async def all_of_them() -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=server.address, timeout=30) as client:
            some = asyncio.Semaphore(32)
            return await asyncio.gather(*(translate(client, some, text) for text in XSS))

    for response in asyncio.run(all_of_them()):
        assert response.status_code == 200, response.text
        assert response.headers["content-type"] == "application/json"
    with server.client() as client:
        for text in XSS[::10]:
            body = {"text": text, "what": "page", "format": "html", "target": text}
            page = client.post("/api/picture", json=body)
            assert page.status_code == 200, page.text
            assert page.headers["content-disposition"].startswith("attachment")
            for tag in ("<script>alert", "<img src=x", "<svg/onload", "<body onload", "<iframe srcdoc"):
                assert tag not in page.text
            error = client.post("/api/translate", json={"text": "two", "model": text})
            assert error.status_code == 404
            assert error.headers["content-type"] == "application/json"


def test_more_than_allowed_is_refused(small: Running) -> None:
    def post(route: str, body: object) -> int:
        return client.post(route, json=body).status_code

    with small.client() as client:
        assert post("/api/translate", {"text": "x", "beam": 10**9}) == 422
        assert post("/api/translate", {"text": "x", "nbest": 10**9}) == 422
        assert post("/api/generate", {"text": "x", "max_tokens": 10**9}) == 422
        assert 400 <= post("/v1/completions", {"model": "babble", "prompt": "x", "n": 10**9}) < 500
        assert 400 <= post("/v1/completions", {"model": "babble", "prompt": "x", "max_tokens": 10**9}) < 500
        assert 400 <= post("/v1/completions", {"model": "babble", "prompt": ["x"] * 5000}) < 500
        assert post("/api/positions", {"length": 10**9}) == 422
        assert post("/api/translate", {str(number): 1 for number in range(20_000)}) == 413
        million = b'{"text":"x"' + b',"a":1' * 10**6 + b"}"
        assert client.post("/api/translate", content=million).status_code == 413
        assert post("/api/translate", {"text": "x", "prefix": "y " * 4000}) == 413
        assert post("/api/translate", {"text": "x", "prefix": "y" * 4999}) == 413


@pytest.mark.parametrize("body", [b'"' + b'\\"' * 130_000, b"[" * 260_000, b"[]" * 130_000, b'"\\', b'{"text":"x\\'])
def test_bodies_that_are_hard_to_read_cost_little(small: Running, body: bytes) -> None:
    with small.client() as client:
        begin = time.monotonic()
        response = client.post("/api/translate", content=body, headers={"content-type": "application/json"})
        assert 400 <= response.status_code < 500
        assert time.monotonic() - begin < 2


@pytest.mark.parametrize("announced", [True, False], ids=["announced", "in pieces"])
def test_huge_bodies_are_refused_before_they_are_here(small: Running, announced: bool) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while sent < 2**30:
            sent += 65_536
            yield b" " * 65_536

    with small.client() as client:
        headers = {"content-type": "application/json"} | ({"content-length": str(2**30)} if announced else {})
        with suppress(httpx.WriteError, httpx.ReadError):  # it may hang up before we are done
            response = client.post("/api/translate", content=endless(), headers=headers)
            assert response.status_code == 413
    assert sent < 2**26


def raw(server: Running, data: bytes, wait: float = 10.0) -> bytes:
    """All that comes back for some bytes, until the server hangs up or says nothing more for a while."""
    host, port = server.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=wait) as line:
        line.sendall(data)
        answer = b""
        with suppress(ConnectionResetError, TimeoutError):
            while piece := line.recv(65_536):
                answer += piece
        return answer


HEAD = b"POST /api/translate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", b""),  # says nothing
        (b"POST /api", b""),  # begins to speak
        (HEAD, b""),  # does not end the head
        (HEAD + b"content-length: 100\r\n\r\n{", b"408"),  # does not end the body
        (HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n", b"408"),
    ],
)
def test_slow_clients_are_left(small: Running, sent: bytes, status: bytes) -> None:
    begin = time.monotonic()
    answer = raw(small, sent)
    assert time.monotonic() - begin < 5
    assert (answer.split()[1] if answer else b"") == status


@pytest.mark.parametrize("key", [None, "secret"])
def test_who_sends_slowly_is_in_nobodys_way(words_model: Path, key: str | None) -> None:
    """More half-sent requests than the server takes at a time, and others are answered at once."""
    head = (
        b"POST /translate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"
    )
    limits = Limits(requests=4, arriving=4, strangers=4, patience=5)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    with running({"words": words_model}, limits, key) as few, few.client(headers=headers) as client:
        host, port = few.address.removeprefix("http://").split(":")
        lines = [socket.create_connection((host, int(port)), timeout=5) for _ in range(12)]
        try:
            for line in lines:
                line.sendall(head)
            time.sleep(0.2)
            begin = time.monotonic()
            for _ in range(5):
                assert client.post("/api/translate", json={"text": "two"}).status_code == 200
                assert client.post("/translate", json={"q": "two", "source": "en", "target": "de"}).status_code == 200
            assert time.monotonic() - begin < 3
            # The first to come are the first to go, long before their time is up.
            lines[0].settimeout(2)
            assert lines[0].recv(1_000).startswith(b"HTTP/1.1 408")
        finally:
            for line in lines:
                line.close()


@pytest.mark.parametrize("announced", [True, False], ids=["announced", "in pieces"])
def test_who_listens_only_after_sending_all_hears_that_it_is_too_much(small: Running, announced: bool) -> None:
    host, port = small.address.removeprefix("http://").split(":")
    for _ in range(3):
        line = http.client.HTTPConnection(host, int(port), timeout=10)
        pieces = (b"x" * 65_536 for _ in range(170))
        headers = {"content-type": "multipart/form-data; boundary=x"}
        if announced:
            line.request("POST", "/api/documents", b"".join(pieces), headers)
        else:
            line.request("POST", "/api/documents", pieces, headers, encode_chunked=True)
        response = line.getresponse()
        assert response.status == 413
        assert json.loads(response.read())["error"]["field"] == "body"
        line.close()


def test_a_slow_second_request_is_left_too(small: Running) -> None:
    first = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
    begin = time.monotonic()
    assert raw(small, first + b"GET /live").count(b"HTTP/1.1") == 1
    assert time.monotonic() - begin < 5


def test_connections_are_counted(small: Running) -> None:
    host, port = small.address.removeprefix("http://").split(":")
    lines = [socket.create_connection((host, int(port)), timeout=5) for _ in range(100)]
    try:
        refused = 0
        for line in lines:
            line.settimeout(0.02)
            try:
                refused += line.recv(1) == b""
            except TimeoutError:
                pass
            except ConnectionResetError:
                refused += 1
        assert refused >= 30
    finally:
        for line in lines:
            line.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",  # TLS
        b"GET / HTTP/1.1\r\n\r\n",  # no host
        b"GET / HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 100_000 + b"\r\n\r\n",
        HEAD + b"content-length: 5\r\ncontent-length: 6\r\n\r\n{}",
        HEAD + b"content-length: -1\r\n\r\n{}",
        HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}",
        HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n",
        b"GET /page/../../../../etc/passwd HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /page/..%2f..%2f..%2fetc%2fpasswd HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /page/%c0%ae%c0%ae/own.py HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET //etc/passwd HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /api/models/..%2f..%2fetc/inside HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"TRACE / HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ],
)
def test_requests_that_are_none_and_paths_that_lead_nowhere(small: Running, sent: bytes) -> None:
    answer = raw(small, sent, wait=0.4)
    assert not answer or answer.split()[1].startswith(b"4"), answer[:300]
    assert b"root:" not in answer


def test_bombs_are_refused(small: Running) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b"<w>" + b" " * 50_000_000)
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    laughs = f'<?xml version="1.0"?><!DOCTYPE tmx [<!ENTITY e0 "ha">{entities}]><tmx>&e9;</tmx>'.encode()
    with small.client() as client:
        for name, data in (("a.docx", packed.getvalue()), ("a.tmx", laughs), ("a.html", b"<b>" * 20_000)):
            begin = time.monotonic()
            for route, fields in (("/api/documents", {}), ("/translate_file", {"source": "en", "target": "de"})):
                response = client.post(route, files={"file": (name, data)}, data=fields)
                assert response.status_code < 500, (route, name, response.text)
                if name != "a.html":
                    assert response.status_code >= 400, (route, name)
            assert time.monotonic() - begin < 10


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.html", b"<" * 1_000_000),
        ("a.html", b"<p>a</p>" * 120_000),
        ("a.txt", b"a\n" * 201_000),
        ("a.docx", word("".join(f"<w:p{n}/>" for n in range(201_000)))),
    ],
)
def test_documents_that_take_long_to_read_are_not(small: Running, name: str, data: bytes) -> None:
    with small.client() as client:
        begin = time.monotonic()
        response = client.post("/api/documents", files={"file": (name, data)})
        assert (response.status_code, "tags and lines" in response.text) == (413, True), response.text
        assert time.monotonic() - begin < 2


def test_large_documents_are_read_one_after_the_other_and_few_at_a_time(words_model: Path) -> None:
    async def all_of_them() -> list[int]:
        async with httpx.AsyncClient(base_url=few.address, timeout=30) as client:
            asked = [client.post("/api/documents", files={"file": ("a.html", data)}) for _ in range(6)]
            small = client.post("/api/documents", files={"file": ("a.html", b"<p>two</p>")})
            return [response.status_code for response in await asyncio.gather(*asked, small)]

    data = b"<p>two</p><hr>" * 5_000
    with running({"words": words_model}, Limits(documents=2)) as few:
        *statuses, last = asyncio.run(all_of_them())
        assert set(statuses) == {200, 429}
        assert last == 200
        with few.client() as client:
            assert client.post("/api/documents", files={"file": ("a.html", data)}).status_code == 200


def test_a_thousand_form_fields(small: Running) -> None:
    with small.client() as client:
        body = "&".join(f"f{number}=1" for number in range(20_000))
        headers = {"content-type": "application/x-www-form-urlencoded"}
        assert client.post("/translate", content=body, headers=headers).status_code == 413
        parts = {f"f{number}": (None, b"1") for number in range(3000)}
        assert 400 <= client.post("/api/documents", files=parts).status_code < 500


def latency(client: httpx.Client, times: int) -> float:
    """The middle of some round trips, in seconds."""
    taken = []
    for _ in range(times):
        begin = time.monotonic()
        response = client.post("/api/translate", json={"text": "two three", "beam": 1})
        assert response.status_code == 200, response.text
        taken.append(time.monotonic() - begin)
    return statistics.median(taken)


def abusers(server: Running) -> list[Callable[[httpx.Client], object]]:
    """What is tried at the same time, again and again."""
    body = {"text": "x", "n": 10**9}
    return [
        lambda client: client.post("/api/translate", content=b" " * 300_000),
        lambda client: client.post("/api/translate", json=body),
        lambda client: client.post("/api/translate", content=b"\xff" * 1000),
        lambda client: raw(server, HEAD + b"content-length: 100\r\n\r\n{"),
        lambda client: client.get("/page/%2e%2e/%2e%2e/etc/passwd"),
        lambda client: client.get("/api/models", headers={"host": "evil.example"}),
    ]


@pytest.mark.slow
def test_who_behaves_hardly_notices(small: Running) -> None:
    stop = threading.Event()

    def annoy(action: Callable[[httpx.Client], object]) -> None:
        with small.client() as client:
            while not stop.is_set():
                with suppress(httpx.HTTPError, OSError):
                    action(client)
                time.sleep(0.05)  # so that the abuser's own work is not what slows this one machine down

    with small.client() as client:
        latency(client, 20)
        before = latency(client, 100)
        threads = [threading.Thread(target=annoy, args=(action,)) for action in abusers(small)]
        for thread in threads:
            thread.start()
        try:
            during = latency(client, 100)
        finally:
            stop.set()
            for thread in threads:
                thread.join(10)
    assert during < 2 * before, json.dumps({"before": before, "during": during})
