"""A corpus to be streamed: its parts one after another, filtered, some pairs held out, and repeated where asked."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.counts import agreeing, so_many
from regard.data.filters import ADVICE, NO_FILTERS, Filters, Kept, Sieve
from regard.data.formats import Block, Repairs, Split, format_by_name
from regard.data.gathering import Others, Survey, make_report
from regard.data.generated import Pair
from regard.data.holding import HoldOut
from regard.data.labelled import Answers
from regard.data.report import CorpusCounts, DataReport, Unit
from regard.errors import DataError, UsageError

RULES = 3  # to be raised when the same files and settings come to give other pairs
MOST_GROWTH = 100  # times: how much larger repetition may make an epoch

Languages = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True)
class LanguagePair(Pair):
    """A pair that says its languages, for models that know several."""

    source_language: str | None = None
    target_language: str | None = None


def copies(sizes: Sequence[int], temperature: float, weights: Sequence[float]) -> list[float]:
    """How often each corpus has to occur in an epoch for shares of weight · size^(1/temperature); at least once."""
    rates = [weight * size ** (1 / temperature - 1) for weight, size in zip(weights, sizes, strict=True)]
    return [rate / min(rates) for rate in rates]


@dataclass(frozen=True)
class Part:
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
        parts: Sequence[Part],
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

    def _own(self, part: Part, split: str) -> list[Pair]:
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
