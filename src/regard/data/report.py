"""What is known of a corpus before training starts, as values and as text: counts, lengths, what was dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from regard.data.filters import Dropped
from regard.data.formats import Repairs
from regard.data.guesses import Guess

if TYPE_CHECKING:
    from regard.text.tokenizer import Tokenizer

FORMAT_VERSION = 1
SIDES = ("source", "target")
Unit = Literal["characters", "words"]
"""What texts are measured in: those that are made of words, such as music, have no characters worth counting."""
EDGES = (25, 50, 100, 200, 400)
SAMPLE = 1_000  # pairs
BAR = 24
LABELS_SHOWN = 12
MUCH_UNKNOWN = 0.01
UNKNOWN = {
    True: ": it has too few characters. Use a larger `tokenizer.vocabulary`, or bytes.",
    False: ", which was learned from other text. Take over one that knows them, such as one of bytes, or let one be "
    "learned from this text.",
}
"""What to say of unknown tokens, by whether the vocabulary was learned from this text."""

Texts = Sequence[tuple[str, str]]
"""Pairs of a source and a target."""


@dataclass(frozen=True)
class CorpusCounts:
    """What became of the pairs of one corpus."""

    name: str
    read: int
    kept: int
    dropped: Mapping[str, Dropped]
    scripts: tuple[tuple[str, ...], ...]
    """Those that each side may use beside Latin; empty where they were not asked for."""
    languages: tuple[str | None, str | None] = (None, None)
    copies: float = 1.0
    """How often each of its pairs occurs in an epoch."""
    by_name: tuple[str | None, str | None] = (None, None)
    """Where settings name no languages: those that the names of its files end in."""


@dataclass(frozen=True)
class Lengths:
    """Characters of one side: how many texts have up to 25, 50, 100, 200, 400 and more, their mean, and the longest.

    In words, where the report says so.
    """

    counts: tuple[int, ...]
    mean: float
    longest: int


@dataclass(frozen=True)
class Overlap:
    """How many pairs of another split have a source that occurs in training, and how many occur there as they are."""

    sources: int
    pairs: int


@dataclass(frozen=True)
class Coverage:
    """How a vocabulary fits one side, on a sample of the training pairs."""

    unknown_share: float
    tokens_per_word: float
    tokens_per_character: float


@dataclass(frozen=True)
class DataReport:
    """All that is known of a corpus before training starts."""

    corpora: tuple[CorpusCounts, ...]
    repairs: Repairs
    """What was taken away in files of any split."""
    train: int
    valid: int
    test: int
    held_out: bool
    lengths: Mapping[str, Lengths]
    languages: Mapping[str, Guess | None]
    overlaps: Mapping[str, Overlap]
    warnings: tuple[str, ...]
    sample: Texts
    """Some of the training pairs, each as likely as any other."""
    labels: Mapping[str, float] = field(default_factory=dict)
    """Where targets are labels: the share of each, the most frequent first."""
    coverage: Mapping[str, Coverage] | None = None
    unit: Unit = "characters"
    """What lengths are counted in."""

    def with_coverage(self, tokenizer: Tokenizer, learned: bool = True) -> DataReport:
        """The report with what a vocabulary makes of the sample; `learned` is whether it was learned from this text."""
        found, warnings = {}, []
        for number, (side, own) in enumerate(zip(SIDES, (tokenizer.source, tokenizer), strict=True)):
            texts = [pair[number] for pair in self.sample]
            if not any(texts) or (self.labels and side == "target"):
                continue
            ids = [token for tokens in own.encode_all(texts) for token in tokens]
            words = sum(len(text.split()) for text in texts)
            share = sum(token == own.unknown for token in ids) / max(len(ids), 1)
            found[side] = Coverage(share, len(ids) / max(words, 1), len(ids) / sum(map(len, texts)))
            if share > MUCH_UNKNOWN:
                warnings.append(
                    f"{share:.1%} of the tokens on the {side} side are unknown to the vocabulary{UNKNOWN[learned]}"
                )
        return replace(self, coverage=found, warnings=(*self.warnings, *warnings))

    def to_json(self) -> dict[str, object]:
        """Everything but the sample, as plain values."""
        plain = {name: value for name, value in vars(self).items() if name != "sample"}
        plain["corpora"] = [asdict(corpus) for corpus in self.corpora]
        plain["repairs"] = asdict(self.repairs)
        for name in ("lengths", "languages", "overlaps", "coverage"):
            values: Mapping[str, Any] = plain[name] or {}
            plain[name] = {key: None if value is None else asdict(value) for key, value in values.items()}
        return {"format_version": FORMAT_VERSION, **plain, "length_edges": EDGES}

    def to_text(self) -> str:
        """The report in about a dozen lines, and the warnings."""
        lines = [line for corpus in self.corpora for line in _corpus_lines(corpus)] + _repair_lines(self.repairs)
        held_out = " held out" if self.held_out else ""
        lines.append(f"  {self.train:,} to train on, {self.valid:,}{held_out} to validate, {self.test:,} to test")
        if len(self.corpora) == 1 and (by_name := [language for language in self.corpora[0].by_name if language]):
            lines.append(f"  {' → '.join(by_name)}, by the names of the files")
        elif any(self.languages.values()):
            guesses = " → ".join(in_words(self.languages[f"train {side}"]) for side in self.lengths)
            lines.append(f"  looks like {guesses}")
        # A text with labels is the source of nothing.
        named = {"source": "text"} if self.labels else {side: side for side in self.lengths}
        lines += _histogram({name: self.lengths[side] for side, name in named.items()}, self.unit)
        if self.labels:
            shown = ", ".join(f"{label} {share:.1%}" for label, share in list(self.labels.items())[:LABELS_SHOWN])
            rest = len(self.labels) - LABELS_SHOWN
            lines.append(f"  labels: {shown}{f' and {rest:,} more' if rest > 0 else ''}")
        for side, fit in (self.coverage or {}).items():
            lines.append(f"  {named[side]}: {fit.tokens_per_word:.2f} tokens a word, {fit.unknown_share:.2%} unknown")
        return "\n".join(lines + [f"  warning: {warning}" for warning in self.warnings])


def _corpus_lines(corpus: CorpusCounts) -> list[str]:
    copies = f", each {corpus.copies:.2f} times an epoch" if corpus.copies >= 1.005 else ""
    lines = [f"{corpus.name}: {corpus.read:,} read, {corpus.kept:,} kept{copies}"]
    dropped = [
        f"{found.count:,} {reason} ({Path(found.examples[0].file).name}, line {found.examples[0].line:,})"
        for reason, found in corpus.dropped.items()
        if found.count
    ]
    if dropped:
        lines.append(f"  dropped: {'; '.join(dropped)}")
    return lines


def _repair_lines(repairs: Repairs) -> list[str]:
    mended = [f"a byte order mark in {file}" for file in repairs.byte_order_marks]
    mended += [f"{count:,} \\r at line ends in {file}" for file, count in repairs.carriage_returns.items()]
    lines = [f"  taken away: {'; '.join(mended)}"] if mended else []
    if repairs.left_out:
        first = next(iter(repairs.left_out.values()))
        lines.append(f"  left out: {len(repairs.left_out):,} that cannot be read; the first is {first}")
    return lines


def in_words(guess: Guess | None) -> str:
    """A guess at a language, as a reader is told of it."""
    return "an unknown language" if guess is None else f"{guess.language} ({guess.confidence:.0%} sure)"


def _histogram(lengths: Mapping[str, Lengths], unit: Unit) -> list[str]:
    means = "  ".join(f"{side} mean {found.mean:,.0f}, longest {found.longest:,}" for side, found in lengths.items())
    if unit == "words":
        return [f"  words: {means}"]  # the steps are those of sentences, and a piece is longer than the last
    labels = [f"up to {edge}" for edge in EDGES] + [f"over {EDGES[-1]}"]
    lines = []
    highest = max(number for side in lengths.values() for number, count in enumerate(side.counts) if count)
    for number, label in enumerate(labels[: highest + 1]):
        cells = []
        for side in lengths.values():
            share = side.counts[number] / max(sum(side.counts), 1)
            cells.append(f"{'█' * round(share * BAR):{BAR}} {share:4.0%}")
        lines.append(f"  {label:>9}  {'  '.join(cells)}")
    return [f"  characters: {means}", *lines]
