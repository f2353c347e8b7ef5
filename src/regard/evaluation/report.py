"""Everything there is to say about one set of translations: figures, where they are good, and where they are bad."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from regard.counts import agreeing, so_many
from regard.evaluation import catalogue
from regard.evaluation.catalogue import Scoring
from regard.evaluation.likelihood import Likelihood
from regard.evaluation.metrics import Lines, Numbers, Progress, Score, Tally
from regard.evaluation.significance import SAMPLES, SEED, with_intervals

LENGTHS = (10, 20, 30, 40, 50)  # where one bucket ends and the next begins, in tokens of the reference
SHOWN_OF_CHECKSUM = 12
# The test set of 2014 is about in two lengths, and figures on one say nothing about the other.
NEWSTEST2014 = (3_003, 2_737)
TOKENISED_LINES = 100


@dataclass(frozen=True)
class TestSet:
    """One side of what was evaluated. The checksum is what `sha256sum` says of the file, or would of these lines."""

    __test__ = False  # not for pytest

    role: str
    name: str
    lines: int
    sha256: str

    @classmethod
    def of(cls, role: str, place: Path | None, texts: Sequence[str]) -> TestSet:
        """What was read from a file, or came from elsewhere: then the lines speak for themselves."""
        if place is not None and place.is_file():
            with place.open("rb") as stream:
                return cls(role, str(place), len(texts), hashlib.file_digest(stream, "sha256").hexdigest())
        digest = hashlib.sha256("".join(f"{text}\n" for text in texts).encode()).hexdigest()
        return cls(role, "the recipe's test set" if place is None else str(place), len(texts), digest)


@dataclass(frozen=True)
class Bucket:
    """The lines whose reference has from `first` to `last` tokens; `last` is None where there is no end."""

    first: int
    last: int | None
    lines: int
    bleu: float
    chrf: float
    length_ratio: float | None
    """Tokens of the translations for each token of the references."""


@dataclass(frozen=True)
class Example:
    """One line, and its own chrF, which unlike BLEU can be trusted on a single sentence."""

    line: int
    chrf: float
    source: str
    reference: str
    translation: str


@dataclass(frozen=True)
class Report:
    """What `regard evaluate` says."""

    lines: int
    files: list[TestSet]
    scores: list[Score]
    lengths: list[Bucket]
    worst: list[Example]
    best: list[Example]
    notes: list[str]
    samples: int = SAMPLES
    seed: int = SEED

    def to_json(self) -> dict[str, object]:
        """The contract of `--json`: keys are added over time, never changed or taken away."""
        parts = {name: [asdict(part) for part in getattr(self, name)]
                 for name in ("files", "scores", "lengths", "worst", "best")}  # fmt: skip
        bootstrap = {"samples": self.samples, "seed": self.seed, "confidence": 0.95}
        return {"lines": self.lines, **parts, "bootstrap": bootstrap, "notes": self.notes}

    def to_text(self) -> str:
        """The same for people."""
        files = [
            (file.role, file.name, so_many(file.lines, "line"), f"sha256 {file.sha256[:SHOWN_OF_CHECKSUM]}")
            for file in self.files
        ]
        scores = [(score.name, *_rounded(score), score.signature) for score in self.scores]
        lengths = [
            (_span(bucket), f"{bucket.lines:,}", f"{bucket.bleu:.2f}", f"{bucket.chrf:.2f}",
             "" if bucket.length_ratio is None else f"{bucket.length_ratio:.2f}")
            for bucket in self.lengths
        ]  # fmt: skip
        parts = [
            table(files),
            table([("score", "value", "95 % interval", "how it was computed"), *scores], numbers=(1, 2)),
            f"The intervals are from {self.samples:,} bootstrap resamples with seed {self.seed}.",
        ]
        if lengths:
            parts.append(table([("length", "lines", "BLEU", "chrF", "ratio"), *lengths], numbers=(1, 2, 3, 4)))
        for title, examples in (("worst", self.worst), ("best", self.best)):
            if examples:
                parts.append("\n".join([f"The {title} lines by chrF:", *map(_example, examples)]))
        return "\n\n".join([*parts, *(f"Note: {note}" for note in self.notes)])


def evaluate(
    sources: Sequence[str],
    lines: Lines,
    scoring: Scoring,
    likelihood: Likelihood | None = None,
    files: Sequence[TestSet] = (),
    examples: int = 3,
    progress: Progress | None = None,
) -> Report:
    """Every figure of some translations, with confidence intervals, and a look at single lines."""
    tallies = catalogue.tallies(lines, scoring, progress)
    named = {tally.name: tally for tally in tallies}
    each_L = named["chrF"].each()

    def first(order_L: Numbers) -> list[Example]:
        return [
            Example(place + 1, float(each_L[place]), sources[place], lines.beside(place)[0], lines.hypotheses[place])
            for place in np.argsort(order_L, kind="stable")[:examples].tolist()
        ]

    return Report(
        len(lines),
        list(files),
        with_intervals([*tallies, *(likelihood.tallies() if likelihood else [])], progress=progress),
        _lengths(named["BLEU"], named["chrF"]),
        first(each_L),
        first(-each_L),
        _notes(lines, files, likelihood),
    )


def evaluate_text(likelihood: Likelihood, files: Sequence[TestSet] = (), progress: Progress | None = None) -> Report:
    """The figures of a language model: how probable it finds a text. There are no translations to look at."""
    scores = with_intervals(likelihood.tallies(), progress=progress)
    return Report(len(likelihood.nats_L), list(files), scores, [], [], [], _unknown(likelihood))


def _lengths(bleu: Tally, chrf: Tally) -> list[Bucket]:
    """The figures by the length of the reference in tokens of the first BLEU."""
    tokens_L: Numbers = bleu.counts_LC[:, 1]
    buckets = []
    for first, last in zip((0, *(end + 1 for end in LENGTHS)), (*LENGTHS, None), strict=True):
        inside_L = (tokens_L >= first) & (tokens_L <= (np.inf if last is None else last))
        if inside_L.any():
            written, wanted = bleu.counts_LC[inside_L, :2].sum(axis=0)
            ratio = float(written / wanted) if wanted else None
            buckets.append(Bucket(first, last, int(inside_L.sum()), bleu.of(inside_L), chrf.of(inside_L), ratio))
    return buckets


def _notes(lines: Lines, files: Sequence[TestSet], likelihood: Likelihood | None) -> list[str]:
    notes = []
    empty = sum(not hypothesis.strip() for hypothesis in lines.hypotheses)
    if empty:
        notes.append(f"{empty:,} of {so_many(len(lines), 'translation')} {agreeing(empty, 'is', 'are')} empty.")
    tokenised = sum(hypothesis.endswith(" .") for hypothesis in lines.hypotheses)
    if tokenised >= TOKENISED_LINES:
        notes.append(
            f"{tokenised:,} translations end in a point with a space before it. If they are tokens and not text, put "
            "them together first: BLEU cuts them itself."
        )
    whole, cut = NEWSTEST2014
    named = any("newstest2014" in file.name for file in files)
    if len(lines) == cut or named:
        notes.append(
            f"the test set has {so_many(len(lines), 'line')}. newstest2014 has {whole:,}, and there is a version with "
            f"{cut:,}; figures on one cannot be compared with figures on the other."
        )
    return notes if likelihood is None else [*notes, *_unknown(likelihood)]


def _unknown(likelihood: Likelihood) -> list[str]:
    if not likelihood.unknown:
        return []
    what = likelihood.read.partition("|")[0].removeprefix("first ")
    is_or_are, they = (agreeing(likelihood.unknown, *words) for words in (("is", "are"), ("It is", "They are")))
    found = f"{so_many(likelihood.unknown, 'token')} of the {what} {is_or_are} unknown to the vocabulary"
    return [f"{found}. {they} easy to guess, so the perplexities are lower than they should be."]


def _span(bucket: Bucket) -> str:
    return f"{bucket.first} and more" if bucket.last is None else f"{bucket.first}–{bucket.last}"


def _rounded(score: Score) -> tuple[str, str]:
    """The figure and its interval; a perplexity is never far from 1, so it gets another digit, and nats get two."""
    digits = 3 if score.name.startswith("perplexity") else 4 if score.name.startswith("nats") else 2
    interval = "" if score.low is None else f"{score.low:.{digits}f} … {score.high:.{digits}f}"
    return f"{score.value:.{digits}f}", interval


def _example(example: Example) -> str:
    return (
        f"  line {example.line:,}, chrF {example.chrf:.1f}\n    source       {example.source}\n"
        f"    reference    {example.reference}\n    translation  {example.translation}"
    )


def table(rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Cells in columns; those of `numbers` stand on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.rjust(width) if place in numbers else cell.ljust(width)
                  for place, (cell, width) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]  # fmt: skip
    return "\n".join(line.rstrip() for line in lines)
