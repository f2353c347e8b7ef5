"""Our XLNet against transformers' XLNetLMHeadModel, with the same random weights and the same orders."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.batch import Batch, Tokens
from regard.models.xlnet import XLNet, XLNetSettings

transformers = pytest.importorskip("transformers")

VOCABULARY, WIDTH, LAYERS, HEADS, LENGTH = 31, 24, 2, 3, 9


def ours_of(theirs: Any) -> XLNet:
    """Ours with their weights. Theirs have no biases in attention; their waves are all sines, then all cosines."""
    state: dict[str, Tensor] = {
        name.removeprefix("transformer."): weight for name, weight in theirs.state_dict().items()
    }
    ours = XLNet(XLNetSettings(layers=LAYERS, d_model=WIDTH, heads=HEADS, d_ff=40), VOCABULARY)
    found = {name: torch.zeros_like(weight) for name, weight in ours.state_dict().items()}
    found["embedding.table.weight"] = state["word_embedding.weight"]
    found["query_D"] = state["mask_emb"][0, 0]
    found["output_bias_V"] = state["lm_loss.bias"]
    for number in range(LAYERS):
        mine, other = f"layers.{number}.", f"layer.{number}."
        query, key, value, waves, output = (state[f"{other}rel_attn.{part}"].flatten(1) for part in "qkvro")
        found[f"{mine}attention.query.weight"] = query.T
        found[f"{mine}attention.key_value.weight"] = torch.cat([key.T, value.T])
        found[f"{mine}attention.output.weight"] = output
        found[f"{mine}attention.positions.key.weight"] = (
            waves.T.unflatten(1, (2, WIDTH // 2)).transpose(1, 2).flatten(1)
        )
        found[f"{mine}attention.positions.content_HE"] = state[f"{other}rel_attn.r_w_bias"]
        found[f"{mine}attention.positions.distance_HE"] = state[f"{other}rel_attn.r_r_bias"]
        for kind in ("weight", "bias"):
            found[f"{mine}around_attention.norm.{kind}"] = state[f"{other}rel_attn.layer_norm.{kind}"]
            found[f"{mine}feedforward.inner.{kind}"] = state[f"{other}ff.layer_1.{kind}"]
            found[f"{mine}feedforward.outer.{kind}"] = state[f"{other}ff.layer_2.{kind}"]
            found[f"{mine}around_feedforward.norm.{kind}"] = state[f"{other}ff.layer_norm.{kind}"]
    ours.load_state_dict(found)
    return ours.eval()


@pytest.fixture(scope="module")
def pair() -> tuple[XLNet, Any]:
    torch.manual_seed(0)
    config = transformers.XLNetConfig(
        vocab_size=VOCABULARY, d_model=WIDTH, n_layer=LAYERS, n_head=HEADS, d_inner=40, ff_activation="gelu"
    )
    theirs = transformers.XLNetLMHeadModel(config).eval()
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return ours_of(theirs), theirs


@torch.inference_mode()
@pytest.mark.parametrize("turns", ["left to right", "any", "known first"])
def test_scores_agree_in_every_order(pair: tuple[XLNet, Any], turns: str) -> None:
    ours, theirs = pair
    # Theirs reads the labels, too; the last of them, which ours does not read, must be seen by nobody there.
    ids = torch.randint(VOCABULARY, (2, LENGTH + 1))
    order = torch.arange(LENGTH).expand(2, -1)
    if turns != "left to right":
        order = torch.stack([torch.cat([torch.randperm(LENGTH - 1), torch.tensor([LENGTH])]) for _ in range(2)])
    if turns == "known first":
        order = (order - 4).clamp(min=0)  # as in training: half of them have the first turn together
    turn = torch.cat([torch.full((2, 1), -1), order], dim=1)
    hidden = turn[:, None, :] >= turn[:, :, None]
    if turns == "known first":
        hidden &= ~((turn[:, None, :] == 0) & (turn[:, :, None] == 0))
    mine = ours(Batch(None, Tokens.whole(ids[:, :-1]), ids[:, 1:], None if turns == "left to right" else order))
    mapping = torch.eye(LENGTH + 1).expand(2, -1, -1)
    wanted = theirs(ids, perm_mask=hidden.float(), target_mapping=mapping).logits[:, 1:]
    asked = order > 0 if turns == "known first" else order >= 0
    torch.testing.assert_close(mine[asked], wanted[asked], atol=2e-5, rtol=0)
