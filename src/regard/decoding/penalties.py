"""What a finished text's log-probability is divided by, and what is added to it.

Shapes: B sentences, N beams, R = B·N rows, H heads, Q queries, S source tokens.

    score(x, y) = log P(y | x) / divisor(|y|) + coverage(x, y)

    gnmt      divisor = ((5 + |y|) / 6)^α                          (Wu et al. 2016, section 7)
    length    divisor = |y|^α
    none      divisor = 1
    coverage  β · Σ_i log(min(Σ_j a_ij, 1)),  a_ij the attention of target token j to source token i  (the same)

|y| counts the end token. Every divisor is at least as large for a longer text, and coverage is at most 0: the stop
rule of search stands on these two facts.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from regard.errors import InternalError, UsageError
from regard.layers.recurrent import StateAttention
from regard.models.interface import SequenceModel

Penalty = Literal["gnmt", "length", "none"]
LEAST_COVERED = 1e-4
"""A source token nobody looked at counts as covered by this much: log 0 would forbid the text instead of marking it."""


def divisor(penalty: Penalty, alpha: float, lengths: Tensor) -> Tensor:
    """What the log-probability of a text of `lengths` tokens, the end among them, is divided by."""
    match penalty:
        case "gnmt":
            return ((5 + lengths) / 6) ** alpha
        case "length":
            return lengths.float() ** alpha
        case "none":
            return torch.ones_like(lengths, dtype=torch.float)


class Coverage:
    """How much of the source each beam has looked at.

    The attention a_ij is the mean over all heads of all attentions to the source. Weights are taken from the models'
    `watcher`s, so use it as a context: `with coverage: …`.
    """

    def __init__(self, model: SequenceModel[Any], beta: float, real_BS: Tensor) -> None:
        self.beta, self.real_B1S = beta, real_BS[:, None]
        self.watched = attentions_to_source(model)
        if not self.watched:
            raise UsageError(
                f"search: `coverage` needs a model with attention to its source, but {type(model).__name__} has none; "
                "set `coverage` to 0"
            )
        self.covered_BNS = torch.zeros_like(self.real_B1S, dtype=torch.float)
        self.seen: list[Tensor] = []

    def __enter__(self) -> Self:
        for module in self.watched:
            setattr(module, "watcher", self.seen.append)  # noqa: B010 (a module's attributes are typed as modules)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for module in self.watched:
            setattr(module, "watcher", None)  # noqa: B010

    def read(self) -> Tensor:
        """Take in the weights of the step that just ran; the penalty of each beam that would end now, [B, N]."""
        if len(self.seen) != len(self.watched):
            raise InternalError(
                f"coverage: each of {len(self.watched)} attentions must show its weights once a step, "
                f"but {len(self.seen)} came; please report it"
            )
        weights_RS = sum(seen_RHQS.float().mean(dim=1).sum(dim=1) for seen_RHQS in self.seen) / len(self.seen)
        self.seen.clear()
        self.covered_BNS = self.covered_BNS + torch.as_tensor(weights_RS).view_as(self.covered_BNS)
        logs_BNS = self.covered_BNS.clamp(LEAST_COVERED, 1.0).log()
        return self.beta * logs_BNS.masked_fill(~self.real_B1S, 0.0).sum(dim=-1)

    def follow(self, beam_BN: Tensor) -> None:
        """Each beam goes on from the one it came from."""
        self.covered_BNS = self.covered_BNS.gather(1, beam_BN[:, :, None].expand(-1, -1, self.covered_BNS.shape[2]))

    def select(self, rows: Tensor) -> None:
        """Keep these sentences."""
        self.covered_BNS, self.real_B1S = self.covered_BNS[rows], self.real_B1S[rows]


def attentions_to_source(model: nn.Module) -> list[nn.Module]:
    """The attentions between decoder and source, in the order of the layers; set their `watcher` to see the weights.

    They are those named `cross_attention`, and the single one of a recurrent model.
    """
    return [
        module for name, module in model.named_modules()
        if hasattr(module, "watcher") and (name.endswith("cross_attention") or isinstance(module, StateAttention))
    ]  # fmt: skip


def aligning_layer(layers: int) -> int:
    """Which of a decoder's layers aligns, counted from 0.

    In deep models it is the last but one, as Garg et al. (2019) found. Of two it is the last: by prediction gain, the
    measure of `regard align`, that one was better in each of three trained models.
    """
    return layers - 2 if layers > 2 else layers - 1
