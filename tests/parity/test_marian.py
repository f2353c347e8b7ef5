"""Our Transformer against transformers' MarianMT, with the same random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from regard.batch import Batch, Tokens
from regard.interop.tensors import Tensors
from regard.interop.weights import alternating, bart_layers_in
from regard.models.transformer import Transformer, TransformerSettings

transformers = pytest.importorskip("transformers")

VOCABULARY, PADDING = 89, 88


@pytest.fixture(scope="module")
def pair() -> tuple[Transformer, Any]:
    """A Marian of theirs and a Transformer of ours with its weights."""
    torch.manual_seed(0)
    config = transformers.MarianConfig(
        vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=3, encoder_ffn_dim=48, decoder_ffn_dim=48,
        encoder_attention_heads=4, decoder_attention_heads=4, activation_function="relu", scale_embedding=True,
        max_position_embeddings=64, dropout=0.0, pad_token_id=PADDING, eos_token_id=0, decoder_start_token_id=PADDING,
        forced_eos_token_id=0, num_beams=1,
    )  # fmt: skip
    theirs = transformers.MarianMTModel(config).eval()
    for name, weight in theirs.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(weight, std=0.1)
    settings = TransformerSettings(d_model=32, d_ff=48, heads=4, encoder_layers=2, decoder_layers=3, dropout=0.0)
    ours = Transformer(settings, VOCABULARY).eval()
    tensors = Tensors(theirs.state_dict(), Path("theirs"))
    state = bart_layers_in(tensors, settings) | {"embedding.table.weight": theirs.model.shared.weight}
    ours.load_state_dict(alternating(state, settings.d_model))
    return ours, theirs


@torch.inference_mode()
def test_logits_agree_with_padding(pair: tuple[Transformer, Any]) -> None:
    ours, theirs = pair
    source = Tokens.padded([[5, 6, 7, 8, 9], [10, 11]], PADDING)
    target_ids = torch.randint(1, 80, (2, 7))
    mine = ours(Batch(source, Tokens.whole(target_ids), target_ids))
    real = source.places.segments_BT
    wanted = theirs(input_ids=source.ids_BT, attention_mask=real, decoder_input_ids=target_ids)
    torch.testing.assert_close(mine, wanted.logits - theirs.final_logits_bias, atol=1e-5, rtol=0)


@torch.inference_mode()
def test_steps_agree(pair: tuple[Transformer, Any]) -> None:
    ours, theirs = pair
    source = Tokens.padded([[5, 6, 7, 8, 9], [10, 11]], PADDING)
    target_ids = torch.randint(1, 80, (2, 7))
    wanted = theirs(input_ids=source.ids_BT, attention_mask=source.places.segments_BT, decoder_input_ids=target_ids)
    state = ours.start(source, rows=2)
    for place in range(7):
        mine, state = ours.step(target_ids[:, place : place + 1], state)
        torch.testing.assert_close(mine, wanted.logits[:, place], atol=1e-5, rtol=0)
