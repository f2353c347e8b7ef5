"""Experts against sums by hand: who is asked, what comes of it, and what uneven asking costs.

Shapes: B rows, T tokens, N tokens of all rows, D model, E experts, A experts that a token asks.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.layers.dropout import Noise
from regard.layers.experts import GateNoise, MixtureOfExperts, by_group, check_experts
from regard.layers.feedforward import Activation, FeedForward
from regard.models.build import build
from regard.models.transformer import TransformerSettings


def mixture(experts: int, active: int, activation: Activation = "relu", balance: float = 0.1) -> MixtureOfExperts:
    torch.manual_seed(0)
    found = MixtureOfExperts(8, 12, activation, experts, active, balance)
    with torch.no_grad():
        for bias in (found.inner_bias_EF, found.outer_bias_ED, found.spread_ED):
            bias.normal_()
    return found


def expert(network: MixtureOfExperts, number: int) -> FeedForward:
    """One of them by itself."""
    plain = FeedForward(8, 12, network.activation)
    inner, outer = network.inner_EFD[number], network.outer_EDF[number]
    plain.load_state_dict(
        {
            "inner.weight": inner, "inner.bias": network.inner_bias_EF[number],
            "outer.weight": outer, "outer.bias": network.outer_bias_ED[number],
        }
    )  # fmt: skip
    return plain


X_BTD = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_one_expert_is_the_plain_feed_forward_network(activation: Activation) -> None:
    network = mixture(1, 1, activation)
    torch.testing.assert_close(network.eval()(X_BTD), expert(network, 0)(X_BTD))
    torch.testing.assert_close(network.train()(X_BTD), expert(network, 0)(X_BTD))
    assert network.take_imbalance() == 0


def test_all_experts_asked_are_the_dense_mixture() -> None:
    network = mixture(4, 4).eval()
    gates_BTE = (X_BTD @ network.gate_ED.T).softmax(dim=-1)
    wanted_BTD = sum(gates_BTE[..., number, None] * expert(network, number)(X_BTD) for number in range(4))
    torch.testing.assert_close(network(X_BTD), wanted_BTD)


@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
@pytest.mark.parametrize("active", [2, 3])
@torch.no_grad()
def test_a_few_experts_by_hand(active: int, activation: Activation) -> None:
    network = mixture(5, active, activation).eval()
    found_BTD = network(X_BTD)
    for row in range(3):
        for token in range(5):
            x_D = X_BTD[row, token]
            scores = {number: float(network.gate_ED[number] @ x_D) for number in range(5)}
            asked = sorted(scores, key=lambda number: -scores[number])[:active]
            total = sum(math.exp(scores[number]) for number in asked)
            wanted_D = sum(math.exp(scores[number]) / total * expert(network, number)(x_D) for number in asked)
            torch.testing.assert_close(found_BTD[row, token], wanted_D)


def test_asking_all_and_asking_the_chosen_is_the_same_and_learns_the_same() -> None:
    network = mixture(4, 2)
    gates_NA, chosen_NA = (part.flatten(0, 1) for part in network.eval()._choose(X_BTD))
    found = []
    for ask in (network.ask_chosen, network.ask_all):
        network.zero_grad()
        y_ND = ask(X_BTD.flatten(0, 1), gates_NA, chosen_NA)
        y_ND.square().sum().backward(retain_graph=True)
        found.append((y_ND, [weight.grad for weight in network.parameters() if weight is not network.spread_ED]))
    torch.testing.assert_close(found[0], found[1])


def test_groups_may_be_empty_and_the_products_have_their_gradients() -> None:
    x_MD = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    weight_EFD = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    ends_E = torch.tensor([2, 2, 5, 5], dtype=torch.int32)
    wanted = torch.cat([x_MD[:2] @ weight_EFD[0].T, x_MD[2:] @ weight_EFD[2].T])
    torch.testing.assert_close(by_group(x_MD, weight_EFD, ends_E), wanted)
    assert torch.autograd.gradcheck(lambda x, weight: by_group(x, weight, ends_E), (x_MD, weight_EFD))
    torch.library.opcheck(by_group, (x_MD, weight_EFD, ends_E))


@torch.no_grad()
def test_uneven_asking_costs_and_even_asking_does_not() -> None:
    network = mixture(4, 2)
    network.gate_ED.zero_()
    network.spread_ED.zero_()
    network.train()(torch.randn(20, 50, 8))
    even = float(network.take_imbalance())
    network.gate_ED[0] = 5.0
    network(torch.randn(20, 50, 8).abs())
    assert even < 0.001 < 0.05 < float(network.take_imbalance())


@torch.no_grad()
def test_the_two_losses_by_hand() -> None:
    network = mixture(4, 2, balance=0.3).train()
    Noise(network, seed=5).set(1)
    network(X_BTD)
    found = float(network.take_imbalance())
    scores_BTE, noise_BTE = X_BTD @ network.gate_ED.T, network.noise(torch.zeros(3, 5, 4))
    spread_BTE = F.softplus(X_BTD @ network.spread_ED.T)
    importance, load = torch.zeros(4), torch.zeros(4)
    for scores, spread, noise in zip(
        *(part.flatten(0, 1) for part in (scores_BTE, spread_BTE, noise_BTE)), strict=True
    ):
        noisy = (scores + noise * spread).tolist()
        asked = sorted(range(4), key=lambda number: -noisy[number])[:2]
        importance[asked] += torch.tensor([noisy[number] for number in asked]).softmax(dim=0)
        for number in range(4):
            bar = sorted((noisy[other] for other in range(4) if other != number), reverse=True)[1]
            load[number] += 0.5 * (1 + math.erf(float((scores[number] - bar) / spread[number]) / math.sqrt(2)))
    wanted = sum(float(each.var(unbiased=False) / each.mean() ** 2) for each in (importance, load))
    assert found == pytest.approx(0.3 * wanted, rel=1e-4)


@torch.no_grad()
def test_only_real_tokens_count_in_the_losses() -> None:
    network = mixture(4, 2).train()
    real_BT = torch.tensor([[True, True, True, False, False], [True] * 5, [False] * 5])
    real_1TD = X_BTD[real_BT][None]
    network.noise.forward = lambda x: torch.zeros_like(x)  # type: ignore[method-assign]
    network(real_1TD)
    wanted = network.take_imbalance()
    y_BTD = network(X_BTD, real_BT)
    torch.testing.assert_close(network.take_imbalance(), wanted)
    torch.testing.assert_close(y_BTD, network(X_BTD))  # what is answered does not depend on it
    assert network.take_imbalance() != wanted
    network(X_BTD, torch.zeros(3, 5, dtype=torch.bool))
    assert network.take_imbalance() == 0


def test_the_losses_teach_gate_and_noise() -> None:
    network = mixture(4, 2).train()
    network(X_BTD)
    network.take_imbalance().backward()
    for weight in (network.gate_ED, network.spread_ED):
        assert weight.grad is not None
        assert weight.grad.isfinite().all()
        assert weight.grad.any()


def test_noise_is_normal_and_follows_from_seed_step_and_place() -> None:
    noise = GateNoise()
    source = Noise(torch.nn.Sequential(torch.nn.Linear(1, 1), noise), seed=1)
    source.set(3)
    first = noise(torch.zeros(100, 100, 4))
    assert abs(float(first.mean())) < 0.02
    assert abs(float(first.std()) - 1) < 0.02
    assert first.isfinite().all()
    source.set(3, first_row=40)
    assert noise(torch.zeros(60, 100, 4)).equal(first[40:])
    source.set(4)
    assert not noise(torch.zeros(100, 100, 4)).equal(first)


def test_a_token_is_answered_alike_in_any_company() -> None:
    network = mixture(4, 2).eval()
    whole_BTD = network(X_BTD)
    for row in range(3):
        torch.testing.assert_close(network(X_BTD[row : row + 1, 2:3]), whole_BTD[row : row + 1, 2:3])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ((0, 2, 0.1), "`experts` must be at least 1, but is 0"),
        ((4, 5, 0.1), r"`active_experts` must be between 2 and `experts` \(4\), but is 5"),
        ((4, 1, 0.1), r"`active_experts` must be between 2 and `experts` \(4\), but is 1"),
        ((4, 2, -0.1), "`balance` must be at least 0 and finite, but is -0.1"),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: tuple[int, int, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_experts(*wrong)
    with pytest.raises(ValueError, match=message):
        TransformerSettings(experts=wrong[0], active_experts=wrong[1], balance=wrong[2])


def test_a_transformer_may_have_experts_in_every_layer() -> None:
    settings = TransformerSettings(encoder_layers=2, decoder_layers=1, d_model=16, d_ff=24, heads=2, experts=3)
    model = build(settings, 20)
    found = [module for module in model.modules() if isinstance(module, MixtureOfExperts)]
    assert len(found) == 3
    assert not [module for module in model.modules() if isinstance(module, FeedForward)]


@pytest.mark.gpu
@pytest.mark.parametrize("active", [2, 3])
def test_a_gpus_groups_give_what_all_experts_give(active: int) -> None:
    torch.manual_seed(0)
    network = MixtureOfExperts(64, 128, "relu", 8, active, 0.01).cuda().eval()
    x_BTD = torch.randn(4, 64, 64, device="cuda")

    def learned(ask: Any) -> tuple[Tensor, list[Tensor]]:
        network.zero_grad()
        x_ND = x_BTD.flatten(0, 1).bfloat16()
        gates_NA, chosen_NA = (part.flatten(0, 1) for part in network._choose(x_BTD))
        y_ND = ask(x_ND, gates_NA.bfloat16(), chosen_NA)
        y_ND.float().square().sum().backward()
        return y_ND, [weight.grad for weight in (network.inner_EFD, network.outer_EDF, network.gate_ED)]

    found, wanted = learned(network.ask_chosen), learned(network.ask_all)
    torch.testing.assert_close(found[0], wanted[0], rtol=0.02, atol=0.02)
    for ours, other in zip(found[1], wanted[1], strict=True):
        assert float((ours - other).norm() / other.norm()) < 0.02
    with torch.autocast("cuda", torch.bfloat16):
        assert not network._asks_all(x_BTD.bfloat16())
        assert network(x_BTD).dtype == torch.bfloat16
    assert network._asks_all(x_BTD[:, :1].bfloat16())
