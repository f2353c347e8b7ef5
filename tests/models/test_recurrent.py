"""Recurrent models: every combination of settings, the fixed contexts, and hard attention's gradient.

Shapes: B rows, S source tokens, T target tokens, K source positions, D model.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle, product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.batch import IGNORED, Batch, Places, Tokens
from regard.errors import UsageError
from regard.layers.recurrent import Cell, Glance, Hidden
from regard.models.recurrent import Context, RecurrentEncoderDecoder, RecurrentSettings
from regard.models.recurrent_lm import RecurrentLM, RecurrentLMSettings

SMALL = RecurrentSettings(d_model=8, dropout=0)
SOURCES = [[3, 4, 5, 6, 7], [8, 9], [4, 4, 3]]
TARGETS = [[1, 5, 9], [1, 3, 4, 8, 8, 6], [1]]

ATTENTIONS: list[dict[str, Any]] = [
    {"attention": "none"},
    {"attention": "none", "feed_context": True},
    *({"attention": score, "attend": attend} for score in ("additive", "general") for attend in ("before", "after")),
    {"attention": "dot", "input_feeding": True},
    {"attention": "scaled"},
    {"attention": "general", "hard": True},
    {"attention": "additive", "hard": True},
    {"asks": "bottom", "decoder_layers": 3, "encoder_layers": 3, "bidirectional": "alternating"},
    {"asks": "bottom", "feed_all": True, "decoder_layers": 2, "encoder_layers": 2, "bidirectional": "first"},
    {"attention": "general", "attend": "before", "feed_all": True, "decoder_layers": 2, "encoder_layers": 2},
    {"asks": "bottom", "feed_all": True, "decoder_layers": 2, "encoder_layers": 2, "experts": 3, "d_ff": 8},
    {"asks": "bottom", "hard": True, "bidirectional": "alternating", "encoder_layers": 2, "decoder_layers": 2},
]
CELLS: list[Cell] = ["rnn", "gru", "lstm"]
CONTEXTS: list[Context] = ["last", "projected", "mean"]
# Every way to attend with every cell; the context has no say in either, so it takes turns.
ALL = [
    replace(SMALL, cell=cell, context=context, **attention)
    for (cell, attention), context in zip(product(CELLS, ATTENTIONS), cycle(CONTEXTS), strict=False)
]


def name(settings: RecurrentSettings) -> str:
    changed = {field: value for field, value in vars(settings).items() if value != getattr(SMALL, field)}
    return " ".join(f"{field}={value}" for field, value in changed.items()) or "as Bahdanau"


def build(settings: RecurrentSettings, vocabulary: int = 10) -> RecurrentEncoderDecoder:
    torch.manual_seed(0)
    return RecurrentEncoderDecoder(settings, vocabulary)


def padded(extra: int = 0) -> Batch:
    target = Tokens.padded([*TARGETS], padding=0, length=6 + extra)
    labels_BT = torch.where(target.places.segments_or_ones() == 0, IGNORED, target.ids_BT.flip(1) % 7 + 3)
    return Batch(Tokens.padded(SOURCES, padding=0, length=5 + extra), target, labels_BT)


def cross_entropy(project: Callable[[Tensor], Tensor], features_BTD: Tensor, labels_BT: Tensor) -> Tensor:
    logits_BVT = project(features_BTD).transpose(1, 2)
    return F.cross_entropy(logits_BVT, labels_BT, reduction="none", ignore_index=IGNORED)


# ---- every combination


@pytest.mark.parametrize("settings", ALL, ids=name)
@torch.no_grad()
def test_steps_are_the_whole_and_padding_is_invisible(settings: RecurrentSettings) -> None:
    model, batch = build(settings).eval(), padded(extra=3)
    whole_BTV = model(batch)
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        state = model.start(Tokens.whole(torch.tensor([source])), rows=1)
        for t, token in enumerate(target):
            scores_1V, state = model.step(torch.tensor([[token]]), state)
            torch.testing.assert_close(scores_1V[0], whole_BTV[row, t], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("settings", ALL, ids=name)
def test_every_parameter_learns(settings: RecurrentSettings) -> None:
    model = build(settings).train()
    model.losses(padded(extra=2), cross_entropy).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


@pytest.mark.gpu
@pytest.mark.parametrize("settings", ALL, ids=name)
def test_a_gpu_gives_the_same_and_learns_in_bfloat16(settings: RecurrentSettings) -> None:
    model, batch = build(settings).eval(), padded(extra=3)
    wanted_BTV = model(batch)
    found_BTV = model.cuda()(batch.to(torch.device("cuda"))).cpu()
    real_BT = batch.target.places.segments_or_ones() != 0
    torch.testing.assert_close(found_BTV[real_BT], wanted_BTV[real_BT], rtol=1e-3, atol=1e-3)
    with torch.autocast("cuda", torch.bfloat16):
        losses_BT = model.train().losses(batch.to(torch.device("cuda")), cross_entropy)
    losses_BT.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("attention", [{"attend": "before"}, {"attend": "after"}, {"hard": True}])
def test_watched_weights_come_in_one_piece(attention: dict[str, Any]) -> None:
    model = build(replace(SMALL, **attention)).eval()
    seen: list[Tensor] = []
    assert model.attention is not None
    model.attention.watcher = seen.append
    model(padded())
    [weights_BHTS] = seen
    assert weights_BHTS.shape == (3, 1, 6, 5)
    torch.testing.assert_close(weights_BHTS.sum(dim=-1), torch.ones(3, 1, 6))
    assert not weights_BHTS[1, :, :, 2:].any()
    assert (weights_BHTS.max() == 1) == bool(attention.get("hard"))


def test_input_feeding_hands_each_output_to_the_next_step() -> None:
    model = build(replace(SMALL, attention="general", input_feeding=True)).eval()
    state = model.start(Tokens.whole(torch.tensor([[3, 4, 5]])), rows=1)
    assert state.fed_BD is not None
    assert not state.fed_BD.any()
    scores_BV, state = model.step(torch.tensor([[1, 4]]), state)
    assert state.fed_BD is not None
    torch.testing.assert_close(model.logits(state.fed_BD), scores_BV)
    next_B1 = torch.tensor([[5]])
    with_it, _ = model.step(next_B1, state)
    without, _ = model.step(next_B1, replace(state, fed_BD=torch.zeros_like(state.fed_BD)))
    assert not with_it.allclose(without)


# ---- the fixed context


def test_last_hands_over_the_state_in_which_each_layer_ended() -> None:
    settings = replace(
        SMALL, cell="lstm", context="last", attention="none", encoder_layers=2, decoder_layers=2, bidirectional=False
    )
    model = build(settings).eval()
    source = Tokens.whole(torch.tensor([[3, 4, 5]]))
    hidden = model.start(source, rows=1).hidden
    below_BSD, (end, cell) = model.encoder.layers[0].left_to_right.kernel(model.embedding(source.ids_BT))  # type: ignore[union-attr, operator]
    torch.testing.assert_close([hidden[0].output_BD, hidden[0].cell_BD], [end[0], cell[0]])
    _, (end, cell) = model.encoder.layers[1].left_to_right.kernel(below_BSD)  # type: ignore[union-attr, operator]
    torch.testing.assert_close([hidden[1].output_BD, hidden[1].cell_BD], [end[0], cell[0]])


def test_mean_is_a_function_of_all_states_and_projected_of_the_last() -> None:
    states_BSD = torch.randn(1, 4, 8)
    moved_BSD = states_BSD.clone()
    moved_BSD[0, 1] += 1
    ends = (Hidden(torch.randn(1, 8)),)
    other_ends = (Hidden(torch.randn(1, 8)),)
    for settings in (replace(SMALL, context="mean"), replace(SMALL, context="projected")):
        summary = build(settings).summary
        context_BD, _ = summary(states_BSD, ends, torch.tensor([4]))
        of_all = not context_BD.equal(summary(moved_BSD, ends, torch.tensor([4]))[0])
        of_last = not context_BD.equal(summary(states_BSD, other_ends, torch.tensor([4]))[0])
        assert (of_all, of_last) == ((True, False) if settings.context == "mean" else (False, True))


# ---- hard attention


@pytest.mark.parametrize("attend", ["before", "after"])
def test_reinforce_is_unbiased(attend: Any) -> None:
    """The mean of many draws is the gradient of Σ over all paths of P(path)·loss(path), which is summed here."""
    model = build(replace(SMALL, d_model=4, attention="general", attend=attend, hard=True), vocabulary=6).train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))  # so that it matters where one looks

    def copies(rows: int) -> Batch:
        source, target, labels = (torch.tensor([ids] * rows) for ids in ([3, 4, 5], [1, 4, 3], [4, 3, 2]))
        return Batch(Tokens.whole(source), Tokens.whole(target), labels)

    def gradients(loss: Tensor) -> list[Tensor]:
        # The scores learn by nothing but REINFORCE; the other parameters learn through the states, too.
        scores, everything = [*model.attention.parameters()], [*model.parameters()]  # type: ignore[union-attr]
        found = (torch.autograd.grad(loss, part, retain_graph=True) for part in (scores, everything))
        return [torch.cat([grad.flatten() for grad in grads]) for grads in found]

    drawn = [gradients(model.losses(copies(2000), cross_entropy).sum(dim=1).mean()) for _ in range(20)]
    paths_BT = torch.tensor([*product(range(3), repeat=3)])
    exact = gradients(expected_loss(model, copies(len(paths_BT)), paths_BT))
    for estimates, wanted in zip(zip(*drawn, strict=True), exact, strict=True):
        spread, found = torch.std_mean(torch.stack(estimates), dim=0)
        error = spread.norm() / math.sqrt(len(estimates))
        assert error < 0.1 * wanted.norm(), "too few draws to tell"
        assert (found - wanted).norm() < 3 * error


def expected_loss(model: RecurrentEncoderDecoder, batch: Batch, paths_BT: Tensor) -> Tensor:
    """Σ over the rows of P(path)·loss, where each row looks at the positions of its own path."""
    assert model.attention is not None
    left, chances = paths_BT, list[Tensor]()

    def choose(log_weights_BQK: Tensor) -> Tensor:
        nonlocal left
        queries = log_weights_BQK.shape[1]
        now, left = left[:, :queries], left[:, queries:]
        return now

    def keep(_module: Any, _given: Any, glance: Glance) -> None:
        assert glance.log_chance_BQ is not None
        chances.append(glance.log_chance_BQ)

    hook = model.attention.register_forward_hook(keep)
    model.attention.choose = choose  # type: ignore[method-assign]
    losses_BT = cross_entropy(model.logits, model.features(batch), batch.labels_BT)
    hook.remove()
    log_chance_B = torch.cat(chances, dim=1).sum(dim=1)
    assert math.isclose(log_chance_B.exp().sum().item(), 1, abs_tol=1e-5)
    return (log_chance_B.exp() * losses_BT.sum(dim=1)).sum()


def test_hard_attention_adds_a_gradient_and_no_loss() -> None:
    model, batch = build(replace(SMALL, attention="general", hard=True)).train(), padded()
    assert model.attention is not None
    torch.manual_seed(1)
    found_BT = model.losses(batch, cross_entropy)
    torch.manual_seed(1)
    assert found_BT.equal(cross_entropy(model.logits, model.features(batch), batch.labels_BT))
    model.eval().losses(batch, cross_entropy).sum().backward()
    assert model.attention.key.weight.grad is None, "evaluation takes the likeliest and has nothing to weigh"


def test_the_baseline_follows_the_loss_of_real_tokens_after_it_was_used() -> None:
    model, batch = build(replace(SMALL, attention="general", hard=True)).train(), padded()
    assert math.isclose(model.baseline.item(), math.log(10), rel_tol=1e-6)
    losses_BT = model.losses(batch, cross_entropy)
    mean = losses_BT[batch.labels_BT != IGNORED].mean().item()
    assert math.isclose(model.baseline.item(), 0.9 * math.log(10) + 0.1 * mean, rel_tol=1e-5)
    assert "baseline" in model.state_dict()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_no_number_leaves_the_baseline_as_it_was(bad: float) -> None:
    model, batch = build(replace(SMALL, attention="general", hard=True)).train(), padded()
    before = model.baseline.item()
    model.losses(batch, lambda *given: cross_entropy(*given) * bad)
    assert model.baseline.item() == before
    model.losses(batch, cross_entropy)
    assert model.baseline.item() != before


def test_hard_attention_learns_to_copy_by_looking_at_each_token_in_turn() -> None:
    chance = torch.Generator().manual_seed(0)

    def copying(rows: int) -> Batch:
        words_BS = torch.randint(3, 11, (rows, 4), generator=chance)
        target_BT = torch.cat([torch.ones(rows, 1, dtype=torch.long), words_BS[:, :-1]], dim=1)
        return Batch(Tokens.whole(words_BS), Tokens.whole(target_BT), words_BS)

    model = build(replace(SMALL, d_model=32, context="mean", attention="general", hard=True), vocabulary=11).train()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(150):
        optimiser.zero_grad()
        model.losses(copying(64), cross_entropy).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()

    seen: list[Tensor] = []
    assert model.attention is not None
    model.attention.watcher = seen.append
    batch = copying(200)
    right = model.eval()(batch).argmax(dim=-1) == batch.labels_BT
    assert right.float().mean() > 0.95
    assert seen[0].mean(dim=0)[0].diagonal().mean() > 0.9


# ---- the language model


def test_the_language_model_is_the_papers_medium_one() -> None:
    with torch.device("meta"):
        model = RecurrentLM(RecurrentLMSettings(), vocabulary=10_000)
        tied = RecurrentLM(RecurrentLMSettings(tied=True), vocabulary=10_000)
    layer = 4 * (650 * 650 + 650 * 650 + 2 * 650)
    assert sum(parameter.numel() for parameter in model.parameters()) == 2 * 650 * 10_000 + 10_000 + 2 * layer
    assert sum(parameter.numel() for parameter in tied.parameters()) == 650 * 10_000 + 10_000 + 2 * layer


def test_the_language_model_learns_a_tune() -> None:
    torch.manual_seed(0)
    model = RecurrentLM(RecurrentLMSettings(d_model=16, dropout=0), vocabulary=8)
    tune = torch.tensor([[3, 4, 5, 3, 6, 7] * 3])
    batch = Batch(None, Tokens.whole(tune[:, :-1]), tune[:, 1:])
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(80):
        optimiser.zero_grad()
        model.losses(batch, cross_entropy).mean().backward()
        optimiser.step()
    # After a 3 only what stood before it tells whether a 4 or a 6 follows.
    scores_1V, state = model.eval().step(tune[:, :4], model.start(None, rows=1))
    assert scores_1V.argmax() == 6
    scores_1V, _ = model.step(tune[:, 4:7], state)
    assert scores_1V.argmax() == 4


# ---- what is refused


def test_rows_of_several_sentences_are_refused() -> None:
    ids_BT = torch.tensor([[1, 3, 4]])
    packed = Tokens(ids_BT, Places(torch.tensor([[0, 1, 0]]), torch.tensor([[1, 1, 2]])))
    whole = Tokens.whole(ids_BT)
    model, language_model = build(SMALL), RecurrentLM(RecurrentLMSettings(d_model=4), vocabulary=5)
    assert not model.packs_sentences
    assert not language_model.packs_sentences
    with pytest.raises(UsageError, match=r"RecurrentEncoderDecoder, source: .* one sentence a row"):
        model(Batch(packed, whole, ids_BT))
    with pytest.raises(UsageError, match=r"RecurrentEncoderDecoder, target: .* one sentence a row"):
        model(Batch(whole, packed, ids_BT))
    with pytest.raises(UsageError, match=r"RecurrentLM, target: .* one sentence a row"):
        language_model(Batch(None, packed, ids_BT))


def test_a_source_is_needed_by_one_and_refused_by_the_other() -> None:
    whole = Tokens.whole(torch.tensor([[1, 3, 4]]))
    with pytest.raises(UsageError, match="the source must have 1 row, but is None"):
        build(SMALL)(Batch(None, whole, whole.ids_BT))
    with pytest.raises(UsageError, match="must have 2 rows, but is 1 row"):
        build(SMALL).start(whole, rows=2)
    with pytest.raises(UsageError, match="reads no source"):
        RecurrentLM(RecurrentLMSettings(d_model=4), vocabulary=5).start(whole, rows=1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"d_model": 0}, "`d_model` must be at least 1, but is 0"),
        ({"d_embedding": -2}, "`d_embedding` must be at least 1, but is -2"),
        ({"dropout": 1.0}, "`dropout` must be at least 0 and below 1, but is 1.0"),
        ({"d_model": 7}, "`d_model` must be even where `bidirectional` is set, but is 7"),
        ({"context": "last", "decoder_layers": 2}, "`decoder_layers` must be `encoder_layers` (1), but is 2"),
        ({"d_embedding": 4}, "`d_embedding` must be `d_model` (8) where `tied` is set, but is 4"),
        ({"attention": "none", "hard": True}, '`hard` needs an `attention`, but that is "none"'),
        ({"attention": "none", "attend": "after"}, '`attend` needs an `attention`, but that is "none"'),
        ({"feed_context": True}, "`feed_context` gives one context to every step, but `attention` is 'additive'"),
        ({"input_feeding": True}, '`input_feeding` needs `attend` = "after"'),
        (
            {"bidirectional": "last"},
            '`bidirectional` must be true or false or "first" or "alternating", but is \'last\'',
        ),
        ({"d_model": 7, "bidirectional": "first"}, "`d_model` must be even where `bidirectional` is set, but is 7"),
        ({"feed_all": True, "attend": "after"}, "`feed_all` needs `attend` = \"before\", but that is 'after'"),
        ({"asks": "bottom", "attention": "dot"}, "`asks` needs `attend` = \"before\", but that is 'after'"),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        replace(SMALL, **wrong)


@pytest.mark.parametrize(("wrong", "message"), [({"layers": 0}, "`layers`"), ({"dropout": -0.1}, "`dropout`")])
def test_language_model_settings_that_cannot_be_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RecurrentLMSettings(**wrong)
