"""What enters the first layer: scaled embeddings plus positions.

Shapes: B rows, T tokens, D model.
"""

from __future__ import annotations

import math

import pytest
import torch

from regard.batch import Places, Tokens
from regard.layers.embedding import Embedding
from regard.layers.positions import LearnedPositions, PositionKind, SinusoidalPositions

TOKENS = Tokens(torch.tensor([[5, 3, 5], [0, 1, 1]]), Places(torch.tensor([[0, 1, 2], [0, 1, 0]])))


def test_scaled_by_the_root_of_d_model_plus_positions() -> None:
    embedding = Embedding(vocabulary=6, d_model=9, dropout=0.5).eval()
    found_BTD = embedding(TOKENS)
    waves_BTD = SinusoidalPositions(9)(TOKENS.places.positions_BT)
    for b, t in [(0, 0), (0, 2), (1, 1)]:
        wanted_D = embedding.weight_VD[TOKENS.ids_BT[b, t]] * 3
        torch.testing.assert_close(found_BTD[b, t], wanted_D + waves_BTD[b, t])


def test_the_same_token_differs_by_its_position_only() -> None:
    x_BTD = Embedding(vocabulary=6, d_model=8, dropout=0.0)(TOKENS)
    waves_BTD = SinusoidalPositions(8)(TOKENS.places.positions_BT)
    torch.testing.assert_close(x_BTD[0, 2] - x_BTD[0, 0], waves_BTD[0, 2] - waves_BTD[0, 0])


@pytest.mark.parametrize("kind", ["rotary", "relative", "alibi"])
def test_positions_inside_attention_add_nothing_here(kind: PositionKind) -> None:
    embedding = Embedding(vocabulary=6, d_model=9, dropout=0.0, positions=kind)
    torch.testing.assert_close(embedding(TOKENS), embedding.weight_VD[TOKENS.ids_BT] * 3)


def test_learned_positions_and_no_scale() -> None:
    embedding = Embedding(6, d_model=9, dropout=0.0, positions="learned", max_positions=3, scaled=False)
    assert isinstance(embedding.positions, LearnedPositions)
    learned_BTD = embedding.positions.table.weight[TOKENS.places.positions_BT]
    torch.testing.assert_close(embedding(TOKENS), embedding.weight_VD[TOKENS.ids_BT] + learned_BTD)


def test_dropout_falls_on_the_sum() -> None:
    torch.manual_seed(0)
    embedding = Embedding(vocabulary=6, d_model=200, dropout=0.5)
    dropped_BTD, kept_BTD = embedding.train()(TOKENS), embedding.eval()(TOKENS)
    zero = dropped_BTD == 0
    assert 0.4 < zero.float().mean() < 0.6
    torch.testing.assert_close(dropped_BTD[~zero], 2 * kept_BTD[~zero])


def test_a_fresh_embedding_enters_with_unit_variance() -> None:
    torch.manual_seed(0)
    embedding = Embedding(vocabulary=400, d_model=64, dropout=0.0)
    spread = embedding.weight_VD.std().item()
    assert math.isclose(spread, 64**-0.5, rel_tol=0.05)
