"""Attention against its formula, worked out by hand, and against torch's own.

Shapes: B rows, Q queries, K keys, D model, H heads, E size of one head's key or value.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.batch import Places
from regard.layers.attention import Attention, KeyValue, attention_weights
from regard.layers.mask import Mask, Visible
from regard.layers.positions import PositionScheme

close = torch.testing.assert_close


def random_attention(d_model: int, heads: int, d_k: int, d_v: int, norm_epsilon: float | None = None) -> Attention:
    attention = Attention(d_model, heads, d_k, d_v, norm_epsilon=norm_epsilon)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.copy_(torch.randn_like(parameter) / math.sqrt(d_model))
    return attention


def by_hand(attention: Attention, x_QD: Tensor, memory_KD: Tensor, allowed_QK: Tensor) -> tuple[Tensor, Tensor]:
    """One row, head by head and query by query, in the six steps of the formula: the answer, and the weights."""
    h, d_k, d_v = attention.heads, attention.d_k, attention.d_v
    w_k, w_v = attention.key_value.weight[: h * d_k], attention.key_value.weight[h * d_k :]
    b_k, b_v = attention.key_value.bias[: h * d_k], attention.key_value.bias[h * d_k :]
    answers = torch.zeros(len(x_QD), h * d_v)
    weights_HQK = torch.zeros(h, len(x_QD), len(memory_KD))
    for head in range(h):
        keys, values = slice(head * d_k, (head + 1) * d_k), slice(head * d_v, (head + 1) * d_v)
        q_QE = x_QD @ attention.query.weight[keys].T + attention.query.bias[keys]  # 1: queries, keys, values
        k_KE = memory_KD @ w_k[keys].T + b_k[keys]
        v_KE = memory_KD @ w_v[values].T + b_v[values]
        for i in range(len(x_QD)):
            scores = [float(q_QE[i] @ key) for key in k_KE]  # 2: compare
            scores = [score / math.sqrt(d_k) for score in scores]  # 3: scale
            seen = [bool(allowed) for allowed in allowed_QK[i]]  # 4: mask
            raised = [math.exp(score) if see else 0.0 for score, see in zip(scores, seen, strict=True)]
            weights_HQK[head, i] = torch.tensor(raised) / sum(raised)  # 5: softmax
            answers[i, values] = weights_HQK[head, i] @ v_KE  # 6: gather
    return answers @ attention.output.weight.T + attention.output.bias, weights_HQK


sizes = st.tuples(st.integers(1, 8), st.integers(1, 3), st.integers(1, 5), st.integers(1, 5))


@torch.no_grad()
@given(sizes, st.integers(1, 4), st.integers(1, 5), st.integers(0, 99))
def test_six_steps_by_hand(shape: tuple[int, int, int, int], queries: int, keys: int, seed: int) -> None:
    torch.manual_seed(seed)
    attention = random_attention(*shape)
    x_BQD, memory_BKD = torch.randn(2, queries, shape[0]), torch.randn(2, keys, shape[0])
    allowed_BQK = torch.rand(2, queries, keys) < 0.5
    allowed_BQK[:, :, 0] = True
    found_BQD = attention(x_BQD, attention.keys_values(memory_BKD), Visible(allowed_BQK))
    shown: list[Tensor] = []
    attention.watcher = shown.append
    watched_BQD = attention(x_BQD, attention.keys_values(memory_BKD), Visible(allowed_BQK))
    close(watched_BQD, found_BQD, rtol=1e-5, atol=1e-5)
    for b in range(2):
        answer, weights_HQK = by_hand(attention, x_BQD[b], memory_BKD[b], allowed_BQK[b])
        close(found_BQD[b], answer, rtol=1e-5, atol=1e-5)
        close(shown[0][b], weights_HQK, rtol=1e-5, atol=1e-6)
        assert (shown[0][b].masked_select(~allowed_BQK[b]) == 0).all()


@torch.no_grad()
@pytest.mark.parametrize("visible", [Visible(), Visible(is_causal=True)])
def test_masks_without_a_matrix_mean_what_their_matrix_says(visible: Visible) -> None:
    torch.manual_seed(0)
    attention = random_attention(8, 2, 3, 5)
    x_BTD = torch.randn(2, 5, 8)
    kv = attention.keys_values(x_BTD)
    matrix_QK = torch.ones(5, 5, dtype=torch.bool)
    matrix_QK = matrix_QK.tril() if visible.is_causal else matrix_QK
    wanted_BQD = attention(x_BTD, kv, Visible(matrix_QK.expand(2, 5, 5)))
    close(attention(x_BTD, kv, visible), wanted_BQD)
    attention.watcher = lambda weights: close(weights.sum(dim=-1), torch.ones(2, 2, 5))
    close(attention(x_BTD, kv, visible), wanted_BQD)


def like_torch(attention: Attention) -> nn.MultiheadAttention:
    """torch's attention with the same weights; it knows only d_k = d_v = d_model / heads."""
    d_model = attention.query.in_features
    other = nn.MultiheadAttention(d_model, attention.heads, batch_first=True)
    assert other.in_proj_weight is not None
    with torch.no_grad():
        other.in_proj_weight.copy_(torch.cat([attention.query.weight, attention.key_value.weight]))
        other.in_proj_bias.copy_(torch.cat([attention.query.bias, attention.key_value.bias]))
        other.out_proj.weight.copy_(attention.output.weight)
        other.out_proj.bias.copy_(attention.output.bias)
    return other


@given(st.sampled_from([(8, 1), (8, 2), (12, 3)]), st.integers(1, 5), st.integers(1, 6), st.integers(0, 99))
def test_torch_agrees(shape: tuple[int, int], queries: int, keys: int, seed: int) -> None:
    torch.manual_seed(seed)
    d_model, heads = shape
    attention = random_attention(d_model, heads, d_model // heads, d_model // heads)
    x_BQD, memory_BKD = torch.randn(2, queries, d_model), torch.randn(2, keys, d_model)
    padding_BK = torch.arange(keys) >= torch.tensor([[keys], [1]])
    wanted_BQD, wanted_BHQK = like_torch(attention)(
        x_BQD, memory_BKD, memory_BKD, key_padding_mask=padding_BK, average_attn_weights=False
    )
    shown: list[Tensor] = []
    attention.watcher = shown.append
    allowed_BQK = ~padding_BK[:, None].expand(2, queries, keys)
    found_BQD = attention(x_BQD, attention.keys_values(memory_BKD), Visible(allowed_BQK))
    close(found_BQD, wanted_BQD, rtol=1e-5, atol=1e-5)
    close(shown[0], wanted_BHQK, rtol=1e-5, atol=1e-6)


def test_heads_keys_and_values_have_free_sizes() -> None:
    attention = Attention(d_model=6, heads=5, d_k=2, d_v=7)
    kv = attention.keys_values(torch.randn(3, 4, 6))
    assert kv.keys_BHKE.shape == (3, 5, 4, 2)
    assert kv.values_BHKE.shape == (3, 5, 4, 7)
    assert attention(torch.randn(3, 2, 6), kv, Visible()).shape == (3, 2, 6)
    matrices, biases = 6 * 5 * (2 + 2 + 7 + 7), 5 * (2 + 2 + 7) + 6
    assert sum(parameter.numel() for parameter in attention.parameters()) == matrices + biases


@torch.no_grad()
@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 99))
def test_kept_keys_are_as_good_as_new_ones(past: int, new: int, seed: int) -> None:
    torch.manual_seed(seed)
    attention = random_attention(8, 2, 3, 5)
    x_BTD = torch.randn(2, past + new, 8)
    kept = attention.keys_values(x_BTD[:, :past]).extend(attention.keys_values(x_BTD[:, past:]))
    places = Places.whole(torch.zeros(2, past + new))
    newest = Places.whole(torch.zeros(2, new), first=past)
    causal = Mask(causal=True)
    found_BQD = attention(x_BTD[:, past:], kept, causal.visible(newest, places))
    wanted_BTD = attention(x_BTD, attention.keys_values(x_BTD), causal.visible(places, places))
    close(found_BQD, wanted_BTD[:, past:], rtol=1e-5, atol=1e-5)


def test_extend_puts_the_new_behind_and_leaves_the_old_alone() -> None:
    old = KeyValue(torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 6))
    new = KeyValue(torch.randn(2, 3, 1, 5), torch.randn(2, 3, 1, 6))
    keys, values = old.keys_BHKE.clone(), old.values_BHKE.clone()
    both = old.extend(new)
    assert torch.equal(both.keys_BHKE[:, :, :4], keys)
    assert torch.equal(both.keys_BHKE[:, :, 4:], new.keys_BHKE)
    assert torch.equal(both.values_BHKE[:, :, :4], values)
    assert torch.equal(both.values_BHKE[:, :, 4:], new.values_BHKE)
    assert torch.equal(old.keys_BHKE, keys)
    assert torch.equal(old.values_BHKE, values)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=5))
def test_select_takes_rows(rows: list[int]) -> None:
    kv = KeyValue(torch.randn(3, 2, 4, 5), torch.randn(3, 2, 4, 6))
    chosen = kv.select(torch.tensor(rows))
    for new, old in enumerate(rows):
        assert torch.equal(chosen.keys_BHKE[new], kv.keys_BHKE[old])
        assert torch.equal(chosen.values_BHKE[new], kv.values_BHKE[old])


def test_equal_keys_share_the_weight() -> None:
    weights_BHQK = attention_weights(torch.ones(1, 1, 1, 2), torch.ones(1, 1, 4, 2), Visible())
    close(weights_BHQK, torch.full((1, 1, 1, 4), 0.25))


def test_scores_are_scaled_by_the_size_of_a_key() -> None:
    query, keys = torch.ones(1, 1, 1, 16), torch.stack([torch.ones(16), torch.zeros(16)])[None, None]
    weights = attention_weights(query, keys, Visible())[0, 0, 0]
    close(weights[0] / weights[1], torch.tensor(math.exp(16 / 4)))


class Biased(PositionScheme):
    """Turns nothing and adds what it was given."""

    def __init__(self, bias_BHQK: Tensor) -> None:
        super().__init__()
        self.bias_BHQK = bias_BHQK

    def forward(self, query_BHQE: Tensor, keys_BHKE: Tensor, visible: Visible) -> tuple[Tensor, Tensor, Tensor]:
        return 2 * query_BHQE, 3 * keys_BHKE, self.bias_BHQK


@torch.no_grad()
@pytest.mark.parametrize("visible", [Visible(), Visible(is_causal=True), Visible(torch.rand(2, 4, 4).argsort() < 2)])
def test_a_position_scheme_has_its_say(visible: Visible) -> None:
    """What it turns and adds is used, inside the mask, by the fused kernel and by the watched path alike."""
    torch.manual_seed(0)
    attention = random_attention(8, 2, 3, 5)
    x_BTD, bias_BHQK = torch.randn(2, 4, 8), torch.randn(2, 2, 4, 4)
    attention.positions = Biased(bias_BHQK)
    kv = attention.keys_values(x_BTD)
    query_BHQE = attention.query(x_BTD).unflatten(-1, (2, 3)).transpose(1, 2)
    scores_BHQK = 6 * query_BHQE @ kv.keys_BHKE.transpose(-2, -1) / math.sqrt(3) + bias_BHQK
    scores_BHQK = scores_BHQK.masked_fill(~visible.dense(scores_BHQK)[:, None], -math.inf)
    wanted_BQD = attention.output((scores_BHQK.softmax(dim=-1) @ kv.values_BHKE).transpose(1, 2).flatten(2))
    close(attention(x_BTD, kv, visible), wanted_BQD, rtol=1e-5, atol=1e-5)
    attention.watcher = lambda weights_BHQK: close(weights_BHQK, scores_BHQK.softmax(dim=-1))
    close(attention(x_BTD, kv, visible), wanted_BQD, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("watched", [True, False])
def test_a_query_that_sees_nothing_gathers_nothing(watched: bool) -> None:
    attention = random_attention(8, 2, 3, 5)
    attention.watcher = (lambda weights_BHQK: None) if watched else None
    x_BTD = torch.randn(1, 2, 8, requires_grad=True)
    allowed_BQK = torch.tensor([[[True, False], [False, False]]])
    found_BQD = attention(x_BTD, attention.keys_values(x_BTD), Visible(allowed_BQK))
    close(found_BQD[0, 1], attention.output.bias)
    found_BQD.sum().backward()
    assert x_BTD.grad is not None
    assert x_BTD.grad.isfinite().all()


@torch.no_grad()
def test_joined_it_gathers_the_same() -> None:
    attention = random_attention(12, 2, 3, 5)
    x_BTD, visible = torch.randn(2, 4, 12), Visible(torch.rand(2, 4, 4) < 0.7)
    kv, nothing = attention.project(x_BTD, visible)
    assert nothing is None
    wanted_BTD = attention(x_BTD, kv, visible)
    attention.join()
    kv, query_BTD = attention.project(x_BTD, visible)
    torch.testing.assert_close(attention(x_BTD, kv, visible, query_BTD), wanted_BTD)
    in_numbers_BTD = attention(x_BTD, kv, visible.in_numbers(torch.float32), query_BTD)
    torch.testing.assert_close(in_numbers_BTD, wanted_BTD)
    assert sum(parameter.numel() for parameter in attention.parameters()) == 13 * 2 * (3 + 3 + 5) + 12 * (2 * 5 + 1)


# ---- normed queries and keys


def rms(x_E: Tensor, gain_E: Tensor, epsilon: float) -> Tensor:
    return x_E / math.sqrt(float((x_E * x_E).sum()) / len(x_E) + epsilon) * gain_E


@torch.no_grad()
@pytest.mark.parametrize("joined", [False, True])
def test_normed_it_compares_normed_queries_with_normed_keys(joined: bool) -> None:
    """Weights as they are watched, token by token and head by head; after `join`, too."""
    torch.manual_seed(0)
    epsilon = 0.3  # large enough to be seen
    attention = random_attention(6, 2, 3, 5, epsilon)
    assert attention.query_norm is not None
    assert attention.key_norm is not None
    x_BTD = torch.randn(2, 4, 6)
    query_BTD, keys_BTD = attention.query(x_BTD), attention.key_value(x_BTD)[..., :6]
    wanted_BHQK = torch.zeros(2, 2, 4, 4)
    for b, h, q in torch.cartesian_prod(*(torch.arange(size) for size in (2, 2, 4))).tolist():
        one = slice(3 * h, 3 * h + 3)
        query_E = rms(query_BTD[b, q, one], attention.query_norm.weight, epsilon)
        keys = [rms(keys_BTD[b, k, one], attention.key_norm.weight, epsilon) for k in range(4)]
        wanted_BHQK[b, h, q] = torch.stack([query_E @ key_E / math.sqrt(3) for key_E in keys]).softmax(0)
    if joined:
        attention.join()
    kv, query_BTD = attention.project(x_BTD, Visible())
    found_BTD = attention(x_BTD, kv, Visible(), query_BTD)
    shown: list[Tensor] = []
    attention.watcher = shown.append
    close(attention(x_BTD, kv, Visible(), query_BTD), found_BTD)
    close(shown[0], wanted_BHQK, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_however_large_the_matrices_gains_bound_the_scores() -> None:
    attention = random_attention(8, 2, 4, 4, 1e-5)
    for linear in (attention.query, attention.key_value):
        linear.weight.mul_(1e4)
    x_BTD = torch.randn(2, 5, 8)
    query_BHQE, keys_BHKE = attention.queries(attention.query(x_BTD)), attention.keys_values(x_BTD).keys_BHKE
    assert attention.query_norm is not None
    assert attention.key_norm is not None
    bound = math.sqrt(4) * attention.query_norm.weight.abs().max() * attention.key_norm.weight.abs().max()
    scores_BHQK = query_BHQE @ keys_BHKE.mT / math.sqrt(4)
    assert 0 < scores_BHQK.abs().max() <= 1.0001 * bound


def test_without_norms_there_is_nothing_new() -> None:
    plain = {"query.weight", "query.bias", "key_value.weight", "key_value.bias", "output.weight", "output.bias"}
    assert Attention(6, 2, 3, 3).state_dict().keys() == plain
    normed = Attention(6, 2, 3, 3, norm_epsilon=1e-5).state_dict()
    assert normed.keys() == plain | {"query_norm.weight", "key_norm.weight"}
    assert normed["key_norm.weight"].shape == (3,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_normed_queries_and_keys_keep_the_precision_they_came_in(dtype: torch.dtype) -> None:
    """What is kept must be of one type: keys, values, and the memory they are written to."""
    attention = random_attention(6, 2, 4, 4, 1e-5)
    x_BTD = torch.randn(1, 3, 6)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        kv = attention.keys_values(x_BTD)
        query_BHQE = attention.queries(attention.query(x_BTD))
        attention(x_BTD, kv, Visible()).sum().backward()
    assert kv.keys_BHKE.dtype == kv.values_BHKE.dtype == query_BHQE.dtype == dtype
    assert attention.key_norm is not None
    assert attention.key_norm.weight.grad is not None
