"""Texts, documents and words: what a model that translates does with them."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

from regard.api.base import Base, must_be_pairs, must_be_texts
from regard.decoding.search import SearchSettings
from regard.documents.document import Document, translated
from regard.documents.placing import Links
from regard.documents.reading import read_file
from regard.evaluation.alignment import Link, choose, usual, word_attention
from regard.exploring import inside
from regard.files import destination, write_file
from regard.translation.alignment import aligning_attention
from regard.translation.result import Translation
from regard.translation.translator import Options, Progress


class Translating(Base):
    """What a model that translates can do."""

    def translate(
        self, texts: Sequence[str], search: SearchSettings | None = None, language: str | None = None
    ) -> list[str]:
        """The best translation of each text, in order; a model that knows several languages needs the target's.

        An empty text stays empty.
        """
        return [found[0].text for found in self.translations(texts, search, options=Options(language=language))]

    def translations(
        self,
        texts: Sequence[str],
        search: SearchSettings | None = None,
        progress: Progress | None = None,
        options: Options | None = None,
    ) -> list[list[Translation]]:
        """The `search.nbest` best translations of each text, best first, each once: fewer where the beam holds no more.

        A text of more than 512 tokens, or of more than `options` or the model allow, is cut at sentence ends, and its
        translation joined from theirs. `progress` is called with the numbers of texts and of target tokens done
        since the last call.
        """
        search = self._search(texts, search, options)
        return self._translator.translations(texts, search, options, progress)

    def translating(
        self,
        texts: Sequence[str],
        search: SearchSettings | None = None,
        progress: Progress | None = None,
        options: Options | None = None,
        slots: int | None = None,
    ) -> Generator[None, None, list[list[Translation]]]:
        """What `translations` gives, a batch at a time, of so many beams × source tokens.

        For whoever has other things to do between two batches.
        """
        search = self._search(texts, search, options)
        return self._translator.translating(texts, search, options, progress, slots)

    def _search(self, texts: Sequence[str], search: SearchSettings | None, options: Options | None) -> SearchSettings:
        """How these texts are searched, if nothing is wrong with them."""
        self.must_translate("translate")
        must_be_texts("translate", texts)
        if search is None:
            search = self.recipe.search
            if options is not None and options.samples:  # what is drawn has a length, and nothing else of a search
                search = SearchSettings(extra_length=search.extra_length, each_sentence=search.each_sentence)
        return search

    def translate_document(
        self,
        file: str | Path,
        out: str | Path,
        search: SearchSettings | None = None,
        options: Options | None = None,
        form: str | None = None,
        progress: Progress | None = None,
    ) -> dict[str, Translation]:
        """Translate a document (.txt, .srt, .html, .docx, .tmx) into the file `out`, in the same form.

        What is given back tells of each of its sentences how it was translated, and what looks odd about that.
        """
        self.must_translate("translate")
        destination(Path(out))  # before the work, not after it
        document = self.read_document(file, form, options)

        if document.form == "tmx" and options is not None and not self.tokenizer.source.languages:
            options = replace(options, language=None)  # it names the language in the file; the model knows only one

        found: dict[str, Translation] = {}

        def translate(texts: list[str]) -> list[str]:
            best = [each[0] for each in self.translations(texts, search, progress, options)]
            found.update(zip(texts, best, strict=True))
            return [each.text for each in best]

        write_file(Path(out), translated(document, translate, self.word_links))
        return found

    def read_document(self, file: str | Path, form: str | None = None, options: Options | None = None) -> Document:
        """A document to translate, by its name's ending or in the form that is given."""
        known = inside.languages(self).target
        asked = None if options is None else options.language
        return read_file(Path(file), form, asked or (known[0] if len(known) == 1 else None))

    def word_links(self, sources: Sequence[str], targets: Sequence[str]) -> list[Links | None] | None:
        """Which words of texts and their translations belong together, (source, target); None where it cannot say.

        By the attention that usually aligns, so that a text's links do not depend on others.
        """
        must_be_pairs("word_links", sources, targets)
        read = self.tokenizer.source.readable(sources)
        # A word that nobody sees is counted with the others, so that texts with such are read as they are.
        sources = [ours if len(ours.split()) == len(given.split()) else given
                   for ours, given in zip(read, sources, strict=True)]  # fmt: skip
        limit = self._translator.limit or math.inf
        lengths = zip(self.tokenizer.source.encode_all(sources), self.tokenizer.encode_all(targets), strict=True)
        short = [place for place, (ours, theirs) in enumerate(lengths) if max(len(ours), len(theirs)) < limit]
        if not short or aligning_attention(self.network) is None or self.tokenizer.source.languages:
            return None
        some = [sources[place] for place in short], [targets[place] for place in short]
        found = word_attention(self.network, self.tokenizer, *some)
        links = {place: [(link.source, link.target) for link in each.links(usual(each.names))]
                 for place, each in zip(short, found, strict=True)}  # fmt: skip
        return [links.get(place) for place in range(len(sources))]

    def align(self, sources: Sequence[str], targets: Sequence[str], head: str | None = None) -> list[list[Link]]:
        """Which word of each target belongs to which of its source, by one attention (LAYER.HEAD) or the best."""
        self.must_translate("align")
        self._must_read_alike("align")
        must_be_pairs("align", sources, targets)
        attention = word_attention(self.network, self.tokenizer, sources, targets)
        name = head or choose(attention, sources, targets).name
        return [pair.links(name) for pair in attention]
