"""Transformer-XL: a language model that remembers what it read before this row (Dai et al. 2019).

Shapes: B rows, T tokens, M tokens of memory, D model, V vocabulary.

    h_n = layer_n(queries: h_(n-1),  keys and values: [SG(m_(n-1)) ∘ h_(n-1)])        m: what h was for the row before

SG lets no gradient through. The memory holds what entered each layer; its keys and values are made anew with the
weights as they are now. Positions are told by distances, since those inside a row would begin again with each.

Every token sees the same number of earlier ones, `memory`, wherever its row begins (the authors' `same_length`). So a
text gets the same scores in one piece, in rows of any length, and token by token; a memory of that length is enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from regard.batch import Batch, Places
from regard.layers.attention import KeyValue
from regard.layers.block import EncoderLayer, Norm
from regard.layers.feedforward import Activation
from regard.layers.mask import Mask
from regard.layers.positions import PositionKind
from regard.models.gpt import GPT, GPTSettings, GPTState
from regard.models.interface import Carried, ContinuingModel
from regard.settings.bounds import check_at_least

# Keys are kept from row to row, so they must not depend on where they stood; rotary ones are turned by it.
ABSOLUTE: tuple[PositionKind, ...] = ("sinusoidal", "learned", "rotary")
DISTANCES = tuple(kind for kind in get_args(PositionKind) if kind not in ABSOLUTE)


@dataclass(frozen=True)
class TransformerXLSettings(GPTSettings):
    """A GPT with a memory; the defaults are the 12-layer model of Dai et al. 2019, Table 2."""

    kind: Literal["transformer-xl"] = "transformer-xl"  # type: ignore[assignment]
    d_model: int = 512
    d_ff: int = 2048
    heads: int = 8
    norm: Norm = "post"
    activation: Activation = "relu"
    positions: PositionKind = "relative-waves"
    memory: int = 512
    """How many earlier tokens each one sees, in its own row and in those before."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(1, self, "memory")
        if self.positions in ABSOLUTE:
            raise ValueError(
                f"`positions` must be told by distances ({', '.join(DISTANCES)}), which go on from row to row, but are "
                f'"{self.positions}"'
            )
        if self.window is not None:
            raise ValueError(f"`window` must be left out, since `memory` says what a token sees, but is {self.window}")


class TransformerXL(GPT, ContinuingModel[GPTState]):
    """A GPT whose rows may go on from those before, and whose state does not grow beyond its memory."""

    settings: TransformerXLSettings

    def __init__(self, settings: TransformerXLSettings, vocabulary: int) -> None:
        super().__init__(settings, vocabulary)
        self.looks_back = Mask(causal=True, window=settings.memory + 1)

    def read_on(self, batch: Batch, before: Carried) -> tuple[Tensor, Carried]:
        """The features of rows that go on from those read `before`, [B, T, D], and the memory of every layer after."""
        self.refuse(batch.source)
        x_BTD = self.embedding(batch.target)
        known = before[_name(0)].shape[1] if before else 0
        seen = Places.whole(x_BTD.new_zeros(x_BTD.shape[0], known + x_BTD.shape[1]))
        visible = self.looks_back.visible(Places(seen.positions_BT[:, known:]), seen)
        after = {}
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, EncoderLayer)
            memory_BMD = before.get(_name(number), x_BTD[:, :0])
            after[_name(number)] = torch.cat([memory_BMD, x_BTD], dim=1)[:, -self.settings.memory :].detach()
            x_BTD, _ = layer(x_BTD, visible, layer.remember(memory_BMD) if known else None)
        return self.norm(x_BTD), after

    def step(self, tokens_BT: Tensor, state: GPTState) -> tuple[Tensor, GPTState]:
        """Scores of the token after `tokens_BT`, [B, V], and the state with them read, no longer than the memory."""
        scores_BV, state = super().step(tokens_BT, state)
        # Memory that stays in place has room for what it was made for, and forgets by its mask alone.
        return scores_BV, self._recent(state) if isinstance(state.seen, Places) else state

    def _recent(self, state: GPTState) -> GPTState:
        """What the next token can still see; positions begin again, since only distances matter."""
        assert isinstance(state.seen, Places)
        most = self.settings.memory
        if state.seen.positions_BT.shape[1] <= most:
            return state
        layers = (KeyValue(kv.keys_BHKE[:, :, -most:], kv.values_BHKE[:, :, -most:]) for kv in state.layers)
        return GPTState(tuple(layers), Places.whole(state.seen.positions_BT[:, :most]))


def _name(layer: int) -> str:
    return f"{layer}.memory"
