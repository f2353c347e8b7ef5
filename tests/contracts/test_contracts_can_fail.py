"""The contracts are worth something: for each there is a wrong model, or a wrong search, that breaks it.

Shapes: B rows, T tokens, D model, H heads, Q queries, K keys, V vocabulary.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.batch import Batch, Places, Specials, Tokens
from regard.decoding.search import Hypothesis, SearchSettings, beam_search
from regard.layers.attention import Attention, KeyValue
from regard.layers.mask import Mask, Visible
from regard.models.transformer import Transformer, TransformerSettings, TransformerState

from . import contracts, search_contracts
from .cases import Case
from .contracts import Contract
from .zoo import Entry, Model

SETTINGS = TransformerSettings(encoder_layers=1, decoder_layers=2, d_model=16, d_ff=24, heads=2)
CASE = Case(
    vocabulary=8,
    seed=3,
    targets=((1, 3, 4, 5, 6), (1, 7, 3, 3, 5), (1, 5, 4, 7)),
    sources=((4, 3, 6), (7, 5, 5, 3, 4), (6, 3, 3, 4)),
)
SMALL = Case(vocabulary=6, seed=1, targets=((1,), (1,)), sources=((4, 3), (5,)))

ALL: list[Contract] = [
    contracts.step_by_step_is_all_at_once,
    contracts.a_prefix_is_its_steps,
    contracts.the_future_never_leaks,
    contracts.padding_is_invisible,
    contracts.padding_is_invisible_to_steps,
    contracts.padding_in_front_is_invisible_or_refused,
    contracts.packed_is_alone,
    contracts.select_takes_rows,
    contracts.a_state_is_a_value,
    contracts.a_wrong_source_is_refused,
    contracts.nothing_is_no_surprise,
    contracts.watched_is_fused,
    contracts.gradients_reach_everything,
    search_contracts.neighbours_do_not_matter,
    search_contracts.greedy_is_argmax,
]


class SeesTheFuture(Transformer):
    def features(self, batch: Batch) -> Tensor:
        features_BTD = super().features(batch)
        return features_BTD + 0.1 * features_BTD[:, -1:]


class SeesPadding(Transformer):
    """Reads its source as if each row were one whole sentence."""

    def _encode(self, source: Tokens) -> TransformerState:
        return super()._encode(Tokens.whole(source.ids_BT))


class MixesSentences(Transformer):
    """Takes all sentences of a row for one."""

    def features(self, batch: Batch) -> Tensor:
        return super().features(replace(batch, source=_merged(batch.source), target=_merged(batch.target)))


def _merged(tokens: Tokens | None) -> Any:
    if tokens is None:
        return None
    places = replace(tokens.places, segments_BT=tokens.places.segments_or_ones().clamp(max=1))
    return replace(tokens, places=places)


class ForgetsThePast(Transformer):
    """Each step believes to be the first of its sentence."""

    def step(self, tokens_BT: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        layers = tuple(replace(layer, past=None) for layer in state.layers)
        return super().step(tokens_BT, TransformerState(layers, state.source, Places.whole(tokens_BT[:, :0])))


class ReadsOnlyTheLast(Transformer):
    """Takes one token a step, even where a prefix is given."""

    def step(self, tokens_BT: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        return super().step(tokens_BT[:, -1:], state)


class _Stubborn(TransformerState):
    """Gives as many rows as asked for, but never the ones asked for."""

    def select(self, rows: Tensor) -> TransformerState:
        return super().select(torch.arange(len(rows)) % self.seen.positions_BT.shape[0])


class IgnoresRows(Transformer):
    def _decode(self, tokens: Tokens, state: TransformerState) -> tuple[Tensor, TransformerState]:
        features_BTD, state = super()._decode(tokens, state)
        return features_BTD, _Stubborn(state.layers, state.source, state.seen)


class OverwritesItsState(Transformer):
    """Spoils the keys it was given, as a cache written in place would."""

    def step(self, tokens_BT: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        scores_BV, new = super().step(tokens_BT, state)
        past = state.layers[0].past
        if past is not None:
            past.values_BHKE.add_(1.0)
        return scores_BV, new


class SharesSources(Transformer):
    """Takes fewer sources than targets, as if these were beams."""

    def features(self, batch: Batch) -> Tensor:
        assert batch.source is not None
        return self._decode(batch.target, self._encode(batch.source))[0]


class StepsOnNothing(Transformer):
    def check_step(self, tokens_BT: Tensor) -> None:
        pass


class HasAnIdlePart(Transformer):
    def __init__(self, settings: TransformerSettings, vocabulary: int) -> None:
        super().__init__(settings, vocabulary)
        self.idle = nn.Linear(settings.d_model, settings.d_model)


class _Fibbing(Attention):
    """Shows other weights than it uses: smoother ones."""

    def forward(self, x_BQD: Tensor, kv: KeyValue, visible: Visible, query_BQD: Tensor | None = None) -> Tensor:
        if self.watcher is not None:
            kv = KeyValue(0.5 * kv.keys_BHKE, kv.values_BHKE)
        return super().forward(x_BQD, kv, visible, query_BQD)


class ShowsOtherWeights(Transformer):
    def __init__(self, settings: TransformerSettings, vocabulary: int) -> None:
        super().__init__(settings, vocabulary)
        for layer in self.decoder_layers:
            size = settings.d_model // settings.heads
            layer.attention = _Fibbing(settings.d_model, settings.heads, size, size)


class DividesByPadding(Transformer):
    """Right scores, but 0 · ∞ on the way back wherever padding stands."""

    def features(self, batch: Batch) -> Tensor:
        features_BTD = super().features(batch)
        real_BT1 = batch.target.places.segments_or_ones()[:, :, None]
        return torch.where(real_BT1 > 0, (features_BTD * real_BT1 + real_BT1 - 1).div(real_BT1), 0)


def broken(model: Model, case: Case = CASE) -> set[str]:
    """The names of the contracts the model does not keep."""
    found = set()
    for contract in ALL:
        try:
            contract(model, case)
        except AssertionError:
            found.add(contract.__name__)
    return found


def build(kind: type[Transformer], vocabulary: int = CASE.vocabulary) -> Model:
    return Entry(lambda vocabulary: kind(SETTINGS, vocabulary)).model(vocabulary, seed=5)


@pytest.mark.parametrize(
    ("kind", "contract"),
    [
        (SeesTheFuture, contracts.the_future_never_leaks),
        (SeesTheFuture, contracts.step_by_step_is_all_at_once),
        (SeesPadding, contracts.padding_is_invisible),
        (SeesPadding, contracts.padding_is_invisible_to_steps),
        (SeesPadding, contracts.padding_in_front_is_invisible_or_refused),
        (SeesPadding, search_contracts.neighbours_do_not_matter),
        (SeesPadding, contracts.watched_is_fused),
        (MixesSentences, contracts.packed_is_alone),
        (ForgetsThePast, contracts.step_by_step_is_all_at_once),
        (ForgetsThePast, contracts.a_prefix_is_its_steps),
        (ForgetsThePast, search_contracts.greedy_is_argmax),
        (ReadsOnlyTheLast, contracts.a_prefix_is_its_steps),
        (IgnoresRows, contracts.select_takes_rows),
        (IgnoresRows, search_contracts.neighbours_do_not_matter),
        (OverwritesItsState, contracts.a_state_is_a_value),
        (SharesSources, contracts.a_wrong_source_is_refused),
        (ShowsOtherWeights, contracts.watched_is_fused),
        (HasAnIdlePart, contracts.gradients_reach_everything),
        (DividesByPadding, contracts.gradients_reach_everything),
    ],
)
def test_a_wrong_model_breaks(kind: type[Transformer], contract: Contract) -> None:
    with pytest.raises(AssertionError):
        contract(build(kind), CASE)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (Transformer, set()),
        (MixesSentences, {"packed_is_alone"}),
        (ReadsOnlyTheLast, {"a_prefix_is_its_steps", "select_takes_rows"}),
        (ShowsOtherWeights, {"watched_is_fused"}),
    ],
)
def test_a_model_breaks_only(kind: type[Transformer], names: set[str]) -> None:
    """A mistake is found where it is made: these models break no contract but their own."""
    assert broken(build(kind)) == names


def test_a_step_on_nothing_is_not_mistaken_for_a_refusal() -> None:
    with pytest.raises(IndexError):
        contracts.nothing_is_no_surprise(build(StepsOnNothing), CASE)


def test_weights_outside_the_window_are_noticed() -> None:
    model = Entry(lambda vocabulary: Transformer(replace(SETTINGS, window=2), vocabulary)).model(
        CASE.vocabulary, seed=5
    )
    assert isinstance(model, Transformer)
    contracts.watched_is_fused(model, CASE)
    model.encoder.looks_around = Mask()
    with pytest.raises(AssertionError):
        contracts.watched_is_fused(model, CASE)


@pytest.mark.parametrize("contract", [contracts.the_future_never_leaks, contracts.watched_is_fused])
def test_a_mask_without_causal_order_leaks(contract: Contract) -> None:
    model = build(Transformer)
    assert isinstance(model, Transformer)
    model.looks_back = Mask()
    with pytest.raises(AssertionError):
        contract(model, CASE)


def _without_penalty(
    model: Model, source: Tokens, specials: Specials, settings: SearchSettings
) -> list[list[Hypothesis]]:
    return beam_search(model, source, specials, replace(settings, penalty="none"))


def _narrow(model: Model, source: Tokens, specials: Specials, settings: SearchSettings) -> list[list[Hypothesis]]:
    return beam_search(model, source, specials, replace(settings, beam=2, nbest=2))


@pytest.mark.parametrize("search", [_without_penalty, _narrow])
def test_a_wrong_search_is_not_exhaustive(search: search_contracts.Search) -> None:
    model = build(Transformer, SMALL.vocabulary)
    search_contracts.a_wide_beam_is_exhaustive(model, SMALL)
    with pytest.raises(AssertionError):
        search_contracts.a_wide_beam_is_exhaustive(model, SMALL, search)


def test_a_wrong_model_misleads_a_wide_beam() -> None:
    with pytest.raises(AssertionError):
        search_contracts.a_wide_beam_is_exhaustive(build(IgnoresRows, SMALL.vocabulary), SMALL)
