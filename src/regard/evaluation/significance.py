"""What a figure would be on other lines like these, and whether a difference between two systems could be chance.

Three methods, with the trials and the seed of sacreBLEU, so that its draws and ours are the same:

- The bootstrap (Koehn 2004) draws as many lines as there are, with replacement, again and again. The middle 95 % of the
  figures is the confidence interval.
- The paired bootstrap draws the same lines for both systems. Its p-value is how often the difference of a draw is
  farther from the mean difference than the observed difference is from none.
- Approximate randomisation (Riezler and Maxwell 2005) swaps the two translations of a line with a chance of one half,
  for every line. Its p-value is how often the difference is then at least as large as the one observed.

SacreBLEU counts larger differences only. That is the same on real data, where no two trials come out alike; but of two
systems that differ in a single line it says p = 0.0001, because no swap can make the difference any larger.

Shapes: R trials, L lines, C counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from regard.counts import agreeing
from regard.errors import DataError
from regard.evaluation.metrics import Numbers, Score, Tally

SAMPLES = 1_000
SWAPS = 10_000
SEED = 12345
LEVEL = 0.05
ROUNDING = 1e-9
ENTRIES_AT_A_TIME = 2**22  # of a matrix of trials × lines
BITS = 32  # numpy draws booleans by so many, and forgets the rest of a call's last draw


def bootstrap(
    tallies: Sequence[Tally],
    samples: int = SAMPLES,
    seed: int = SEED,
    progress: Callable[[str, int], None] | None = None,
) -> list[Numbers]:
    """For each tally its figure on `samples` draws of lines, [R] each; all tallies get the same draws."""
    lines = len(tallies[0].counts_LC)
    random = np.random.default_rng(seed)
    figures: list[list[Numbers]] = [[] for _ in tallies]
    done = 0
    for trials in _pieces(samples, lines, 1):
        drawn_RL = random.choice(lines, size=(trials, lines), replace=True)
        # How often each line was drawn: a product with these counts sums the lines of every draw.
        numbered_RL = drawn_RL + lines * np.arange(trials)[:, None]
        times_RL = np.bincount(numbered_RL.ravel(), minlength=trials * lines).reshape(trials, lines).astype(np.float64)
        for found, tally in zip(figures, tallies, strict=True):
            found.append(tally.formula(times_RL @ tally.counts_LC))
        done += trials
        if progress is not None:
            progress("resamples", done)
    return [np.concatenate(found) for found in figures]


def interval(figures_R: Numbers) -> tuple[float, float]:
    """The ends of the middle 95 % of the figures, counted as sacreBLEU counts them."""
    ordered = np.sort(figures_R)
    cut = len(ordered) // 40
    return float(ordered[cut]), float(ordered[-cut - 1])


def with_intervals(
    tallies: Sequence[Tally], samples: int = SAMPLES, seed: int = SEED,
    progress: Callable[[str, int], None] | None = None,
) -> list[Score]:  # fmt: skip
    """The figure of each tally with its 95 % confidence interval."""
    ends = [interval(figures) for figures in bootstrap(tallies, samples, seed, progress)]
    return [replace(tally.score(), low=low, high=high) for tally, (low, high) in zip(tallies, ends, strict=True)]


# ---- two systems


@dataclass(frozen=True)
class Difference:
    """Two systems A and B by one metric, and how likely chance alone makes such a difference.

    `low` and `high` are the ends of the 95 % confidence interval of B − A, by the paired bootstrap.
    """

    name: str
    signature: str
    a: float
    b: float
    low: float
    high: float
    bootstrap_p: float
    randomisation_p: float

    @property
    def size(self) -> float:
        """B − A."""
        return self.b - self.a

    @property
    def p(self) -> float:
        """The larger of the two p-values: a claim has to stand by both tests."""
        return max(self.bootstrap_p, self.randomisation_p)

    @property
    def better(self) -> str | None:
        """`A` or `B`, if the difference is unlikely to be chance."""
        if self.p >= LEVEL or not self.size:
            return None
        return "B" if self.size > 0 else "A"


def compare(
    a: Sequence[Tally],
    b: Sequence[Tally],
    samples: int = SAMPLES,
    swaps: int = SWAPS,
    seed: int = SEED,
    progress: Callable[[str, int], None] | None = None,
) -> list[Difference]:
    """Both tests of the difference between two systems, for every metric. More has to be better."""
    if {len(tally.counts_LC) for tally in (*a, *b)} != {len(a[0].counts_LC)}:
        raise DataError(
            "compare: both systems must have translated the same lines, but have different numbers of them."
        )
    figures = bootstrap([*a, *b], samples, seed, progress)
    swapped = _swapped(a, b, swaps, seed, progress)
    found = []
    for one, other, one_R, other_R, sizes_R in zip(a, b, figures[: len(a)], figures[len(a) :], swapped, strict=True):
        left, right = one.score(), other.score()
        size, sizes = abs(right.value - left.value), np.abs(other_R - one_R)
        low, high = interval(other_R - one_R)
        found.append(
            Difference(
                left.name, left.signature, left.value, right.value, low, high,
                _p_value(sizes - sizes.mean(), size), _p_value(sizes_R, size),
            )
        )  # fmt: skip
    return found


def verdict(differences: Sequence[Difference]) -> str:
    """What may be claimed, in a sentence."""
    winners = {difference.better for difference in differences if difference.better}
    if not winners:
        return f"No difference can be claimed: {_list(differences)} could be chance."
    if len(winners) == 2:
        one, other = (next(d for d in differences if d.better == system) for system in "AB")
        return (
            f"The metrics contradict each other: A is better by {one.name}, B by {other.name}. Read the translations."
        )
    sure = [difference for difference in differences if difference.better]
    unsure = [difference for difference in differences if not difference.better]
    doubt = f" By {' and '.join(d.name for d in unsure)} no difference can be claimed." if unsure else ""
    return f"{winners.pop()} is better: {_list(sure)} {agreeing(len(sure), 'is', 'are')} unlikely to be chance.{doubt}"


def in_words(p: float) -> str:
    """A p-value as people write it."""
    return "p < 0.001" if p < 0.0005 else f"p = {p:.3f}"


def _list(differences: Sequence[Difference]) -> str:
    return " and ".join(f"the difference of {abs(d.size):.2f} {d.name} ({in_words(d.p)})" for d in differences)


def _swapped(
    a: Sequence[Tally], b: Sequence[Tally], swaps: int, seed: int, progress: Callable[[str, int], None] | None
) -> list[Numbers]:
    """For each metric the sizes of the differences after swapping at random, [R] each."""
    lines = len(a[0].counts_LC)
    random = np.random.default_rng(seed)
    sizes: list[list[Numbers]] = [[] for _ in a]
    done = 0
    for trials in _pieces(swaps, lines, BITS):
        stays_RL = random.integers(2, size=(trials, lines), dtype=bool).astype(np.float64)
        for found, one, other in zip(sizes, a, b, strict=True):
            first_RC = stays_RL @ (one.counts_LC - other.counts_LC) + other.counts_LC.sum(axis=0)
            second_RC = (one.counts_LC + other.counts_LC).sum(axis=0) - first_RC
            found.append(np.abs(one.formula(first_RC) - one.formula(second_RC)))
        done += trials
        if progress is not None:
            progress("swaps", done)
    return [np.concatenate(found) for found in sizes]


def _p_value(sizes_R: Numbers, observed: float) -> float:
    """How often chance does at least as much as was observed; the observation itself counts as one more trial."""
    return (int((sizes_R >= observed - ROUNDING).sum()) + 1) / (len(sizes_R) + 1)


def _pieces(trials: int, lines: int, multiple: int) -> Iterator[int]:
    """Trials cut so that a matrix of each piece fits the memory; all pieces but the last are multiples."""
    size = max(ENTRIES_AT_A_TIME // lines // multiple, 1) * multiple
    for first in range(0, trials, size):
        yield min(size, trials - first)
