"""`/api/classify` and `/api/tag` answer what Python answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from regard.api import load
from regard.serve.limits import Limits
from tests.journeys.test_labels import corpus, train
from tests.serve.running import running


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    for recipe in ("classify-table", "tag-restoring-convolution"):
        place = tmp_path_factory.mktemp(recipe)
        train(place / "out", recipe, *corpus(place, recipe))
        found[recipe] = place / "out"
    return found


@pytest.fixture(scope="module")
def client(places: dict[str, Path], babbling_model: Path) -> Iterator[httpx.Client]:
    with running({"babble": babbling_model, **places}, Limits(text=200)) as server, server.client() as client:
        yield client


def test_classify(client: httpx.Client, places: dict[str, Path]) -> None:
    response = client.post("/api/classify", json={"text": "zwölf"})
    assert response.status_code == 200, response.text
    (wanted,) = load(places["classify-table"]).classify(["zwölf"])
    assert response.json()["label"] == wanted.label
    assert response.json()["probability"] == pytest.approx(wanted.probability, abs=1e-5)


def test_tag(client: httpx.Client, places: dict[str, Path]) -> None:
    found = client.post("/api/tag", json={"text": "Speak, you!"}).json()
    model = load(places["tag-restoring-convolution"])
    (wanted,) = model.tag(["Speak, you!"])
    assert [word["label"] for word in found["words"]] == list(wanted.tags)
    assert [word["word"] for word in found["words"]] == ["speak", "you"]
    assert len(model.labels) == 21
    for word, choice in zip(found["words"], wanted.choices, strict=True):
        assert list(word["probabilities"].items()) == list(choice.to_json(12)["probabilities"].items())  # type: ignore[attr-defined]
        assert len(word["probabilities"]) == 12
        assert next(iter(word["probabilities"])) == word["label"]
    assert found["restored"] == model.restore(["speak you"])[0]


def test_models_and_mistakes(client: httpx.Client) -> None:
    models = {model["id"]: model for model in client.get("/api/models").json()["models"]}
    assert [model["task"] for model in models.values()] == ["generate", "classify", "tag"]
    assert models["classify-table"]["labels"] == ["de", "en"]
    assert models["babble"]["labels"] == []
    assert client.get("/api/models/classify-table/inside").json()["wiring"] is None
    for path, model, words in (
        ("classify", "babble", "continues text"), ("tag", "classify-table", "gives one label"),
        ("translate", "classify-table", "labels"), ("generate", "classify-table", "labels"),
        ("attention", "classify-table", "labels"),
    ):  # fmt: skip
        response = client.post(f"/api/{path}", json={"model": model, "text": "x"})
        assert response.status_code == 400, (path, response.text)
        assert words in response.text
    assert client.post("/api/classify", json={"text": "x" * 201}).status_code == 413
