"""The Transformer: its settings, sizes, initial weights and the edges of its interface.

What it shares with every model is in tests/contracts; its equality with torch's is in tests/parity.
Shapes: B rows, T tokens, D model, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.batch import Batch, Tokens
from regard.errors import UsageError
from regard.layers.attention import Attention
from regard.models.build import build
from regard.models.transformer import Transformer, TransformerSettings

SMALL = TransformerSettings(encoder_layers=2, decoder_layers=2, d_model=8, d_ff=12, heads=2)


def small(**changes: Any) -> Transformer:
    torch.manual_seed(0)
    return Transformer(TransformerSettings(**{**vars(SMALL), **changes}), vocabulary=7).eval()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"d_model": 10, "heads": 4}, "`d_model` must be a multiple of `heads` (4) unless `d_k` is given, but is 10"),
        ({"heads": 0}, "`heads` must be at least 1, but is 0; give 1 or more"),
        ({"window": 0}, "`window` must be at least 1, but is 0; give 1 or more"),
        ({"reach": 0}, "`reach` must be at least 1, but is 0; give 1 or more"),
        ({"max_positions": 0}, "`max_positions` must be at least 1, but is 0; give 1 or more"),
        ({"positions": "rotary", "d_k": 3}, "`d_k` must be even for rotary positions, but is 3"),
        ({"encoder_layers": 0}, "`encoder_layers` must be at least 1, but is 0; give 1 or more"),
        ({"decoder_layers": -1}, "`decoder_layers` must be at least 1, but is -1; give 1 or more"),
        ({"d_ff": 0}, "`d_ff` must be at least 1, but is 0; give 1 or more"),
        ({"d_k": 0}, "`d_k` must be at least 1, but is 0; give 1 or more"),
        ({"d_v": 0}, "`d_v` must be at least 1, but is 0; give 1 or more"),
        ({"dropout": 1.0}, "`dropout` must be at least 0 and below 1, but is 1.0; give 0.1 or 0.9, say"),
        ({"dropout": -0.1}, "`dropout` must be at least 0 and below 1, but is -0.1; give 0.1 or 0.9, say"),
    ],
)
def test_wrong_settings_say_what_is_wrong(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 (the message is compared whole)
        TransformerSettings(**wrong)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("d_k", "d_v", "expected"), [(None, None, (64, 64)), (16, None, (16, 16)), (16, 32, (16, 32)), (None, 32, (64, 32))]
)
def test_sizes_of_a_head(d_k: int | None, d_v: int | None, expected: tuple[int, int]) -> None:
    sizes = TransformerSettings(d_k=d_k, d_v=d_v).layer_sizes()
    assert (sizes.d_k, sizes.d_v) == expected


def test_heads_need_not_divide_d_model_when_d_k_is_given() -> None:
    model = small(d_model=10, heads=4, d_k=3)
    assert model(batch_of([[3]], [[1, 4]])).shape == (1, 2, 7)


def test_the_defaults_are_the_papers_base_model() -> None:
    """Counted matrix by matrix, one layer of each kind. The paper rounds its base model to 65 million."""
    chosen = TransformerSettings()
    d, d_ff, layers = 512, 2048, 6
    assert (chosen.activation, chosen.positions, chosen.tie, chosen.window) == ("relu", "sinusoidal", "all", None)
    assert (chosen.d_model, chosen.d_ff, chosen.heads, chosen.dropout, chosen.norm) == (d, d_ff, 8, 0.1, "post")
    assert chosen.encoder_layers == chosen.decoder_layers == layers
    attention = 4 * (d * d + d)
    feedforward = d * d_ff + d_ff + d_ff * d + d
    norm = 2 * d
    both = (attention + feedforward + 2 * norm) + (2 * attention + feedforward + 3 * norm)
    model = Transformer(TransformerSettings(encoder_layers=1, decoder_layers=1), vocabulary=100)
    assert sum(parameter.numel() for parameter in model.parameters()) == 100 * d + both
    assert 62e6 < 37_000 * d + layers * both < 66e6


def matrices_of_the_vocabulary(model: nn.Module) -> set[str]:
    return {name for name, parameter in model.named_parameters() if 7 in parameter.shape}


@pytest.mark.parametrize(
    ("tie", "names"),
    [
        ("all", {"embedding.table.weight"}),
        ("target", {"embedding.table.weight", "own_source_embedding.table.weight"}),
        ("embeddings", {"embedding.table.weight", "output.weight"}),
        ("none", {"embedding.table.weight", "own_source_embedding.table.weight", "output.weight"}),
    ],
)
def test_which_matrices_are_one(tie: str, names: set[str]) -> None:
    model = small(tie=tie)
    assert matrices_of_the_vocabulary(model) == names
    assert model.vocabulary == model(batch_of([[3]], [[1, 4]])).shape[-1]
    assert model.width == model.features(batch_of([[3]], [[1, 4]])).shape[-1]


def test_source_and_target_may_have_vocabularies_of_their_own() -> None:
    settings = TransformerSettings(**{**vars(SMALL), "tie": "target"})
    model = Transformer(settings, vocabulary=7, source_vocabulary=20)
    assert model(batch_of([[19]], [[1, 4]])).shape == (1, 2, 7)
    with pytest.raises(ValueError, match="both must share a vocabulary, but they have 20 and 7 tokens"):
        Transformer(SMALL, vocabulary=7, source_vocabulary=20)


def test_learned_positions_have_an_end() -> None:
    model = small(positions="learned", max_positions=4)
    source = Tokens.whole(torch.tensor([[3, 4]]))
    state = model.start(source, rows=1)
    _, state = model.step(torch.tensor([[1, 3, 4, 5]]), state)
    with pytest.raises(UsageError, match=r"at most 4 tokens.*but has 5"):
        model.step(torch.tensor([[6]]), state)
    with pytest.raises(UsageError, match=r"at most 4 tokens.*but has 5"):
        model.start(Tokens.whole(torch.tensor([[3] * 5])), rows=1)


@torch.no_grad()
def test_a_window_hides_what_is_far_from_one_layer() -> None:
    """With a window of 2 and one layer each, a target token depends on itself and its neighbour only."""
    model = small(window=2, encoder_layers=1, decoder_layers=1)
    scores = [model(batch_of([[5, 5]], [[1, first, 4, 5, 6]]))[0] for first in (3, 6)]
    torch.testing.assert_close(scores[0][3:], scores[1][3:], rtol=0, atol=1e-6)
    assert not torch.allclose(scores[0][2], scores[1][2], atol=1e-3)
    sources = [Tokens.whole(torch.tensor([[first, 4, 5, 6]])) for first in (3, 6)]
    keys_BHKE = [model.start(source, rows=1).layers[0].source.keys_BHKE for source in sources]
    torch.testing.assert_close(keys_BHKE[0][:, :, 2:], keys_BHKE[1][:, :, 2:], rtol=0, atol=1e-6)
    assert not torch.allclose(keys_BHKE[0][:, :, 1], keys_BHKE[1][:, :, 1], atol=1e-3)


def test_one_matrix_serves_source_target_and_softmax() -> None:
    model = small()
    assert matrices_of_the_vocabulary(model) == {"embedding.table.weight"}
    features_BTD = torch.randn(1, 2, 8)
    torch.testing.assert_close(model.logits(features_BTD), features_BTD @ model.embedding.weight_VD.T)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_pre_norm_stacks_end_in_a_norm(norm: str) -> None:
    model = small(norm=norm)
    kind = nn.LayerNorm if norm == "pre" else nn.Identity
    assert isinstance(model.encoder.norm, kind)
    assert isinstance(model.decoder_norm, kind)
    norms = sum(isinstance(module, nn.LayerNorm) for module in model.modules())
    assert norms == 2 * 2 + 2 * 3 + (2 if norm == "pre" else 0)


def test_queries_keys_and_values_start_as_if_each_had_its_own_matrix() -> None:
    model = small(d_model=64, heads=4, d_v=40)
    for module in model.modules():
        if isinstance(module, Attention):
            w_k, w_v = module.key_value.weight.split([4 * 16, 4 * 40])
            for weight in (module.query.weight, w_k, w_v, module.output.weight):
                bound = math.sqrt(6 / sum(weight.shape))
                assert 0.95 * bound < weight.abs().max() <= bound
                assert math.isclose(weight.std().item(), bound / math.sqrt(3), rel_tol=0.05)
            for linear in (module.query, module.key_value, module.output):
                assert not linear.bias.any()


def batch_of(sources: list[list[int]], targets: list[list[int]]) -> Batch:
    target = Tokens.padded(targets, padding=0)
    return Batch(Tokens.padded(sources, padding=0), target, target.ids_BT)


@torch.no_grad()
def test_steps_of_any_size() -> None:
    model = small()
    batch = batch_of([[3, 4, 5], [6]], [[1, 3, 5, 4, 6], [1, 4, 4, 3, 5]])
    wanted_BTV = model(batch)
    state = model.start(batch.source, rows=2)
    for first, last in [(0, 2), (2, 4), (4, 5)]:
        scores_BV, state = model.step(batch.target.ids_BT[:, first:last], state)
        torch.testing.assert_close(scores_BV, wanted_BTV[:, last - 1], rtol=1e-5, atol=1e-5)
    assert state.seen.positions_BT.tolist() == [[0, 1, 2, 3, 4]] * 2


@torch.no_grad()
def test_the_source_is_read_once() -> None:
    model = small()
    reads: list[Tensor] = []
    model.encoder.layers[0].register_forward_hook(lambda module, arguments, answer: reads.append(answer))
    state = model.start(Tokens.whole(torch.tensor([[3, 4]])), rows=1)
    for token in (1, 3, 5):
        _, state = model.step(torch.tensor([[token]]), state)
    assert len(reads) == 1


@torch.no_grad()
def test_an_empty_source_is_read_as_nothing_watched_or_not() -> None:
    model = small()
    batch = batch_of([[3, 4], []], [[1, 3], [1, 5]])
    wanted_BTV = model(batch)
    assert wanted_BTV.isfinite().all()
    shown: list[Tensor] = []
    for layer in model.decoder_layers:
        layer.cross_attention.watcher = shown.append
    torch.testing.assert_close(model(batch), wanted_BTV, rtol=1e-5, atol=1e-5)
    assert not shown[0][1].any()


def test_longer_than_any_table() -> None:
    ids_BT = torch.full((1, 3000), 3)
    with torch.no_grad():
        scores_BV, _ = small().step(ids_BT, small().start(Tokens.whole(ids_BT[:, :4]), rows=1))
    assert scores_BV.isfinite().all()


def test_what_it_cannot_do_without_a_source() -> None:
    model = small()
    target = Tokens.whole(torch.tensor([[1, 3]]))
    with pytest.raises(UsageError, match="the source must have 1 row, but is None"):
        model(Batch(None, target, target.ids_BT))
    with pytest.raises(UsageError, match="the source must have 2 rows, but is None"):
        model.start(None, rows=2)
    with pytest.raises(UsageError, match="the source must have 2 rows, but is 1 row"):
        model.start(target, rows=2)


def test_forward_is_features_then_logits_and_the_loss_may_come_between() -> None:
    model = small()
    batch = batch_of([[3, 4]], [[1, 3, 5]])
    features_BTD = model.features(batch)
    assert features_BTD.shape == (1, 3, 8)
    assert torch.equal(model(batch), model.logits(features_BTD))
    losses_BT = model.losses(batch, lambda project, features, labels: project(features).sum(dim=-1) + labels)
    torch.testing.assert_close(losses_BT, model(batch).sum(dim=-1) + batch.labels_BT)


def test_dropout_is_for_training() -> None:
    model = small(dropout=0.5)
    batch = batch_of([[3, 4]], [[1, 3, 5]])
    assert torch.equal(model(batch), model(batch))
    model.train()
    assert not torch.equal(model(batch), model(batch))


def test_build() -> None:
    model = build(SMALL, vocabulary=11)
    assert isinstance(model, Transformer)
    assert model.settings == SMALL
    assert model.vocabulary == 11


@pytest.mark.parametrize("tie", ["all", "none"])
def test_a_bias_is_added_to_the_scores(tie: str) -> None:
    model = small(tie=tie, output_bias=True)
    weight_VD, bias_V = model.output_matrix()
    assert bias_V is not None
    with torch.no_grad():
        bias_V.normal_()
    features_BTD = torch.randn(2, 3, 8)
    torch.testing.assert_close(model.logits(features_BTD), features_BTD @ weight_VD.T + bias_V)


@pytest.mark.parametrize(
    ("norm", "chosen", "wanted"), [("post", None, 0), ("post", True, 2), ("pre", None, 2), ("pre", False, 0)]
)
def test_the_final_norm_may_be_chosen(norm: str, chosen: bool | None, wanted: int) -> None:
    model = small(norm=norm, final_norm=chosen, norm_epsilon=1e-3)
    last = [module for module in (model.encoder.norm, model.decoder_norm) if isinstance(module, nn.LayerNorm)]
    assert len(last) == wanted
    assert {module.eps for module in model.modules() if isinstance(module, nn.LayerNorm)} == {1e-3}


@torch.inference_mode()
def test_an_end_that_is_not_read_changes_nothing() -> None:
    model = small(reads_end=False)
    target = Tokens.whole(torch.tensor([[1, 5, 6], [1, 4, 3]]))

    def scores(sources: list[list[int]]) -> Tensor:
        found: Tensor = model(Batch(Tokens.padded(sources, 0), target, target.ids_BT))
        return found

    found_BTV = scores([[3, 4, 5, 2], [6, 2]])
    torch.testing.assert_close(found_BTV, scores([[3, 4, 5, 1], [6, 5]]), atol=1e-6, rtol=0)
    assert not torch.allclose(found_BTV, scores([[3, 4, 1, 2], [1, 2]]), atol=1e-3)
    steps_BV, _ = model.step(target.ids_BT, model.start(Tokens.padded([[3, 4, 5, 2], [6, 2]], 0), 2))
    torch.testing.assert_close(steps_BV, found_BTV[:, -1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("changes", [{}, {"experts": 3}], ids=["plain", "experts"])
def test_layers_that_start_at_zero_add_nothing(changes: dict[str, Any]) -> None:
    model = small(norm="pre", final_norm=False, zero_start=True, **changes)
    batch = Batch(Tokens.whole(torch.tensor([[3, 4, 5]])), Tokens.whole(torch.tensor([[1, 6]])), torch.tensor([[6, 2]]))
    torch.testing.assert_close(model.features(batch), model.embedding(batch.target))
    torch.testing.assert_close(model.encoder(batch.source, model.embedding), model.embedding(batch.source))
