"""Who may ask, from where, and what the answers carry."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from regard.serve.limits import Limits
from regard.serve.running import is_loopback, names_of
from tests.serve.running import Running, running
from tests.tiny import failed, regard

KEY = "a key with spaces and ümlauts"


@pytest.fixture(scope="module")
def locked(words_model: Path) -> Iterator[Running]:
    with running({"words": words_model}, key=KEY) as found:
        yield found


def bearer(key: str) -> dict[str, bytes]:
    return {"authorization": f"Bearer {key}".encode("latin-1")}


def test_every_route_but_the_probes_and_the_page_needs_the_key(locked: Running) -> None:
    with locked.client() as client:
        paths = list(client.get("/openapi.json", headers=bearer(KEY)).json()["paths"])
        assert len(paths) > 12
        for path in [*paths, "/openapi.json", "/api/openapi.json", "/nowhere"]:
            for method in ("GET", "POST", "PUT", "DELETE"):
                for headers in ({}, bearer(KEY[:-1]), bearer(KEY + "x"), {"authorization": KEY.encode("latin-1")}):
                    response = client.request(method, path, headers=headers)  # type: ignore[arg-type]
                    expected = (200, 405) if path in ("/livez", "/readyz") else (401,)
                    assert response.status_code in expected, (method, path)
        assert client.get("/").status_code in (200, 404)
        assert client.get("/api/models", headers=bearer(KEY)).status_code == 200
        refused = client.get("/api/models")
        assert refused.headers["www-authenticate"] == "Bearer"
        assert refused.json()["error"]["type"] == "usage"
        assert KEY not in refused.text


def test_a_key_may_stand_in_the_body_where_libretranslates_clients_write_it(locked: Running) -> None:
    with locked.client() as client:
        for key, allowed in ((KEY, True), ("wrong", False)):
            asked = {"q": "two", "source": "en", "target": "de", "api_key": key}
            for sent in ({"json": asked}, {"data": asked}):
                assert (client.post("/translate", **sent).status_code != 401) == allowed  # type: ignore[arg-type]
            files = {"file": ("a.txt", b"two")}
            assert (client.post("/translate_file", data=asked, files=files).status_code != 401) == allowed
            assert client.post("/api/translate", json={"text": "two", "api_key": key}).status_code == 401


def test_half_a_character_is_no_key(locked: Running) -> None:
    with locked.client() as client:
        body = b'{"q": "two", "source": "en", "target": "de", "api_key": "\\ud800"}'
        response = client.post("/translate", content=body, headers={"content-type": "application/json"})
        assert response.status_code == 401


@pytest.mark.parametrize(
    "host", ["[:::::]", "[", "evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "localhost@evil", "a b"]
)
def test_a_name_that_is_not_the_servers_is_refused(server: Running, host: str) -> None:
    with server.client() as client:
        assert client.get("/api/models", headers={"host": host}).status_code in (400, 403)
        assert client.get("/livez", headers={"host": host}).status_code in (400, 403)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:99", "127.0.0.1", "[::1]:8000"])
def test_the_servers_own_names_are_not(server: Running, host: str) -> None:
    with server.client() as client:
        assert client.get("/api/models", headers={"host": host}).status_code == 200


def test_pages_of_others_cannot_ask(server: Running) -> None:
    with server.client() as client:
        own = server.address.removeprefix("http://")
        body = {"text": "two"}
        for headers in (
            {"origin": "https://evil.example"},
            {"origin": "null"},
            {"origin": "http://["},
            {"origin": "http://[:::::]"},
            {"origin": f"http://{own}.evil.example"},
            {"origin": "http://localhost:1"},
            {"sec-fetch-site": "cross-site"},
        ):
            response = client.post("/api/translate", json=body, headers=headers)
            assert response.status_code == 403, headers
            assert "access-control-allow-origin" not in response.headers
        for headers in ({"origin": f"http://{own}"}, {"sec-fetch-site": "same-origin"}, {}):
            assert client.post("/api/translate", json=body, headers=headers).status_code == 200
        assert client.options("/api/translate", headers={"origin": "https://evil.example"}).status_code == 403


def test_every_answer_tells_browsers_to_be_careful(server: Running) -> None:
    with server.client() as client:
        for response in (
            client.get("/"),
            client.get("/api/models"),
            client.get("/nowhere"),
            client.get("/livez"),
            client.post("/api/translate", json={}),
            client.post("/api/translate", content=b"x" * 300_000),
            client.get("/api/models", headers={"origin": "https://evil.example"}),
        ):
            policy = response.headers["content-security-policy"]
            assert "default-src 'self'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert response.headers["x-content-type-options"] == "nosniff"
            assert response.headers["referrer-policy"] == "no-referrer"
            assert "server" not in response.headers


def test_metrics_count_and_hold_nobodys_text(server: Running) -> None:
    with server.client() as client:
        secret = "Geheimnis"
        client.post("/api/translate", json={"text": secret})
        client.get(f"/{secret}")
        client.get(f"/api/models/{secret}/inside")
        text = client.get("/metrics").text
    assert 'regard_requests_total{route="/api/translate",status="200"}' in text
    assert 'regard_request_seconds_bucket{route="/api/translate",le="+Inf"}' in text
    assert 'regard_batch_rows_count{model="words"}' in text
    assert 'regard_tokens_total{model="words"}' in text
    assert 'regard_waiting{model="babble"} 0' in text
    assert secret not in text
    for line in text.splitlines():
        assert line.startswith("# ") or float(line.rpartition(" ")[2]) >= 0


def test_page_files_have_tags_and_unknown_ones_are_not_there(server: Running) -> None:
    with server.client() as client:
        for path in (
            "/page/../own.py",
            "/page/%2e%2e/own.py",
            "/page//etc/passwd",
            "/page/%00",
            "/page/x.js",
        ):
            assert client.get(path).status_code == 404, path
        for path in ("/page", "/page/"):
            response = client.get(path)
            assert (response.status_code, response.headers["location"]) == (308, "/"), path
        first = client.get("/")
        if first.status_code == 200:
            again = client.get("/", headers={"if-none-match": first.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")


def test_loopback_is_known_by_address_and_name() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "::1", "localhost", "127.8.8.8")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.0.4", "example.org", "localhost.example.org")))
    assert names_of("0.0.0.0") == ()
    assert "example.org" in names_of("0.0.0.0", ("example.org",))


def test_another_address_needs_a_key(words_model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("REGARD_API_KEY", raising=False)
    failed(regard("serve", words_model, "--host", "0.0.0.0"), 2, "0.0.0.0", "REGARD_API_KEY", "--key-file")
    monkeypatch.setenv("REGARD_API_KEY", "")
    failed(regard("serve", words_model, "--key-file", tmp_path / "none"), 66, "--key-file")
    (tmp_path / "key").write_text("\n")
    failed(regard("serve", words_model, "--key-file", tmp_path / "key"), 2, "empty")


def test_a_taken_port_and_a_missing_model_get_a_sentence(words_model: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        failed(regard("serve", words_model, "--port", port), 2, f"127.0.0.1:{port}", "--port")
    failed(regard("serve", tmp_path / "nothing", "--port", 0), 66, "nothing")


def test_a_server_that_ends_answers_what_it_took_on(words_model: Path) -> None:
    """Clients without pause meet SIGTERM: each request is answered, or refused with 503, and then they go."""
    command = [sys.executable, "-m", "regard", "serve", str(words_model), "--port", "0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("Serving model on http://127.0.0.1:"), line
        address = line.split(" on ")[1].split()[0]
        found: list[int | str] = []

        def ask() -> None:
            with httpx.Client(base_url=address, timeout=30) as client:
                status: int | str = 200
                while status == 200:
                    try:
                        status = client.post("/api/translate", json={"text": "two three four"}).status_code
                    except httpx.HTTPError as error:
                        status = repr(error)
                    found.append(status)

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        while found.count(200) < 20:
            time.sleep(0.01)
        with httpx.Client(base_url=address) as probe:
            assert probe.get("/readyz").status_code == 200
            process.send_signal(signal.SIGTERM)
            while (ready := probe.get("/readyz").status_code) == 200:
                time.sleep(0.01)
            assert (ready, probe.get("/livez").status_code) == (503, 200)
        for thread in threads:
            thread.join(20)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""
    assert set(found) == {200, 503}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_reads_that_it_serves_may_stop_it(number: int, words_model: Path) -> None:
    """The signal comes in the moment in which the line is written."""
    code = f"""
import os, sys
from regard.cli import main

class Hasty:
    def write(self, text):
        if text.startswith("Serving"):
            os.kill(os.getpid(), {int(number)})
    flush = isatty = lambda self: None

sys.stderr = Hasty()
main()
"""
    command = [sys.executable, "-c", code, "serve", str(words_model), "--port", "0"]
    assert subprocess.run(command, timeout=120, check=False).returncode == 0


def test_limits_must_be_above_nothing() -> None:
    with pytest.raises(ValueError, match="`queue` must be above 0, but is 0"):
        Limits(queue=0)
