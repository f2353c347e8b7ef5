"""Models by name, from a hub that stands in for the real one on this machine."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from regard.errors import MissingError, UsageError
from regard.interop import hub
from tests.interop import foreign
from tests.tiny import failed, regard

pytest.importorskip("huggingface_hub")
COMMIT = "a" * 40


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as fetching a model needs."""

    folder: Path
    asked: list[str]

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        if body:
            self.asked.append(self.path)
        files = sorted(file.name for file in self.folder.iterdir())
        head, _, name = self.path.partition(f"/resolve/{COMMIT}/")
        if self.path.startswith("/api/models/toys/gpt/tree/"):
            tree = [{"type": "file", "path": file, "size": (self.folder / file).stat().st_size, "oid": file}
                    for file in files]  # fmt: skip
            self._send(200, json.dumps(tree).encode(), {"Content-Type": "application/json"}, body)
        elif self.path.startswith("/api/models/toys/gpt"):
            siblings = [{"rfilename": file} for file in files]
            content = json.dumps({"id": "toys/gpt", "sha": COMMIT, "siblings": siblings}).encode()
            self._send(200, content, {"Content-Type": "application/json"}, body)
        elif head == "/toys/gpt" and name in files:
            content = (self.folder / name).read_bytes()
            etag = hashlib.sha256(content).hexdigest()
            self._send(200, content, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}, body)
        else:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"}, body)

    def _send(self, code: int, content: bytes, headers: dict[str, str], body: bool) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A hub with one model, toys/gpt; gives what was asked of it."""
    torch.manual_seed(1)
    foreign.gpt2(tmp_path / "served")
    (tmp_path / "served" / "rust_model.ot").write_bytes(bytes(100))
    kind = type("ThisHub", (Hub,), {"folder": tmp_path / "served", "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    yield kind.asked  # type: ignore[attr-defined]
    server.shutdown()
    server.server_close()


def test_a_model_is_fetched_and_imported(served: list[str], tmp_path: Path) -> None:
    ran = regard("import", "hf:toys/gpt", tmp_path / "ours", "--count", 2)
    assert ran.code == 0, ran.err
    assert "passed" in ran.out
    assert any(path.endswith("model.safetensors") for path in served)
    assert not any(path.endswith("rust_model.ot") for path in served)
    assert 'name = "gpt"' in (tmp_path / "ours" / "recipe.toml").read_text()


def test_a_model_that_is_not_there(served: list[str], tmp_path: Path) -> None:
    failed(regard("import", "hf:toys/nothing", tmp_path / "ours"), 66, "hf:toys/nothing", "Check the name")
    assert not (tmp_path / "ours").exists()


def test_without_a_network_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(MissingError, match="fetch the folder on another machine"):
        hub.fetch("hf:toys/gpt")


@pytest.mark.parametrize("name", ["hf:gpt2", "hf:", "hf:a/b/c", "hf:../../etc"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="OWNER/NAME"):
        hub.fetch(name)
