"""The likeliest next tokens, without the probabilities of all others.

Shapes: R rows, V vocabulary, C tokens wanted.

    log P(token) = score(token) - log Σ exp(score)

A search wants a handful of tokens, a sampler some dozens, out of tens of thousands. Only for those is it worth writing
the probability down.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from regard.decoding.beams import largest
from regard.machine import KERNELS


def likeliest(logits_RV: Tensor, most: int, never: Collection[int] = ()) -> tuple[Tensor, Tensor, Tensor]:
    """The `most` likeliest tokens that may be written: log P and token, [R, C], best first; and log Σ exp, [R].

    At most two tokens are `never` written, but count in the sum. Where fewer than `most` tokens have a chance, the rest
    have -inf. `logits_RV` are used up: what is never written may be blotted out in them.
    """
    most = min(most, logits_RV.shape[1])
    if logits_RV.is_cuda and KERNELS:
        from regard.decoding import kernels

        if kernels.serves(logits_RV, most):
            first, second, *_ = (*never, -1, -1)
            return kernels.likeliest(logits_RV, most, (first, second))
    scores_RV = logits_RV.float()
    normalisers_R = scores_RV.logsumexp(dim=-1)
    for token in never:
        scores_RV[:, token] = -torch.inf
    values_RC, tokens_RC = largest(scores_RV, most)
    return values_RC - normalisers_R[:, None], tokens_RC, normalisers_R
