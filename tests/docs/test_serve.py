"""What docs/serve.md shows and says of the server."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import httpx
import pytest
from typer.main import get_command

from regard import shipped
from regard.cli import app
from regard.serve.limits import Limits
from tests.serve.running import running

from .pages import DOCS, blocks, prose, table_rows

PAGE = DOCS / "serve.md"


def test_every_request_it_shows_is_answered(words_model: Path, babbling_model: Path) -> None:
    lines = [line for line in commands() if line.startswith("curl")]
    assert len(lines) >= 5
    with running({"words": words_model, "babble": babbling_model}) as server, server.client() as client:
        for line in lines:
            words = shlex.split(line)
            path = words[1].removeprefix("http://127.0.0.1:8000")
            if "-d" in words:
                response = client.post(path, json=json.loads(words[words.index("-d") + 1]))
            elif "-F" in words:
                cue = b"1\n00:00:01,000 --> 00:00:02,000\ntwo\n"
                response = client.post(path, files={"file": (words[words.index("-F") + 1].partition("@")[2], cue)})
                assert b"zwei" in response.content
            else:
                response = client.get(path)
            assert response.status_code == 200, (line, response.text)
        check_routes(client)
        (shown,) = blocks(PAGE, "json")
        assert client.post("/api/translate", json={"text": "x", "beam": 99}).json() == json.loads(shown.text)


def test_the_models_it_starts_answer_as_it_says() -> None:
    (start,) = [line for line in commands() if line.startswith("regard serve everyday")]
    models = start.removeprefix("regard serve").partition("--")[0].split()
    said = re.search(
        r"finds two translations: `(.+?)` and `(.+?)`\. The document comes back with `(.+?)`",
        prose(PAGE).replace("\n", " "),
    )
    (asked,) = [shlex.split(line)[-1] for line in commands() if "/api/translate" in line]
    (cue,) = [shlex.split(line)[1] for line in commands() if line.startswith("printf")]
    with running({name: shipped.path(name) for name in models}) as server, server.client() as client:
        found = client.post("/api/translate", json=json.loads(asked)).json()["translations"]
        document = client.post("/api/documents", files={"file": ("talk.srt", cue.replace("\\n", "\n").encode())})
    assert said is not None
    assert [translation["text"] for translation in found] == [said[1], said[2]]
    assert document.text.split("\n")[2] == said[3]


def commands() -> list[str]:
    """The lines of the page that are typed."""
    return [line for block in blocks(PAGE, "bash") for line in block.text.splitlines()]


@pytest.mark.parametrize("page", ["serve.md", "page.md", "http.md"])
def test_a_newcomer_can_paste_what_starts_it(page: str) -> None:
    lines = [line for block in blocks(DOCS / page, "bash") for line in block.text.splitlines()]
    started = [line.partition("regard serve")[2].partition("--")[0].split() for line in lines if "regard serve" in line]
    assert started
    for models in started:
        assert set(models) <= set(shipped.ORDER)
    # Regard is in no index: only from its folder can it be installed with its extras.
    assert [line for line in lines if line.startswith("pip") and line != "pip install '.[serve]'"] == []


def check_routes(client: httpx.Client) -> None:
    """Its table of routes is what the server describes."""
    described = {
        f"{method.upper()} {path}"
        for path, item in client.get("/api/openapi.json").json()["paths"].items()
        for method in item
    }
    shown = {row[0].strip("`") for row in table_rows(PAGE.read_text(encoding="utf-8")) if "/api/" in row[0]}
    assert shown <= described
    assert {route for route in described if "/api/music" not in route} == shown


def test_its_options_and_their_defaults_are_the_commands() -> None:
    options = {parameter.opts[0]: parameter for parameter in get_command(app).commands["serve"].params}  # type: ignore[attr-defined]
    rows = [row for row in table_rows(PAGE.read_text(encoding="utf-8")) if row[0].startswith("`--")]
    assert len(rows) == 6
    for name, _, usual in rows:
        assert float(usual.replace(",", "")) == options[name.strip("`")].default
    limits = Limits()
    text = PAGE.read_text(encoding="utf-8").replace("\n", " ")
    for value in (limits.document, limits.fields, limits.connections):
        assert f"{value:,}" in text
    assert (limits.body, limits.file, limits.patience) == (256 * 2**10, 10 * 2**20, 15)
