"""How likely a model finds texts that are given: forced decoding.

Shapes: B rows, T tokens, N tokens of all rows, n of them at a time, D model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regard.batch import IGNORED, Batch, Specials, Tokens
from regard.errors import UsageError
from regard.models.interface import SequenceModel

SCORES_AT_A_TIME = 2**24
"""Next-token scores held at once, 64 MiB: all positions of a batch times a vocabulary would be gigabytes."""


@dataclass(frozen=True)
class Scored:
    """A text, and the log-probability of each of its tokens; after the last token that of the end, if it was asked."""

    tokens: tuple[int, ...]
    log_probabilities: tuple[float, ...]

    @property
    def log_probability(self) -> float:
        """log P(text | source): the sum."""
        return sum(self.log_probabilities)


@torch.inference_mode()
def score_texts(
    model: SequenceModel[Any],
    source: Tokens | None,
    texts: Sequence[Sequence[int]],
    specials: Specials,
    end: bool = True,
) -> list[Scored]:
    """log P of every token of every text, one text a source row, read in one pass.

    Texts hold no start and end token. With `end`, that the text ends is scored, too; without it, how likely a
    beginning is. A language model has no source: `source` is None.
    """
    rows = len(texts) if source is None else source.ids_BT.shape[0]
    if len(texts) != rows:
        raise UsageError(f"scoring: there must be one text a source row ({rows}), but there are {len(texts)}")
    if not texts:
        return []
    answers = [[*text, specials.end] if end else list(text) for text in texts]
    batch = _batch(model, source, answers, specials)
    real_BT = batch.labels_BT != IGNORED
    features_ND, labels_N = model.features(batch)[real_BT], batch.labels_BT[real_BT]
    found: list[float] = []
    size = max(1, SCORES_AT_A_TIME // model.vocabulary)
    for features_nD, labels_n in zip(features_ND.split(size), labels_N.split(size), strict=True):
        log_probabilities_nV = model.logits(features_nD).float().log_softmax(dim=-1)
        found.extend(log_probabilities_nV.gather(1, labels_n[:, None])[:, 0].tolist())
    values = iter(found)
    return [
        Scored(tuple(text), tuple(next(values) for _ in answer)) for text, answer in zip(texts, answers, strict=True)
    ]


def _batch(model: SequenceModel[Any], source: Tokens | None, answers: list[list[int]], specials: Specials) -> Batch:
    """The texts as a decoder reads them, and as it should answer."""
    device = next(model.parameters()).device
    longest = max(1, max(map(len, answers)))
    read = [[specials.start, *answer[:-1]] for answer in answers]
    labels_BT = Tokens.padded(answers, IGNORED, longest).ids_BT
    target = Tokens.padded(read, specials.padding, longest)
    return Batch(source, target.to(device), labels_BT.to(device))
