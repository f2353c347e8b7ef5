"""What divided weights need, on whole ones; tests/training/test_team.py divides them among real processes."""

from __future__ import annotations

import torch

from regard.batch import Specials
from regard.data.batching import collate
from regard.models.build import build
from regard.models.transformer import TransformerSettings
from regard.training.sharding import WholeModel, divided_like, is_sharded, whole

MODEL = TransformerSettings(encoder_layers=1, decoder_layers=1, d_model=16, d_ff=32, heads=2)


def test_a_whole_tensor_is_its_own_whole_and_its_own_slice() -> None:
    tensor = torch.ones(3)
    assert whole(tensor) is tensor
    assert torch.equal(divided_like(tensor, torch.zeros(3)), tensor)
    assert not is_sharded(torch.nn.Linear(2, 2))


def test_a_second_model_holds_weights_only_while_it_is_read() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build(MODEL, 20).eval()
    batch = collate([([4, 5], [6]), ([7], [8, 9])], Specials(padding=0, start=1, end=2))
    second = WholeModel(model)
    for _ in range(2):
        with torch.no_grad():
            next(model.parameters()).add_(0.01)
        with second.filled(model) as filled:
            assert filled is not model
            assert torch.equal(filled(batch), model(batch))
        assert {weight.device.type for weight in filled.parameters()} == {"meta"}
    assert model(batch).requires_grad
