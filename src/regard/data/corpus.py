"""Corpora: from files, or generated, to the pairs of training, validation and test.

    corpus = open_corpus(recipe.data)
    for pair in corpus.train(): ...       streamed: read, filtered, and passed on
    corpus.valid(), corpus.test()         from files of their own, or held out while `train` streamed by
    print(corpus.report().to_text())      what was read, dropped and found odd

What a file may look like is said in `regard.data.formats`, and what is dropped in `regard.data.filters`.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import compress
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from regard.data.filters import ADVICE, NO_FILTERS, Filters, HeldAtEnd, HeldBySource, HoldOut, Kept, Sieve
from regard.data.formats import (
    BLOCK,
    STDIN,
    Block,
    Format,
    Repairs,
    find_files,
    find_partners,
    first_suspicious_line,
    format_by_name,
    json_blocks,
    lines_of,
    open_text,
    partner_blocks,
    read_lines,
    table_blocks,
    text_blocks,
)
from regard.data.generated import Generated, Pair, Splits, generate
from regard.data.report import CorpusCounts, DataReport, Others, Survey, make_report
from regard.errors import DataError, UsageError

__all__ = [
    "Corpus", "CorpusSettings", "Files", "LanguagePair", "Mixture", "Origin", "Text", "copies", "first_suspicious_line",
    "lines_of", "load_corpus", "open_corpus", "open_text", "read_lines", "read_pairs",
]  # fmt: skip

RULES = 1  # to be raised when the same files and settings come to give other pairs
LANGUAGE = re.compile("[A-Za-z0-9]+([-_][A-Za-z0-9]+)*")

Blocks = Callable[[Repairs], Iterator[Block]]
Languages = tuple[str | None, str | None]


# ---- settings


@dataclass(frozen=True)
class Files:
    """A corpus in files: line n of `target` translates line n of `source`, or one file holds both.

    A place is a file, a folder, a pattern with `*`, or `-` for the standard input. Without a validation pair of its
    own, some training sentences are held out, chosen by their source text.
    """

    source: str
    target: str | None = None
    kind: Literal["files"] = "files"
    valid_source: str | None = None
    valid_target: str | None = None
    test_source: str | None = None
    test_target: str | None = None
    format: Format | None = None
    columns: tuple[int, int] = (1, 2)
    keys: tuple[str, str] = ("source", "target")
    source_language: str | None = None
    target_language: str | None = None
    filters: Filters = Filters()

    def __post_init__(self) -> None:
        for split in ("", "valid_", "test_"):
            source, target = getattr(self, f"{split}source"), getattr(self, f"{split}target")
            if (source is None) != (target is None) and not (source and self.format_of(source)):
                raise ValueError(
                    f"`{split}source` and `{split}target` must be given together, but one is missing; a file that "
                    "holds both sides is named *.tsv or *.jsonl, or `format` says which it is"
                )
        if self.source == self.target == STDIN:
            raise ValueError(f"`source` and `target` must not both be `{STDIN}`; use one file with both sides")
        if min(self.columns) < 1:
            raise ValueError(f"`columns` must be counted from 1, but are {list(self.columns)}")
        for name in ("source_language", "target_language"):
            _check_language(name, getattr(self, name))

    def format_of(self, place: str) -> Format | None:
        """How a file holds both sides; None where nothing says."""
        return self.format or format_by_name(place)


@dataclass(frozen=True)
class Mixture:
    """Several corpora, of one pair of languages or of many, each with its share of every epoch.

    A corpus of n pairs has a share in proportion to its weight times n^(1/temperature): at 1 by size, at a large
    temperature alike. The shares come about by repetition; every pair occurs at least once.
    """

    corpora: tuple[Files, ...]
    kind: Literal["mixture"] = "mixture"
    temperature: float = 1.0
    weights: tuple[float, ...] = ()
    tag_target: bool = False

    def __post_init__(self) -> None:
        if not self.corpora:
            raise ValueError("`corpora` must hold at least one corpus, but is empty; add [[data.corpora]]")
        if not 1 <= self.temperature < math.inf:
            raise ValueError(f"`temperature` must be at least 1, but is {self.temperature}")
        if self.weights and (len(self.weights) != len(self.corpora) or not all(0 < w < math.inf for w in self.weights)):
            raise ValueError(
                f"`weights` must be {len(self.corpora)} numbers above 0, one a corpus, but are {list(self.weights)}"
            )
        for number, corpus in enumerate(self.corpora):
            if STDIN in (corpus.source, corpus.target):
                raise ValueError(f"`corpora[{number}]` must be in files, which can be read again, but is `{STDIN}`")
            if self.tag_target and corpus.target_language is None:
                raise ValueError(f"`corpora[{number}].target_language` must be set for `tag_target`, but is missing")


@dataclass(frozen=True)
class Text:
    """Plain text for a language model, line by line; a place is as for `files`. Only damaged lines are dropped.

    Without validation text of its own, the last lines are held out.
    """

    text: str
    kind: Literal["text"] = "text"
    valid: str | None = None
    test: str | None = None
    language: str | None = None

    def __post_init__(self) -> None:
        _check_language("language", self.language)


CorpusSettings = Generated | Files | Mixture | Text


def _check_language(name: str, language: str | None) -> None:
    if language is not None and not LANGUAGE.fullmatch(language):
        raise ValueError(f"`{name}` must be a code such as `de` or `zh-Hans`, but is `{language}`")


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
    places: tuple[str, ...]
    blocks: Blocks
    others: Mapping[str, Blocks]
    filters: Filters = NO_FILTERS
    languages: Languages = (None, None)
    form: str = ""
    one_sided: bool = False

    def read(self, sieve: Sieve, repairs: Repairs) -> Iterator[Kept]:
        """What the filters keep, block by block."""
        for block in self.blocks(repairs):
            yield sieve.sift(block)
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
        self._temperature, self._weights = temperature, weights or [1.0] * len(parts)
        self._other_repairs = Repairs()
        self._others: dict[str, list[Pair]] = {}
        self._held: list[Pair] = []
        self._report: DataReport | None = None

    def train(self) -> Iterator[Pair]:
        """The training pairs, streamed: what is dropped or held out is left out."""
        held_out = None if self._brings("valid") else self._hold_out()
        given = {split: self._other(split) for split in ("valid", "test")}
        survey, repairs, passed = Survey(_texts(given)), Repairs(), 0
        sieves = [Sieve(part.filters, part.languages) for part in self._parts]
        for part, sieve in zip(self._parts, sieves, strict=True):
            for kept in part.read(sieve, repairs):
                survey.see(kept)
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
        for part, times in zip(self._parts, repeats, strict=True):
            for pair in part.again(times - 1, held_out):
                passed += 1
                yield pair
        counts = [
            CorpusCounts(part.name, sieve.read, sieve.kept, sieve.dropped, sieve.scripts, part.languages, times)
            for part, sieve, times in zip(self._parts, sieves, repeats, strict=True)
        ]
        filters = self._parts[0].filters if len(self._parts) == 1 else Filters()
        splits = _texts(given if held_out is None else {**given, "valid": self._held})
        others = Others(splits, held_out is not None, filters, self._other_repairs)
        self._report = make_report(counts, survey, passed, repairs, others)

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
        files = [Path(file) for part in self._parts for place in part.places for file in find_files(place)]
        how = [f"{part.form} {part.filters} {part.languages}" for part in self._parts]
        held_out = "given" if self._brings("valid") else "held out"
        tags = f" tags {list(self.target_languages)}" if self.target_languages else ""
        return Origin(tuple(files), f"{RULES} {how} {self._temperature} {list(self._weights)} valid {held_out}{tags}")

    def _brings(self, split: str) -> bool:
        return any(split in part.others for part in self._parts)

    def _other(self, split: str) -> list[Pair]:
        """The pairs of a split that has places of its own, as they are: scores must not depend on filters."""
        if split not in self._others:
            bringers = [part for part in self._parts if split in part.others]
            self._others[split] = [
                pair for part in bringers for block in part.others[split](self._other_repairs)
                for pair in part.pairs(block)
            ]  # fmt: skip
        return self._others[split]

    def _check_held_out(self, train: int) -> None:
        if not train or not self._held:
            raise DataError(
                f"{self._parts[0].name}: there must be enough different sentences to hold some out for validation, but "
                f"there are only {train + len(self._held)} pairs. Give validation files, such as `data.valid_source` "
                "and `data.valid_target`."
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
            return Corpus([_text(settings)], HeldAtEnd)
        case Generated():
            return Corpus([_generated(settings)], HeldBySource)


def load_corpus(settings: CorpusSettings) -> Splits:
    """All pairs of a corpus at once."""
    if isinstance(settings, Generated):
        return generate(settings)
    if isinstance(settings, Text):
        raise UsageError("data.kind: must be a corpus of pairs, but is `text`, which has one side. Choose `files`.")
    corpus = open_corpus(settings)
    return Splits(list(corpus.train()), corpus.valid(), corpus.test())


def read_pairs(source: Path, target: Path) -> list[Pair]:
    """The sentence pairs of two files of equal length, as they are."""
    blocks = partner_blocks(str(source), str(target), Repairs())
    return [pair for block in blocks for pair in map(Pair, block.sources, block.targets)]


def _files(settings: Files) -> _Part:
    def blocks(source: str, target: str | None, repairs: Repairs) -> Iterator[Block]:
        if target is not None:
            for one, other in find_partners(source, target):
                yield from partner_blocks(one, other, repairs)
            return
        for file in find_files(source):
            if settings.format_of(file) == "jsonl":
                yield from json_blocks(file, settings.keys, repairs)
            else:
                yield from table_blocks(file, settings.columns, repairs)

    sides = {
        "valid": (settings.valid_source, settings.valid_target),
        "test": (settings.test_source, settings.test_target),
    }
    others = {split: partial(blocks, source, target) for split, (source, target) in sides.items() if source is not None}
    places = tuple(place for place in (settings.source, settings.target) if place is not None)
    languages = settings.source_language, settings.target_language
    form = f"{settings.format} {settings.columns} {settings.keys}"
    train = partial(blocks, settings.source, settings.target)
    return _Part(" + ".join(places), places, train, others, settings.filters, languages, form)


def _text(settings: Text) -> _Part:
    def blocks(place: str, repairs: Repairs) -> Iterator[Block]:
        return (block for file in find_files(place) for block in text_blocks(file, repairs))

    places = {"valid": settings.valid, "test": settings.test}
    others = {split: partial(blocks, place) for split, place in places.items() if place is not None}
    filters, languages = replace(NO_FILTERS, drop_damaged=True), (None, settings.language)
    train = partial(blocks, settings.text)
    return _Part(settings.text, (settings.text,), train, others, filters, languages, one_sided=True)


def _generated(settings: Generated) -> _Part:
    # Written once, and only if something of it is read.
    splits = cache(partial(generate, settings))

    def blocks(split: str, repairs: Repairs) -> Iterator[Block]:
        pairs: list[Pair] = getattr(splits(), split)
        for first in range(0, len(pairs), BLOCK):
            some = pairs[first : first + BLOCK]
            yield Block(split, first + 1, [pair.source for pair in some], [pair.target for pair in some])

    others = {split: partial(blocks, split) for split in ("valid", "test")}
    languages = settings.source, settings.target
    name = f"generated {settings.source} → {settings.target}"
    return _Part(name, (), partial(blocks, "train"), others, languages=languages, form=str(settings))
