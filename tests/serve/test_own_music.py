"""`/api/music` answers what Python answers."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pydantic import TypeAdapter

from regard.api import load
from regard.decoding.sampling import SamplingSettings
from regard.music.midi import read_midi
from regard.serve.limits import Limits
from regard.serve.own_music import MusicAnswer
from tests.exploring.test_composing import music_model
from tests.music.scores import SCALE
from tests.serve.running import running

pytest.importorskip("symusic")
PRIMER = base64.b64encode(SCALE).decode()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return music_model(tmp_path_factory.mktemp("music"), "chorale")


@pytest.fixture(scope="module")
def client(place: Path, babbling_model: Path) -> Iterator[httpx.Client]:
    with running({"babble": babbling_model, "bach": place}, Limits(tokens=40)) as server, server.client() as client:
        yield client


def test_a_piece_is_the_one_that_python_writes(client: httpx.Client, place: Path) -> None:
    model = load(place)
    (piece,) = model.compose(SCALE, SamplingSettings(0.9, max_tokens=20), seed=5)
    body = {"primer": PRIMER, "max_tokens": 20, "temperature": 0.9, "seed": 5, "layer": 0}
    response = client.post("/api/music", json=body)
    assert response.status_code == 200, response.text
    found = response.json()
    assert TypeAdapter(MusicAnswer).validate_python(found).model_dump(mode="json") == found
    assert found == {**piece.to_json(), "attention": model.note_attention(piece, 0).to_json()}
    assert len(read_midi(base64.b64decode(found["midi"])).notes) == len(found["notes"])


def test_a_piece_of_its_own(client: httpx.Client) -> None:
    found = client.post("/api/music", json={"model": "bach"}).json()
    assert found["words"] <= 40
    assert found["primed"] == []
    assert found["attention"]["layer"] == 1


def test_the_list_of_models_says_which_write_music(client: httpx.Client) -> None:
    models = client.get("/api/models").json()["models"]
    assert {model["id"]: model["music"] for model in models} == {"babble": False, "bach": True}


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"model": "babble"}, 400, "needs a model of music"),
        ({"primer": "???"}, 400, "primer: must be a MIDI file in base64"),
        ({"primer": base64.b64encode(b"nothing").decode()}, 400, "primer: must be a MIDI file, which begins with"),
        ({"max_tokens": 41}, 413, "max_tokens: must be at most 40 tokens on this server"),
        ({"layer": 2}, 400, "layer: must be from 0 to 1"),
        ({"temperature": -1}, 422, "temperature"),
    ],
)
def test_what_cannot_be_is_refused(client: httpx.Client, body: dict[str, object], status: int, message: str) -> None:
    response = client.post("/api/music", json=body)
    assert response.status_code == status, response.text
    assert message in response.json()["error"]["message"]
