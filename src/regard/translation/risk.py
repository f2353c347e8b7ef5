"""The translation most like all others that the model might have written (minimum Bayes risk).

Translations are drawn from the model, and the one with the highest mean chrF against all of them is taken
(Eikema and Aziz 2020). Tokens less than a fiftieth as likely as the likeliest are not drawn: a model trained with
label smoothing gives every token some chance, and a long text would catch some nonsense.
"""

from __future__ import annotations

from typing import Any

import torch
from sacrebleu.metrics.chrf import CHRF

from regard.batch import PADDING_SEGMENT, Tokens
from regard.decoding.ensemble import select_rows
from regard.decoding.risk import minimum_bayes_risk
from regard.decoding.sampling import Sample, SamplingSettings, sample
from regard.decoding.search import Hypothesis, SearchSettings
from regard.models.interface import SequenceModel
from regard.text.tokenizer import Tokenizer

LEAST = 0.02


def least_risk(
    model: SequenceModel[Any], source: Tokens, tokenizer: Tokenizer, search: SearchSettings, samples: int
) -> list[list[Hypothesis]]:
    """For each source row the `search.nbest` drawn texts most like all `samples` drawn; the score is their mean chrF.

    The draws follow from the seeds 0, 1, …, and a source, so that a row's answer is the same in any company.
    """
    real_BS = source.places.segments_or_ones() != PADDING_SEGMENT
    limits = [int(length) + search.extra_length for length in real_BS.sum(dim=1).tolist()]
    rows = torch.arange(len(limits), device=source.ids_BT.device).repeat_interleave(samples)
    drawn = sample(
        model,
        [()] * len(rows),
        tokenizer.specials,
        SamplingSettings(min_p=LEAST, max_tokens=max(1, *limits)),
        list(range(samples)) * len(limits),
        source=select_rows(source, rows),
    )
    return [
        _ranked(drawn[row * samples : (row + 1) * samples], limit, tokenizer, search.nbest)
        for row, limit in enumerate(limits)
    ]


def _ranked(drawn: list[Sample], limit: int, tokenizer: Tokenizer, nbest: int) -> list[Hypothesis]:
    # A batch draws up to its longest limit; what a row has beyond its own, it would not have alone.
    texts = [tokenizer.decode(each.tokens[:limit]) for each in drawn]
    chrf = CHRF()
    utilities = minimum_bayes_risk(texts, lambda text, other: chrf.sentence_score(text, [other]).score).utilities
    order = sorted(range(len(drawn)), key=lambda number: -utilities[number])
    best = list({texts[number]: number for number in reversed(order)}.values())[::-1][:nbest]
    return [
        Hypothesis(
            drawn[number].tokens[:limit],
            sum(each.log_probability for each in drawn[number].drawn[:limit]),
            utilities[number],
            cut=len(drawn[number].tokens) >= limit or drawn[number].finish_reason == "length",
        )
        for number in best
    ]
