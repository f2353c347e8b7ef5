"""The likeliest tokens are those that a softmax over all tokens would find; on a GPU also by the kernels."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.decoding.likeliest import likeliest

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def by_softmax(logits_RV: Tensor, most: int, never: set[int]) -> tuple[Tensor, Tensor]:
    """Of equal scores the lower token first."""
    log_probabilities_RV = logits_RV.double().log_softmax(dim=-1)
    log_probabilities_RV[:, list(never)] = -torch.inf
    values, tokens = log_probabilities_RV.sort(dim=1, descending=True, stable=True)
    return values[:, :most].float(), tokens[:, :most]


@given(st.integers(1, 3), st.integers(1, 9_000), st.integers(1, 12), st.integers(0, 2), st.integers(0, 99))
def test_they_are_those_of_a_softmax(rows: int, vocabulary: int, most: int, banned: int, seed: int) -> None:
    torch.manual_seed(seed)
    logits_RV = 3 * torch.randn(rows, vocabulary)
    never = {0, vocabulary // 2} if banned == 2 else {0} if banned else set()
    wanted_RC, tokens_RC = by_softmax(logits_RV, most, never)
    normalisers_R = logits_RV.logsumexp(dim=-1)
    found = likeliest(logits_RV.clone(), most, never)
    torch.testing.assert_close(found[0], wanted_RC, atol=1e-5, rtol=0)
    torch.testing.assert_close(found[2], normalisers_R)
    possible = wanted_RC > -torch.inf
    assert torch.equal(found[1][possible], tokens_RC[possible])


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("vocabulary", [512, 513, 1_000, 5_000, 32_000, 50_257])
@pytest.mark.parametrize("most", [1, 2, 8, 10, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_find_the_same(vocabulary: int, most: int, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    logits_RV = (3 * torch.randn(37, vocabulary, device="cuda")).to(dtype)
    for never in ({0, vocabulary - 1}, {5}, set[int]()):
        wanted_RC, tokens_RC = by_softmax(logits_RV, most, never)
        values_RC, found_RC, normalisers_R = likeliest(logits_RV.clone(), most, never)
        torch.testing.assert_close(values_RC, wanted_RC, atol=1e-4, rtol=0)
        torch.testing.assert_close(normalisers_R, logits_RV.float().logsumexp(dim=-1), atol=1e-4, rtol=0)
        if most * 64 <= vocabulary:  # smaller ones are torch's business, which promises nothing of ties
            assert torch.equal(found_RC, tokens_RC)  # in bf16 many scores are equal


@gpu
@pytest.mark.gpu
def test_kernels_know_ties_from_nothing_and_nothing_from_no_numbers() -> None:
    equal = torch.zeros(3, 2_001, device="cuda")
    values, tokens, _ = likeliest(equal, 8, {0, 3})
    assert tokens[2].tolist() == [1, 2, 4, 5, 6, 7, 8, 9]
    torch.testing.assert_close(values, torch.full_like(values, -7.6014), atol=1e-3, rtol=0)
    few = torch.full((3, 2_001), -torch.inf, device="cuda")
    few[:, 2_000] = few[:, 7] = 1.0
    values, tokens, _ = likeliest(few, 8, {0, 3})
    assert tokens[0, :2].tolist() == [7, 2_000]
    torch.testing.assert_close(values[:, :2], torch.full_like(values[:, :2], -0.6931), atol=1e-3, rtol=0)
    assert bool((values[:, 2:] == -torch.inf).all())
    broken = torch.randn(3, 2_001, device="cuda")
    broken[1, 5] = torch.nan
    values, tokens, _ = likeliest(broken, 8, set())
    assert values.isnan().all(dim=1).tolist() == [False, True, False]
    assert int(tokens.max()) <= 2_000  # it can be looked up
