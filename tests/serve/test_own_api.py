"""The own API answers what Python answers, in the shapes it describes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from pydantic import BaseModel, TypeAdapter

from regard.api import Model, load
from regard.decoding.sampling import SamplingSettings
from regard.decoding.search import SearchSettings
from regard.exploring import attention, following, inside
from regard.serve import answers
from tests.serve.running import Running, running
from tests.tiny import language_model


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[httpx.Client]:
    with server.client() as made:
        yield made


@pytest.fixture(scope="module")
def words(words_model: Path) -> Model:
    return load(words_model)


@pytest.fixture(scope="module")
def babble(babbling_model: Path) -> Model:
    return load(babbling_model)


def ask(client: httpx.Client, route: str, shape: type[BaseModel] | None = None, **body: object) -> Any:
    """The answer to a question; it has exactly the fields that are described."""
    response = client.post(f"/api/{route}", json=body)
    assert response.status_code == 200, response.text
    found = response.json()
    if shape is not None:
        assert TypeAdapter(shape).validate_python(found).model_dump(mode="json") == found
    return found


def refuse(client: httpx.Client, status: int, kind: str, route: str, **body: object) -> Any:
    """The error that a question gets."""
    response = client.post(f"/api/{route}", json=body)
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"type", "message", "field"}
    assert error["type"] == kind
    return error


def test_models_are_listed_with_what_they_can_do(client: httpx.Client) -> None:
    found = client.get("/api/models").json()
    answers.ModelsAnswer.model_validate(found)
    assert [(each["id"], each["task"]) for each in found["models"]] == [("words", "translate"), ("babble", "generate")]
    assert found["default"] == "words"
    assert found["limits"] == {"text": 5000, "beam": 16, "nbest": 16, "tokens": 512, "n": 8}


def test_a_translation_is_the_models_own(client: httpx.Client, words: Model) -> None:
    found = ask(client, "translate", answers.TranslateAnswer, text="two", beam=4, nbest=3)
    expected = words.translations(["two"], SearchSettings(beam=4, nbest=3))[0]
    assert [each["text"] for each in found["translations"]] == [each.text for each in expected]
    assert found["translations"][0]["score"] == pytest.approx(expected[0].score, abs=1e-5)
    assert found["alignment"]


def test_a_translation_can_be_told_how_to_begin(client: httpx.Client) -> None:
    assert ask(client, "translate", text="two", prefix="drei")["translations"][0]["text"].startswith("drei")


def test_a_text_of_several_sentences_is_translated_whole(client: httpx.Client, words: Model) -> None:
    found = ask(client, "translate", answers.TranslateAnswer, text="two\n\n- three\n42\ntwo\n", nbest=2, beam=4)
    assert found["translations"][0]["text"] == "zwei\n\n- drei\n42\nzwei\n"
    assert [(each["source"], each["text"]) for each in found["segments"]] == [
        ("two", "zwei"),
        ("three", "drei"),
        ("two", "zwei"),
    ]
    alone = [ask(client, "translate", text=text, nbest=2, beam=4) for text in ("two", "three", "two")]
    for rank in range(2):
        parts = [each["translations"][rank] for each in alone]
        whole = found["translations"][rank]
        assert whole["tokens"] == [token for part in parts for token in part["tokens"]]
        assert whole["score"] == pytest.approx(sum(part["score"] for part in parts), abs=1e-4)
    assert found["source_tokens"] == [token for each in alone for token in each["source_tokens"]]
    read = written = 0
    expected = []
    for each in alone:
        expected += [[source + read, target + written] for source, target, _ in each["alignment"]]
        read, written = read + len(each["source_tokens"]), written + len(each["translations"][0]["tokens"])
    assert [link[:2] for link in found["alignment"]] == expected


def test_each_line_is_translated_by_itself_even_if_lines_look_wrapped(client: httpx.Client) -> None:
    lines = ["two. three. " * 4 + "two.", "four five six seven."]
    found = ask(client, "translate", text="\n".join(lines))
    alone = [ask(client, "translate", text=line) for line in lines]
    assert found["translations"][0]["text"].split("\n") == [each["translations"][0]["text"] for each in alone]
    assert [each["source"] for each in found["segments"]] == ["two.", "three."] * 4 + ["two.", lines[1]]


def test_a_single_sentence_is_translated_as_it_stands(client: httpx.Client, words: Model) -> None:
    for text in ("two", " two  three ", "42", "a\0b\nc"):
        found = ask(client, "translate", answers.TranslateAnswer, text=text)
        (expected,) = words.translations([text])
        assert found["translations"][0]["text"] == expected[0].text
        assert [each["source"] for each in found["segments"]] == [text]
    assert ask(client, "translate", text=" ")["segments"] == []
    assert ask(client, "translate", text="- two", prefix="drei")["translations"][0]["text"].startswith("- drei")
    left_alone = ask(client, "translate", text="42\n43")
    assert (left_alone["translations"][0]["text"], left_alone["segments"]) == ("42\n43", [])


def test_asking_for_more_translations_than_beams_widens_the_search(client: httpx.Client) -> None:
    assert len(ask(client, "translate", text="two", nbest=6)["translations"]) == 6
    refuse(client, 400, "usage", "translate", text="two", nbest=6, beam=2)


def test_empty_texts_are_translated_and_cannot_be_looked_at(client: httpx.Client) -> None:
    assert ask(client, "translate", text="")["translations"][0]["text"] == ""
    assert "empty" in refuse(client, 400, "usage", "attention", text=" ")["message"]


def test_alternatives(client: httpx.Client, words: Model) -> None:
    found = ask(client, "alternatives", answers.AlternativesAnswer, text="two", prefix="", count=4)
    assert found == following.alternatives(words, "two", "", 4).to_json()


def test_attention_comes_head_by_head(client: httpx.Client, words: Model) -> None:
    found = ask(client, "attention", answers.AttentionAnswer, text="one two")
    looked = attention.look(words, "one two")
    assert found["target"] == looked.target
    for layer in found["maps"]:
        asked = {"text": "one two", "target": found["target"], "name": layer["name"], "layer": layer["layer"]}
        for head in (*range(layer["heads"]), "mean"):
            weights = ask(client, "attention/head", answers.HeadAnswer, **asked, head=head)["weights"]
            np.testing.assert_allclose(weights, looked.head(layer["name"], layer["layer"], head), atol=1e-4)
    refuse(client, 400, "usage", "attention/head", **{**asked, "layer": 99})
    refuse(client, 400, "usage", "attention/head", **{**asked, "head": 99})


def test_the_attention_of_a_text_is_computed_once(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    look = attention.look
    monkeypatch.setattr(
        attention, "look", lambda model, text, *rest: (looked.append(text), look(model, text, *rest))[1]
    )
    target = ask(client, "attention", text="eleven")["target"]
    for head in (0, 1, "mean"):
        ask(client, "attention/head", text="eleven", target=target, name="cross", layer=0, head=head)
    assert looked == ["eleven"]


def test_a_search_is_shown_as_a_tree(client: httpx.Client) -> None:
    found = ask(client, "beam", answers.BeamAnswer, text="seven", beam=3, alpha=0.6)
    assert found["results"][0]["text"] == "sieben"
    assert found["results"][0]["nodes"][0] in [node["id"] for node in found["rounds"][0]]


def test_next_tokens_and_tokens_along_a_text(client: httpx.Client, babble: Model) -> None:
    found = ask(client, "next", answers.NextAnswer, text="one", temperature=0.5, top_k=5, count=7)
    sampling = SamplingSettings(temperature=0.5, top_k=5)
    assert found == following.next_tokens(babble, "one", sampling, 7).to_json()
    along = ask(client, "tokens", answers.TokensAnswer, model="babble", text="one two")
    assert "".join(each["text"] for each in along["tokens"]) == "one two"


@pytest.mark.parametrize(
    ("model", "body"),
    [("words", {"stack": "encoder"}), ("words", {"stack": "decoder"}), ("babble", {"layer": 1, "head": 1})],
)
def test_walks(client: httpx.Client, model: str, body: dict[str, object]) -> None:
    found = ask(client, "walk", answers.WalkAnswer, model=model, text="one two", **body)
    assert [step["id"] for step in found["steps"]]
    refuse(client, 400, "usage", "walk", model=model, text="one two", layer=50)


def test_positions_neighbours_and_inside(client: httpx.Client) -> None:
    found = ask(client, "positions", answers.PositionsAnswer, model="words", length=9, dimensions=5)
    assert np.shape(found["values"]) == (9, 5)
    assert np.shape(found["similarity"]) == (9, 9)
    assert found["sentence"].startswith("These vectors are added")
    assert "addiert" in ask(client, "positions", model="words", tongue="de")["sentence"]
    near = ask(client, "neighbours", answers.NeighboursAnswer, model="words", text="two", count=3)
    assert len(near["tokens"]) == 3
    about = client.get("/api/models/words/inside").json()
    answers.InsideAnswer.model_validate(about)
    assert "[model]" in about["recipe"]
    assert about["word"] == "three"
    assert ">self-attention<" in about["wiring"]
    assert ">自注意力<" in client.get("/api/models/words/inside", params={"tongue": "zh"}).json()["wiring"]
    assert client.get("/api/models/words/inside", params={"tongue": "la"}).status_code == 422
    assert client.get("/api/models/nobody/inside").status_code == 404


def test_what_is_inside_is_computed_once(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    about = inside.inside
    monkeypatch.setattr(inside, "inside", lambda model, *other: (asked.append(model), about(model, *other))[1])
    first, second = (client.get("/api/models/babble/inside").content for _ in range(2))
    assert first == second
    assert len(asked) <= 1  # none, if somebody else asked before


def test_a_picture_of_a_search_can_be_told_how_to_search(client: httpx.Client) -> None:
    def draw(**search: object) -> bytes:
        return client.post("/api/picture", json={"text": "two", "what": "beam", **search}).content

    assert draw(beam=1) != draw(beam=3)
    assert draw(beam=3, alpha=0.0) != draw(beam=3, alpha=1.0)


def events(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.headers["content-type"].startswith("text/event-stream")
    return [json.loads(line.removeprefix("data: ")) for line in response.iter_lines() if line]


def test_a_text_is_written_at_once_or_as_events(client: httpx.Client, babble: Model) -> None:
    body = {"text": "one", "max_tokens": 15, "temperature": 0.7, "top_k": 9, "seed": 4}
    expected = babble.generations(["one"], SamplingSettings(0.7, 9, max_tokens=15), 4)[0][0]
    whole = ask(client, "generate", answers.GenerateAnswer, **body, stream=False)
    assert whole == {"text": expected.text, "finish_reason": expected.finish_reason, "seed": 4}
    with client.stream("POST", "/api/generate", json=body) as response:
        *pieces, last = events(response)
    assert "".join(piece["text"] for piece in pieces) == expected.text
    assert last == {"done": True, "finish_reason": expected.finish_reason, "seed": 4}


def test_closing_a_stream_stops_the_model(client: httpx.Client, server: Running) -> None:
    body = {"text": "", "max_tokens": 512, "temperature": 3.0}
    for _ in range(3):
        with client.stream("POST", "/api/generate", json=body) as response:
            next(response.iter_lines())
    worker = server.desk.models["babble"].worker
    # The next question is answered at once, and soon nothing is being written any more.
    ask(client, "next", text="a")
    written = server.desk.metrics._tokens[(("model", "babble"),)]
    ask(client, "next", text="b")
    assert server.desk.metrics._tokens[(("model", "babble"),)] - written < 100
    assert not worker._walks


@pytest.mark.parametrize(
    ("status", "kind", "route", "body", "words"),
    [
        (404, "missing", "translate", {"model": "nobody", "text": "x"}, "`nobody`. Name one of them."),
        (404, "missing", "translate", {"model": "wrods", "text": "x"}, "`wrods`. Did you mean `words`?"),
        (400, "usage", "translate", {"model": "babble", "text": "x"}, "language model"),
        (400, "usage", "generate", {"model": "words", "text": "x"}, "translates"),
        (413, "limit", "translate", {"text": "x" * 5001}, "5,000"),
        (413, "limit", "translate", {"text": "x", "beam": 17}, "beam"),
        (413, "limit", "translate", {"text": "x", "nbest": 17}, "beam"),
        (413, "limit", "generate", {"text": "x", "max_tokens": 513}, "512"),
        (413, "limit", "generate", {"text": "x", "max_tokens": 1500}, "512"),
        (413, "limit", "picture", {"text": "x", "what": "beam", "beam": 17}, "beam"),
        (413, "limit", "translate", {"text": "two", "prefix": "x" * 4000}, "prefix: must be at most 512 tokens"),
        (400, "usage", "translate", {"text": "two\nthree", "prefix": "zwei"}, "one sentence, but it has 2"),
        (422, "usage", "translate", {}, "text: must be given, but is missing"),
        (422, "usage", "translate", {"text": 4}, "text: must be a text, but is 4."),
        (422, "usage", "translate", {"text": "x", "beam": "4"}, "beam: must be a whole number, but is a text."),
        (422, "usage", "translate", {"text": "x", "beam": True}, "beam: must be a whole number, but is true."),
        (422, "usage", "translate", {"text": "x", "beams": 4}, "beams: must be a field of this route"),
        (422, "usage", "translate", {"text": "x", "beam": 0}, "beam: must be at least 1, but is 0."),
        (422, "usage", "translate", {"text": "x", "beam": 10**30}, "beam: must be at most 1,000,000, but is a number"),
        (422, "usage", "translate", {"text": "x", "language": "e" * 51}, "a text of at most 50 characters"),
        (422, "usage", "next", {"text": "x", "temperature": -1}, "temperature: must be at least 0.0, but is -1."),
        (422, "usage", "picture", {"text": "x", "what": "face"}, "what: must be one of 'matrix', 'arcs'"),
        (
            422,
            "usage",
            "attention/head",
            {"text": "x", "name": "cross", "layer": 0, "head": "all"},
            "head: must be a whole number or one of 'mean', but is 'all'.",
        ),
        (
            422,
            "usage",
            "walk",
            {"text": "x", "tongue": "fr"},
            "tongue: must be one of 'en', 'de' or 'zh', but is 'fr'.",
        ),
        (422, "usage", "walk", {"text": "x", "tongue": "e\n"}, "but is a text."),
        (422, "usage", "walk", {"text": "x", "tongue": "e" * 31}, "but is a text."),
        (400, "usage", "translate", {"text": "x", "language": "fr"}, "language"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(
    client: httpx.Client, status: int, kind: str, route: str, body: dict[str, object], words: str
) -> None:
    error = refuse(client, status, kind, route, **body)
    assert words in error["message"]
    if status == 422 or error["message"].startswith("model:"):
        assert error["field"] == error["message"].partition(":")[0]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"text": "x", "alpha": NaN}', 422),
        (b'{"text": "x", "alpha": 1e999}', 422),
        (b'{"text": "x", "beam": ' + b"9" * 5000 + b"}", 400),
        (b'{"text": "\\ud800"}', 422),
        (b'{"text": "\xff"}', 400),
        (b'{"text": ', 400),
        (b"", 422),
        (b"[]", 422),
        (b"null", 422),
        (b"[" * 1000, 413),
        (b'{"a":' * 1000, 413),
    ],
)
def test_bodies_that_are_no_question(client: httpx.Client, body: bytes, status: int) -> None:
    response = client.post("/api/translate", content=body, headers={"content-type": "application/json"})
    assert response.status_code == status, response.text
    message = response.json()["error"]["message"]
    assert ": must be " in message
    assert ", but " in message
    assert ".." not in message


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b"{", "line 1, column 2"),
        (b"text=one", "line 1, column 1"),
        (b'{"text": "one",\n "beam": four}', "line 2, column 10"),
    ],
)
def test_what_is_no_json_is_told_where(client: httpx.Client, body: bytes, place: str) -> None:
    response = client.post("/api/translate", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"]["message"] == (
        f"body: must be JSON, but is not at {place}. Send an object with the fields of this route."
    )


@pytest.mark.parametrize(
    ("method", "route", "able"), [("DELETE", "/api/translate", "POST"), ("PUT", "/page", "GET or HEAD")]
)
def test_a_method_that_a_route_does_not_take(client: httpx.Client, method: str, route: str, able: str) -> None:
    response = client.request(method, route)
    assert response.status_code == 405
    assert sorted(response.headers["allow"].split(", ")) == able.split(" or ")
    assert response.json()["error"] == {
        "type": "usage",
        "message": f"method: must be {able}, but is {method}. See /openapi.json for what there is.",
        "field": None,
    }


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("application/x-www-form-urlencoded", "'application/x-www-form-urlencoded'"),
        ("text/plain; charset=utf-8", "'text/plain'"),
        ("<b>", "another"),
        (None, "missing"),
    ],
)
@pytest.mark.parametrize("route", ["api/translate", "v1/completions"])
def test_json_that_is_not_called_json_is_told_the_header(
    client: httpx.Client, route: str, kind: str | None, told: str
) -> None:
    """As `curl -d` sends it."""
    response = client.post(f"/{route}?x=1", content=b'{"text": "one"}', headers={"content-type": kind} if kind else {})
    assert response.status_code == 400
    assert response.json()["error"]["message"] == (
        f"content-type: must be 'application/json', but is {told}. Send it as a header: "
        f"curl {client.base_url}/{route} -H 'content-type: application/json' -d '{{...}}'"
    )


def test_texts_of_every_length_and_script(client: httpx.Client) -> None:
    short = ["\x00", "a\u0000b", "\u2028", "\u202eabc", "👩‍👩‍👧", "ضصث", "<unk>", "</s> <s> <pad>"]
    long = ["x" * 5000, "two " * 1200]
    for text in [*short, "two " * 60, *long]:
        for route in ("translate", "attention", "tokens", "walk", "alternatives", "beam", "neighbours"):
            for model in ("words", "babble") if route != "translate" or text not in long else ():
                response = client.post(f"/api/{route}", json={"text": text, "model": model})
                assert response.status_code in (200, 400, 413), (route, model, text[:20], response.text)
        for route in ("next", "generate"):
            body = {"text": text} | ({"max_tokens": 3, "stream": False} if route == "generate" else {})
            assert client.post(f"/api/{route}", json=body).status_code == 200, (route, text[:20])


@pytest.mark.parametrize("what", ["matrix", "arcs", "heads", "alignment", "beam", "positions", "neighbours", "page"])
def test_pictures_come_as_files(client: httpx.Client, what: str) -> None:
    form = "html" if what == "page" else "svg"
    response = client.post("/api/picture", json={"text": "two", "what": what, "format": form})
    assert response.status_code == 200, response.text
    assert response.headers["content-disposition"].startswith("attachment; filename")
    assert (b"<svg" if form == "svg" else b"<!doctype html") in response.content[:500].lower()


@pytest.mark.parametrize("name", ["numbers.txt", "Zählen 数.html"])
def test_documents_keep_their_form(client: httpx.Client, name: str) -> None:
    before = b"two\n\nthree\n" if name.endswith("txt") else b"<p>two</p>\n<p><b>three</b></p>\n"
    response = client.post("/api/documents", files={"file": (name, before)}, data={"model": "words"})
    assert response.status_code == 200, response.text
    assert response.content == before.replace(b"two", b"zwei").replace(b"three", b"drei")
    stem, _, suffix = name.rpartition(".")
    assert response.headers["content-disposition"] == f"attachment; filename*=UTF-8''{quote(stem)}.de.{suffix}"


def test_a_document_with_unknown_characters_is_told_in_a_header(client: httpx.Client) -> None:
    for text, flags in (("two\n\nthree\n", None), ("two\n\n三\n", "unknown")):
        response = client.post("/api/documents", files={"file": ("a.txt", text.encode())}, data={"model": "words"})
        assert response.headers.get("regard-flags") == flags


def test_documents_that_cannot_be_read_are_refused(client: httpx.Client) -> None:
    def status(name: str, data: bytes, **fields: str) -> int:
        response = client.post("/api/documents", files={"file": (name, data)}, data=fields)
        assert "message" in response.json()["error"]
        return response.status_code

    assert status("x.exe", b"two") == 400
    assert status("x.txt", b"\xff\xfe\xff") == 400
    assert status("x.docx", b"no zip") == 400
    assert status("x.txt", b"two", model="nobody") == 404
    assert status("x.txt", b"two ." * 50_000) == 413
    assert status("x.txt", b"x" * 5_001) == 413
    assert status("x.txt", b"two\n\n" * 20_001) == 413
    assert status("x.txt", b"a. " * 60_000) == 413
    assert client.post("/api/documents", data={"model": "words"}).status_code == 422


def test_the_description_names_every_route(client: httpx.Client) -> None:
    everything = client.get("/openapi.json").json()
    own = client.get("/api/openapi.json").json()
    assert set(own["paths"]) < set(everything["paths"])
    for path, item in own["paths"].items():
        for operation in item.values():
            assert {"200", "413", "422", "429"} <= set(operation["responses"]), path


def test_a_model_of_running_text_reads_and_writes_lines(tmp_path: Path) -> None:
    settings = ["batch={layout='blocks', tokens=512, row=32}", "tokenizer={kind='bpe', vocabulary=120}"]
    place = language_model(tmp_path / "model", settings)
    model, text = load(place), "one two\nthree"
    with running({"lines": place}) as served, served.client() as client:
        (listed,) = client.get("/api/models").json()["models"]
        assert listed["running"] is True
        along = ask(client, "tokens", answers.TokensAnswer, text=text)
        assert "".join(each["text"] for each in along["tokens"]) == text
        found = ask(client, "next", answers.NextAnswer, text=text, count=100)
        assert [each["end"] for each in found["tokens"] if each["text"] == "\n"] == [False]
        (texts,) = model.generations([text], SamplingSettings(max_tokens=60, lines=60), seed=1, count=50)
        seed, expected = next((seed, found) for seed, found in enumerate(texts, 1) if "\n" in found.text)
        assert expected.finish_reason == "length"
        body = {"text": text, "max_tokens": 60, "seed": seed, "lines": 60}
        assert ask(client, "generate", answers.GenerateAnswer, **body, stream=False)["text"] == expected.text
        with client.stream("POST", "/api/generate", json=body) as response:
            assert "".join(event.get("text", "") for event in events(response)) == expected.text
        asked = {"prompt": text, "max_tokens": 2, "seed": 3, "echo": True, "logprobs": 0}
        (choice,) = client.post("/v1/completions", json=asked).json()["choices"]
        ((short,),) = model.generations([text], SamplingSettings(max_tokens=2), 3)
        assert choice["text"] == text + short.text
        assert choice["logprobs"]["tokens"].count("\n") == 1 + short.tokens.count("\n")
        sent = _sent(client, {**asked, "logprobs": None, "stream": True})
        assert "".join(event["choices"][0]["text"] for event in sent) == choice["text"]


def _sent(client: httpx.Client, body: dict[str, object]) -> list[dict[str, Any]]:
    with client.stream("POST", "/v1/completions", json=body) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]
