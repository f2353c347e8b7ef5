"""BERT: sees both sides, says what is hidden, and does not see what is hidden."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from regard.batch import IGNORED, Batch, Places, Tokens
from regard.errors import UsageError
from regard.models.bert import Bert, BertSettings
from regard.models.build import build
from regard.training.loss import smoothed_cross_entropy

VOCABULARY = 11
SMALL = BertSettings(layers=2, d_model=16, d_ff=24, heads=2, max_positions=12)


@pytest.fixture(scope="module")
def model() -> Bert:
    torch.manual_seed(3)
    found = Bert(SMALL, VOCABULARY).eval()
    with torch.no_grad():
        for weight in found.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return found


def text(length: int = 8) -> Tensor:
    return torch.randint(VOCABULARY, (1, length))


@torch.no_grad()
def test_every_token_sees_both_sides(model: Bert) -> None:
    ids = text()
    wanted = model(Tokens.whole(ids))
    for place in range(8):
        other = ids.clone()
        other[0, place] = (other[0, place] + 1) % VOCABULARY
        assert ((model(Tokens.whole(other)) - wanted).abs().amax(dim=-1) > 1e-6).all()


@torch.no_grad()
def test_what_stands_in_a_gap_is_not_seen(model: Bert) -> None:
    ids, gaps = text(), torch.zeros(1, 8, dtype=torch.bool)
    gaps[0, 3] = True
    other = ids.clone()
    other[0, 3] = (other[0, 3] + 1) % VOCABULARY
    torch.testing.assert_close(*(model.in_gaps(Tokens.whole(each), gaps, 0) for each in (ids, other)), atol=0, rtol=0)
    assert not torch.equal(model.in_gaps(Tokens.whole(ids), gaps, 0), model(Tokens.whole(ids)))


@torch.no_grad()
def test_padding_and_neighbours_in_a_row_are_invisible(model: Bert) -> None:
    one, two = text(4), text(3)
    row = torch.cat([one, two, torch.tensor([[5, 6]])], dim=1)
    places = Places(torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0, 0]]), torch.tensor([[1] * 4 + [2] * 3 + [0] * 2]))
    found = model(Tokens(row, places))
    torch.testing.assert_close(found[:, :4], model(Tokens.whole(one)), atol=1e-5, rtol=0)
    torch.testing.assert_close(found[:, 4:7], model(Tokens.whole(two)), atol=1e-5, rtol=0)


def test_the_loss_is_where_labels_are_and_reaches_every_weight(model: Bert) -> None:
    ids = text()
    labels = torch.full_like(ids, IGNORED)
    labels[0, 2] = 4
    read = torch.where(labels == IGNORED, ids, model.mask)
    model.zero_grad()
    losses = model.losses(Batch(None, Tokens.whole(read), labels), smoothed_cross_entropy(0.0))
    assert (losses[labels == IGNORED] == 0).all()
    wanted = nn.functional.cross_entropy(model(Tokens.whole(read))[:, 2], torch.tensor([4]))
    torch.testing.assert_close(losses[0, 2], wanted)
    losses.sum().backward()
    missed = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert not missed
    assert all(weight.grad.isfinite().all() for weight in model.parameters() if weight.grad is not None)


def test_the_mask_is_read_and_never_said(model: Bert) -> None:
    assert model.mask == VOCABULARY
    assert model(Tokens.whole(torch.tensor([[model.mask, 1]]))).shape == (1, 2, VOCABULARY)


def test_what_it_refuses(model: Bert) -> None:
    ids = text()
    with pytest.raises(UsageError, match="reads one text"):
        model.losses(Batch(Tokens.whole(ids), Tokens.whole(ids), ids), smoothed_cross_entropy(0.0))
    with pytest.raises(UsageError, match="at most 12 tokens"):
        model(Tokens.whole(text(13)))
    with pytest.raises(UsageError, match=r"fills gaps\. Use `fill`"):
        build(SMALL, VOCABULARY)
    with pytest.raises(ValueError, match="`masked` must be above 0 and below 1"):
        replace(SMALL, masked=1.0)
