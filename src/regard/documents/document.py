"""What every form of document offers: its texts, and itself with other ones.

    document = read("talk.srt", data)
    found = document.write(translate(document.texts))

or, with repeated sentences translated once, `translated(document, translate)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from regard.counts import so_many
from regard.documents.endings import like
from regard.documents.passage import Passage, Placed
from regard.documents.placing import Links
from regard.errors import UsageError

LINES = "lines"
Translate = Callable[[list[str]], list[str]]
"""Texts → their translations, one for each."""
Align = Callable[[list[str], list[str]], Sequence[Links | None] | None]
"""Texts and their translations → links between the words of each; None where nobody knows."""


@dataclass(frozen=True)
class Document:
    """A document that was read: passages of text, and a way to put others into their places."""

    form: str
    """`txt`, `srt`, `html`, `docx` or `tmx`; `lines` for a text of lines, which are translated as they come."""
    media_type: str
    passages: Sequence[Passage]
    finish: Callable[[Sequence[Placed | None]], bytes]
    """The document with these translations of its passages; None leaves a passage as it was."""

    @cached_property
    def texts(self) -> list[str]:
        """Its sentences, in order."""
        return [sentence for passage in self.passages for sentence in passage.sentences]

    @cached_property
    def marked(self) -> list[int]:
        """The numbers of the texts that have marks inside, for which links between words are worth having."""
        flat = [(passage, number) for passage in self.passages for number in range(len(passage.parts))]
        return [place for place, (passage, number) in enumerate(flat) if passage.has_marks_inside(number)]

    def write(self, translations: Sequence[str], links: Sequence[Links | None] | None = None) -> bytes:
        """The document with a translation for each of its texts; a passage that has not changed stays as it was.

        `links` say for each text which of its words belongs to which of the translation; None where nobody knows.
        """
        for what, given in (("translation", translations), ("list of links", links)):
            if given is not None and len(given) != len(self.texts):
                raise UsageError(
                    f"document: needs one {what} for each of its {so_many(len(self.texts), 'text')}, but has "
                    f"{len(given):,}."
                )
        known = [None] * len(self.texts) if links is None else links
        placed: list[Placed | None] = []
        first = 0
        for passage in self.passages:
            last = first + len(passage.parts)
            some = self._ending(passage, translations[first:last])
            placed.append(None if some == passage.sentences else passage.placed(some, known[first:last]))
            first = last
        return self.finish(placed)

    def _ending(self, passage: Passage, translations: Sequence[str]) -> list[str]:
        """The translations of a passage's sentences, of which the last one ends as the passage does."""
        if self.form == LINES or not translations:
            return list(translations)
        *others, last = translations
        return [*others, like(passage.text, last)]


def translated(document: Document, translate: Translate, align: Align | None = None) -> bytes:
    """A document, translated; sentences that are there several times are translated once.

    `align` is asked about sentences with marks inside, such as bold words, to put these where they belong.
    """
    distinct = list(dict.fromkeys(document.texts))
    found = dict(zip(distinct, translate(distinct), strict=True))
    translations = [found[text] for text in document.texts]
    return document.write(translations, _links(document, translations, align))


def _links(document: Document, translations: list[str], align: Align | None) -> list[Links | None] | None:
    asked = [place for place in document.marked if translations[place].strip()]
    if align is None or not asked:
        return None
    found = align([document.texts[place] for place in asked], [translations[place] for place in asked])
    if found is None:
        return None
    links: list[Links | None] = [None] * len(translations)
    for place, some in zip(asked, found, strict=True):
        links[place] = some
    return links
