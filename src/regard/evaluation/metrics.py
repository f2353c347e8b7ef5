"""Scores of translations against references, each with the signature that says how it was computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.errors import DataError


@dataclass(frozen=True)
class Score:
    """One figure. `signature` names the exact definition; compare only figures with the same one."""

    name: str
    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f}  ({self.signature})"


def score(hypotheses: Sequence[str], references: Sequence[str]) -> list[Score]:
    """Exact match in percent, sacreBLEU and chrF of a list of translations."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    if len(hypotheses) != len(references) or not references:
        raise DataError(
            f"evaluation: there must be one reference for each translation and at least one of each, but there are "
            f"{len(hypotheses):,} translations and {len(references):,} references."
        )
    same = sum(hypothesis == reference for hypothesis, reference in zip(hypotheses, references, strict=True))
    scores = [Score("exact match", 100 * same / len(references), f"percent of {len(references)} lines, to the letter")]
    for name, metric in (("BLEU", BLEU()), ("chrF", CHRF())):
        value = metric.corpus_score(list(hypotheses), [list(references)]).score
        scores.append(Score(name, value, str(metric.get_signature())))
    return scores
