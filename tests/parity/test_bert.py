"""Our BERT against transformers' BertForMaskedLM, with the same random weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.batch import Places, Tokens
from regard.models.bert import Bert, BertSettings

transformers = pytest.importorskip("transformers")

VOCABULARY, WIDTH, LAYERS = 41, 24, 3


def ours_of(theirs: Any, settings: BertSettings) -> Bert:
    """Ours with their weights. Their segments are one: its vector belongs to every position."""
    state = {name.removeprefix("bert."): weight for name, weight in theirs.state_dict().items()}
    ours = Bert(settings, VOCABULARY)
    body = "body.embedding."
    found: dict[str, Tensor] = {
        # Behind the vocabulary, ours has the mask; theirs is one of the words.
        f"{body}table.weight": torch.cat([state["embeddings.word_embeddings.weight"], torch.randn(1, WIDTH)]),
        f"{body}positions.table.weight": state["embeddings.position_embeddings.weight"]
        + state["embeddings.token_type_embeddings.weight"][0],
        f"{body}norm.weight": state["embeddings.LayerNorm.weight"],
        f"{body}norm.bias": state["embeddings.LayerNorm.bias"],
        "output_bias_V": state["cls.predictions.bias"],
    }
    for kind in ("weight", "bias"):
        found[f"transform.{kind}"] = state[f"cls.predictions.transform.dense.{kind}"]
        found[f"norm.{kind}"] = state[f"cls.predictions.transform.LayerNorm.{kind}"]
        for number in range(LAYERS):
            mine, other = f"body.encoder.layers.{number}.", f"encoder.layer.{number}."
            names = {
                "attention.query": "attention.self.query",
                "attention.output": "attention.output.dense",
                "around_attention.norm": "attention.output.LayerNorm",
                "feedforward.inner": "intermediate.dense",
                "feedforward.outer": "output.dense",
                "around_feedforward.norm": "output.LayerNorm",
            }
            found |= {f"{mine}{here}.{kind}": state[f"{other}{there}.{kind}"] for here, there in names.items()}
            pair = [state[f"{other}attention.self.{part}.{kind}"] for part in ("key", "value")]
            found[f"{mine}attention.key_value.{kind}"] = torch.cat(pair)
    ours.load_state_dict(found)
    return ours.eval()


@pytest.fixture(scope="module")
def pair() -> tuple[Bert, Any]:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=3,
        intermediate_size=40, max_position_embeddings=20,
    )  # fmt: skip
    theirs = transformers.BertForMaskedLM(config).eval()
    with torch.no_grad():
        for weight in theirs.parameters():  # theirs begin with zeros and ones, which would hide one that is mixed up
            weight.add_(0.1 * torch.randn_like(weight))
    sizes = BertSettings(layers=LAYERS, d_model=WIDTH, heads=3, d_ff=40, max_positions=20)
    return ours_of(theirs, sizes), theirs


@torch.inference_mode()
def test_scores_agree(pair: tuple[Bert, Any]) -> None:
    ours, theirs = pair
    ids = torch.randint(VOCABULARY, (3, 20))
    torch.testing.assert_close(ours(Tokens.whole(ids)), theirs(ids).logits, atol=1e-5, rtol=0)


@torch.inference_mode()
def test_scores_of_padded_rows_agree(pair: tuple[Bert, Any]) -> None:
    ours, theirs = pair
    ids, real = torch.randint(VOCABULARY, (2, 9)), torch.tensor([[1] * 9, [1] * 5 + [0] * 4])
    mine = ours(Tokens(ids, Places(torch.arange(9).expand(2, -1), real)))
    wanted = theirs(ids, attention_mask=real).logits
    torch.testing.assert_close(mine[real == 1], wanted[real == 1], atol=1e-5, rtol=0)
