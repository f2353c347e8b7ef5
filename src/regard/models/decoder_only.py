"""Translation and summaries without an encoder: source, separator and target are one sequence (Liu et al. 2018).

Shapes: B rows, S source tokens, T target tokens, U tokens of both, D model, V vocabulary.

    x_1 … x_n <end> <start> y_1 … y_m          is read;  <start> is the separator
                    y_1     y_2 … <end>        is to be answered: the loss is on the target only

The stack is GPT's, weight by weight, so that a language model can go on as a translator. Source and target keep their
own rows in a batch; here they are laid side by side, and the target's positions go on from those of its source.
Everything else follows from positions and segments: who sees whom, several pairs in a row, and padding in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from regard.batch import IGNORED, PADDING_SEGMENT, Batch, Places, Tokens
from regard.layers.attention import KeyValue
from regard.layers.branches import Branches, sentences_of
from regard.layers.positions import check_length
from regard.models.gpt import CausalTransformer, GPTSettings
from regard.models.interface import Criterion
from regard.settings.bounds import check_weights


@dataclass(frozen=True)
class DecoderOnlySettings(GPTSettings):
    """A GPT that reads a source before it writes; the sizes are GPT's."""

    kind: Literal["decoder-only"] = "decoder-only"  # type: ignore[assignment]
    source_loss: float = 0.0
    """How much the loss of a source token counts beside that of a target token: 0 is the target only, 1 both alike."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_weights(self, "source_loss")


@dataclass(frozen=True)
class DecoderOnlyState:
    """The keys and values of every layer, of source and text, a row for each sentence; and what of them is whose.

    Rows that began as one sentence, the beams of a search, share its keys and values.
    """

    layers: tuple[KeyValue, ...]
    seen: Branches

    def select(self, rows: Tensor) -> DecoderOnlyState:
        """The given rows, in the given order."""
        kept = sentences_of(rows, self.seen.read_RK.shape[0], self.seen.positions_BK.shape[0])
        layers = self.layers if kept is None else tuple(layer.select(kept) for layer in self.layers)
        return DecoderOnlyState(layers, self.seen.select(rows, kept))


class DecoderOnly(CausalTransformer[DecoderOnlyState]):
    """A decoder that has read the source as the beginning of its own text."""

    joins_source: ClassVar[bool] = True

    def __init__(self, settings: DecoderOnlySettings, vocabulary: int) -> None:
        super().__init__(settings, vocabulary)
        # Source and target share the positions, each has half of them.
        self.context = None if settings.limit is None else settings.limit // 2

    def features(self, batch: Batch) -> Tensor:
        """What the last layer computed at every target position, [B, T, D]."""
        joined_BUD, source = self._joined(batch)
        return joined_BUD[:, source.ids_BT.shape[1] :]

    def start(self, source: Tokens | None, rows: int) -> DecoderOnlyState:
        """Read the source: its keys and values are the beginning of every layer's."""
        source = self.needed(source, rows)
        return DecoderOnlyState(self._keep(source), Branches.of(source.places))

    def step(self, tokens_BT: Tensor, state: DecoderOnlyState) -> tuple[Tensor, DecoderOnlyState]:
        """Scores of the token after `tokens_BT`, [B, V], and the state with them read."""
        self.check_step(tokens_BT)
        new = state.seen.following(tokens_BT)
        seen = state.seen.extend(new)
        check_length(seen.positions_BK.shape[1], self.settings.limit, new)
        features_BTD, layers = self._read(Tokens(tokens_BT, new), seen.visible(self.looks_back, new), state.layers)
        return self.logits(features_BTD[:, -1]), DecoderOnlyState(layers, seen)

    def _joined(self, batch: Batch) -> tuple[Tensor, Tokens]:
        """What the last layer computed at every position of both sides, [B, S + T, D], and the source."""
        source = self.needed(batch.source, batch.target.ids_BT.shape[0])
        ids_BU = torch.cat([source.ids_BT, batch.target.ids_BT], dim=1)
        target = following(source.places, batch.target.places)
        return self._read_whole(Tokens(ids_BU, source.places.extend(target))), source


class JointDecoderOnly(DecoderOnly):
    """The same, trained to expect the source as well."""

    source_loss: float

    def __init__(self, settings: DecoderOnlySettings, vocabulary: int) -> None:
        super().__init__(settings, vocabulary)
        self.source_loss = settings.source_loss

    def losses(self, batch: Batch, criterion: Criterion) -> Tensor:
        """The loss of every token of both sides, [B, S + T], the source's by their weight."""
        joined_BUD, source = self._joined(batch)
        labels_BU = torch.cat([next_in_sentence(source), batch.labels_BT], dim=1)
        losses_BU = criterion(self.logits, joined_BUD, labels_BU)
        weight_BU = torch.ones_like(losses_BU)
        weight_BU[:, : source.ids_BT.shape[1]] = self.source_loss
        return losses_BU * weight_BU


def decoder_only(settings: DecoderOnlySettings, vocabulary: int) -> DecoderOnly:
    """The model of these settings."""
    return (JointDecoderOnly if settings.source_loss else DecoderOnly)(settings, vocabulary)


def following(source: Places, target: Places) -> Places:
    """The places of targets whose positions go on where those of their sources end."""
    if source.segments_BT is None and target.segments_BT is None:
        return Places(target.positions_BT + source.positions_BT.shape[1])
    segments_BT = target.segments_or_ones()
    length_BT = (segments_BT[:, :, None] == source.segments_or_ones()[:, None, :]).sum(dim=2)
    # Padding stays at position 0: as much of it as may stand in the source has no positions to go on from.
    return Places(target.positions_BT + torch.where(segments_BT == PADDING_SEGMENT, 0, length_BT), segments_BT)


def next_in_sentence(tokens: Tokens) -> Tensor:
    """For each token the one after it in its sentence, [B, S]; IGNORED after the last, and for padding."""
    segments_BS = tokens.places.segments_or_ones()
    labels_BS = torch.full_like(tokens.ids_BT, IGNORED)
    goes_on_BS = (segments_BS[:, 1:] == segments_BS[:, :-1]) & (segments_BS[:, :-1] != PADDING_SEGMENT)
    labels_BS[:, :-1] = torch.where(goes_on_BS, tokens.ids_BT[:, 1:], IGNORED)
    return labels_BS
