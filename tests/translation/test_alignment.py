"""Which source token a target token looked at."""

from __future__ import annotations

import pytest
import torch

from regard.batch import Batch, Tokens
from regard.decoding.penalties import aligning_layer
from regard.translation.alignment import STRONG, align, aligning_attention
from regard.viewing.capture import watching
from tests.contracts.cases import SPECIALS
from tests.contracts.zoo import ZOO

SOURCES = [[5, 6, 7, 8, SPECIALS.end], [4, SPECIALS.end]]
TARGETS = [[6, 5, 4], [7]]


def test_links_are_the_mean_of_the_heads_of_one_layer() -> None:
    model = ZOO["transformer"].model(12, 1)
    found = align(model, SOURCES, TARGETS, SPECIALS)
    for source, target, links in zip(SOURCES, TARGETS, found, strict=True):
        read = Tokens.whole(torch.tensor([source]))
        fed = Tokens.whole(torch.tensor([[SPECIALS.start, *target]]))
        with watching(model) as seen, torch.no_grad():
            model(Batch(read, fed, fed.ids_BT))
        weights_TS = seen["decoder.1.cross_attention"][0].mean(dim=0)[: len(target), : len(source) - 1]
        weights = {(i, j): weight for i, j, weight in links}
        for j, row in enumerate(weights_TS.tolist()):
            for i, weight in enumerate(row):
                if weight > STRONG + 1e-4 or weight == max(row):
                    assert weights.pop((i, j)) == pytest.approx(weight, abs=1e-4)
        assert weights == {}
    assert all(module.watcher is None for module in model.modules() if hasattr(module, "watcher"))


def test_the_last_layer_but_one_aligns_and_of_two_the_last() -> None:
    assert [aligning_layer(layers) for layers in (1, 2, 3, 6)] == [0, 1, 1, 4]


@pytest.mark.parametrize(
    ("name", "aligned"),
    [("transformer", True), ("recurrent", True), ("convs2s", True), ("bytenet", False), ("recurrent-last", False)],
)
def test_every_kind_of_attention_aligns_and_none_aligns_nothing(name: str, aligned: bool) -> None:
    model = ZOO[name].model(12, 1)
    found = align(model, SOURCES, TARGETS, SPECIALS)
    assert (aligning_attention(model) is not None) == aligned
    assert [{j for _, j, _ in links} for links in found] == ([{0, 1, 2}, {0}] if aligned else [set(), set()])
    assert align(model, [], [], SPECIALS) == []
    assert align(model, [[SPECIALS.end]], [[]], SPECIALS) == [()]
