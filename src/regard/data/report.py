"""What is known of a corpus before training starts: counts, lengths, what was dropped, and what looks wrong."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from regard.counts import agreeing, so_many
from regard.data.filters import ADVICE, Dropped, Filters, Kept, Keys, Sieve, keys_of, pair_keys_of
from regard.data.formats import Block, Repairs
from regard.data.guesses import FREQUENT, Guess, cosine, guess_language, trigrams
from regard.data.labelled import Answers

if TYPE_CHECKING:
    from regard.text.tokenizer import Tokenizer

FORMAT_VERSION = 1
SIDES = ("source", "target")
Unit = Literal["characters", "words"]
"""What texts are measured in: those that are made of words, such as music, have no characters worth counting."""
EDGES = (25, 50, 100, 200, 400)
SAMPLE = 1_000
LOOKED_AT = 2_000  # characters of each of them
BAR = 24
LABELS_SHOWN = 12
FEW_PAIRS = 10_000
MANY_COPIES = 10
MUCH_DROPPED = 0.1
MUCH_UNKNOWN = 0.01
MUCH_SHARED = 0.01
LABELS_NAMED = 3
UNKNOWN = {
    True: ": it has too few characters. Use a larger `tokenizer.vocabulary`, or bytes.",
    False: ", which was learned from other text. Take over one that knows them, such as one of bytes, or let one be "
    "learned from this text.",
}
"""What to say of unknown tokens, by whether the vocabulary was learned from this text."""

# Trigrams of two texts in one language have a cosine of 0.4 to 0.9, in two languages of less than 0.5.
SAME_LANGUAGE = 0.75
CLEARLY_CLOSER = 0.2
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
            guesses = " → ".join(_words(self.languages[f"train {side}"]) for side in self.lengths)
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


def _words(guess: Guess | None) -> str:
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


# ---- gathering


class Survey:
    """Looks at training pairs as they stream by, and keeps what a report needs; its size does not grow with them."""

    def __init__(
        self, held: Mapping[str, Texts], parts: int = 1, answers: Answers | None = None, unit: Unit = "characters"
    ) -> None:
        """`held` are the pairs of other splits, to be looked for among the training pairs of so many corpora.

        `answers` is what has a label, where targets are labels: they are counted.
        """
        self._answers = answers
        self.unit: Unit = unit
        self.labels: Counter[str] = Counter()
        """How often each label occurs."""
        self._held = {split: _keys(pairs) for split, pairs in held.items() if pairs}
        self._found = {split: [np.zeros(len(keys), dtype=bool) for keys in both] for split, both in self._held.items()}
        self._counts = np.zeros((2, len(EDGES) + 1), dtype=np.int64)
        self._characters, self._longest, self._pairs = [0, 0], [0, 0], 0
        self._samples: list[list[tuple[int, str, str]]] = [[] for _ in range(parts)]

    def see(self, kept: Kept, part: int = 0) -> None:
        """Take some pairs of a corpus into account."""
        self._pairs += len(kept.sources)
        for number, side in enumerate((kept.sources, kept.targets)):
            measured = map(len, side) if self.unit == "characters" else (len(text.split()) for text in side)
            lengths = np.fromiter(measured, dtype=np.int64, count=len(side))
            self._counts[number] += np.bincount(np.searchsorted(EDGES, lengths), minlength=len(EDGES) + 1)
            self._characters[number] += int(lengths.sum())
            self._longest[number] = max(self._longest[number], int(lengths.max(initial=0)))
        if self._answers is not None:
            for target in kept.targets:
                self.labels.update([target] if self._answers == "text" else target.split())
        for split, both in self._held.items():
            for held, found, keys in zip(both, self._found[split], (kept.source_keys, kept.pair_keys), strict=True):
                found |= np.isin(held, keys)
        self._samples[part] = _drawn(self._samples[part], kept)

    def samples(self) -> list[list[tuple[str, str]]]:
        """Up to a thousand of the pairs of each corpus."""
        return [[(source, target) for _, source, target in drawn] for drawn in self._samples]

    @property
    def sample(self) -> list[tuple[str, str]]:
        """Up to a thousand of all pairs."""
        together = sorted(entry for drawn in self._samples for entry in drawn)
        return [(source, target) for _, source, target in together[:SAMPLE]]

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


def _drawn(sample: list[tuple[int, str, str]], kept: Kept) -> list[tuple[int, str, str]]:
    # The pairs with the smallest hashes are a fair sample, and the same one on every run.
    border = sample[-1][0] if len(sample) == SAMPLE else 2**64
    few = np.argsort(kept.pair_keys)[:SAMPLE].tolist()
    drawn = [
        (int(kept.pair_keys[place]), _beginning(kept.sources[place]), _beginning(kept.targets[place])) for place in few
    ]
    return sorted(sample + [entry for entry in drawn if entry[0] < border])[:SAMPLE]


def _beginning(text: str) -> str:
    """As much of a text as guesses need, up to the end of a word: one line may be a book, or a piece of music."""
    return text if len(text) <= LOOKED_AT else text[:LOOKED_AT].rpartition(" ")[0] or text[:LOOKED_AT]


def _keys(pairs: Texts) -> tuple[Keys, Keys]:
    sources = keys_of(source for source, _ in pairs)
    return sources, pair_keys_of(sources, keys_of(target for _, target in pairs))


@dataclass(frozen=True)
class Others:
    """The pairs of other splits than training by name, and what is to be known about them."""

    pairs: Mapping[str, Texts]
    given: Sequence[Mapping[str, Texts]]
    """For each corpus those from files of its own."""
    held_out: bool
    """Whether those of `valid` come from the training files."""
    filters: Sequence[Filters]
    """Those of training, for each corpus."""
    repairs: Repairs


def make_report(
    corpora: Sequence[CorpusCounts],
    survey: Survey,
    train: int,
    repairs: Repairs,
    others: Others,
    warnings: Iterable[str] = (),
    answers: Answers | None = None,
) -> DataReport:
    """Put together what was counted, guessed and found wrong; `warnings` are those that were known before.

    Where targets are labels, they are in no language, and say nothing about the other side.
    """
    labelled = answers is not None
    held = others.pairs
    repairs = Repairs(
        repairs.byte_order_marks + others.repairs.byte_order_marks,
        repairs.carriage_returns | others.repairs.carriage_returns,
        repairs.left_out | others.repairs.left_out,
    )
    translated = any(
        translates(corpus.languages, filters) for corpus, filters in zip(corpora, others.filters, strict=True)
    )
    warnings = [*warnings, *(_once(survey.labels) if labelled else _few(train, survey.lengths(), translated))]
    for corpus, sample, given, filters in zip(corpora, survey.samples(), others.given, others.filters, strict=True):
        whose = f"{corpus.name}: " if len(corpora) > 1 else ""
        warnings += [*_dropped(corpus), *_repeated(corpus)]
        if labelled:
            continue
        warnings += [whose + warning for warning in _odd(corpus, sample, given, filters)]
    overlaps = survey.overlaps()
    for split, pairs in held.items():
        # Text without sources has an empty one on every line.
        known = overlaps.get(split) if "source" in survey.lengths() else None
        warnings += [] if known is None else _shared(known, len(pairs), split)
    guesses: dict[str, Guess | None] = {}
    if len(corpora) == 1 and not labelled:  # several are a mixture of who knows how many languages
        guesses = _guesses({"train": survey.sample, **{split: pairs[:SAMPLE] for split, pairs in held.items()}})
    return DataReport(
        tuple(corpora), repairs, train, len(held.get("valid", ())), len(held.get("test", ())), others.held_out,
        survey.lengths(), guesses, overlaps, tuple(warnings), survey.sample,
        {label: count / survey.labels.total() for label, count in survey.labels.most_common()}, unit=survey.unit,
    )  # fmt: skip


# ---- warnings


def translates(languages: tuple[str | None, str | None], filters: Filters) -> bool:
    """Whether pairs are translations, as far as settings tell.

    They are not where both sides are named as one language. Where one has no name, no limit on the ratio of lengths
    says that they are something else, such as summaries.
    """
    source, target = languages
    return source != target if source and target else bool(filters.max_ratio)


def _odd(corpus: CorpusCounts, sample: Texts, given: Mapping[str, Texts], filters: Filters) -> Iterable[str]:
    """What looks wrong in one corpus: the languages of its sides, and the files it brings for other splits."""
    guesses = _guesses({"train": sample})
    yield from _languages(corpus, guesses)
    if translates(corpus.languages, filters):
        yield from _one_language(sample, guesses)
    # What is held out needs no such look: it has come through the filters, and stands as the training pairs do.
    for split, pairs in given.items():
        yield from _swapped(sample, pairs[:SAMPLE], split)
        yield from _unfit(pairs, split, filters, corpus.languages)


def _guesses(parts: Mapping[str, Texts]) -> dict[str, Guess | None]:
    return {
        f"{split} {side}": guess_language(pair[number] for pair in pairs)
        for split, pairs in parts.items()
        for number, side in enumerate(SIDES)
    }


def _few(pairs: int, lengths: Mapping[str, Lengths], translated: bool) -> Iterable[str]:
    # Lines of plain text are no measure: one may be a word or a book.
    if pairs < FEW_PAIRS and "source" in lengths:
        what = "how to translate" if translated else "what they have in common"
        yield f"only {so_many(pairs, 'pair')} to train on: a model may learn them by heart instead of {what}"


def _once(labels: Counter[str]) -> Iterable[str]:
    if rare := [label for label, count in labels.items() if count == 1]:
        names = ", ".join(f"`{label}`" for label in rare[:LABELS_NAMED])
        such = f", such as {names}" if len(rare) > LABELS_NAMED else f": {names}"
        yield (
            f"{len(rare):,} of {len(labels):,} labels {agreeing(len(rare), 'occurs', 'occur')} only once{such}. What a "
            "label means cannot be learned from one example. Gather more of them, or join rare labels into one"
        )


def _dropped(corpus: CorpusCounts) -> Iterable[str]:
    reason, most = max(((name, found.count) for name, found in corpus.dropped.items()), key=lambda entry: entry[1])
    lost = corpus.read - corpus.kept
    if lost > MUCH_DROPPED * corpus.read:
        yield (
            f"{corpus.name}: {lost / corpus.read:.0%} of the pairs were dropped, {most:,} of them as `{reason}`. "
            f"{ADVICE[reason]}"
        )


def _repeated(corpus: CorpusCounts) -> Iterable[str]:
    if corpus.copies > MANY_COPIES:
        yield (
            f"{corpus.name}: each pair comes {corpus.copies:,.0f} times an epoch, and may be learned by heart. Let the "
            "weights be closer to each other, or the temperature lower"
        )


def _languages(corpus: CorpusCounts, guesses: Mapping[str, Guess | None]) -> Iterable[str]:
    """What the text says against the languages that were named, or that the names of files end in."""
    given = corpus.languages if any(corpus.languages) else corpus.by_name
    named = [language and re.split("[-_]", language.lower())[0] for language in given]
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
    alike = cosine(*(trigrams(pair[number] for pair in sample) for number in range(2)))
    same = one is not None and other is not None and one.sure and other.sure and one.language == other.language
    if same or alike > SAME_LANGUAGE:
        words = _words(one) if same else f"one language (their trigrams have a cosine of {alike:.2f})"
        yield f"both sides look like {words}. Is one of the files the wrong one?"


def _swapped(train: Texts, other: Texts, split: str) -> Iterable[str]:
    one, two = ([trigrams(pair[number] for pair in pairs) for number in range(2)] for pairs in (train, other))
    straight = cosine(one[0], two[0]) + cosine(one[1], two[1])
    crossed = cosine(one[0], two[1]) + cosine(one[1], two[0])
    if crossed > straight + CLEARLY_CLOSER:
        yield (
            f"the sides of {split} seem to be swapped: its targets look more like the sources of train "
            f"(cosines of trigrams: {crossed:.2f} crossed, {straight:.2f} straight, of 2)"
        )


def _unfit(pairs: Texts, split: str, filters: Filters, languages: tuple[str | None, str | None]) -> Iterable[str]:
    """Pairs of validation and test are never dropped, but some may be worth a look."""
    # Texts that stand for themselves, such as names, are fine in a test; so are repeated ones.
    sieve = Sieve(replace(filters, drop_identical=False, drop_duplicates=False), languages)
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
