"""BLEU as textbooks of deep learning write it: for one sentence, with the weight 1/2ⁿ for n-grams of length n.

    BLEU(pred, label) = exp(min(0, 1 − len_label / len_pred)) · ∏_{n=1}^{k} p_n^(1/2ⁿ)  ≤ 1

p_n is the part of the n-grams of the prediction that are found in the label, where none of the label is used twice.
The formula is for one sentence, and leaves open what to do with a prediction of fewer than k tokens; here the product
ends with the longest n-grams it has. The figure of a corpus is the mean of its lines, in percent. It is no substitute
for corpus BLEU, which gives every order the same weight and sums before it divides.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from regard.evaluation.metrics import ORDERS, Lines, Tally, mean_of


def sentence_bleu(prediction: Sequence[str], label: Sequence[str], k: int = ORDERS) -> float:
    """The formula, for two sequences of tokens. Two empty ones are the same, hence 1; if one is empty, 0."""
    if not prediction or not label:
        return float(not prediction and not label)
    value = math.exp(min(0.0, 1 - len(label) / len(prediction)))
    for n in range(1, min(k, len(prediction)) + 1):
        found, wanted = _grams(prediction, n), _grams(label, n)
        value *= ((found & wanted).total() / found.total()) ** (1 / 2**n)
    return value


def weighted_bleu(lines: Lines, tokens: str, lowercase: bool = False, k: int = ORDERS) -> Tally:
    """The mean of the formula over lines of tokens with spaces between; of several references the best counts.

    `tokens` is written into the signature: how the text was cut.
    """
    values = [
        max(sentence_bleu(hypothesis.split(), reference.split(), k) for reference in lines.beside(line))
        for line, hypothesis in enumerate(lines.hypotheses)
    ]
    case = "lc" if lowercase else "mixed"
    signature = f"nrefs:{len(lines.references)}|case:{case}|tok:{tokens}|k:{k}|weights:1/2^n|mean of lines in percent"
    return mean_of("BLEU with 1/2^n", signature, np.array(values))


def _grams(tokens: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[place : place + n]) for place in range(len(tokens) - n + 1))
