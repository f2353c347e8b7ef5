"""What looks wrong in a corpus: each is a warning in a report, and nothing is changed for it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from regard.counts import agreeing, so_many
from regard.data.filters import ADVICE, Filters, Sieve, translates
from regard.data.formats import Block
from regard.data.guesses import FREQUENT, Guess, cosine, guess_language, trigrams
from regard.data.report import SAMPLE, SIDES, CorpusCounts, Lengths, Overlap, Texts, in_words

FEW_PAIRS = 10_000
MANY_COPIES = 10
MUCH_DROPPED = 0.1
MUCH_SHARED = 0.01
LABELS_NAMED = 3
# Trigrams of two texts in one language have a cosine of 0.4 to 0.9, in two languages of less than 0.5.
SAME_LANGUAGE = 0.75
CLEARLY_CLOSER = 0.2


def odd(corpus: CorpusCounts, sample: Texts, given: Mapping[str, Texts], filters: Filters) -> Iterable[str]:
    """What looks wrong in one corpus: the languages of its sides, and the files it brings for other splits."""
    guesses = guesses_of({"train": sample})
    yield from _languages(corpus, guesses)
    if translates(corpus.languages, filters):
        yield from _one_language(sample, guesses)
    # What is held out needs no such look: it has come through the filters, and stands as the training pairs do.
    for split, pairs in given.items():
        yield from _swapped(sample, pairs[:SAMPLE], split)
        yield from _unfit(pairs, split, filters, corpus.languages)


def guesses_of(parts: Mapping[str, Texts]) -> dict[str, Guess | None]:
    """The language of each side of some splits, by names such as `train source`."""
    return {
        f"{split} {side}": guess_language(pair[number] for pair in pairs)
        for split, pairs in parts.items()
        for number, side in enumerate(SIDES)
    }


def few(pairs: int, lengths: Mapping[str, Lengths], translated: bool) -> Iterable[str]:
    """A corpus that is too small to learn from."""
    # Lines of plain text are no measure: one may be a word or a book.
    if pairs < FEW_PAIRS and "source" in lengths:
        what = "how to translate" if translated else "what they have in common"
        yield f"only {so_many(pairs, 'pair')} to train on: a model may learn them by heart instead of {what}"


def once(labels: Counter[str]) -> Iterable[str]:
    """Labels with a single example."""
    if rare := [label for label, count in labels.items() if count == 1]:
        names = ", ".join(f"`{label}`" for label in rare[:LABELS_NAMED])
        such = f", such as {names}" if len(rare) > LABELS_NAMED else f": {names}"
        yield (
            f"{len(rare):,} of {len(labels):,} labels {agreeing(len(rare), 'occurs', 'occur')} only once{such}. What a "
            "label means cannot be learned from one example. Gather more of them, or join rare labels into one"
        )


def dropped(corpus: CorpusCounts) -> Iterable[str]:
    """A corpus of which filters dropped much."""
    reason, most = max(((name, found.count) for name, found in corpus.dropped.items()), key=lambda entry: entry[1])
    lost = corpus.read - corpus.kept
    if lost > MUCH_DROPPED * corpus.read:
        yield (
            f"{corpus.name}: {lost / corpus.read:.0%} of the pairs were dropped, {most:,} of them as `{reason}`. "
            f"{ADVICE[reason]}"
        )


def repeated(corpus: CorpusCounts) -> Iterable[str]:
    """A corpus that comes too often in an epoch."""
    if corpus.copies > MANY_COPIES:
        yield (
            f"{corpus.name}: each pair comes {corpus.copies:,.0f} times an epoch, and may be learned by heart. Let the "
            "weights be closer to each other, or the temperature lower"
        )


def shared(overlap: Overlap, pairs: int, split: str) -> Iterable[str]:
    """Another split that training has much of."""
    if overlap.sources > MUCH_SHARED * pairs:
        yield (
            f"{overlap.sources:,} of {pairs:,} {split} sources also occur in training, {overlap.pairs:,} of them with "
            "the same target: scores on them say little about new text"
        )


# ---- one corpus


def _languages(corpus: CorpusCounts, guesses: Mapping[str, Guess | None]) -> Iterable[str]:
    """What the text says against the languages that were named, or that the names of files end in."""
    given = corpus.languages if any(corpus.languages) else corpus.by_name
    named = [language and re.split("[-_]", language.lower())[0] for language in given]
    seen = [guesses[f"train {side}"] for side in SIDES]
    sure = [guess.language if guess is not None and guess.sure else None for guess in seen]
    if all(sure) and sure[0] != sure[1] and named == sure[::-1]:
        yield f"the sides seem to be swapped: source is to be {named[0]}, but looks like {in_words(seen[0])}"
        return
    for side, language, guess in zip(SIDES, named, seen, strict=True):
        if language in (*FREQUENT, "zh") and guess is not None and guess.sure and guess.language != language:
            yield f"the {side} side is to be {language}, but looks like {in_words(guess)}"


def _one_language(sample: Texts, guesses: Mapping[str, Guess | None]) -> Iterable[str]:
    one, other = (guesses[f"train {side}"] for side in SIDES)
    alike = cosine(*(trigrams(pair[number] for pair in sample) for number in range(2)))
    same = one is not None and other is not None and one.sure and other.sure and one.language == other.language
    if same or alike > SAME_LANGUAGE:
        words = in_words(one) if same else f"one language (their trigrams have a cosine of {alike:.2f})"
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
