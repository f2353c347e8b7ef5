"""Our Transformer against transformers' MarianMT, with the same random weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.batch import Batch, Tokens
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
    state = {"embedding.table.weight": theirs.model.shared.weight}
    for stack, layers in (("encoder.layers", theirs.model.encoder.layers), ("decoder", theirs.model.decoder.layers)):
        for number, layer in enumerate(layers):
            state |= layer_state(f"{stack}.{number}", layer)
    ours.load_state_dict(state)
    # Marian's waves stand as [sines | cosines]; ours alternate, as the paper writes them.
    ours.embedding.positions = HalvedWaves(ours.embedding.positions)
    return ours, theirs


class HalvedWaves(torch.nn.Module):
    """The same waves, all sines before all cosines."""

    def __init__(self, waves: torch.nn.Module | None) -> None:
        super().__init__()
        assert waves is not None
        self.waves = waves

    def forward(self, positions_BT: torch.Tensor) -> torch.Tensor:
        waves_BTD = self.waves(positions_BT)
        return torch.cat([waves_BTD[..., 0::2], waves_BTD[..., 1::2]], dim=-1)


def layer_state(ours: str, layer: Any) -> dict[str, torch.Tensor]:
    state = {}
    attentions = {"attention": (layer.self_attn, layer.self_attn_layer_norm)}
    if hasattr(layer, "encoder_attn"):
        attentions["cross_attention"] = (layer.encoder_attn, layer.encoder_attn_layer_norm)
    for name, (attention, norm) in attentions.items():
        for part in ("weight", "bias"):
            keys_values = [getattr(linear, part) for linear in (attention.k_proj, attention.v_proj)]
            state[f"{ours}.{name}.query.{part}"] = getattr(attention.q_proj, part)
            state[f"{ours}.{name}.key_value.{part}"] = torch.cat(keys_values)
            state[f"{ours}.{name}.output.{part}"] = getattr(attention.out_proj, part)
            state[f"{ours}.around_{name}.norm.{part}"] = getattr(norm, part)
    for part in ("weight", "bias"):
        state[f"{ours}.feedforward.inner.{part}"] = getattr(layer.fc1, part)
        state[f"{ours}.feedforward.outer.{part}"] = getattr(layer.fc2, part)
        state[f"{ours}.around_feedforward.norm.{part}"] = getattr(layer.final_layer_norm, part)
    return state


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
