"""Documents over HTTP: a file comes, its translation goes, in the same form."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, File, Form, Response, UploadFile

from regard.serve.desk import Desk
from regard.serve.limits import Limits
from regard.serve.papers import translate_document
from regard.serve.tongues import target_of

FLAGS = "regard-flags"  # the header that says what looks odd in a translated file
MOST_NAME = 100  # characters of a file's name that messages repeat


def add_documents(routes: APIRouter, desk: Desk, limits: Limits) -> None:
    """`/documents`: a file comes, its translation goes."""

    @routes.post(
        "/documents",
        summary="Translate a document, which keeps its form",
        response_class=Response,
        responses={200: {"description": "The translated file.", "content": {"application/octet-stream": {}}}},
    )
    async def documents(
        file: Annotated[UploadFile, File(description="A .txt, .srt, .html, .docx or .tmx file.")],
        model: Annotated[str | None, Form(max_length=200)] = None,
        language: Annotated[str | None, Form(max_length=50)] = None,
    ) -> Response:
        served = desk.find(model or None, "translate")
        name = file.filename or "document"
        paper = await translate_document(desk, limits, served, name, await file.read(), language or None)
        headers = as_file(translated_name(name, language or target_of(served)))
        if paper.unknown:
            headers[FLAGS] = "unknown"
        return Response(paper.data, media_type=paper.document.media_type, headers=headers)


def translated_name(name: str, language: str | None) -> str:
    """What to call the translation of a file, so that it does not land on the original: `talk.de.srt`."""
    stem, _, suffix = name.rpartition(".")
    return f"{stem}.{language or 'translated'}.{suffix}"


def as_file(name: str) -> dict[str, str]:
    """Headers by which a browser saves an answer under a name, whatever characters it has."""
    last = name.replace("\\", "/").rpartition("/")[2][-MOST_NAME:]
    return {"content-disposition": f"attachment; filename*=UTF-8''{quote(last.encode('utf-8', 'replace'), safe='')}"}
