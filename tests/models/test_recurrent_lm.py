"""A recurrent language model that reads on from batch to batch."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from regard.batch import Batch, Tokens
from regard.models.interface import Carried
from regard.models.recurrent_lm import RecurrentLM, RecurrentLMSettings

SMALL = RecurrentLMSettings(d_model=8, dropout=0.0)


def rows(ids_BT: torch.Tensor) -> Batch:
    return Batch(None, Tokens.whole(ids_BT), ids_BT)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_reading_on_is_reading_all_at_once(cell: str) -> None:
    torch.manual_seed(0)
    model = RecurrentLM(replace(SMALL, cell=cell), 11).eval()  # type: ignore[arg-type]
    ids_BT = torch.randint(3, 11, (2, 12))
    whole_BTD = model.features(rows(ids_BT))
    carried: Carried = {}
    found = []
    for first, last in ((0, 5), (5, 6), (6, 12)):
        features_BTD, carried = model.read_on(rows(ids_BT[:, first:last]), carried)
        found.append(features_BTD)
    torch.testing.assert_close(torch.cat(found, dim=1), whole_BTD)
    assert all(not kept.requires_grad for kept in carried.values())


def test_first_weights_drawn_evenly() -> None:
    torch.manual_seed(0)
    model = RecurrentLM(replace(SMALL, spread=0.05), 50)
    weights = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    assert weights.abs().max() <= 0.05
    assert abs(weights.std().item() - 0.05 / 3**0.5) < 0.002
    with pytest.raises(ValueError, match="`spread` must be positive and finite, but is 0"):
        replace(SMALL, spread=0.0)
