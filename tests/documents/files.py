"""Documents made for tests."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
TYPES = "application/vnd.openxmlformats-officedocument.wordprocessingml"


def upper(texts: list[str]) -> list[str]:
    """A translation that every test can follow."""
    return [text.upper() for text in texts]


def zipped(parts: Mapping[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", compression) as target:
        for name, content in parts.items():
            target.writestr(zipfile.ZipInfo(name), content, compression)
    return written.getvalue()


def unzipped(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as source:
        return {name: source.read(name) for name in source.namelist()}


def word_parts(body: str, **others: str) -> dict[str, bytes]:
    """The parts of a Word document; `others` are headers and the like, by their names."""
    kinds = {"document": "document.main", **{name: name.rstrip("0123456789") for name in others}}
    listed = "".join(
        f'<Override PartName="/word/{name}.xml" ContentType="{TYPES}.{kind}+xml"/>' for name, kind in kinds.items()
    )
    types = f'<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">{listed}</Types>'
    around = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\r\n<w:{0} xmlns:w="{1}">{2}</w:{0}>'
    texts = {"document": f"<w:body>{body}</w:body>", **others}
    return {
        "[Content_Types].xml": types.encode(),
        **{f"word/{name}.xml": around.format("x", WORD, text).encode() for name, text in texts.items()},
        "word/media/image1.png": bytes(range(256)),
    }


def word(body: str, **others: str) -> bytes:
    return zipped(word_parts(body, **others))


def body_of(data: bytes, part: str = "document") -> str:
    """What is inside a part of a Word document."""
    text = unzipped(data)[f"word/{part}.xml"].decode()
    return text[text.index(">", text.index("<w:x")) + 1 : text.rindex("</w:x>")]
