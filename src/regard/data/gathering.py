"""What a report says of a corpus, gathered while its pairs stream by, and put together at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from regard.data import oddities
from regard.data.filters import Filters, Kept, Keys, keys_of, pair_keys_of, translates
from regard.data.formats import Repairs
from regard.data.guesses import Guess
from regard.data.labelled import Answers
from regard.data.report import EDGES, SAMPLE, SIDES, CorpusCounts, DataReport, Lengths, Overlap, Texts, Unit

LOOKED_AT = 2_000  # characters of each text of the sample


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
    warnings = [
        *warnings,
        *(oddities.once(survey.labels) if labelled else oddities.few(train, survey.lengths(), translated)),
    ]
    for corpus, sample, given, filters in zip(corpora, survey.samples(), others.given, others.filters, strict=True):
        whose = f"{corpus.name}: " if len(corpora) > 1 else ""
        warnings += [*oddities.dropped(corpus), *oddities.repeated(corpus)]
        if labelled:
            continue
        warnings += [whose + warning for warning in oddities.odd(corpus, sample, given, filters)]
    overlaps = survey.overlaps()
    for split, pairs in held.items():
        # Text without sources has an empty one on every line.
        known = overlaps.get(split) if "source" in survey.lengths() else None
        warnings += [] if known is None else oddities.shared(known, len(pairs), split)
    guesses: dict[str, Guess | None] = {}
    if len(corpora) == 1 and not labelled:  # several are a mixture of who knows how many languages
        guesses = oddities.guesses_of(
            {"train": survey.sample, **{split: pairs[:SAMPLE] for split, pairs in held.items()}}
        )
    return DataReport(
        tuple(corpora), repairs, train, len(held.get("valid", ())), len(held.get("test", ())), others.held_out,
        survey.lengths(), guesses, overlaps, tuple(warnings), survey.sample,
        {label: count / survey.labels.total() for label, count in survey.labels.most_common()}, unit=survey.unit,
    )  # fmt: skip
