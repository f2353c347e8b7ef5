"""Corpora: from files, or generated, to the pairs of training, validation and test.

    corpus = open_corpus(recipe.data)
    for pair in corpus.train(): ...       streamed: read, filtered, and passed on
    corpus.valid(), corpus.test()         from files of their own, or held out while `train` streamed by
    print(corpus.report().to_text())      what was read, dropped and found odd

What a file may look like is said in `regard.data.formats`, what is dropped in `regard.data.filters`,
and what is held out in `regard.data.holding`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import compress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.counts import agreeing, so_many
from regard.data.both_sides import both_sides
from regard.data.filters import ADVICE, NO_FILTERS, Filters, Kept, Sieve
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
from regard.data.gathering import Others, Survey, make_report
from regard.data.generated import Generated, Pair, Splits, generate
from regard.data.holding import HELD_OUT_LABELLED, HeldAtEnd, HeldBySource, HeldShare, HoldOut
from regard.data.labelled import Answers, Classes, Labelled, LabelSources, Restoring, Tagged, answers_of, place_of
from regard.data.labelled import splits as label_splits
from regard.data.music import splits as music_splits
from regard.data.report import CorpusCounts, DataReport, Unit
from regard.data.sources import CorpusSettings, Elsewhere, Files, Mixture, Music, Text
from regard.data.streams import open_text
from regard.errors import DataError, UsageError
from regard.text.restoring import TAGS

__all__ = [
    "Corpus", "CorpusSettings", "Elsewhere", "Files", "LanguagePair", "Mixture", "Music", "Origin", "Text", "copies",
    "lines_of", "load_corpus", "open_corpus", "open_text", "read_lines", "read_pairs",
]  # fmt: skip

RULES = 2  # to be raised when the same files and settings come to give other pairs
LONGEST_LABELLED = 10_000  # characters: a text is one row of a batch, and a book would fill the memory
MOST_GROWTH = 100  # times: how much larger repetition may make an epoch

Languages = tuple[str | None, str | None]


# ---- pairs


@dataclass(frozen=True, slots=True)
class LanguagePair(Pair):
    """A pair that says its languages, for models that know several."""

    source_language: str | None = None
    target_language: str | None = None


def _target_languages(settings: CorpusSettings) -> list[str]:
    """Those that sources ask for, in the order of the corpora."""
    if not isinstance(settings, Mixture) or not settings.tag_target:
        return []
    return list(dict.fromkeys(corpus.target_language or "" for corpus in settings.corpora))


def copies(sizes: Sequence[int], temperature: float, weights: Sequence[float]) -> list[float]:
    """How often each corpus has to occur in an epoch for shares of weight · size^(1/temperature); at least once."""
    rates = [weight * size ** (1 / temperature - 1) for weight, size in zip(weights, sizes, strict=True)]
    return [rate / min(rates) for rate in rates]


# ---- reading


@dataclass(frozen=True)
class _Part:
    """One corpus to be read; `others` are its validation and test pairs, where it brings them."""

    name: str
    train: Split
    others: Mapping[str, Split]
    filters: Filters = NO_FILTERS
    languages: Languages = (None, None)
    form: str = ""
    one_sided: bool = False
    warnings: tuple[str, ...] = ()
    answers: Answers | None = None
    known_labels: tuple[str, ...] = ()
    unit: Unit = "characters"
    by_name: Languages = (None, None)
    """What the names of files say, for reports alone: pairs and filters go by `languages`."""

    def read(self, sieve: Sieve, repairs: Repairs) -> Iterator[Kept]:
        """What the filters keep, block by block."""
        any_text = False
        for block in self.train.blocks(repairs):
            kept = sieve.sift(block)
            any_text = any_text or any(map(str.strip, kept.targets))
            yield kept
        if sieve.kept and not any_text:
            raise DataError(
                f"{self.name}: must hold text, but there is none in any of its {so_many(sieve.read, 'line')}. Is it "
                "the right file?"
            )
        if not sieve.kept:
            reasons = {reason: found.count for reason, found in sieve.dropped.items() if found.count}
            raise DataError(
                f"{self.name}: there must be pairs left to train on, but all {sieve.read:,} were dropped: "
                f"{', '.join(f'{count:,} as `{reason}`' for reason, count in reasons.items())}. "
                f"{ADVICE[max(reasons, key=lambda reason: reasons[reason])]}"
            )

    def pairs(self, texts: Block | Kept) -> list[Pair]:
        """Texts as pairs."""
        if self.languages == (None, None):
            return list(map(Pair, texts.sources, texts.targets))
        return [LanguagePair(*pair, *self.languages) for pair in zip(texts.sources, texts.targets, strict=True)]

    def again(self, times: float, held_out: HoldOut | None) -> Iterator[Pair]:
        """The training pairs once more, and again; of the last time only a part, which is the same on every run."""
        for done in range(math.ceil(times)):
            for kept in self.read(Sieve(self.filters, self.languages), Repairs()):
                wanted = kept.pair_keys.astype(np.float64) < min(times - done, 1.0) * 2**64
                if held_out is not None:
                    wanted &= ~held_out.holds(kept.source_keys)
                yield from compress(self.pairs(kept), wanted.tolist())


class Origin(NamedTuple):
    """What decides the training pairs: the files, and how they are read."""

    files: tuple[Path, ...]
    reading: str


class Corpus:
    """A corpus to be streamed, as often as its files can be read; see `open_corpus`."""

    def __init__(
        self,
        parts: Sequence[_Part],
        hold_out: Callable[[], HoldOut],
        temperature: float = 1.0,
        weights: Sequence[float] = (),
        target_languages: Sequence[str] = (),
    ) -> None:
        self._parts, self._hold_out = parts, hold_out
        self.target_languages = target_languages
        """Those that a source must ask for, by a token before it; none where it need not."""
        self.one_sided = any(part.one_sided for part in parts)
        """Whether there is text for a language model, without sources."""
        self.answers = parts[0].answers
        """What has a label, the target of its pair: each text, or each of its words; None where there are none."""
        self.known_labels = parts[0].known_labels
        """Labels that there can be, whether they occur or not."""
        self._temperature, self._weights = temperature, weights or [1.0] * len(parts)
        self._other_repairs = Repairs()
        self._others: dict[tuple[int, str], list[Pair]] = {}
        self._held: list[Pair] = []
        self._report: DataReport | None = None

    def train(self) -> Iterator[Pair]:
        """The training pairs, streamed: what is dropped or held out is left out."""
        held_out = None if self._brings("valid") else self._hold_out()
        given = {split: self._other(split) for split in ("valid", "test")}
        survey = Survey(_texts(given), len(self._parts), self.answers, self._parts[0].unit)
        repairs, passed = Repairs(), 0
        sieves = [Sieve(part.filters, part.languages) for part in self._parts]
        for number, (part, sieve) in enumerate(zip(self._parts, sieves, strict=True)):
            for kept in part.read(sieve, repairs):
                survey.see(kept, number)
                pairs = part.pairs(kept)
                for pair in pairs if held_out is None else held_out.pass_on(pairs, kept.source_keys):
                    passed += 1
                    yield pair
        if held_out is not None:
            late, self._held = held_out.finish()
            passed += len(late)
            yield from late
            self._check_held_out(passed)
        repeats = copies([sieve.kept for sieve in sieves], self._temperature, self._weights)
        _check_growth([sieve.kept for sieve in sieves], repeats)
        for part, times in zip(self._parts, repeats, strict=True):
            for pair in part.again(times - 1, held_out):
                passed += 1
                yield pair
        counts = [
            CorpusCounts(
                part.name, sieve.read, sieve.kept, sieve.dropped, sieve.scripts, part.languages, times, part.by_name
            )
            for part, sieve, times in zip(self._parts, sieves, repeats, strict=True)
        ]
        others = Others(
            _texts(given if held_out is None else {**given, "valid": self._held}),
            [_texts({split: self._own(part, split) for split in part.others}) for part in self._parts],
            held_out is not None,
            [part.filters for part in self._parts],
            self._other_repairs,
        )
        warnings = [warning for part in self._parts for warning in part.warnings]
        self._report = make_report(counts, survey, passed, repairs, others, warnings, self.answers)

    def valid(self) -> list[Pair]:
        """The pairs to validate on: given, or held out of training; then training is read through if need be."""
        if self._brings("valid"):
            return self._other("valid")
        self.report()
        return self._held

    def test(self) -> list[Pair]:
        """The pairs to test on, if there are any."""
        return self._other("test")

    def report(self) -> DataReport:
        """What was read, dropped and found odd; training is read through if need be."""
        if self._report is None:
            deque(self.train(), maxlen=0)
        assert self._report is not None
        return self._report

    def texts(self, pairs: Iterable[Pair]) -> Iterator[tuple[str, ...]]:
        """What is to be encoded of each pair: (source, target), (source, target, language) or (text,)."""
        if self.one_sided:
            return ((pair.target,) for pair in pairs)
        if self.target_languages:
            return ((pair.source, pair.target, _language_of(pair)) for pair in pairs)
        return ((pair.source, pair.target) for pair in pairs)

    def origin(self) -> Origin:
        """What decides the training pairs, for whoever keeps something made from them."""
        rows = [part.train.rows() for part in self._parts]
        files = [Path(file) for part in rows for row in part for file in row]
        how = [
            f"{part.form} {[tuple(map(format_by_name, row)) for row in found]} {part.filters} {part.languages}"
            for part, found in zip(self._parts, rows, strict=True)
        ]
        held_out = "given" if self._brings("valid") else "held out"
        tags = f" tags {list(self.target_languages)}" if self.target_languages else ""
        return Origin(tuple(files), f"{RULES} {how} {self._temperature} {list(self._weights)} valid {held_out}{tags}")

    def other_files(self, split: str) -> tuple[Path, ...]:
        """The files of validation or test in the order in which they are read; none where pairs are held out."""
        splits = [part.others[split] for part in self._parts if split in part.others]
        return tuple(Path(file) for found in splits for row in found.rows() for file in row)

    def _brings(self, split: str) -> bool:
        return any(split in part.others for part in self._parts)

    def _other(self, split: str) -> list[Pair]:
        """The pairs of a split that has places of its own, as they are: scores must not depend on filters."""
        return [pair for part in self._parts for pair in self._own(part, split)]

    def _own(self, part: _Part, split: str) -> list[Pair]:
        """Those that one corpus brings, read once."""
        key = self._parts.index(part), split
        if key not in self._others:
            blocks = part.others[split].blocks(self._other_repairs) if split in part.others else iter(())
            self._others[key] = [pair for block in blocks for pair in part.pairs(block)]
        return self._others[key]

    def _check_held_out(self, train: int) -> None:
        if train and self._held:
            return
        name, found = self._parts[0].name, train + len(self._held)
        if self.answers is not None:
            raise DataError(
                f"{name}: there must be enough different texts to hold some out for validation, but there are too few "
                f"among these {found:,}. Is the text in the right column? Or give others to validate on with "
                "`data.valid`."
            )
        are = agreeing(found, "is", "are")
        if self.one_sided:
            raise DataError(
                f"{name}: there must be enough lines to hold some out for validation, but there {are} only "
                f"{so_many(found, 'line')}. Cut the text into lines, or give other text to validate on with "
                "`data.valid`."
            )
        raise DataError(
            f"{name}: there must be enough different sentences to hold some out for validation, but there {are} only "
            f"{so_many(found, 'pair')}. Give validation files, such as `data.valid_source` and `data.valid_target`."
        )


def _check_growth(sizes: Sequence[int], repeats: Sequence[float]) -> None:
    """Weights far apart ask for an epoch that no disk may hold."""
    pairs = sum(size * times for size, times in zip(sizes, repeats, strict=True))
    if pairs > MOST_GROWTH * sum(sizes):
        raise UsageError(
            f"data.weights: an epoch must have at most {MOST_GROWTH} times as many pairs as the corpora, but would "
            f"have {pairs:,.0f} of {sum(sizes):,}: pairs of one corpus would come {max(repeats):,.0f} times. Let the "
            "weights be closer to each other."
        )


def _language_of(pair: Pair) -> str:
    assert isinstance(pair, LanguagePair), "every corpus of a mixture with tags has languages"
    return pair.target_language or ""


def _texts(splits: Mapping[str, Sequence[Pair]]) -> dict[str, list[tuple[str, str]]]:
    """The texts of the splits that have any."""
    return {split: [(pair.source, pair.target) for pair in pairs] for split, pairs in splits.items() if pairs}


# ---- opening


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


def _files(settings: Files) -> _Part:
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
    return _Part(name, train, splits, settings.filters, languages, form, warnings=warnings, by_name=settings.by_name)


def _both_sides(source: str | None, target: str | None) -> Iterable[str]:
    """What to say of a source whose name promises both sides, but that is read as one."""
    if source is not None and target is not None and (form := format_by_name(source)) is not None:
        yield (
            f"{source} stands beside {target}, so each of its lines is taken for one sentence, though its name is that "
            f"of a `{form}` with both sides. If it is one, leave the target out"
        )


def _text(settings: Text) -> _Part:
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
    return _Part(settings.text, train, splits, filters, languages, form, one_sided=True)


def _music(settings: Music) -> _Part:
    found = music_splits(settings)
    form = f"music {settings.encoding} {settings.transpose}"
    return _Part(settings.music, found.pop("train"), found, NO_FILTERS, form=form, one_sided=True, unit="words")


def _labelled(settings: LabelSources) -> _Part:
    found = label_splits(settings)
    filters = replace(NO_FILTERS, drop_damaged=True, max_characters=LONGEST_LABELLED)
    name, form = place_of(settings), f"{settings} {HELD_OUT_LABELLED} held out"
    known = TAGS if isinstance(settings, Restoring) else ()
    return _Part(name, found.pop("train"), found, filters, form=form, answers=answers_of(settings), known_labels=known)


def _generated(settings: Generated) -> _Part:
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
    return _Part(
        name, train, dict(zip(("valid", "test"), others, strict=True)), languages=languages, form=str(settings)
    )
