"""Documents at the desk: read, translated by a model, and written again, without keeping others waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from regard.api import Options
from regard.documents.document import Document
from regard.documents.placing import Links
from regard.documents.reading import read
from regard.exploring import inside
from regard.serve.desk import Desk, Served
from regard.serve.limits import Limits

MOST_NAME = 100  # characters of a file's name that messages repeat


@dataclass(frozen=True)
class Paper:
    """A document that was translated: the best translation, and others where they were asked for."""

    document: Document
    data: bytes
    others: tuple[bytes, ...] = ()


async def translate_document(
    desk: Desk,
    limits: Limits,
    served: Served,
    name: str,
    data: bytes,
    language: str | None = None,
    form: str | None = None,
    target: str | None = None,
    alternatives: int = 0,
) -> Paper:
    """A document in the same form, by one model; sentences that are there several times are translated once.

    `language` is what a model that knows several translates into, `target` what a translation memory writes down: the
    same, or the model's only one, unless given. Raises DataError for what cannot be read, LimitError for too much.
    """
    known_targets = inside.languages(served.model).target
    target = target or language or (known_targets[0] if len(known_targets) == 1 else None)
    # In a thread: reading a large file takes a while, and others want answers.
    document = await asyncio.to_thread(read, name[-MOST_NAME:], data, form, target)
    limits.check(sum(map(len, document.texts)), limits.document, "file", "characters of text")
    if document.form == "tmx" and not served.model.tokenizer.source.languages:
        language = None  # it names the language in the file; the model knows only one
    search = served.model.recipe.search
    if alternatives:
        limits.check(alternatives + 1, limits.nbest, "alternatives", "translations")
        search = replace(search, beam=max(search.beam, alternatives + 1), nbest=alternatives + 1, groups=1)
    distinct = list(dict.fromkeys(document.texts))
    found = await desk.translate(served.id, distinct, search, Options(language=language))
    known = {text: [each.text for each in some] for text, some in zip(distinct, found, strict=True)}
    written = []
    for rank in range(alternatives + 1):
        texts = [known[text][min(rank, len(known[text]) - 1)] for text in document.texts]
        links = await _links(desk, served, document, texts)
        written.append(await asyncio.to_thread(document.write, texts, links))
    return Paper(document, written[0], tuple(written[1:]))


async def _links(
    desk: Desk, served: Served, document: Document, translations: Sequence[str]
) -> list[Links | None] | None:
    """Which words belong together, for sentences with marks inside; none where the model cannot say."""
    asked = [place for place in document.marked if translations[place].strip()]
    links: list[Links | None] = [None] * len(translations)
    rows = desk.limits.rows
    for first in range(0, len(asked), rows):
        some = asked[first : first + rows]
        sources, targets = [document.texts[place] for place in some], [translations[place] for place in some]
        found = await desk.run(served.id, lambda model: model.word_links(sources, targets))  # noqa: B023
        if found is None:
            return None
        for place, each in zip(some, found, strict=True):
            links[place] = each
    return links
