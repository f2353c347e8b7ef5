"""Scores of translations against references, each with the signature that says how it was computed.

A figure of a corpus is a formula over sums: every line adds its counts, and the formula makes the sums a figure. A
`Tally` is both. One tally gives the figure of all lines, of some, of each, and of a thousand resamples at once.

Shapes: L lines, C counts, N orders of n-grams.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regard.counts import agreeing, so_many
from regard.errors import DataError

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

Numbers = NDArray[np.float64]
Formula = Callable[[Numbers], Numbers]
"""Sums over lines, [..., C], to figures, [...]."""
Progress = Callable[[str, int], None]
"""Called with what is being counted and the lines done so far."""

LINES_AT_A_TIME = 100
ORDERS = 4
RECALL_WEIGHT = 4.0  # β² of chrF, in which recall counts twice as much as precision


@dataclass(frozen=True)
class Score:
    """One figure. `signature` names the exact definition; compare only figures with the same one.

    `low` and `high` are the ends of its 95 % confidence interval, where one was asked for.
    """

    name: str
    value: float
    signature: str
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        interval = "" if self.low is None else f" [{self.low:.2f}, {self.high:.2f}]"
        return f"{self.name} {self.value:.2f}{interval}  ({self.signature})"


@dataclass(frozen=True)
class Lines:
    """Translations, and one or more whole sets of references for them."""

    hypotheses: Sequence[str]
    references: Sequence[Sequence[str]]

    def __post_init__(self) -> None:
        for references in self.references or [()]:
            if len(self.hypotheses) != len(references) or not references:
                raise DataError(
                    f"evaluation: there must be one reference for each translation and at least one of each, but found "
                    f"{so_many(len(self.hypotheses), 'translation')} and {so_many(len(references), 'reference')}."
                )

    def __len__(self) -> int:
        return len(self.hypotheses)

    def changed(self, change: Callable[[str], str]) -> Lines:
        """The same with every text changed."""
        return Lines(list(map(change, self.hypotheses)), [list(map(change, texts)) for texts in self.references])

    def beside(self, line: int) -> list[str]:
        """The references of one line."""
        return [references[line] for references in self.references]


@dataclass(frozen=True)
class Tally:
    """What every line adds to one figure, and how the sums become it."""

    name: str
    signature: str
    counts_LC: Numbers
    formula: Formula

    def score(self) -> Score:
        """The figure of all lines."""
        return Score(self.name, self.of(slice(None)), self.signature)

    def of(self, lines: slice | NDArray[np.bool_]) -> float:
        """The figure of some lines."""
        return float(self.formula(self.counts_LC[lines].sum(axis=0)))

    def each(self) -> Numbers:
        """The figure of every line by itself, [L]."""
        return self.formula(self.counts_LC)


def score(hypotheses: Sequence[str], references: Sequence[str]) -> list[Score]:
    """Three figures for a first look: exact match in percent, and BLEU and chrF as the sacrebleu command has them."""
    lines = Lines(hypotheses, [references])
    return [tally.score() for tally in (exact_match(lines), bleu(lines), chrf(lines))]


# ---- counting


def exact_match(lines: Lines) -> Tally:
    """How many translations are a reference to the letter."""
    same = [hypothesis in lines.beside(line) for line, hypothesis in enumerate(lines.hypotheses)]
    how = f"percent of {len(lines)} {agreeing(len(lines), 'line')}, to the letter"
    return mean_of("exact match", how, np.array(same, dtype=np.float64))


def bleu(
    lines: Lines,
    tokenize: str = "13a",
    lowercase: bool = False,
    name: str = "BLEU",
    progress: Progress | None = None,
) -> Tally:
    """BLEU (Papineni et al. 2002) as `sacrebleu --tokenize … [--lowercase]` computes it, with exponential smoothing."""
    from sacrebleu.metrics.bleu import BLEU

    return _counted(name, BLEU(tokenize=tokenize, lowercase=lowercase, force=True), smoothed_bleu, lines, progress)


def bleu_of_tokens(lines: Lines, name: str, tokens: str, lowercase: bool, progress: Progress | None = None) -> Tally:
    """BLEU of texts that are cut at their spaces, without smoothing, as `multi-bleu.perl` computes it.

    `tokens` is written into the signature: how the spaces came to be where they are.
    """
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(tokenize="none", smooth_method="none", lowercase=lowercase, force=True)
    metric.tokenizer_signature = tokens
    return _counted(name, metric, plain_bleu, lines, progress)


def chrf(lines: Lines, words: int = 0, lowercase: bool = False, progress: Progress | None = None) -> Tally:
    """chrF2 (Popović 2015) as `sacrebleu --metrics chrf` computes it; with `words=2` it is chrF2++."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF(word_order=words, lowercase=lowercase)
    return _counted("chrF" + "+" * words, metric, f_score, lines, progress)


def ter(lines: Lines, unspaced: bool = False, progress: Progress | None = None) -> Tally:
    """The translation edit rate (Snover et al. 2006) as `sacrebleu --metrics ter` computes it; less is better.

    `unspaced` is for Chinese and Japanese, as `--ter-normalized --ter-asian-support`: each character is a word.
    """
    from sacrebleu.metrics.ter import TER

    return _counted("TER", TER(normalized=unspaced, asian_support=unspaced), edit_rate, lines, progress)


def mean_of(name: str, signature: str, values_L: Numbers) -> Tally:
    """A figure that is the mean of its lines, in percent."""
    return Tally(name, signature, np.stack([values_L, np.ones_like(values_L)], axis=1), percentage)


def _counted(name: str, metric: Metric, formula: Formula, lines: Lines, progress: Progress | None) -> Tally:
    """The counts that sacreBLEU itself takes of every line; it sums them, too."""
    rows: list[list[float]] = []
    for first in range(0, len(lines), LINES_AT_A_TIME):
        some = slice(first, first + LINES_AT_A_TIME)
        references = [list(texts[some]) for texts in lines.references]
        rows += metric._extract_corpus_statistics(lines.hypotheses[some], references)
        if progress is not None:
            progress(name, len(rows))
    return Tally(name, str(metric.get_signature()), np.array(rows, dtype=np.float64), formula)


# ---- formulas


def smoothed_bleu(sums: Numbers) -> Numbers:
    """100 · exp(min(0, 1 − r/c)) · (p_1·p_2·p_3·p_4)^¼; the k-th precision without a match is 1/(2^k · n-grams).

    Counts: c tokens of the translations, r of the references, for n = 1…4 the n-grams that match, then all.
    """
    matched_N, total_N = sums[..., 2 : 2 + ORDERS], sums[..., 2 + ORDERS :]
    halvings_N = 2.0 ** (matched_N == 0).cumsum(axis=-1)
    return _bleu(sums, np.where(matched_N == 0, 1 / halvings_N, matched_N), total_N)


def plain_bleu(sums: Numbers) -> Numbers:
    """The same without smoothing: no match of some order makes it 0."""
    return _bleu(sums, sums[..., 2 : 2 + ORDERS], sums[..., 2 + ORDERS :])


def _bleu(sums: Numbers, matched_N: Numbers, total_N: Numbers) -> Numbers:
    with np.errstate(divide="ignore"):
        logs_N = np.log(_ratio(matched_N, total_N))
        penalty = np.where(sums[..., 0] > 0, np.minimum(0.0, 1 - _ratio(sums[..., 1], sums[..., 0])), -np.inf)
    anything = sums[..., 2 : 2 + ORDERS].any(axis=-1)
    return np.asarray(np.where(anything, 100 * np.exp(penalty + logs_N.mean(axis=-1)), 0.0))


def f_score(sums: Numbers) -> Numbers:
    """100 · (1 + β²)·P·R / (β²·P + R), where P and R are means over the orders that both sides have; β = 2.

    Counts, for every order: the n-grams of the translations, those of the references, and those that match.
    """
    hypothesis_N, reference_N, matched_N = (sums[..., place::3] for place in range(3))
    known_N = (hypothesis_N > 0) & (reference_N > 0)
    orders = known_N.sum(axis=-1)
    precision, recall = (
        _ratio((_ratio(matched_N, all_N) * known_N).sum(axis=-1), orders) for all_N in (hypothesis_N, reference_N)
    )
    return 100 * _ratio((1 + RECALL_WEIGHT) * precision * recall, RECALL_WEIGHT * precision + recall)


def edit_rate(sums: Numbers) -> Numbers:
    """100 · edits / words of the references. Counts: edits, words."""
    edits, words = sums[..., 0], sums[..., 1]
    return np.where(words > 0, 100 * _ratio(edits, words), 100.0 * (edits > 0))


def percentage(sums: Numbers) -> Numbers:
    """100 · sum / lines."""
    return 100 * sums[..., 0] / sums[..., 1]


def _ratio(part: Numbers, whole: Numbers) -> Numbers:
    """part / whole, and 0 where the whole is 0."""
    return np.asarray(np.divide(part, whole, out=np.zeros(np.shape(part)), where=whole != 0))
