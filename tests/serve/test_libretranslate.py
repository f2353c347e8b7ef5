"""LibreTranslate's Python client, unchanged, against a real server; and what that client does not cover."""

from __future__ import annotations

import urllib.error
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from libretranslatepy import LibreTranslateAPI

from regard.api import load
from regard.documents.reading import read
from regard.errors import UsageError
from regard.serve import libretranslate
from regard.serve.desk import Desk
from regard.serve.libretranslate import Shelf
from regard.serve.limits import Limits
from regard.serve.tongues import Tongues
from tests.documents.files import body_of, word
from tests.serve.running import Running, running

SUBTITLES = "1\n00:00:01,000 --> 00:00:02,000\n<i>two</i>\n\n2\n00:00:03,000 --> 00:00:04,000\nthree\n"


@pytest.fixture(scope="module")
def client(server: Running) -> LibreTranslateAPI:
    return LibreTranslateAPI(server.address)


@pytest.fixture(scope="module")
def http(server: Running) -> Iterator[httpx.Client]:
    with server.client() as found:
        yield found


def test_the_client_translates_detects_and_lists(client: LibreTranslateAPI) -> None:
    assert client.translate("two", "en", "de") == "zwei"
    assert client.languages() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": []},
    ]
    found = client.detect("the house is not for you")
    assert found[0]["language"] == "en"
    assert found[0]["confidence"] > found[1]["confidence"]
    assert sum(each["confidence"] for each in found) == pytest.approx(100, abs=0.2)
    assert client.detect("das Haus ist nicht für sich")[0]["language"] == "de"
    for text in ("Hallo", "guten morgen", "Danke", "Tschüss", "Bitte", "ja"):
        assert client.detect(text)[0]["language"] == "de", text
    for text in ("Hello", "good morning", "thanks", "yes"):
        assert client.detect(text)[0]["confidence"] > 90, text
    assert client.detect("日本") == client.detect("") == client.detect("1, 2") == []


def test_the_client_with_a_key(words_model: Path) -> None:
    with running({"words": words_model}, key="secret") as guarded:
        assert LibreTranslateAPI(guarded.address, "secret").translate("two", "en", "de") == "zwei"
        for key in (None, "wrong"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                LibreTranslateAPI(guarded.address, key).translate("two", "en", "de")
            assert refused.value.code == 401
            assert "key" in refused.value.read().decode()


def test_json_and_forms_say_the_same(http: httpx.Client) -> None:
    body = {"q": "two", "source": "en", "target": "de"}
    for sent in ({"json": body}, {"data": body}, {"data": body, "files": {"x": (None, "y")}}):
        assert http.post("/translate", **sent).json() == {"translatedText": "zwei"}  # type: ignore[arg-type]


def test_several_texts_lines_and_alternatives(http: httpx.Client) -> None:
    found = http.post("/translate", json={"q": ["two", "one\n\nthree"], "source": "en", "target": "de"}).json()
    assert found == {"translatedText": ["zwei", "eins\n\ndrei"]}
    lines = ["two three four five six seven eight nine", "seven"]  # as long as if they had been wrapped
    found = http.post("/translate", json={"q": [*lines, "\n".join(lines)], "source": "en", "target": "de"}).json()
    assert found["translatedText"][2].split("\n") == found["translatedText"][:2]
    found = http.post("/translate", json={"q": "two", "source": "en-GB", "target": "de", "alternatives": 2}).json()
    assert found["translatedText"] == "zwei"
    assert 1 <= len(found["alternatives"]) <= 2
    assert "zwei" not in found["alternatives"]
    assert http.post("/translate", json={"q": [], "source": "en", "target": "de"}).json() == {"translatedText": []}
    assert http.post("/translate", json={"q": "", "source": "en", "target": "de"}).json() == {"translatedText": ""}


def test_a_list_is_translated_in_batches(server: Running, http: httpx.Client) -> None:
    worked: list[int] = []
    count = server.desk.metrics.worked
    texts = ["one", "two", "three", "four", "two\nfive", "six"] * 5
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server.desk.metrics, "worked", lambda model, rows: (worked.append(rows), count(model, rows))[1])
        found = http.post("/translate", json={"q": texts, "source": "en", "target": "de"}).json()["translatedText"]
    assert found == ["eins", "zwei", "drei", "vier", "zwei\nfünf", "sechs"] * 5
    assert worked == [6]


def test_several_models_of_a_pair_are_named_once(words_model: Path) -> None:
    with running({"one": words_model, "two": words_model}) as double, double.client() as http:
        error = http.post("/translate", json={"q": "x", "source": "xx", "target": "yy"}).json()["error"]
        assert "(en → de)" in error


def test_html_keeps_its_tags(http: httpx.Client) -> None:
    body = {"q": "<p class=a>two</p><b>three</b><script>one</script>", "source": "en", "target": "de", "format": "html"}
    found = http.post("/translate", json=body).json()["translatedText"]
    assert found == "<p class=a>zwei</p><b>drei</b><script>one</script>"
    assert http.post("/translate", json={**body, "format": "text"}).json()["translatedText"] != found
    body["q"] = "<html lang=en><p>two</p>"
    assert http.post("/translate", json=body).json()["translatedText"] == '<html lang="de"><p>zwei</p>'


def test_the_source_may_be_guessed(http: httpx.Client) -> None:
    found = http.post("/translate", json={"q": "two", "source": "auto", "target": "de"}).json()
    assert found["translatedText"] == "zwei"
    assert found["detectedLanguage"] == http.post("/detect", json={"q": "two"}).json()[0]
    assert found["detectedLanguage"]["language"] == "en"
    many = http.post("/translate", json={"q": ["two", "1"], "source": "auto", "target": "de"}).json()
    assert len(many["detectedLanguage"]) == 2


def test_what_is_in_the_target_language_already_stays_as_it_is(http: httpx.Client) -> None:
    german, html = "Wie geht es dir?\n Danke,  gut!", "<p>Wie geht es <b>dir</b>?</p>"
    body = {"source": "auto", "target": "de", "alternatives": 2}
    found = http.post("/translate", json={**body, "q": [german, "two"]}).json()
    assert found["translatedText"] == [german, "zwei"]
    assert found["alternatives"][0] == []
    detected = found["detectedLanguage"]
    assert [guess["language"] for guess in detected] == ["de", "en"]
    assert detected[0] == http.post("/detect", json={"q": german}).json()[0]
    assert http.post("/translate", json={**body, "q": html, "format": "html"}).json()["translatedText"] == html
    subtitles = SUBTITLES.replace("two", "Danke").replace("three", "Bitte")
    place = upload(http, "a.srt", subtitles.encode(), source="auto").json()["translatedFileUrl"]
    assert http.get(place).text == subtitles


def test_of_languages_as_likely_one_that_can_be_translated_is_meant(words_model: Path) -> None:
    tongues = Tongues(Desk({"words": load(words_model)}))
    (pair,) = tongues.pairs
    tongues.pairs = [replace(pair, source="de", target="en"), pair]  # German is named first
    assert [guess.confidence for guess in tongues.detect("Tom")] == [50.0, 50.0]
    for text, guessed in (("Tom", "en"), ("Hallo Tom", "de")):
        found, guess = libretranslate._guessed(tongues, "de", read("q", text.encode(), "lines"))
        assert (guess.language, found is pair) == (guessed, guessed == "en")


def test_a_language_that_nobody_translates_is_named(words_model: Path) -> None:
    tongues = Tongues(Desk({"words": load(words_model)}))
    tongues.pairs += [replace(tongues.pairs[0], source="fr", target="en")]
    with pytest.raises(UsageError, match="but are `fr` and `de`"):
        libretranslate._guessed(tongues, "de", read("q", "Bonjour, ça va ?".encode(), "lines"))


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"source": "en", "target": "de"}, 400, "q: must be given, but is missing"),
        ({"q": "x", "source": "xx", "target": "de"}, 400, "must be languages of a model here (en → de)"),
        ({"q": "x", "source": "auto", "target": "xx"}, 400, "must be languages of a model here"),
        (
            {"q": "x", "source": "en", "target": "de", "format": "pdf"},
            400,
            "format: must be one of 'text' or 'html', but is 'pdf'",
        ),
        ({"q": "x" * 5_001, "source": "en", "target": "de"}, 413, "q: must be at most 5,000 characters"),
        ({"q": ["x"] * 129, "source": "en", "target": "de"}, 413, "q: must be at most 128 texts"),
        ({"q": "x", "source": "en", "target": "de", "alternatives": 99}, 413, "alternatives: must be at most 16"),
        ({"q": "a\0b", "source": "en", "target": "de"}, 400, "NUL"),
        ({"q": "\ud800", "source": "en", "target": "de"}, 400, "Unicode"),
        ([1], 400, "body"),
    ],
)
def test_what_cannot_be_is_refused(http: httpx.Client, body: object, status: int, words: str) -> None:
    import json

    answer = http.post("/translate", content=json.dumps(body), headers={"content-type": "application/json"})
    assert (answer.status_code, list(answer.json())) == (status, ["error"])
    assert words in answer.json()["error"]


def test_what_is_neither_json_nor_a_form(http: httpx.Client) -> None:
    for kind in ("application/json", "multipart/form-data", "multipart/form-data; boundary=x", "text/plain", ""):
        answer = http.post("/detect", content=b"\xff{nothing", headers={"content-type": kind})
        assert answer.status_code == 400, kind
        assert list(answer.json()) == ["error"]
    answer = http.post("/detect", content=b'{"q" "one"}', headers={"content-type": "application/json"})
    assert "JSON, but is not at line 1, column 6. Send" in answer.json()["error"]


def test_json_that_is_called_a_form_is_told_the_header(http: httpx.Client) -> None:
    """As `curl -d` sends it."""
    headers = {"content-type": "application/x-www-form-urlencoded"}
    answer = http.post("/detect", content=b' {"q": "one"}', headers=headers)
    assert answer.status_code == 400
    assert f"curl {http.base_url}/detect -H 'content-type: application/json' -d" in answer.json()["error"]


# Files


def upload(http: httpx.Client, name: str, data: bytes, **fields: str) -> httpx.Response:
    return http.post("/translate_file", files={"file": (name, data)}, data={"source": "en", "target": "de", **fields})


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a.txt", b"two\n\nthree\n", b"zwei\n\ndrei\n"),
        ("a.srt", SUBTITLES.encode(), SUBTITLES.replace("two", "zwei").replace("three", "drei").encode()),
        ("a.html", b"<p>two <!-- x --></p>", b"<p>zwei<!-- x --></p>"),
        ("b.html", b'<html lang="en"><p>two</p>', b'<html lang="de"><p>zwei</p>'),
        (
            "a.tmx", b'<tmx><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>two</seg></tuv></tu></body></tmx>',
            b'<tmx><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>two</seg></tuv><tuv xml:lang="de"><seg>zwei'
            b"</seg></tuv></tu></body></tmx>",
        ),
    ],
)  # fmt: skip
def test_a_file_is_translated_and_fetched_once(http: httpx.Client, name: str, data: bytes, expected: bytes) -> None:
    place = upload(http, name, data).json()["translatedFileUrl"]
    assert place.startswith(f"{http.base_url}".rstrip("/"))
    found = http.get(place)
    assert found.content == expected
    assert found.headers["content-disposition"] == f"attachment; filename*=UTF-8''{name.replace('.', '_de.')}"
    assert http.get(place).status_code == 404


def test_a_word_document(http: httpx.Client) -> None:
    data = word("<w:p><w:r><w:t>two</w:t></w:r></w:p>")
    found = http.get(upload(http, "Ä b/../x y.docx", data, source="auto").json()["translatedFileUrl"])
    assert ">zwei</w:t>" in body_of(found.content)
    assert found.headers["content-disposition"] == "attachment; filename*=UTF-8''x_y_de.docx"


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.pdf", b"%PDF", "a document must be one of: .txt, .srt"),
        ("a.docx", b"PK", "must be a zip file"),
        ("a.srt", b"hello", "a.srt, line 1"),
        ("", b"x", ""),
    ],
)
def test_files_that_cannot_be_read(http: httpx.Client, name: str, data: bytes, words: str) -> None:
    answer = upload(http, name, data)
    assert answer.status_code in (400, 422)
    assert words in answer.json()["error"]


def test_too_much_text(http: httpx.Client, server: Running) -> None:
    answer = upload(http, "a.txt", b"x " * server.desk.limits.document)
    assert (answer.status_code, list(answer.json())) == (413, ["error"])


def test_a_large_body_is_refused(words_model: Path) -> None:
    with running({"words": words_model}, Limits(file=10_000)) as small, small.client() as http:
        assert upload(http, "a.txt", b"x " * 10_000).status_code == 413


def test_the_shelf_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf()
    first, *others = [shelf.put(f"{n}", b"x", "text/plain") for n in range(libretranslate.KEPT_FILES + 1)]
    assert shelf.take(first) is None
    assert shelf.take(others[0]) is not None
    assert shelf.take(others[0]) is None
    monkeypatch.setattr(libretranslate, "KEPT_BYTES", 70)
    large = shelf.put("large", bytes(50), "text/plain")
    assert shelf.take(others[1]) is None
    assert shelf.take(others[-1]) is not None
    assert shelf.take(large) is not None
    monkeypatch.setattr(libretranslate, "KEPT_SECONDS", -1)
    assert shelf.take(shelf.put("late", b"x", "text/plain")) is None


def test_settings_for_front_ends(http: httpx.Client) -> None:
    found = http.get("/frontend/settings").json()
    assert found["charLimit"] == 5_000
    assert found["language"]["source"] == {"code": "en", "name": "English"}
    assert ".docx" in found["supportedFilesFormat"]
    assert not found["keyRequired"]
