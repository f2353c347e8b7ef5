"""Muon: the step of torch's own, which matrices it is for, and that it stops, goes on and skips as Adam does."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.batch import Specials
from regard.data.batching import Batches, BatchSettings
from regard.data.store import Example
from regard.errors import UsageError
from regard.layers.attention import Attention, KeyValue
from regard.layers.feedforward import Activation
from regard.models.build import build
from regard.models.gpt import GPTSettings
from regard.models.recurrent import RecurrentSettings
from regard.models.transformer import TransformerSettings
from regard.models.wavenet import WaveNetSettings
from regard.training import checkpoint, optim
from regard.training.muon import Muon, flops, matrices_of, orthogonal
from regard.training.optim import OptimiserSettings, apply, optimiser, set_rate
from regard.training.trainer import Trainer, TrainingSettings

MUON = OptimiserSettings(kind="muon", schedule="constant", rate=0.02, warmup=0)
SIZES = [(16, 16), (8, 40), (40, 8)]


def muon(*weights: Tensor, rate: float = 0.01, decay: float = 0.0) -> Muon:
    return Muon(dict.fromkeys(weights, 1), [], [], rate, 0.2, 0.95, (0.9, 0.98), 1e-9, decay)


def parameter(*shape: int, seed: int = 0) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)))


# ---- the step


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_a_step_is_that_of_torch(decay: float) -> None:
    """Theirs computes in bf16, whose numbers have two to three digits."""
    ours, theirs = ([parameter(*size) for size in SIZES] for _ in range(2))
    mine = muon(*ours, decay=decay)
    other = torch.optim.Muon(theirs, 0.01, decay, 0.95, adjust_lr_fn="match_rms_adamw")
    for step in range(3):
        before = [weight.detach().clone() for weight in ours]
        for number, (one, two) in enumerate(zip(ours, theirs, strict=True)):
            one.grad = parameter(*one.shape, seed=10 * step + number).detach()
            two.grad = one.grad.clone()
            two.detach().copy_(one)  # a step from the same place: differences would add up
        mine.step()
        other.step()
        for one, two, old in zip(ours, theirs, before, strict=True):
            assert (one - two).norm() < 0.04 * (one - old).norm()


@given(st.integers(2, 12), st.integers(2, 12), st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_singular_values_become_about_one_and_directions_stay(rows: int, columns: int, seed: int) -> None:
    """On both sides of the square, and for matrices of very different sizes at once."""
    generator = torch.Generator().manual_seed(seed)
    u_NRM, _, v_NMC = torch.linalg.svd(torch.randn(3, rows, columns, generator=generator), full_matrices=False)
    values_NM = 0.2 + 0.8 * torch.rand(u_NRM.shape[0], u_NRM.shape[2], generator=generator)
    x_NRC = u_NRM * values_NM[:, None] @ v_NMC * torch.tensor([1.0, 1e-3, 1e3])[:, None, None]
    turned_NMM = u_NRM.mT @ orthogonal(x_NRC) @ v_NMC.mT
    values_NM = turned_NMM.diagonal(dim1=1, dim2=2)
    assert ((values_NM > 0.6) & (values_NM < 1.3)).all()
    torch.testing.assert_close(turned_NMM, torch.diag_embed(values_NM), atol=1e-3, rtol=0)


def test_nothing_has_no_direction() -> None:
    assert not orthogonal(torch.zeros(2, 4, 6)).any()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("length", [0.2, 0.05])
def test_a_step_is_as_long_as_the_settings_say(size: tuple[int, int], length: float) -> None:
    model = nn.Sequential(nn.Linear(size[1], size[0], bias=False))
    before = model[0].weight.detach().clone()
    model[0].weight.grad = 1e-3 * torch.randn(size, generator=torch.Generator().manual_seed(1))
    changed = optimiser(model, replace(MUON, length=length))
    set_rate(changed, 0.5)
    apply(changed, torch.tensor(1.0), clip=None)
    assert (model[0].weight - before).square().mean().sqrt().item() == pytest.approx(0.5 * length, rel=0.2)


def test_pieces_of_a_matrix_go_their_own_ways() -> None:
    """One matrix of two pieces is two matrices, though the gradient of one is much larger."""
    whole, halves = parameter(12, 8), [parameter(12, 8)[:6].clone(), parameter(12, 8)[6:].clone()]
    parts = [nn.Parameter(half.detach()) for half in halves]
    gradient = torch.randn(12, 8, generator=torch.Generator().manual_seed(1))
    gradient[6:] *= 1_000
    whole.grad = gradient
    parts[0].grad, parts[1].grad = gradient[:6].clone(), gradient[6:].clone()
    joined, apart = Muon({whole: 2}, [], [], 0.1, 0.2, 0.95, (0.9, 0.98), 1e-9, 0.0), muon(*parts, rate=0.1)
    joined.step()
    apart.step()
    torch.testing.assert_close(whole.detach(), torch.cat([part.detach() for part in parts]))
    assert joined.state[whole]["momentum"].shape == (12, 8)


def test_each_of_several_experts_goes_its_own_way() -> None:
    """A stack of matrices is so many matrices, though one gradient is much larger and another is nothing."""
    stack, gradient = parameter(3, 4, 6), torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(1))
    gradient[1], gradient[2] = 1_000 * gradient[1], 0.0
    stack.grad = gradient
    parts = [nn.Parameter(part.clone()) for part in stack.detach()]
    for part, own in zip(parts, gradient, strict=True):
        part.grad = own.clone()
    before = stack.detach().clone()
    joined, apart = Muon({stack: 3}, [], [], 0.1, 0.2, 0.95, (0.9, 0.98), 1e-9, 0.0), muon(*parts, rate=0.1)
    joined.step()
    apart.step()
    torch.testing.assert_close(stack.detach(), torch.stack([part.detach() for part in parts]))
    assert [torch.equal(one, other) for one, other in zip(stack, before, strict=True)] == [False, False, True]
    assert joined.state[stack]["momentum"].shape == (3, 4, 6)
    assert flops({stack: 3}) == 3 * flops({parts[0]: 1})


def test_a_matrix_that_had_no_part_in_the_loss_stays() -> None:
    used, unused = parameter(4, 6), parameter(4, 6, seed=1)
    optimiser = muon(used, unused)
    used.grad, unused.grad = torch.ones(4, 6), torch.eye(4, 6)
    optimiser.step()
    before, mean = unused.detach().clone(), optimiser.state[unused]["momentum"].clone()
    moved = used.detach().clone()
    unused.grad = None
    optimiser.step()
    assert torch.equal(unused, before)
    assert torch.equal(optimiser.state[unused]["momentum"], mean)
    assert not torch.equal(used, moved)
    unused.grad = torch.eye(4, 6)
    optimiser.step()
    assert not torch.equal(unused, before)


# ---- which matrices


def names(model: nn.Module) -> dict[str, int]:
    pieces = matrices_of(model)
    return {name: pieces[weight] for name, weight in model.named_parameters() if weight in pieces}


ATTENTION = {"query": 1, "key_value": 2, "output": 1}


def test_of_a_transformer_all_but_embedding_output_biases_and_norms() -> None:
    sizes: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "d_ff": 16, "heads": 2}
    model = build(TransformerSettings(**sizes, tie="none"), 20)
    expected = {
        f"{layer}.{part}.weight": pieces
        for layer, attentions in (
            ("encoder.layers.0", ("attention",)),
            ("decoder.0", ("attention", "cross_attention")),
        )
        for part, pieces in (
            {f"{attention}.{name}": pieces for attention in attentions for name, pieces in ATTENTION.items()}
            | {"feedforward.inner": 1, "feedforward.outer": 1}
        ).items()
    }
    assert names(model) == expected


def test_gains_of_queries_and_keys_are_vectors() -> None:
    sizes: dict[str, Any] = {"layers": 1, "d_model": 8, "d_ff": 16, "heads": 2, "max_positions": 9}
    assert names(build(GPTSettings(**sizes, qk_norm=True), 20)) == names(build(GPTSettings(**sizes), 20))


def test_of_a_gpt_with_gates_and_learned_positions_too() -> None:
    model = build(GPTSettings(layers=1, d_model=8, d_ff=16, heads=2, activation="swiglu", max_positions=9), 20)
    parts = {f"attention.{name}": pieces for name, pieces in ATTENTION.items()}
    parts |= {"feedforward.inner": 2, "feedforward.outer": 1}
    assert names(model) == {f"layers.0.{name}.weight": pieces for name, pieces in parts.items()}


@pytest.mark.parametrize(("activation", "inner"), [("relu", 4), ("swiglu", 8)])
def test_of_experts_each_but_not_what_chooses_among_them(activation: Activation, inner: int) -> None:
    sizes: dict[str, Any] = {"layers": 1, "d_model": 8, "d_ff": 16, "heads": 2, "experts": 4, "active_experts": 2}
    found = names(build(GPTSettings(**sizes, activation=activation), 20))
    experts = {name: pieces for name, pieces in found.items() if "feedforward" in name}
    assert experts == {"layers.0.feedforward.inner_EFD": inner, "layers.0.feedforward.outer_EDF": 4}


def test_keys_and_values_of_different_sizes_are_one_matrix() -> None:
    model = build(TransformerSettings(encoder_layers=1, decoder_layers=1, d_model=8, d_ff=8, heads=2, d_k=2, d_v=4), 20)
    assert {pieces for name, pieces in names(model).items() if "key_value" in name} == {1}


def test_of_a_recurrent_model_each_gate_and_of_a_convolution_all_taps() -> None:
    recurrent = names(build(RecurrentSettings(cell="lstm", d_model=8), 20))
    kernels = {name: pieces for name, pieces in recurrent.items() if "kernel" in name}
    assert kernels
    assert set(kernels.values()) == {4}
    assert not any("embedding" in name or name.startswith("output") or "bias" in name for name in recurrent)
    wavenet = names(build(WaveNetSettings(channels=8, skip_channels=8), 20))
    assert "blocks.0.convolution.taps.weight" in wavenet
    assert "output.weight" not in wavenet


def test_vectors_and_what_is_not_trained_are_left_out() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1), nn.Linear(4, 4))
    model[2].weight.requires_grad_(False)
    assert names(model) == {"0.weight": 1}


# ---- in the trainer

SPECIALS = Specials(padding=0, start=1, end=2)
MODEL = TransformerSettings(encoder_layers=1, decoder_layers=1, d_model=16, d_ff=32, heads=2, dropout=0.1, norm="pre")
# The target is the source, each token one further: a rule to be found, and half of the pairs to be tried on.
PAIRS: list[Example] = [([4 + (7 * number + 3 * number * step) % 16 for step in range(5)], []) for number in range(160)]
EXAMPLES: list[Example] = [(source, [4 + (token - 3) % 16 for token in source]) for source, _ in PAIRS]
TRAINING = TrainingSettings(steps=20, optimiser=replace(MUON, clip=1.0))


def trainer(
    seed: int = 0,
    training: TrainingSettings = TRAINING,
    examples: list[Example] = EXAMPLES,
    model: TransformerSettings = MODEL,
) -> Trainer:
    torch.manual_seed(seed)
    batches = Batches(examples, SPECIALS, BatchSettings(tokens=256, shapes=4), seed=3)
    return Trainer(build(model, 20), batches, training)


def everything(run: Trainer) -> dict[str, Tensor]:
    snapshot = run.snapshot()
    return snapshot.weights | snapshot.optimiser | snapshot.moving


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def advance(run: Trainer, steps: int) -> None:
    for _ in range(steps):
        run.advance()
    run.close()


@pytest.mark.parametrize("model", [MODEL, replace(MODEL, experts=4, active_experts=2)], ids=["usual", "experts"])
def test_to_stop_and_go_on_changes_no_bit(model: TransformerSettings, tmp_path: Path) -> None:
    wish = replace(TRAINING, ema=0.9)
    unbroken, broken, resumed = (trainer(seed, wish, model=model) for seed in (0, 0, 9))
    advance(unbroken, 8)
    advance(broken, 4)
    checkpoint.save(tmp_path, broken.snapshot(), keep=1)
    advance(resumed, 2)  # means of its own, which must give way
    resumed.restore(checkpoint.newest(tmp_path)[0])
    advance(resumed, 4)
    assert same(everything(resumed), everything(unbroken))
    # One number is kept for each weight of a matrix, two for each of the others, and a count.
    kept = {name.split("/")[1] for name in everything(unbroken) if name.startswith("encoder.layers.0.attention.query.w")
            and "/" in name}  # fmt: skip
    assert kept == {"momentum"}
    assert {"embedding.table.weight/exp_avg", "embedding.table.weight/exp_avg_sq"} < everything(unbroken).keys()


def test_going_back_to_the_beginning_forgets_the_means() -> None:
    run = trainer()
    beginning = run.snapshot()
    advance(run, 3)
    first = everything(run)
    run.restore(beginning)
    advance(run, 3)
    assert same(everything(run), first)


def test_torchs_own_way_to_keep_and_to_restore_works_too() -> None:
    one, other = trainer(), trainer()
    advance(one, 3)
    other.restore(replace(one.snapshot(), optimiser={}))
    other.optimiser.load_state_dict(copy.deepcopy(one.optimiser.state_dict()))
    advance(one, 2)
    advance(other, 2)
    assert same(everything(one), everything(other))


def test_a_batch_read_in_parts_makes_nearly_the_same_step() -> None:
    whole, parts = trainer(), trainer(training=replace(TRAINING, parts=4))
    advance(whole, 1)
    advance(parts, 1)
    found, expected = everything(parts), everything(whole)
    for name, pieces in names(whole.model).items():
        change = expected[name] - build(MODEL, 20).state_dict()[name]
        assert (found[name] - expected[name]).norm() < 1e-3 * change.norm(), (name, pieces)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_no_number_changes_nothing(bad: float) -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 4))
    changed = optimiser(model, replace(MUON, weight_decay=0.1))
    for value, norm in ((0.1, 1.0), (bad, bad), (0.1, 1.0)):
        before = [weight.detach().clone() for weight in model.parameters()]
        means = [changed.state[part.weight]["momentum"].clone() for part in model] if changed.state else []
        for weight in model.parameters():
            weight.grad = torch.full_like(weight, value)
        set_rate(changed, 0.01)
        usable = apply(changed, torch.tensor(norm), clip=0.5)
        assert bool(usable) == math.isfinite(norm)
        for weight, old in zip(model.parameters(), before, strict=True):
            assert torch.equal(weight, old) != bool(usable)
        if not usable:
            assert all(
                torch.equal(changed.state[part.weight]["momentum"], old) for part, old in zip(model, means, strict=True)
            )


def test_clipping_scales_what_enters_the_mean() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False))
    changed = optimiser(model, MUON)
    gradient = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    model[0].weight.grad = gradient.clone()
    set_rate(changed, 0.1)
    assert apply(changed, torch.tensor(5.0), clip=1.0)
    torch.testing.assert_close(changed.state[model[0].weight]["momentum"], 0.05 * 0.2 * gradient)


def test_one_rate_is_for_all_and_the_others_are_adams() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6))
    mine = optimiser(model, MUON)
    start = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    other = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6))
    other.load_state_dict(start)
    adam = optimiser(other, OptimiserSettings())
    for owner, changed in ((model, mine), (other, adam)):
        for number, weight in enumerate(owner.parameters()):
            weight.grad = torch.randn(weight.shape, generator=torch.Generator().manual_seed(number))
        set_rate(changed, 0.03)
        apply(changed, torch.tensor(1.0), clip=None)
    assert {group["lr"] for group in mine.param_groups} == {0.03}
    pulled = optimiser(model, replace(MUON, weight_decay=0.1))
    assert [group["weight_decay"] for group in pulled.param_groups] == [0.1, 0.1, 0.0]  # vectors are left alone
    for name, weight in model.named_parameters():
        assert torch.equal(weight, dict(other.named_parameters())[name]) == (weight.ndim == 1), name


def test_weights_divided_among_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optim, "is_sharded", lambda _: True)
    with pytest.raises(UsageError, match=r"`muon` needs whole matrices.*training\.parallel=ddp"):
        optimiser(nn.Linear(2, 2), MUON)


def validated(kind: str, rate: float) -> float:
    """Nats a token of pairs that were not trained on."""
    wish = OptimiserSettings(kind=kind, schedule="linear", rate=rate, warmup=5, clip=1.0)  # type: ignore[arg-type]
    run = trainer(training=TrainingSettings(steps=100, label_smoothing=0.0, optimiser=wish), examples=EXAMPLES[:120])
    advance(run, 100)
    held_out = Batches(EXAMPLES[120:], SPECIALS, BatchSettings(tokens=256, shapes=4), seed=3)
    return run.validate([held_out[0]]).nll


def test_it_learns_more_than_adam_in_as_many_steps() -> None:
    """At the rates that suit each best here; Muon bears a higher one."""
    assert 1.5 * validated("muon", 4e-2) < min(validated("adam", rate) for rate in (2e-2, 4e-2))


def largest_score(qk_norm: bool) -> tuple[float, float]:
    """Of |q·k| / √d_k in any attention after steps at a high rate without decay; and what gains alone would allow."""
    wish = OptimiserSettings(kind="muon", schedule="constant", rate=0.1, warmup=0)
    run = trainer(training=TrainingSettings(steps=60, optimiser=wish), model=replace(MODEL, qk_norm=qk_norm))
    advance(run, 60)
    scores: list[float] = []
    bounds: list[float] = []
    for module in run.model.modules():
        if isinstance(module, Attention):
            module.register_forward_hook(lambda module, given, gave: scores.append(score(module, *given[:2])))
            gains = [norm.weight.detach().abs().max() for norm in (module.query_norm, module.key_norm) if norm]
            bounds.append(math.sqrt(module.d_k) * float(torch.stack(gains).prod()) if gains else math.inf)
    run.validate([run.batches[0]])
    return max(scores), max(bounds)


def score(attention: Attention, x_BTD: Tensor, kv: KeyValue) -> float:
    query_BHQE = attention.queries(attention.query(x_BTD))
    return float((query_BHQE @ kv.keys_BHKE.mT).abs().max()) / math.sqrt(attention.d_k)


def test_norms_of_queries_and_keys_keep_scores_small_where_matrices_grow() -> None:
    (plain, _), (normed, bound) = largest_score(qk_norm=False), largest_score(qk_norm=True)
    assert normed <= 1.001 * bound
    assert plain > 3 * bound
