"""Documents at the desk: read, translated by a model, and written again, without keeping others waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TypeVar

from regard.api import Options, Translation
from regard.decoding.search import SearchSettings
from regard.documents.document import Document
from regard.documents.package import Package
from regard.documents.placing import Links
from regard.documents.reading import form_of, read
from regard.errors import UsageError
from regard.exploring import inside
from regard.serve.desk import Desk, Served
from regard.serve.limits import Limits

T = TypeVar("T")
MOST_NAME = 100  # characters of a file's name that messages repeat
SMALL = 65_536  # bytes of a document that is read in no time


@dataclass(frozen=True)
class Paper:
    """A document that was translated: the best translation, and others where they were asked for.

    `unknown`: the vocabulary lacks something of it, or `<unk>` was written.
    """

    document: Document
    data: bytes
    others: tuple[bytes, ...] = ()
    unknown: bool = False


async def translate_document(
    desk: Desk,
    limits: Limits,
    served: Served,
    name: str,
    data: bytes,
    language: str | None = None,
    target: str | None = None,
) -> Paper:
    """A document in the same form, by one model; sentences that are there several times are translated once.

    `language` is what a model that knows several translates into, `target` what a translation memory or a page writes
    down: the same, or the model's only one, unless given. Raises DataError for what cannot be read, LimitError for too
    much.
    """
    known = inside.languages(served.model).target
    target = target or language or (known[0] if len(known) == 1 else None)
    large = _is_large(data, form_of(name))
    async with desk.large_document() if large else nullcontext():
        document = await read_document(desk, limits, name, data, None, target)
        if document.form == "tmx" and not served.model.tokenizer.source.languages:
            language = None  # it names the language in the file; the model knows only one
        (paper,) = await translate_read(desk, limits, served, [document], language, large)
    return paper


async def look_into(desk: Desk, limits: Limits, name: str, data: bytes, target: str) -> Document:
    """A document that is read and not yet translated; a large one waits for its turn."""
    async with desk.large_document() if _is_large(data, form_of(name)) else nullcontext():
        return await read_document(desk, limits, name, data, None, target)


async def read_document(
    desk: Desk, limits: Limits, name: str, data: bytes, form: str | None = None, target: str | None = None
) -> Document:
    """A document within the limits; its form follows from its name, unless `form` says it."""

    def work() -> Document:
        _check_marks(limits, name, data, form)
        document = read(name[-MOST_NAME:], data, form, target)
        limits.check(sum(map(len, document.texts)), limits.document, "file", "characters of text")
        limits.check(len(document.texts), limits.sentences, "file", "sentences")
        for text in document.texts:
            limits.check(len(text), limits.text, "file", "characters in a sentence")
        _ = document.marked  # kept once it is found, which takes a while, so here
        return document

    return await _aside(desk, _is_large(data, form or form_of(name)), work)


async def translate_read(
    desk: Desk,
    limits: Limits,
    served: Served,
    documents: Sequence[Document],
    language: str | None = None,
    large: bool = False,
    alternatives: int = 0,
) -> list[Paper]:
    """Documents that were read, translated together; `large` ones wait for their turn to be written."""
    search = _search(served, limits, alternatives)
    distinct = list(dict.fromkeys(text for document in documents for text in document.texts))
    found = await desk.translate(served.id, distinct, search, Options(language=language))
    known = {text: [each.text for each in some] for text, some in zip(distinct, found, strict=True)}
    unknown = {text for text, (best, *_) in zip(distinct, found, strict=True) if "unknown" in best.flags}
    papers = []
    for document in documents:
        written = []
        for rank in range(alternatives + 1):
            texts = [known[text][min(rank, len(known[text]) - 1)] for text in document.texts]
            links = await _links(desk, served, document, texts)
            written.append(await _aside(desk, large, lambda: document.write(texts, links)))  # noqa: B023
        papers.append(Paper(document, written[0], tuple(written[1:]), not unknown.isdisjoint(document.texts)))
    return papers


@dataclass(frozen=True)
class Told:
    """A text's translations, best first, of which the first has an alignment; and each of its sentences with its best
    translation."""

    translations: list[Translation]
    segments: list[tuple[str, Translation]]


async def translate_text(desk: Desk, served: Served, text: str, search: SearchSettings, options: Options) -> Told:
    """A text as a document of its own: sentence by sentence, and its lines stay lines.

    Its second translation is made of the second of each sentence, and so on; scores are sums. A single sentence is
    translated as it stands, with whatever it holds.
    """
    document = await asyncio.to_thread(_cut, text)
    if document is None:
        (found,) = await desk.translate(served.id, [text], search, options)
        return Told(found, [(text, found[0])] if text.strip() else [])
    if options.wishes is not None and len(document.texts) != 1:
        raise UsageError(
            f"prefix: must be left out unless the text is one sentence, but it has {len(document.texts):,}. Translate "
            "the sentence alone."
        )
    distinct = list(dict.fromkeys(document.texts))
    known = dict(zip(distinct, await desk.translate(served.id, distinct, search, options), strict=True))
    found_by_text = [known[sentence] for sentence in document.texts]
    ranks = range(max(map(len, found_by_text), default=1))
    joined = [_joined(document, [some[min(rank, len(some) - 1)] for some in found_by_text]) for rank in ranks]
    return Told(joined, [(sentence, known[sentence][0]) for sentence in document.texts])


def _cut(text: str) -> Document | None:
    """A text cut into its sentences; None if it is one."""
    if "\0" in text:
        return None  # no document holds it
    document = read("text", text.encode(), "lines")
    if document.texts:
        return None if document.texts == [" ".join(text.split())] else document
    # What has no letters is no sentence to a document. Whoever asks about nothing else wants it translated.
    return None if len(text.strip().splitlines()) <= 1 else document


def _joined(document: Document, parts: Sequence[Translation]) -> Translation:
    """The translation of a whole text from those of its sentences."""
    links: list[tuple[int, int, float]] = []
    read_before = written_before = 0
    for each in parts:
        links.extend(
            (source + read_before, target + written_before, weight) for source, target, weight in each.alignment
        )
        read_before, written_before = read_before + len(each.source_tokens), written_before + len(each.tokens)
    return Translation(
        document.write([each.text for each in parts]).decode(),
        sum(each.score for each in parts),
        sum(each.log_probability for each in parts),
        any(each.cut for each in parts),
        tuple(token for each in parts for token in each.tokens),
        tuple(token for each in parts for token in each.source_tokens),
        tuple(links),
        tuple(dict.fromkeys(flag for each in parts for flag in each.flags)),
    )


def _search(served: Served, limits: Limits, alternatives: int) -> SearchSettings:
    search = served.model.recipe.search
    if not alternatives:
        return search
    limits.check(alternatives + 1, limits.nbest, "alternatives", "translations")
    return replace(search, beam=max(search.beam, alternatives + 1), nbest=alternatives + 1, groups=1)


def _is_large(data: bytes, form: str | None) -> bool:
    return len(data) > SMALL or form == "docx"  # which unpacks to more


async def _aside(desk: Desk, large: bool, work: Callable[[], T]) -> T:
    """Work in a thread, because others want answers; what takes long waits for its turn, so that they get them."""
    return await (desk.aside(work) if large else asyncio.to_thread(work))


def _check_marks(limits: Limits, name: str, data: bytes, form: str | None) -> None:
    """Raise LimitError for a document that takes long to read, before it is read."""
    parts: Iterable[bytes] = [data]
    if (form or form_of(name)) == "docx":
        package = Package(name[-MOST_NAME:], data)
        parts = (package.read(part) for part in package.parts if part.endswith(".xml"))
    limits.check(sum(part.count(b"<") + part.count(b"\n") for part in parts), limits.marks, "file", "tags and lines")


async def _links(
    desk: Desk, served: Served, document: Document, translations: Sequence[str]
) -> list[Links | None] | None:
    """Which words belong together, for sentences with marks inside; none where the model cannot say."""
    asked = [
        place for place in document.marked
        # What is compared grows with the square of the length, so long ones have to do without.
        if translations[place].strip() and max(len(document.texts[place]), len(translations[place])) <= desk.limits.look
    ]  # fmt: skip
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
