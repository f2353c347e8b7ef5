"""Learning from what the model itself writes: the expected GLEU of its translations (Wu et al. 2016, section 5.2).

Shapes: B rows, K translations drawn of each, R = B·K, T tokens.

    maximise   Σ_rows  log P(reference) + reward · E[GLEU(y, reference)],   y drawn from the model

Likelihood teaches what to write after a perfect beginning. In use a model goes on from its own, and its translations
are judged as a whole. The gradient of the expectation is estimated from K draws, each compared with the mean of all,
so that what is better than usual becomes likelier:

    ∇E ≈ 1 / (K - 1) · Σ_k (GLEU(y_k) - mean GLEU) · ∇log P(y_k)

GLEU is made for single sentences: of all runs of one to four tokens in the one and in the other, the smaller of the
shares that both have in common.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.batch import IGNORED, Batch, Specials, Tokens
from regard.models.interface import SequenceModel

LONGEST_RUN = 4
BEYOND = 10  # tokens by which a draw may be longer than the longest reference of its batch

Draw = Callable[[SequenceModel[Any], Tokens, int, int], list[tuple[int, ...]]]
"""(model, source, most tokens, seed) → one text a row drawn from the model, with its end token if it has one."""


class Rewards:
    """Draws translations of a batch, and says how much better each was than the others of its source."""

    def __init__(self, draw: Draw, specials: Specials) -> None:
        self._draw, self.specials = draw, specials

    def drawn(self, model: SequenceModel[Any], batch: Batch, samples: int) -> tuple[Batch, Tensor]:
        """`samples` translations of each row, R rows, and how much higher than their source's mean GLEU is, [R]."""
        source = model.needed(batch.source, batch.labels_BT.shape[0])
        source.places.check_one_sentence("training.reward, source")
        references = [[label for label in row if label not in (IGNORED, self.specials.end)]
                      for row in batch.labels_BT.tolist()]  # fmt: skip
        sources = source.map(lambda x: x.repeat_interleave(samples, dim=0))
        # The step's own generator: what is drawn follows from the run's seed and the step.
        seed, most = int(torch.randint(2**31, ())), max(map(len, references)) + BEYOND
        model.eval()
        texts = self._draw(model, sources, most, seed)
        model.train()
        end = self.specials.end
        scores_R = torch.tensor([gleu([token for token in text if token != end], references[row // samples])
                                 for row, text in enumerate(texts)])  # fmt: skip
        scores_BK = scores_R.unflatten(0, (-1, samples))
        better_BK = scores_BK - scores_BK.mean(dim=1, keepdim=True)
        # Rows that only fill up a batch have nothing to translate: whatever is drawn for them is as good.
        filled_B = (batch.labels_BT != IGNORED).any(dim=1).to(better_BK.device)
        better_R = (better_BK * filled_B[:, None]).flatten()
        return self._batch(sources, texts), better_R.to(batch.labels_BT.device)

    def _batch(self, sources: Tokens, texts: Sequence[Sequence[int]]) -> Batch:
        """Drawn texts as if they were references; one that was cut is not asked to end there."""
        read = [[self.specials.start, *text[:-1]] for text in texts]
        target = Tokens.padded(read, self.specials.padding)
        labels_BT = torch.full_like(target.ids_BT, IGNORED)
        for row, text in enumerate(texts):
            labels_BT[row, : len(text)] = torch.tensor(text)
        device = sources.ids_BT.device
        return Batch(sources, target.to(device), labels_BT.to(device))


def gleu(text: Sequence[int], reference: Sequence[int]) -> float:
    """The smaller of precision and recall of all runs of one to four tokens, from 0 to 1; two empty texts are alike."""
    ours, theirs = _runs(text), _runs(reference)
    longest = max(ours.total(), theirs.total())
    return (ours & theirs).total() / longest if longest else 1.0


def _runs(text: Sequence[int]) -> Counter[tuple[int, ...]]:
    return Counter(
        tuple(text[first : first + length])
        for length in range(1, LONGEST_RUN + 1)
        for first in range(len(text) - length + 1)
    )
