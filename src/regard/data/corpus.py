"""Corpora: from settings to the pairs of training, validation and test, out of files or generated.

    corpus = open_corpus(recipe.data)
    for pair in corpus.train(): ...       streamed: read, filtered, and passed on
    corpus.valid(), corpus.test()         from files of their own, or held out while `train` streamed by
    print(corpus.report().to_text())      what was read, dropped and found odd

What a file may look like is said in `regard.data.formats`, what is dropped in `regard.data.filters`,
what is held out in `regard.data.holding`, and how all of it is streamed in `regard.data.reading`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from regard.data.both_sides import both_sides
from regard.data.filters import NO_FILTERS
from regard.data.formats import (
    BLOCK,
    Block,
    Repairs,
    Rows,
    Split,
    alone,
    find_files,
    find_partners,
    format_by_name,
    lines_of,
    partner_blocks,
    read_lines,
    text_blocks,
)
from regard.data.generated import Generated, Pair, Splits, generate
from regard.data.holding import HELD_OUT_LABELLED, HeldAtEnd, HeldBySource, HeldShare
from regard.data.labelled import Classes, Labelled, LabelSources, Restoring, Tagged, answers_of, place_of
from regard.data.labelled import splits as label_splits
from regard.data.music import splits as music_splits
from regard.data.reading import Corpus, LanguagePair, Origin, Part, copies
from regard.data.sources import CorpusSettings, Elsewhere, Files, Mixture, Music, Text
from regard.data.streams import open_text
from regard.errors import UsageError
from regard.text.restoring import TAGS

__all__ = [
    "Corpus", "CorpusSettings", "Elsewhere", "Files", "LanguagePair", "Mixture", "Music", "Origin", "Text", "copies",
    "lines_of", "load_corpus", "open_corpus", "open_text", "read_lines", "read_pairs",
]  # fmt: skip

LONGEST_LABELLED = 10_000  # characters: a text is one row of a batch, and a book would fill the memory


def open_corpus(settings: CorpusSettings) -> Corpus:
    """A corpus, of which nothing has been read yet."""
    match settings:
        case Files():
            return Corpus([_files(settings)], HeldBySource)
        case Mixture():
            parts = list(map(_files, settings.corpora))
            languages = _target_languages(settings)
            return Corpus(parts, HeldBySource, settings.temperature, settings.weights, languages)
        case Text():
            share = settings.held_out
            return Corpus([_text(settings)], HeldAtEnd if share is None else partial(HeldShare, share))
        case Generated():
            return Corpus([_generated(settings)], HeldBySource)
        case Music():
            return Corpus([_music(settings)], HeldAtEnd)
        case Labelled() | Classes() | Tagged() | Restoring():
            return Corpus([_labelled(settings)], partial(HeldBySource, HELD_OUT_LABELLED))
        case Elsewhere():
            raise UsageError(
                f"data.kind: must be a corpus that can be read, but is `elsewhere`: the model was imported from "
                f"{settings.origin}, and its corpus is not known here. Choose one, such as `files`."
            )


def _target_languages(settings: CorpusSettings) -> list[str]:
    """Those that sources ask for, in the order of the corpora."""
    if not isinstance(settings, Mixture) or not settings.tag_target:
        return []
    return list(dict.fromkeys(corpus.target_language or "" for corpus in settings.corpora))


def load_corpus(settings: CorpusSettings) -> Splits:
    """All pairs of a corpus at once."""
    if isinstance(settings, Generated):
        return generate(settings)
    if isinstance(settings, Text | Music) or answers_of(settings) is not None:
        has = "labels" if answers_of(settings) else "one side"
        raise UsageError(
            f"data.kind: must be a corpus of pairs, but is `{settings.kind}`, which has {has}. Choose `files`."
        )
    corpus = open_corpus(settings)
    return Splits(list(corpus.train()), corpus.valid(), corpus.test())


def read_pairs(source: Path, target: Path) -> list[Pair]:
    """The sentence pairs of two files of equal length, as they are."""
    blocks = partner_blocks(str(source), str(target), Repairs())
    return [pair for block in blocks for pair in map(Pair, block.sources, block.targets)]


def _files(settings: Files) -> Part:
    def rows(source: str, target: str | None) -> Rows:
        if target is None:
            return [(file,) for file in find_files(source)]
        return list(find_partners(source, target))

    def blocks(source: str, target: str | None, repairs: Repairs) -> Iterator[Block]:
        for row in rows(source, target):
            if len(row) == 2:
                yield from partner_blocks(*row, repairs)
            else:
                yield from both_sides(row[0], settings, repairs)

    sides = {
        "train": (settings.source, settings.target),
        "valid": (settings.valid_source, settings.valid_target),
        "test": (settings.test_source, settings.test_target),
    }
    splits = {
        split: Split(partial(blocks, source, target), partial(rows, source, target))
        for split, (source, target) in sides.items()
        if source is not None
    }
    train = splits.pop("train")
    name = " + ".join(place for place in sides["train"] if place is not None)
    languages = settings.source_language, settings.target_language
    form = f"{settings.format} {settings.columns} {settings.keys}"
    warnings = tuple(warning for source, target in sides.values() for warning in _both_sides(source, target))
    return Part(name, train, splits, settings.filters, languages, form, warnings=warnings, by_name=settings.by_name)


def _both_sides(source: str | None, target: str | None) -> Iterable[str]:
    """What to say of a source whose name promises both sides, but that is read as one."""
    if source is not None and target is not None and (form := format_by_name(source)) is not None:
        yield (
            f"{source} stands beside {target}, so each of its lines is taken for one sentence, though its name is that "
            f"of a `{form}` with both sides. If it is one, leave the target out"
        )


def _text(settings: Text) -> Part:
    def blocks(place: str, repairs: Repairs) -> Iterator[Block]:
        return (block for file in find_files(place) for block in text_blocks(file, repairs))

    places = {"train": settings.text, "valid": settings.valid, "test": settings.test}
    splits = {
        split: Split(partial(blocks, place), alone(partial(find_files, place)))
        for split, place in places.items()
        if place is not None
    }
    train = splits.pop("train")
    filters, languages = replace(NO_FILTERS, drop_damaged=True), (None, settings.language)
    form = "text" if settings.held_out is None else f"text {settings.held_out} held out"
    return Part(settings.text, train, splits, filters, languages, form, one_sided=True)


def _music(settings: Music) -> Part:
    found = music_splits(settings)
    form = f"music {settings.encoding} {settings.transpose}"
    return Part(settings.music, found.pop("train"), found, NO_FILTERS, form=form, one_sided=True, unit="words")


def _labelled(settings: LabelSources) -> Part:
    found = label_splits(settings)
    filters = replace(NO_FILTERS, drop_damaged=True, max_characters=LONGEST_LABELLED)
    name, form = place_of(settings), f"{settings} {HELD_OUT_LABELLED} held out"
    known = TAGS if isinstance(settings, Restoring) else ()
    return Part(name, found.pop("train"), found, filters, form=form, answers=answers_of(settings), known_labels=known)


def _generated(settings: Generated) -> Part:
    # Written once, and only if something of it is read.
    splits = cache(partial(generate, settings))

    def blocks(split: str, repairs: Repairs) -> Iterator[Block]:
        pairs: list[Pair] = getattr(splits(), split)
        for first in range(0, len(pairs), BLOCK):
            some = pairs[first : first + BLOCK]
            yield Block(split, first + 1, [pair.source for pair in some], [pair.target for pair in some])

    train, *others = (Split(partial(blocks, split)) for split in ("train", "valid", "test"))
    languages = settings.source, settings.target
    name = f"generated {settings.source} → {settings.target}"
    return Part(name, train, dict(zip(("valid", "test"), others, strict=True)), languages=languages, form=str(settings))
