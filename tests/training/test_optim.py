"""The learning rate of the paper, and that Adam really gets its settings."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from regard.models.build import build
from regard.models.gpt import GPTSettings
from regard.models.transformer_xl import TransformerXLSettings
from regard.training.optim import OptimiserSettings, Schedule, apply, optimiser, set_rate


@given(st.integers(1, 10**6), st.integers(1, 20_000), st.sampled_from([64, 512, 1024]), st.floats(0.1, 10))
def test_the_rate_is_the_formula(step: int, warmup: int, d_model: int, factor: float) -> None:
    rate = OptimiserSettings(warmup=warmup, factor=factor).learning_rate(step, d_model, 100_000)
    expected = factor / math.sqrt(d_model) * min(1 / math.sqrt(step), step / warmup / math.sqrt(warmup))
    assert rate == pytest.approx(expected, rel=1e-9)


def test_the_papers_rates() -> None:
    base = OptimiserSettings()
    # 512^-0.5 · 4000^-0.5 = 6.9877e-4 is the base model's highest rate, at the end of the warm-up.
    assert base.learning_rate(4_000, 512, 100_000) == pytest.approx(6.9877e-4, rel=1e-4)
    assert base.learning_rate(1, 512, 100_000) == pytest.approx(6.9877e-4 / 4_000, rel=1e-4)
    assert base.learning_rate(16_000, 512, 100_000) == pytest.approx(6.9877e-4 / 2, rel=1e-4)
    assert base.learning_rate(4_000, 1_024, 100_000) == pytest.approx(6.9877e-4 / math.sqrt(2), rel=1e-4)


def test_it_rises_through_the_warm_up_and_falls_after() -> None:
    settings = OptimiserSettings(warmup=100)
    rates = [settings.learning_rate(step, 512, 100_000) for step in range(1, 301)]
    assert rates.index(max(rates)) == 99
    assert all(low < high for low, high in pairwise(rates[:100]))
    assert all(high > low for high, low in pairwise(rates[99:]))


def test_the_defaults_are_the_papers() -> None:
    settings = OptimiserSettings()
    assert (settings.beta1, settings.beta2, settings.epsilon, settings.warmup) == (0.9, 0.98, 1e-9, 4_000)


def test_settings_that_its_schedule_does_not_read_are_known() -> None:
    assert OptimiserSettings(rate=0.03, decay=3.0).idle() == ["rate", "decay"]
    assert OptimiserSettings(factor=2.0).idle() == []
    assert OptimiserSettings(schedule="linear", factor=2.0, rate=0.03, final=0.01).idle() == ["factor"]
    assert OptimiserSettings(schedule="constant", rate=0.03, final=0.01, decay_every=5).idle() == [
        "final",
        "decay_every",
    ]


def test_adam_uses_the_settings() -> None:
    """Two steps by hand; each setting is far from its usual value, so that a forgotten one shows."""
    model = nn.Linear(1, 1, bias=False)
    start = model.weight.item()
    adam = optimiser(model, OptimiserSettings(beta1=0.5, beta2=0.75, epsilon=0.1))
    moment, square, expected = 0.0, 0.0, start
    for step, gradient in enumerate((2.0, -1.0), start=1):
        for group in adam.param_groups:
            group["lr"] = 0.01
        model.weight.grad = torch.tensor([[gradient]])
        adam.step()
        moment = 0.5 * moment + 0.5 * gradient
        square = 0.75 * square + 0.25 * gradient**2
        corrected = moment / (1 - 0.5**step), square / (1 - 0.75**step)
        expected -= 0.01 * corrected[0] / (math.sqrt(corrected[1]) + 0.1)
        assert model.weight.item() == pytest.approx(expected, abs=1e-6)


def test_adam_is_given_every_parameter_and_no_rate_of_its_own() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3))
    adam = optimiser(model, OptimiserSettings())
    (group,) = adam.param_groups
    assert group["lr"] == 0.0
    assert {id(weight) for weight in group["params"]} == {id(weight) for weight in model.parameters()}
    assert group["weight_decay"] == 0


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("warmup", 0, "at least 1 for schedule = paper"),
        ("factor", 0.0, "positive and finite"),
        ("factor", math.nan, "positive and finite"),
        ("factor", math.inf, "positive and finite"),
        ("clip", -1.0, "positive and finite"),
        ("epsilon", -1e-9, "positive and finite"),
        ("beta1", 1.0, "at least 0 and below 1"),
        ("beta2", -0.1, "at least 0 and below 1"),
        ("beta2", math.nan, "at least 0 and below 1"),
        ("momentum", 1.0, "at least 0 and below 1"),
        ("length", 0.0, "positive and finite"),
        ("rate", 0.0, "positive and finite"),
        ("final", 0.1, r"from 0 to `rate` \(0.001\)"),
        ("weight_decay", -0.1, "at least 0 and finite"),
    ],
)
def test_settings_that_cannot_work_are_refused(name: str, value: float, rule: str) -> None:
    settings: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=f"`{name}` must be {rule}, but is {value}"):
        OptimiserSettings(**settings)


def test_weight_decay_without_adamw_is_refused() -> None:
    with pytest.raises(ValueError, match=r'`weight_decay` needs kind = "adamw" or "muon", but kind is "adam"'):
        OptimiserSettings(weight_decay=0.1)


@pytest.mark.parametrize(
    ("schedule", "middle", "last"),
    [
        ("inverse-sqrt", 0.5 * math.sqrt(10 / 60), 0.5 * math.sqrt(10 / 110)),
        ("cosine", 0.1 + 0.4 / 2, 0.1),
        ("linear", 0.1 + 0.4 / 2, 0.1),
        ("constant", 0.5, 0.5),
    ],
)
def test_the_other_schedules_rise_in_a_straight_line_and_then_go_their_own_ways(
    schedule: Schedule, middle: float, last: float
) -> None:
    settings = OptimiserSettings(schedule=schedule, rate=0.5, final=0.1, warmup=10)
    rates = {step: settings.learning_rate(step, 512, 110) for step in (1, 5, 10, 60, 110)}
    assert rates == pytest.approx({1: 0.05, 5: 0.25, 10: 0.5, 60: middle, 110: last})


def test_adamw_pulls_matrices_and_leaves_vectors_alone() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3))
    adamw = optimiser(model, OptimiserSettings(kind="adamw", weight_decay=0.5))
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    set_rate(adamw, 0.1)
    apply(adamw, torch.tensor(0.0), clip=None)
    for name, weight in model.named_parameters():
        expected = before[name] * (1 - 0.1 * 0.5) if weight.ndim == 2 else before[name]
        torch.testing.assert_close(weight.detach(), expected)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_stacked_biases_are_vectors(kind: Literal["adamw", "muon"]) -> None:
    sizes: dict[str, Any] = {"layers": 1, "d_model": 8, "d_ff": 8, "heads": 2}
    experts = build(GPTSettings(**sizes, experts=4, active_experts=2), 20)
    waves = build(TransformerXLSettings(**sizes), 20)
    for model, stacked in (
        (experts, {"feedforward.inner_bias_EF", "feedforward.outer_bias_ED"}),
        (waves, {"attention.positions.content_HE", "attention.positions.distance_HE"}),
    ):
        groups = optimiser(model, OptimiserSettings(kind=kind, weight_decay=0.5)).param_groups
        free = {weight for group in groups if not group["weight_decay"] for weight in group["params"]}
        names = {name.removeprefix("layers.0."): weight in free for name, weight in model.named_parameters()}
        assert names == {name: name in stacked or name.endswith(("bias", "norm.weight")) for name in names}
        assert stacked <= names.keys()


@pytest.mark.parametrize(("clip", "kept"), [(None, 1.0), (10.0, 1.0), (1.0, 0.2)])
def test_clipping_scales_the_whole_gradient(clip: float | None, kept: float) -> None:
    model = nn.Linear(2, 1, bias=False)
    adam = optimiser(model, OptimiserSettings())
    model.weight.grad = torch.tensor([[3.0, 4.0]])
    set_rate(adam, 0.1)
    assert apply(adam, torch.tensor(5.0), clip)
    torch.testing.assert_close(adam.state[model.weight]["exp_avg"], 0.1 * kept * torch.tensor([[3.0, 4.0]]))


@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_a_gradient_that_is_no_number_changes_nothing(norm: float) -> None:
    model = nn.Linear(2, 1, bias=False)
    adam = optimiser(model, OptimiserSettings(clip=1.0))
    for gradient, size in ((1.0, 2.0**0.5), (norm, norm)):
        before = model.weight.detach().clone()
        model.weight.grad = torch.full((1, 2), gradient)
        set_rate(adam, 0.1)
        usable = apply(adam, torch.tensor(size), 1.0)
        assert bool(usable) == math.isfinite(size)
        assert torch.equal(model.weight, before) != bool(usable)
    assert adam.state[model.weight]["step"] == 1
    assert adam.state[model.weight]["exp_avg"].isfinite().all()


def test_a_rate_that_falls_in_steps() -> None:
    """The medium model of Zaremba et al. 2014: six epochs at the full rate, then divided by 1.2 after each."""
    settings = OptimiserSettings(
        kind="sgd", schedule="steps", warmup=0, rate=1.0, decay=1.2, decay_from=60, decay_every=10
    )
    rates = [settings.learning_rate(step, 512, 390) for step in range(1, 391)]
    assert rates[:60] == [1.0] * 60
    assert rates[60:70] == [1 / 1.2] * 10
    assert rates[-1] == pytest.approx(1.2**-33)


@pytest.mark.parametrize("clip", [None, 0.5])
def test_plain_gradient_descent(clip: float | None) -> None:
    model = nn.Linear(2, 1, bias=False)
    before = model.weight.detach().clone()
    descent = optimiser(model, OptimiserSettings(kind="sgd", schedule="constant", warmup=0))
    set_rate(descent, 0.1)
    gradient = torch.tensor([[3.0, 4.0]])
    model.weight.grad = gradient.clone()
    assert apply(descent, torch.tensor(5.0), clip)
    share = 1.0 if clip is None else clip / 5
    torch.testing.assert_close(model.weight.detach(), before - 0.1 * share * gradient)
    model.weight.grad = torch.full((1, 2), math.nan)
    assert not apply(descent, torch.tensor(math.nan), clip)
    assert model.weight.isfinite().all()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"decay": 0.5}, "`decay` must be at least 1 and finite, but is 0.5"),
        ({"decay_from": -1}, "`decay_from` must be at least 0, but is -1"),
        ({"decay_every": 0}, "`decay_every` must be at least 1, but is 0"),
        ({"kind": "sgd", "weight_decay": 0.1}, '`weight_decay` needs kind = "adamw" or "muon", but kind is "sgd"'),
    ],
)
def test_settings_of_descent_that_make_no_sense(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        OptimiserSettings(**settings)
