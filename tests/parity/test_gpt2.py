"""Our GPT against transformers' GPT-2, with the same random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from regard.batch import Batch, Places, Tokens
from regard.interop.tensors import Tensors
from regard.interop.weights import gpt2_in
from regard.models.gpt import GPT, GPTSettings
from regard.recipe import load_recipe

transformers = pytest.importorskip("transformers")


def pair(layers: int, d_model: int, heads: int, vocabulary: int, positions: int) -> tuple[GPT, Any]:
    """A GPT-2 of theirs and one of ours with its weights."""
    config = transformers.GPT2Config(
        n_layer=layers, n_embd=d_model, n_head=heads, vocab_size=vocabulary, n_positions=positions,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    theirs = transformers.GPT2LMHeadModel(config).eval()
    # Their biases start at zero, and zero would hide one that is read from the wrong place.
    for name, weight in theirs.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(weight, std=0.1)
    settings = GPTSettings(layers=layers, d_model=d_model, d_ff=4 * d_model, heads=heads, max_positions=positions)
    # Ours gets no memory of its own, but theirs: so the largest model fits where one copy of it does.
    with torch.device("meta"):
        ours = GPT(settings, vocabulary).eval()
    tensors = Tensors(theirs.state_dict(), Path("theirs"))
    ours.load_state_dict(gpt2_in(tensors, settings, vocabulary), assign=True)
    return ours, theirs


@pytest.fixture(scope="module")
def small() -> tuple[GPT, Any]:
    torch.manual_seed(0)
    return pair(layers=3, d_model=48, heads=4, vocabulary=97, positions=64)


@torch.inference_mode()
def test_logits_agree(small: tuple[GPT, Any]) -> None:
    ours, theirs = small
    ids = torch.randint(97, (3, 64))
    torch.testing.assert_close(ours(Batch(None, Tokens.whole(ids), ids)), theirs(ids).logits, atol=1e-5, rtol=0)


@torch.inference_mode()
def test_padded_rows_agree(small: tuple[GPT, Any]) -> None:
    ours, theirs = small
    ids = torch.randint(97, (2, 10))
    real = torch.tensor([[1] * 10, [1] * 6 + [0] * 4])
    positions = (torch.arange(10) * real).long()
    mine = ours(Batch(None, Tokens(ids, Places(positions, real)), ids))
    wanted = theirs(ids, attention_mask=real, position_ids=positions).logits
    torch.testing.assert_close(mine[real == 1], wanted[real == 1], atol=1e-5, rtol=0)


@torch.inference_mode()
def test_steps_agree_with_their_cache(small: tuple[GPT, Any]) -> None:
    ours, theirs = small
    ids = torch.randint(97, (2, 12))
    _, state = ours.step(ids[:, :5], ours.start(None, 2))
    past = theirs(ids[:, :5], use_cache=True).past_key_values
    for place in range(5, 12):
        token = ids[:, place : place + 1]
        mine, state = ours.step(token, state)
        answer = theirs(token, past_key_values=past, use_cache=True)
        past = answer.past_key_values
        torch.testing.assert_close(mine, answer.logits[:, -1], atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"])
@torch.inference_mode()
def test_published_sizes_agree(preset: str) -> None:
    torch.manual_seed(0)
    settings = load_recipe(preset).model
    assert isinstance(settings, GPTSettings)
    ours, theirs = pair(settings.layers, settings.d_model, settings.heads, 50_257, 1024)
    ids = torch.randint(50_257, (1, 40))
    torch.testing.assert_close(ours(Batch(None, Tokens.whole(ids), ids)), theirs(ids).logits, atol=1e-4, rtol=0)
