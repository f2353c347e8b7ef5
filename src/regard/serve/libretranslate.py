"""The routes of LibreTranslate, so that its many clients work with models of one's own.

`/translate`, `/detect`, `/languages`, `/translate_file`, `/download_file` and `/frontend/settings`. Requests may be
JSON or forms, as there. A text is translated sentence by sentence, and keeps its lines; with `format` html, its tags.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import quote

from fastapi import APIRouter, File, Form, Request, Response, UploadFile
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from regard.documents.document import Document
from regard.documents.reading import SUFFIXES
from regard.errors import UsageError
from regard.serve.desk import Desk
from regard.serve.limits import Limits
from regard.serve.papers import Paper, look_into, read_document, translate_document, translate_read
from regard.serve.problems import Problem, broken_rule, no_json, wrong_type
from regard.serve.tongues import AUTO, Guess, Pair, Tongues, name_of

LOOKED_AT = 2_000  # characters of a text that tell its language
KEPT_FILES = 64
KEPT_BYTES = 64 * 2**20
KEPT_SECONDS = 600.0
UNSAFE = re.compile(r"[^\w.-]+", re.ASCII)
Code = Annotated[str, Field(max_length=50)]
_Body = TypeVar("_Body", bound=BaseModel)


class TranslateRequest(BaseModel):
    """Texts to translate."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    q: str | list[str] = Field(description="A text, or several.")
    source: Code = Field(description="Its language, or `auto`.")
    target: Code
    format: Literal["text", "html"] = "text"
    alternatives: int = Field(0, ge=0, le=1_000)
    api_key: str | None = None


class DetectRequest(BaseModel):
    """A text of some language."""

    model_config = ConfigDict(extra="ignore")

    q: str
    api_key: str | None = None


class LibreError(BaseModel):
    """What went wrong."""

    error: str


class Language(BaseModel):
    """A language, and what it can be translated into."""

    code: str
    name: str
    targets: list[str]


class Detection(BaseModel):
    """A language that a text may be in; how sure that is, from 0 to 100."""

    confidence: float
    language: str


class TranslateAnswer(BaseModel):
    """Translations; lists where a list was asked for."""

    translatedText: str | list[str]
    detectedLanguage: Detection | list[Detection] | None = None
    alternatives: list[str] | list[list[str]] | None = None


class FileAnswer(BaseModel):
    """Where a translated file can be fetched, once."""

    translatedFileUrl: str


ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": LibreError} for code in (400, 401, 403, 404, 408, 413, 422, 429, 503, 504)
}


def router(desk: Desk, limits: Limits) -> APIRouter:
    """All routes of LibreTranslate's."""
    routes = APIRouter(tags=["LibreTranslate"], responses=ERRORS)
    tongues, shelf = Tongues(desk), Shelf()
    _add_texts(routes, desk, limits, tongues)
    _add_files(routes, desk, limits, tongues, shelf)

    @routes.get("/languages", summary="The languages of this server's models")
    async def languages() -> list[Language]:
        return [Language(code=code, name=name_of(code), targets=tongues.targets(code)) for code in tongues.codes]

    @routes.get("/frontend/settings", summary="What a front end needs to know", response_class=Response,
                responses={200: {"content": {"application/json": {"schema": {"type": "object"}}}}})  # fmt: skip
    async def settings(request: Request) -> Response:
        first = tongues.pairs[0] if tongues.pairs else None
        sides = {"source": first.source, "target": first.target} if first else {}
        return _json({
            "apiKeys": False,
            "charLimit": limits.text,
            "frontendTimeout": 500,
            # Where a key is needed, nobody comes here without one.
            "keyRequired": "authorization" in request.headers,
            "language": {side: {"code": code, "name": name_of(code)} for side, code in sides.items()},
            "suggestions": False,
            "supportedFilesFormat": list(SUFFIXES),
        })  # fmt: skip

    return routes


def _add_texts(routes: APIRouter, desk: Desk, limits: Limits, tongues: Tongues) -> None:
    @routes.post("/translate", summary="Translate texts", response_class=Response,
                 responses={200: {"model": TranslateAnswer}}, openapi_extra=_takes(TranslateRequest))  # fmt: skip
    async def translate(request: Request) -> Response:
        body = await _body(request, TranslateRequest)
        texts = [body.q] if isinstance(body.q, str) else body.q
        limits.check_texts(len(texts), "q")
        for text in texts:
            limits.check_text(text, "q")
        limits.check(sum(map(len, texts)), limits.document, "q", "characters in all texts")
        async with desk.in_time():
            answers = await _translated(desk, limits, tongues, texts, body)
        found: dict[str, Any] = {"translatedText": [answer.text for answer in answers]}
        if body.source == AUTO:
            found["detectedLanguage"] = [_detection(answer.guess) for answer in answers if answer.guess]
        if body.alternatives:
            found["alternatives"] = [answer.others for answer in answers]
        if isinstance(body.q, str):
            found = {name: values[0] for name, values in found.items()}
        return _json(found)

    @routes.post("/detect", summary="Guess the language of a text", response_class=Response,
                 responses={200: {"model": list[Detection]}}, openapi_extra=_takes(DetectRequest))  # fmt: skip
    async def detect(request: Request) -> Response:
        body = await _body(request, DetectRequest)
        limits.check_text(body.q, "q")
        return _json([_detection(guess) for guess in tongues.detect(body.q)])


def _add_files(routes: APIRouter, desk: Desk, limits: Limits, tongues: Tongues, shelf: Shelf) -> None:
    @routes.post("/translate_file", summary="Translate a document")
    async def translate_file(
        request: Request,
        file: Annotated[UploadFile, File()],
        source: Annotated[Code, Form()],
        target: Annotated[Code, Form()],
        api_key: Annotated[str | None, Form()] = None,
    ) -> FileAnswer:
        name, data = file.filename or "", await file.read()
        paper = await _translated_file(desk, limits, tongues, name, data, source, target)
        place = shelf.put(_safe(name, target), paper.data, paper.document.media_type)
        return FileAnswer(translatedFileUrl=str(request.url_for("download_file", place=place)))

    @routes.get("/download_file/{place}", summary="Fetch a translated document, once", response_class=Response,
                responses={200: {"content": {"application/octet-stream": {}}}})  # fmt: skip
    async def download_file(place: str) -> Response:
        kept = shelf.take(place)
        if kept is None:
            message = "file: must have been translated here lately and not be fetched yet, but is not. Send it again."
            raise Problem(404, "missing", message, "file")
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(kept.name)}"}
        return Response(kept.data, media_type=kept.media_type, headers=headers)


# ---- texts


@dataclass(frozen=True)
class _Answer:
    text: str
    others: list[str]
    guess: Guess | None


async def _translated(
    desk: Desk, limits: Limits, tongues: Tongues, texts: Sequence[str], body: TranslateRequest
) -> list[_Answer]:
    """Texts as documents of their own: their sentences are translated, all of a model's together; their forms stay."""
    form = "html" if body.format == "html" else "lines"
    documents = [await read_document(desk, limits, "q", _encoded(text), form, body.target) for text in texts]
    pairs: list[tuple[Pair | None, Guess | None]] = [
        _guessed(tongues, body.target, document) if body.source == AUTO
        else (tongues.find(body.source, body.target), None) for document in documents
    ]  # fmt: skip
    papers = {place: Paper(documents[place], _encoded(text)) for place, text in enumerate(texts)}  # as they came
    for pair in {id(pair): pair for pair, _ in pairs if pair is not None}.values():
        places = [place for place, (other, _) in enumerate(pairs) if other is pair]
        some = [documents[place] for place in places]
        found = await translate_read(desk, limits, pair.served, some, pair.tag, alternatives=body.alternatives)
        papers.update(zip(places, found, strict=True))
    return [_answer(papers[place], guess) for place, (_, guess) in enumerate(pairs)]


def _answer(paper: Paper, guess: Guess | None) -> _Answer:
    others = [other.decode() for other in paper.others]
    best = paper.data.decode()
    return _Answer(best, [other for other in dict.fromkeys(others) if other != best], guess)


async def _translated_file(
    desk: Desk, limits: Limits, tongues: Tongues, name: str, data: bytes, source: str, target: str
) -> Paper:
    if source == AUTO:
        document = await look_into(desk, limits, name, data, target)
        pair, _ = _guessed(tongues, target, document)
        if pair is None:
            return Paper(document, data)
    else:
        pair = tongues.find(source, target)
    return await translate_document(desk, limits, pair.served, name, data, pair.tag, target=target)


def _guessed(tongues: Tongues, target: str, document: Document) -> tuple[Pair | None, Guess]:
    """The model for a document, and what its language was guessed to be.

    There is no model for one that is in the target's language already, as far as one can guess: it stays as it is.
    """
    sources = [pair.source for pair in tongues.pairs if tongues.same(pair.target, target)]
    if not sources:
        tongues.find(AUTO, target)  # raises, and says which languages there are
    guesses = tongues.detect(" ".join(document.texts)[:LOOKED_AT]) or [Guess(sources[0], 0.0)]
    # Of languages that are as likely, one that can be translated comes first.
    best = max(guesses, key=lambda guess: (guess.confidence, guess.language in sources))
    if best.language not in sources and tongues.same(best.language, target):
        return None, best
    return tongues.find(best.language, target), best


def _detection(guess: Guess) -> dict[str, Any]:
    return {"confidence": guess.confidence, "language": guess.language}


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise UsageError("q: must be Unicode, but holds half a character. Write it anew.") from None


async def _body(request: Request, kind: type[_Body]) -> _Body:
    """What was sent, as JSON or as a form."""
    content_type = request.headers.get("content-type", "").lower()
    try:
        if content_type.startswith(("application/x-www-form-urlencoded", "multipart/form-data")):
            async with request.form(max_files=0, max_fields=100) as form:
                if next(iter(form), "").lstrip().startswith("{"):
                    raise wrong_type(content_type, str(request.url.replace(query="")))
                content: object = {name: form.get(name) for name in form}
        else:
            content = json.loads(await request.body())
        return kind.model_validate(content)
    except ValidationError as error:
        raise broken_rule(error.errors(), 400) from None
    except json.JSONDecodeError as error:
        raise no_json(error.doc, error.pos) from None
    except (ValueError, RecursionError):
        raise Problem(
            400, "data", "body: must be JSON or a form, but is neither. Send an object with the fields of this route."
        ) from None


def _takes(body: type[BaseModel]) -> dict[str, Any]:
    """A request body in OpenAPI's words."""
    schema = body.model_json_schema()
    kinds = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}}


def _json(value: object) -> Response:
    return Response(json.dumps(value, ensure_ascii=False).encode(errors="replace"), media_type="application/json")


# ---- files


@dataclass(frozen=True)
class Kept:
    """A file that waits to be fetched."""

    name: str
    data: bytes
    media_type: str
    until: float


class Shelf:
    """Files that wait to be fetched once: so many, so large and so long at most; the oldest go first."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, Kept] = OrderedDict()

    def put(self, name: str, data: bytes, media_type: str) -> str:
        """Keep a file; what it is fetched by, which nobody can guess."""
        place = secrets.token_urlsafe(24)
        self._files[place] = Kept(name, data, media_type, time.monotonic() + KEPT_SECONDS)
        while len(self._files) > KEPT_FILES or sum(len(kept.data) for kept in self._files.values()) > KEPT_BYTES:
            self._files.popitem(last=False)
        self._tidy()
        return place

    def take(self, place: str) -> Kept | None:
        """Give a file away; None if it is not there, or no longer."""
        self._tidy()
        return self._files.pop(place, None)

    def _tidy(self) -> None:
        now = time.monotonic()
        for place in [place for place, kept in self._files.items() if kept.until < now]:
            del self._files[place]


def _safe(name: str, language: str) -> str:
    """A name for the translation that is safe in any folder: `talk.srt` becomes `talk_de.srt`."""
    stem, dot, suffix = name.replace("\\", "/").rpartition("/")[2].rpartition(".")
    parts = (UNSAFE.sub("_", part).strip("._")[:80] for part in (stem, language, suffix))
    stem, language, suffix = parts
    return f"{stem or 'document'}_{language}{dot}{suffix}"
