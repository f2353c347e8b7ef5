"""XLNet: a language model that learns to predict in any order (Yang et al. 2019).

Shapes: B rows, T tokens, Q queries, K keys, D model, V vocabulary.

Each row is given an order, in which every token has its turn. Two streams go through the same layers (section 2.3):

    content   h_t knows tokens of its own turn and of earlier ones, itself among them
    query     g_t knows tokens of earlier turns, and where the token to be predicted stands, but not which it is

Both look at the keys and values of h; g begins with one learned vector, the same everywhere, and predicts. Left to
right is one of the orders, so the model writes as others do. With all known tokens first, it fills gaps.

In a batch, label t is the token after token t: its query stands one position further on than the token. The first
token of a sentence has no label, and is known from the start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.batch import Batch, Places, Tokens
from regard.layers.attention import KeyValue
from regard.layers.block import EncoderLayer
from regard.layers.dropout import Dropout
from regard.layers.feedforward import Activation
from regard.layers.fixed import step_places
from regard.layers.mask import Mask, Visible
from regard.layers.positions import PositionKind
from regard.models.gpt import GPTState
from regard.models.interface import FillsGaps, SequenceModel
from regard.models.transformer import StackSettings, initialise, look_back
from regard.settings.bounds import check_at_least

KNOWN = -1  # the turn of a sentence's first token


@dataclass(frozen=True)
class XLNetSettings(StackSettings):
    """Sizes and objective; the defaults are those of XLNet-Base."""

    kind: Literal["xlnet"] = "xlnet"
    layers: int = 12
    d_model: int = 768
    d_ff: int = 3072
    heads: int = 12
    activation: Activation = "gelu"
    positions: PositionKind = "relative-waves"
    norm_epsilon: float = 1e-12
    predicted: float = 1 / 6
    """Which part of a row is predicted in training, the last of its order; the authors' 1/K (section 2.3)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(1, self, "layers")
        if not 0 < self.predicted <= 1:
            raise ValueError(f"`predicted` must be above 0 and at most 1, but is {self.predicted}")
        if self.positions in ("sinusoidal", "learned"):
            raise ValueError(
                f"`positions` must be told inside attention, where queries without a token can see them, but are "
                f'"{self.positions}"; choose "relative-waves"'
            )
        if self.window is not None:
            raise ValueError(f"`window` must be left out, since the order says who sees whom, but is {self.window}")


class XLNet(SequenceModel[GPTState], FillsGaps):
    """Two-stream attention over an order of turns."""

    reads_source: ClassVar[bool] = False
    exact_on_gpu: ClassVar[bool] = True

    def __init__(self, settings: XLNetSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings, self.vocabulary, self.width = settings, vocabulary, settings.d_model
        self.embedding = settings.embedding(vocabulary, scaled=False)
        self.query_D = nn.Parameter(torch.randn(settings.d_model) * settings.d_model**-0.5)
        self.dropout = Dropout(settings.dropout)
        sizes = settings.layer_sizes()
        self.layers = nn.ModuleList(EncoderLayer(sizes) for _ in range(settings.layers))
        self.norm = settings.last_norm()
        self.output_bias_V = nn.Parameter(torch.zeros(vocabulary))
        self.looks_back = Mask(causal=True)
        initialise(self)

    def features(self, batch: Batch) -> Tensor:
        """What the query of every label knows, [B, T, D]: in the batch's order, or from left to right."""
        self.refuse(batch.source)
        places = batch.target.places
        if batch.order_BT is None:
            content = query = self.looks_back.visible(places, places)
        else:
            content, query = _in_turn(batch.order_BT, places)
        features_BTD, _ = self._decode(batch.target, content, query, ())
        return features_BTD

    def logits(self, features_BTD: Tensor) -> Tensor:
        """Features times the transposed embedding, plus a bias, [B, T, V]."""
        return F.linear(features_BTD, *self.output_matrix())

    def output_matrix(self) -> tuple[Tensor, Tensor | None]:
        """The embedding, [V, D], and the bias, [V]."""
        return self.embedding.weight_VD, self.output_bias_V

    def start(self, source: Tokens | None, rows: int) -> GPTState:
        """Nothing read yet; a language model has no source."""
        self.refuse(source)
        return GPTState.beginning(self.embedding.weight_VD, rows)

    def step(self, tokens_BT: Tensor, state: GPTState) -> tuple[Tensor, GPTState]:
        """Scores of the token after `tokens_BT`, [B, V], and the state: of the content stream, which alone is kept."""
        self.check_step(tokens_BT)
        new = step_places(state.seen, tokens_BT)
        seen, visible = look_back(self.looks_back, new, state.seen, None)
        assert isinstance(seen, Places)
        # Whoever asks is the newest, and sees all.
        last = Visible(places=(Places(new.positions_BT[:, -1:]), seen))
        features_B1D, kept = self._decode(Tokens(tokens_BT, new), visible, last, state.layers)
        return self.logits(features_B1D[:, 0]), GPTState(kept, seen)

    def in_gaps(self, text: Tokens, gaps_BT: Tensor, start: int) -> Tensor:
        """The scores of each token of `text` that stands in a gap, [B, T, V], from all that stand in none."""
        first_B1 = torch.full_like(text.ids_BT[:, :1], start)
        read = Tokens(torch.cat([first_B1, text.ids_BT[:, :-1]], dim=1), text.places)
        return self(Batch(None, read, text.ids_BT, gaps_BT.long()))

    def _decode(
        self, tokens: Tokens, content: Visible, query: Visible, past: tuple[KeyValue, ...]
    ) -> tuple[Tensor, tuple[KeyValue, ...]]:
        """The one path: both streams through all layers; `query` says who asks, by its places, and what they see."""
        assert query.places is not None
        asking, keys = query.places
        further = Places(asking.positions_BT + 1, asking.segments_BT, asking.unbroken)
        query = replace(query, places=(further, keys))
        h_BTD = self.embedding(tokens)
        nothing_BQD = h_BTD.new_zeros(*asking.positions_BT.shape, self.width)
        g_BQD = self.dropout(nothing_BQD + self.query_D.to(h_BTD.dtype))
        kept = []
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, EncoderLayer)
            next_BTD, kv = layer(h_BTD, content, past[number] if past else None)
            g_BQD = _unseen(layer, g_BQD, kv, query)
            h_BTD = next_BTD
            kept.append(kv)
        return self.norm(g_BQD), tuple(kept)


def _in_turn(order_BT: Tensor, places: Places) -> tuple[Visible, Visible]:
    """What content and queries see where label t has turn `order_BT[:, t]`."""
    # A token is the label of the place before it.
    turn_BT = torch.cat([torch.full_like(order_BT[:, :1], KNOWN), order_BT[:, :-1]], dim=1)
    turn_BT = torch.where(places.positions_BT == 0, KNOWN, turn_BT)
    earlier_BQK = turn_BT[:, None, :] < order_BT[:, :, None]
    known_BQK = turn_BT[:, None, :] <= turn_BT[:, :, None]
    together = Mask().visible(places, places)
    if together.allowed_BQK is not None:
        earlier_BQK, known_BQK = earlier_BQK & together.allowed_BQK, known_BQK & together.allowed_BQK
    return replace(together, allowed_BQK=known_BQK), replace(together, allowed_BQK=earlier_BQK)


def _unseen(layer: EncoderLayer, g_BQD: Tensor, kv: KeyValue, query: Visible) -> Tensor:
    """The query stream through a layer. A watcher sees the content stream: a picture of both would be of neither."""
    watcher = layer.attention.watcher
    if watcher is None:
        return layer.ask(g_BQD, kv, query)
    layer.attention.watcher = None
    try:
        return layer.ask(g_BQD, kv, query)
    finally:
        layer.attention.watcher = watcher
