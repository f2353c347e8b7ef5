"""What is known of a corpus before training starts: counts, lengths, what was dropped, and what looks wrong.

Guesses at languages serve warnings only. A guess names its grounds: the share of the known frequent words that are of
this language (English, German, French), or the share of letters that are Chinese characters.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.data.filters import ADVICE, Dropped, Filters, Kept, Keys, Sieve, count_letters, keys_of, pair_keys_of
from regard.data.formats import Block, Repairs

if TYPE_CHECKING:
    from regard.text.tokenizer import Tokenizer

FORMAT_VERSION = 1
SIDES = ("source", "target")
EDGES = (25, 50, 100, 200, 400)
SAMPLE = 1_000
BAR = 24
FEW_PAIRS = 10_000
MUCH_DROPPED = 0.1
MUCH_UNKNOWN = 0.01
MUCH_SHARED = 0.01

FREQUENT = {
    "en": "the of and to is that it for with you this are have not we be he she they what from my which has by there",
    "de": "der das und ist nicht ich zu den mit sie ein eine auf dem wir für von sich auch wie haben wird dass daß hat "
    "er sind es im bei",
    "fr": "les et est une dans pour qui pas nous vous je il ce sur avec au du sont cette elle aux ne mais ou ont leur",
}
"""Frequent words that only one of these languages has."""
LANGUAGE_OF = {word: language for language, words in FREQUENT.items() for word in words.split(" ")}
# In corpora of talks, captions, software and short sentences they are 15 to 33 % of all words.
LEAST_FREQUENT = 0.08
LEAST_HITS = 10
SURE = 0.8
# Trigrams of two texts in one language have a cosine of 0.4 to 0.9, in two languages of less than 0.5.
SAME_LANGUAGE = 0.75
CLEARLY_CLOSER = 0.2
Texts = Sequence[tuple[str, str]]
"""Pairs of a source and a target."""


@dataclass(frozen=True)
class Guess:
    """A language, and how sure it is, from 0 to 1."""

    language: str
    confidence: float

    @property
    def sure(self) -> bool:
        """Whether a warning may rest on it."""
        return self.confidence >= SURE


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


@dataclass(frozen=True)
class Lengths:
    """Characters of one side: how many texts have up to 25, 50, 100, 200, 400 and more, their mean, and the longest."""

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
    coverage: Mapping[str, Coverage] | None = None

    def with_coverage(self, tokenizer: Tokenizer) -> DataReport:
        """The report with what a vocabulary makes of the sample."""
        found, warnings = {}, []
        for number, (side, own) in enumerate(zip(SIDES, (tokenizer.source, tokenizer), strict=True)):
            texts = [pair[number] for pair in self.sample]
            if not any(texts):
                continue
            ids = [token for tokens in own.encode_all(texts) for token in tokens]
            words = sum(len(text.split()) for text in texts)
            share = sum(token == own.unknown for token in ids) / max(len(ids), 1)
            found[side] = Coverage(share, len(ids) / max(words, 1), len(ids) / sum(map(len, texts)))
            if share > MUCH_UNKNOWN:
                warnings.append(
                    f"{share:.1%} of the tokens on the {side} side are unknown to the vocabulary: it has too few "
                    "characters. Use a larger `tokenizer.vocabulary`, or bytes."
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
        if self.languages:
            guesses = " → ".join(_words(self.languages[f"train {side}"]) for side in self.lengths)
            lines.append(f"  looks like {guesses}")
        lines += _histogram(self.lengths)
        for side, fit in (self.coverage or {}).items():
            lines.append(f"  {side}: {fit.tokens_per_word:.2f} tokens a word, {fit.unknown_share:.2%} unknown")
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
    mended += [f"{count:,} line ends \\r\\n in {file}" for file, count in repairs.carriage_returns.items()]
    return [f"  taken away: {'; '.join(mended)}"] if mended else []


def _words(guess: Guess | None) -> str:
    return "an unknown language" if guess is None else f"{guess.language} ({guess.confidence:.0%} sure)"


def _histogram(lengths: Mapping[str, Lengths]) -> list[str]:
    labels = [f"up to {edge}" for edge in EDGES] + [f"over {EDGES[-1]}"]
    lines = []
    highest = max(number for side in lengths.values() for number, count in enumerate(side.counts) if count)
    for number, label in enumerate(labels[: highest + 1]):
        cells = []
        for side in lengths.values():
            share = side.counts[number] / max(sum(side.counts), 1)
            cells.append(f"{'█' * round(share * BAR):{BAR}} {share:4.0%}")
        lines.append(f"  {label:>9}  {'  '.join(cells)}")
    means = "  ".join(f"{side} mean {found.mean:.0f}, longest {found.longest:,}" for side, found in lengths.items())
    return [f"  characters: {means}", *lines]


# ---- gathering


class Survey:
    """Looks at training pairs as they stream by, and keeps what a report needs; its size does not grow with them."""

    def __init__(self, held: Mapping[str, Texts]) -> None:
        """`held` are the pairs of other splits, to be looked for among the training pairs."""
        self._held = {split: _keys(pairs) for split, pairs in held.items() if pairs}
        self._found = {split: [np.zeros(len(keys), dtype=bool) for keys in both] for split, both in self._held.items()}
        self._counts = np.zeros((2, len(EDGES) + 1), dtype=np.int64)
        self._characters, self._longest, self._pairs = [0, 0], [0, 0], 0
        self._sample: list[tuple[int, str, str]] = []

    def see(self, kept: Kept) -> None:
        """Take some pairs into account."""
        self._pairs += len(kept.sources)
        for number, side in enumerate((kept.sources, kept.targets)):
            lengths = np.fromiter(map(len, side), dtype=np.int64, count=len(side))
            self._counts[number] += np.bincount(np.searchsorted(EDGES, lengths), minlength=len(EDGES) + 1)
            self._characters[number] += int(lengths.sum())
            self._longest[number] = max(self._longest[number], int(lengths.max(initial=0)))
        for split, both in self._held.items():
            for held, found, keys in zip(both, self._found[split], (kept.source_keys, kept.pair_keys), strict=True):
                found |= np.isin(held, keys)
        self._draw(kept)

    def _draw(self, kept: Kept) -> None:
        # The pairs with the smallest hashes are a fair sample, and the same one on every run.
        border = self._sample[-1][0] if len(self._sample) == SAMPLE else 2**64
        few = np.argsort(kept.pair_keys)[:SAMPLE].tolist()
        drawn = [(int(kept.pair_keys[place]), kept.sources[place], kept.targets[place]) for place in few]
        self._sample = sorted(self._sample + [entry for entry in drawn if entry[0] < border])[:SAMPLE]

    @property
    def sample(self) -> list[tuple[str, str]]:
        """Up to a thousand of the pairs."""
        return [(source, target) for _, source, target in self._sample]

    def lengths(self) -> dict[str, Lengths]:
        """The lengths of each side; a side without any text is left out."""
        return {
            side: Lengths(tuple(self._counts[number].tolist()), self._characters[number] / self._pairs, longest)
            for number, (side, longest) in enumerate(zip(SIDES, self._longest, strict=True))
            if longest
        }

    def overlaps(self) -> dict[str, Overlap]:
        """What each other split shares with the training pairs."""
        return {split: Overlap(int(sources.sum()), int(pairs.sum())) for split, (sources, pairs) in self._found.items()}


def _keys(pairs: Texts) -> tuple[Keys, Keys]:
    sources = keys_of(source for source, _ in pairs)
    return sources, pair_keys_of(sources, keys_of(target for _, target in pairs))


@dataclass(frozen=True)
class Others:
    """The pairs of other splits than training by name, and what is to be known about them."""

    pairs: Mapping[str, Texts]
    held_out: bool
    """Whether those of `valid` come from the training files."""
    filters: Filters
    """Those of training."""
    repairs: Repairs


def make_report(
    corpora: Sequence[CorpusCounts], survey: Survey, train: int, repairs: Repairs, others: Others
) -> DataReport:
    """Put together what was counted, guessed and found wrong."""
    held = others.pairs
    repairs = Repairs(
        repairs.byte_order_marks + others.repairs.byte_order_marks,
        repairs.carriage_returns | others.repairs.carriage_returns,
    )
    parts = {"train": survey.sample, **{split: pairs[:SAMPLE] for split, pairs in held.items()}}
    warnings = [*_few(train, survey.lengths()), *(line for corpus in corpora for line in _dropped(corpus))]
    guesses: dict[str, Guess | None] = {}
    if len(corpora) == 1:  # a sample of several is a mixture of who knows how many languages
        guesses = {
            f"{split} {side}": guess_language(pair[number] for pair in pairs)
            for split, pairs in parts.items()
            for number, side in enumerate(SIDES)
        }
        warnings += [*_languages(corpora[0], guesses), *_one_language(parts["train"], guesses)]
    overlaps = survey.overlaps()
    for split, pairs in held.items():
        warnings += [*_swapped(parts["train"], parts[split], split), *_unfit(pairs, split, others.filters)]
        warnings += _shared(overlaps[split], len(pairs), split) if split in overlaps else []
    return DataReport(
        tuple(corpora), repairs, train, len(held.get("valid", ())), len(held.get("test", ())), others.held_out,
        survey.lengths(), guesses, overlaps, tuple(warnings), survey.sample,
    )  # fmt: skip


# ---- warnings


def _few(pairs: int, lengths: Mapping[str, Lengths]) -> Iterable[str]:
    # Lines of plain text are no measure: one may be a word or a book.
    if pairs < FEW_PAIRS and "source" in lengths:
        yield f"only {pairs:,} pairs to train on: a model may learn them by heart instead of how to translate"


def _dropped(corpus: CorpusCounts) -> Iterable[str]:
    reason, most = max(((name, found.count) for name, found in corpus.dropped.items()), key=lambda entry: entry[1])
    lost = corpus.read - corpus.kept
    if lost > MUCH_DROPPED * corpus.read:
        yield (
            f"{corpus.name}: {lost / corpus.read:.0%} of the pairs were dropped, {most:,} of them as `{reason}`. "
            f"{ADVICE[reason]}"
        )


def _languages(corpus: CorpusCounts, guesses: Mapping[str, Guess | None]) -> Iterable[str]:
    """What the text says against the languages that were named."""
    named = [language and re.split("[-_]", language.lower())[0] for language in corpus.languages]
    seen = [guesses[f"train {side}"] for side in SIDES]
    sure = [guess.language if guess is not None and guess.sure else None for guess in seen]
    if all(sure) and sure[0] != sure[1] and named == sure[::-1]:
        yield f"the sides seem to be swapped: source is to be {named[0]}, but looks like {_words(seen[0])}"
        return
    for side, language, guess in zip(SIDES, named, seen, strict=True):
        if language in (*FREQUENT, "zh") and guess is not None and guess.sure and guess.language != language:
            yield f"the {side} side is to be {language}, but looks like {_words(guess)}"


def _one_language(sample: Texts, guesses: Mapping[str, Guess | None]) -> Iterable[str]:
    one, other = (guesses[f"train {side}"] for side in SIDES)
    alike = _cosine(*(_trigrams(pair[number] for pair in sample) for number in range(2)))
    same = one is not None and other is not None and one.sure and other.sure and one.language == other.language
    if same or alike > SAME_LANGUAGE:
        words = _words(one) if same else f"one language (their trigrams have a cosine of {alike:.2f})"
        yield f"both sides look like {words}. Is one of the files the wrong one?"


def _swapped(train: Texts, other: Texts, split: str) -> Iterable[str]:
    one, two = ([_trigrams(pair[number] for pair in pairs) for number in range(2)] for pairs in (train, other))
    straight = _cosine(one[0], two[0]) + _cosine(one[1], two[1])
    crossed = _cosine(one[0], two[1]) + _cosine(one[1], two[0])
    if crossed > straight + CLEARLY_CLOSER:
        yield (
            f"the sides of {split} seem to be swapped: its targets look more like the sources of train "
            f"(cosines of trigrams: {crossed:.2f} crossed, {straight:.2f} straight, of 2)"
        )


def _unfit(pairs: Texts, split: str, filters: Filters) -> Iterable[str]:
    """Pairs of validation and test are never dropped, but some may be worth a look."""
    # Texts that stand for themselves, such as names, are fine in a test; so are repeated ones.
    sieve = Sieve(replace(filters, drop_identical=False, drop_duplicates=False))
    sieve.sift(Block(split, 1, [source for source, _ in pairs], [target for _, target in pairs]))
    for reason, found in sieve.dropped.items():
        if found.count:
            yield (
                f"{found.count:,} of {len(pairs):,} {split} pairs would be dropped from training as `{reason}`, first "
                f"pair {found.examples[0].line:,}; they are kept"
            )


def _shared(overlap: Overlap, pairs: int, split: str) -> Iterable[str]:
    if overlap.sources > MUCH_SHARED * pairs:
        yield (
            f"{overlap.sources:,} of {pairs:,} {split} sources also occur in training, {overlap.pairs:,} of them with "
            "the same target: scores on them say little about new text"
        )


# ---- guesses


def guess_language(texts: Iterable[str]) -> Guess | None:
    """English, German, French or Chinese; None where the texts look like none of them, or are too few."""
    text = " ".join(texts).lower()
    letters = count_letters([text])
    # A Chinese character says about as much as three letters, and a Chinese text has few of the latter.
    chinese = 3 * letters.get("Han", 0) / max(sum(letters.values()) + 2 * letters.get("Han", 0), 1)
    if chinese > 0.5 and letters["Han"] >= LEAST_HITS:
        return Guess("zh", round(chinese, 3))
    words = re.findall(r"[^\W\d_]+", text)
    hits = Counter(LANGUAGE_OF[word] for word in words if word in LANGUAGE_OF)
    if hits.total() < max(LEAST_HITS, LEAST_FREQUENT * len(words)):
        return None
    language, count = hits.most_common(1)[0]
    return Guess(language, round(count / hits.total(), 3))


def _trigrams(texts: Iterable[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for text in texts:
        padded = f" {text.lower()} "
        found.update(map("".join, zip(padded, padded[1:], padded[2:], strict=False)))
    return found


def _cosine(one: Counter[str], other: Counter[str]) -> float:
    norm = math.sqrt(sum(n * n for n in one.values()) * sum(n * n for n in other.values()))
    return sum(count * other[gram] for gram, count in one.items()) / norm if norm else 0.0
