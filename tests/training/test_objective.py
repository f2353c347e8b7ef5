"""What is made small, against sums by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.batch import IGNORED, Batch, Specials
from regard.data.batching import collate
from regard.errors import UsageError
from regard.layers.dropout import Noise
from regard.layers.experts import GateNoise, MixtureOfExperts
from regard.models.build import build
from regard.models.decoder_only import DecoderOnlySettings
from regard.models.gpt import GPTSettings
from regard.models.recurrent import RecurrentSettings
from regard.models.recurrent_lm import RecurrentLMSettings
from regard.models.transformer import TransformerSettings
from regard.models.xlnet import XLNetSettings
from regard.training.objective import Objective, ObjectiveSettings, twice

SPECIALS = Specials(padding=0, start=1, end=2)
BATCH = collate([([4, 5, 6], [7, 8]), ([9, 10], [11, 12, 13]), ([5], [6])], SPECIALS)
MODEL = TransformerSettings(encoder_layers=1, decoder_layers=1, d_model=16, d_ff=32, heads=2, dropout=0.3)
RECURRENT = RecurrentSettings(encoder_layers=2, decoder_layers=2, d_model=12, d_ff=10, dropout=0.0, experts=4)


def readings(model_seed: int = 0) -> tuple[Objective, Tensor]:
    """An objective without anything added, and the scores of two readings of the batch, one below the other."""
    torch.manual_seed(model_seed)
    model = build(MODEL, 20)
    Noise(model, seed=3).set(5)
    model.train()
    return Objective(model, ObjectiveSettings()), model(twice(BATCH)).detach()


def losses(log_probabilities: Tensor, batch: Batch, smoothing: float) -> float:
    total = 0.0
    for row, place in (batch.labels_BT != IGNORED).nonzero().tolist():
        scores = log_probabilities[row, place]
        total -= (1 - smoothing) * scores[batch.labels_BT[row, place]].item() + smoothing * scores.mean().item()
    return total


def divergence(p: Tensor, q: Tensor) -> float:
    total = 0.0
    for row, place in (BATCH.labels_BT != IGNORED).nonzero().tolist():
        total += float((p[row, place].exp() * (p[row, place] - q[row, place])).sum())
    return total


def test_r_drop_is_its_formula_and_the_two_readings_differ() -> None:
    plain, scores = readings()
    p, q = scores.log_softmax(-1)[0::2], scores.log_softmax(-1)[1::2]
    assert not torch.allclose(p, q)
    objective = Objective(plain.model, ObjectiveSettings(r_drop=5.0))
    expected = (losses(p, BATCH, 0.1) + losses(q, BATCH, 0.1)) / 2 + 5.0 / 2 * (divergence(p, q) + divergence(q, p)) / 2
    assert objective(BATCH).item() == pytest.approx(expected, rel=1e-4)


def test_simcut_cuts_the_second_reading_alone() -> None:
    plain, scores = readings()
    p = scores.log_softmax(-1)[0::2]
    objective = Objective(plain.model, ObjectiveSettings(simcut=3.0, simcut_rate=0.5))
    with objective._cutting():
        cut = plain.model(twice(BATCH)).detach().log_softmax(-1)
    torch.testing.assert_close(cut[0::2], p)
    assert not torch.allclose(cut[1::2], scores.log_softmax(-1)[1::2])
    expected = losses(p, BATCH, 0.1) + 3.0 * divergence(p, cut[1::2])
    assert objective(BATCH).item() == pytest.approx(expected, rel=1e-4)
    # Nothing stays cut.
    torch.testing.assert_close(plain.model(twice(BATCH)).detach(), scores)


def test_gradients_flow_through_both_readings() -> None:
    plain, _ = readings()
    for settings in (ObjectiveSettings(r_drop=5.0), ObjectiveSettings(simcut=3.0)):
        Objective(plain.model, settings)(BATCH).backward()
        assert all(weight.grad is not None for weight in plain.model.parameters())


def test_simcut_without_embeddings_to_cut_is_refused() -> None:
    model = build(RecurrentSettings(), 20)
    with pytest.raises(
        UsageError, match=r"training\.simcut: must be 0 for a .* no token embeddings that can be cut.* is 1\. Set"
    ):
        Objective(model, ObjectiveSettings(simcut=1.0))


def test_what_streams_need_is_named_with_its_setting() -> None:
    reads_on = build(RecurrentLMSettings(layers=1, d_model=8), 20)
    for name, wrong in (("r_drop", ObjectiveSettings(r_drop=5.0)), ("simcut", ObjectiveSettings(simcut=5.0))):
        with pytest.raises(
            UsageError, match=rf"training\.{name}: must be 0 where `batch\.layout` is `stream`.* is 5\. Set"
        ):
            Objective(reads_on, wrong, streams=True)
    with pytest.raises(UsageError, match=r"batch\.layout: must not be `stream` for a `recurrent`, .* Choose `blocks`"):
        Objective(build(RecurrentSettings(d_model=8), 20), ObjectiveSettings(), streams=True)


@pytest.mark.parametrize("by_layer", [False, True])
def test_only_common_rows_are_compiled(by_layer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def compiler(function: Any, dynamic: bool) -> Any:
        def compiled(*arguments: Any) -> Any:
            asked.append(function.__self__)
            return function(*arguments)

        return compiled

    monkeypatch.setattr(torch, "compile", compiler)
    model = build(MODEL, 20).eval()
    assert BATCH.source is not None
    source, target = BATCH.source.ids_BT.shape[1], BATCH.target.ids_BT.shape[1]
    usual = Objective(model, ObjectiveSettings())(BATCH)
    assert Objective(model, ObjectiveSettings(), [(source, target)], by_layer=by_layer)(BATCH) == usual
    assert Objective(model, ObjectiveSettings(), [(source, target + 1)], by_layer=by_layer)(BATCH) == usual
    assert asked == ([*model.encoder.layers, *model.decoder] if by_layer else [model])
    assert not [layer for layer in asked if "forward" in vars(layer)]


@pytest.mark.parametrize("asked", [ObjectiveSettings(), ObjectiveSettings(r_drop=5.0)], ids=["plain", "r-drop"])
def test_experts_that_are_asked_unevenly_are_added_once_for_each_label(asked: ObjectiveSettings) -> None:
    losses = []
    for balance in (0.0, 0.5):
        torch.manual_seed(0)
        model = build(replace(MODEL, experts=3, balance=balance), 20)
        Noise(model, seed=3).set(5)
        losses.append(Objective(model.train(), asked)(BATCH))
    taken = [module for module in model.modules() if isinstance(module, MixtureOfExperts)]
    assert [module.asked_2E for module in taken] == [None] * 2
    model(BATCH if asked.r_drop == 0 else twice(BATCH))
    uneven = sum(module.take_imbalance() for module in taken)
    labels = int((BATCH.labels_BT != IGNORED).sum())
    torch.testing.assert_close(losses[1] - losses[0], labels * uneven, rtol=1e-4, atol=1e-4)


def padded(batch: Batch) -> Batch:
    """The same batch with much more padding, to the right and below."""
    wide = (0, 12, 0, 2)
    labels_BT = F.pad(batch.labels_BT, wide, value=IGNORED)
    return replace(batch.map(lambda x: F.pad(x, wide)), labels_BT=labels_BT)


@pytest.mark.parametrize(
    "settings",
    [
        replace(MODEL, dropout=0.0, experts=4),
        GPTSettings(layers=2, d_model=16, d_ff=24, heads=2, dropout=0.0, experts=4),
        DecoderOnlySettings(layers=2, d_model=16, d_ff=24, heads=2, dropout=0.0, experts=4),
        XLNetSettings(layers=1, d_model=16, d_ff=24, heads=2, dropout=0.0, experts=4),
        replace(RECURRENT, attention="dot"),
        replace(RECURRENT, asks="bottom", attend="before"),
        RECURRENT,
    ],
    ids=["transformer", "gpt", "decoder-only", "xlnet", "all-at-once", "from-below", "token-by-token"],
)
def test_padding_does_not_count_in_the_balance_of_experts(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GateNoise, "forward", lambda _noise, x: torch.zeros_like(x))  # it follows from places
    torch.manual_seed(0)
    model = build(replace(settings, balance=5.0), 20).train()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, MixtureOfExperts):
                module.gate_ED.mul_(3)
                module.spread_ED.normal_()
    batch, found = BATCH if model.reads_source else replace(BATCH, source=None), []
    for each in (batch, padded(batch)):
        model.zero_grad()
        loss = Objective(model, ObjectiveSettings())(each)
        loss.backward()
        found.append((loss.detach(), [weight.grad for weight in model.parameters()]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=2e-3)


def test_experts_are_balanced_by_compiled_code_too() -> None:
    torch.manual_seed(0)
    model = build(replace(MODEL, experts=3, balance=0.5), 20)
    Noise(model, seed=3).set(5)
    plain = Objective(model.train(), ObjectiveSettings())
    assert BATCH.source is not None
    lengths = {(BATCH.source.ids_BT.shape[1], BATCH.target.ids_BT.shape[1])}
    with pytest.MonkeyPatch.context() as patch:
        compiler = torch.compile
        patch.setattr(torch, "compile", lambda model, **more: compiler(model, fullgraph=True, backend="aot_eager"))
        compiled = Objective(model, ObjectiveSettings(), lengths)
        found = []
        for objective in (plain, compiled):
            model.zero_grad()
            loss = objective(BATCH)
            loss.backward()
            found.append((loss, [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]))
    torch.testing.assert_close(found[0], found[1])
