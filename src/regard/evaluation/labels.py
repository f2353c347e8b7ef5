"""How well labels were given: accuracy, F1, and which label was taken for which.

Shapes: L lines, C labels.

    precision of a label   its right answers / all answers with it
    recall                 its right answers / all places where it was right
    F1                     2 · precision · recall / (precision + recall)
    macro F1               the mean over the labels that occur; each counts alike, however rare
    accuracy               right answers / answers, which is micro F1 where every answer has one label
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from regard.counts import so_many
from regard.errors import DataError
from regard.evaluation.metrics import Numbers, Score, Tally
from regard.evaluation.report import TestSet, table
from regard.evaluation.significance import SAMPLES, SEED, with_intervals

Counts = NDArray[np.int64]
NAMED = 24  # labels in a message


@dataclass(frozen=True)
class LabelScore:
    """One label: how often it was right and given, and its figures in percent."""

    label: str
    right: int
    """So many times it should have been given."""
    given: int
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class Mistake:
    """One label taken for another, so many times, and the first text where it was."""

    right: str
    given: str
    times: int
    line: int
    """The number of that text, from 1. It is the line of a table, but not of a file with a word on each line."""
    text: str


@dataclass(frozen=True)
class LabelReport:
    """What `regard evaluate` says of a model that gives labels."""

    lines: int
    """Texts."""
    answers: int
    files: list[TestSet]
    scores: list[Score]
    labels: list[LabelScore]
    confusion: list[list[int]]
    """Row by row, in the order of `labels`: how often the row's label became the column's."""
    mistakes: list[Mistake]

    def to_json(self) -> dict[str, object]:
        """The contract of `--json`: keys are added over time, never changed or taken away."""
        parts = {name: [asdict(part) for part in getattr(self, name)]
                 for name in ("files", "scores", "labels", "mistakes")}  # fmt: skip
        bootstrap = {"samples": SAMPLES, "seed": SEED, "confidence": 0.95}
        return {"lines": self.lines, "answers": self.answers, **parts, "confusion": self.confusion,
                "bootstrap": bootstrap}  # fmt: skip

    def to_text(self) -> str:
        """The same for people."""
        scores = [
            (score.name, f"{score.value:.2f}", f"{score.low:.2f} … {score.high:.2f}", score.signature)
            for score in self.scores
        ]
        labels = [
            (
                one.label,
                f"{one.right:,}",
                f"{one.given:,}",
                _percent(one.precision, one.given),
                _percent(one.recall, one.right),
                _percent(one.f1, one.right + one.given),
            )
            for one in self.labels
        ]
        parts = [
            "\n".join(
                f"{file.role}  {file.name}  {so_many(file.lines, 'text')}  sha256 {file.sha256[:12]}"
                for file in self.files
            ),
            f"{so_many(self.answers, 'label')} in {so_many(self.lines, 'text')}",
            table([("score", "value", "95 % interval", "how it was computed"), *scores], (1, 2)),
            table([("label", "wanted", "given", "precision", "recall", "F1"), *labels], (1, 2, 3, 4, 5)),
        ]
        if self.mistakes:
            shown = [(each.right, "→", each.given, f"{each.times:,} ×", f"text {each.line:,}: {each.text}")
                     for each in self.mistakes]  # fmt: skip
            parts.append("What was taken for what, most often first:\n" + table(shown))
        return "\n\n".join(part for part in parts if part)


def evaluate_labels(
    texts: Sequence[str],
    right: Sequence[Sequence[str]],
    given: Sequence[Sequence[str]],
    labels: Sequence[str],
    files: Sequence[TestSet] = (),
    examples: int = 10,
    more: Sequence[Tally] = (),
) -> LabelReport:
    """Compare the labels that were `given` to each text with the `right` ones; `examples` limits the mistakes.

    `more` are other figures of the same lines.
    """
    total_CC, each_LC = counted(right, given, labels)
    hits_C, right_C, given_C = total_CC.diagonal(), total_CC.sum(axis=1), total_CC.sum(axis=0)
    scores = [
        LabelScore(label, int(wanted), int(found), *(100 * _ratio(*pair) for pair in
                   ((hits, found), (hits, wanted), (2 * hits, wanted + found))))
        for label, hits, wanted, found in zip(labels, hits_C, right_C, given_C, strict=True)
    ]  # fmt: skip
    return LabelReport(
        len(texts),
        int(total_CC.sum()),
        list(files),
        with_intervals([*tallies(each_LC), *more]),
        scores,
        total_CC.tolist(),
        _mistakes(texts, right, given, examples),
    )


def counted(
    right: Sequence[Sequence[str]], given: Sequence[Sequence[str]], labels: Sequence[str]
) -> tuple[Counts, Counts]:
    """How often which label (row) became which (column), [C, C]; and for each line how often each label was hit, right
    and given, [L, 3·C]."""
    if not any(right):
        raise DataError(
            "evaluate: there must be at least one label to compare, but there is none. Is it the right file?"
        )
    number = {label: place for place, label in enumerate(labels)}
    total_CC: Counts = np.zeros((len(labels), len(labels)), dtype=np.int64)
    each_L3C: Counts = np.zeros((len(right), 3, len(labels)), dtype=np.int64)
    for line, (wanted, found) in enumerate(zip(right, given, strict=True)):
        for one, other in zip(wanted, found, strict=True):
            if one not in number:
                raise DataError(
                    f"evaluate, text {line + 1:,}: a label must be one that the model knows ({_some(labels)}), but is "
                    f"{one!r}. Correct it, or leave the text out."
                )
            total_CC[number[one], number[other]] += 1
            each_L3C[line, 0, number[one]] += one == other
            each_L3C[line, 1, number[one]] += 1
            each_L3C[line, 2, number[other]] += 1
    return total_CC, each_L3C.reshape(len(right), -1)


def tallies(each_LC: Counts) -> list[Tally]:
    """Accuracy and F1 as sums over lines; `each_LC` is what `counted` gives."""
    hits_LC, right_LC, given_LC = np.split(each_LC, 3, axis=1)
    both_LC = np.stack([hits_LC.sum(axis=1), right_LC.sum(axis=1)], axis=1).astype(np.float64)
    answers = int(right_LC.sum())
    labels = np.count_nonzero((right_LC + given_LC).sum(axis=0))
    macro = f"mean of the F1 of labels that occur, in percent|labels:{labels}"
    return [
        Tally("accuracy", f"right / answers, in percent|answers:{answers}", both_LC, _accuracy),
        Tally("macro F1", macro, each_LC.astype(np.float64), _macro_f1),
        Tally(
            "micro F1", "over all answers, in percent; each has one label, so it is the accuracy", both_LC, _accuracy
        ),
    ]


def restoring_tallies(right: Sequence[Sequence[str]], given: Sequence[Sequence[str]]) -> list[Tally]:
    """Capitals and marks apart, of tags that tell both (`regard.text.restoring`)."""
    counts_LC = np.zeros((len(right), 5))
    for counts_C, wanted, found in zip(counts_LC, right, given, strict=True):
        for one, other in zip(wanted, found, strict=True):
            marked = bool(one[1:]), bool(other[1:])
            counts_C += (one[0] == other[0], 1, marked[0] and one[1:] == other[1:], *marked)
    return [
        Tally("capitals", "accuracy of the case alone, in percent", counts_LC[:, :2], _accuracy),
        Tally(
            "punctuation F1", "micro F1 of the marks alone, none is no mark, in percent", counts_LC[:, 2:], _marks_f1
        ),
    ]


def _marks_f1(sums: Numbers) -> Numbers:
    hits, right, given = (sums[..., place] for place in range(3))
    found: Numbers = 200 * hits / np.maximum(right + given, 1)
    return found


def _accuracy(sums: Numbers) -> Numbers:
    found: Numbers = 100 * sums[..., 0] / np.maximum(sums[..., 1], 1)
    return found


def _macro_f1(sums: Numbers) -> Numbers:
    hits, right, given = np.split(sums, 3, axis=-1)
    occurs = right + given > 0
    f1 = np.where(occurs, 2 * hits / np.maximum(right + given, 1), 0.0)
    mean: Numbers = 100 * f1.sum(axis=-1) / np.maximum(occurs.sum(axis=-1), 1)
    return mean


def _mistakes(
    texts: Sequence[str], right: Sequence[Sequence[str]], given: Sequence[Sequence[str]], most: int
) -> list[Mistake]:
    times: dict[tuple[str, str], list[int]] = {}
    for line, (wanted, found) in enumerate(zip(right, given, strict=True)):
        for pair in zip(wanted, found, strict=True):
            if pair[0] != pair[1]:
                times.setdefault(pair, [0, line])[0] += 1
    ranked = sorted(times.items(), key=lambda entry: (-entry[1][0], entry[0]))[:most]
    return [Mistake(*pair, count, line + 1, _short(texts[line])) for pair, (count, line) in ranked]


def _some(labels: Sequence[str]) -> str:
    return ", ".join(labels[:NAMED]) + (", …" if len(labels) > NAMED else "")


def _percent(value: float, of: int) -> str:
    """A share of nothing is no share."""
    return f"{value:.2f}" if of else "–"


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"


def _ratio(part: int, whole: int) -> float:
    return float(part) / float(whole) if whole else 0.0
