"""The wiring of encoder and decoder layers, followed by hand.

Shapes: B rows, S source tokens, T target tokens, D model.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from regard.batch import Places
from regard.layers.attention import Attention
from regard.layers.block import DecoderLayer, EncoderLayer, Norm, Residual
from regard.layers.mask import Mask, Visible
from regard.layers.positions import RotaryPositions
from regard.models.transformer import TransformerSettings

SIZES = TransformerSettings(d_model=8, d_ff=12, heads=2, d_k=3, d_v=5, dropout=0.4).layer_sizes()
NORMS: list[Norm] = ["post", "pre"]

close = torch.testing.assert_close


def shake(module: nn.Module) -> None:
    """Random numbers everywhere, so that two norms, or a norm and no norm, can be told apart."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)


def attend(attention: Attention, x: Tensor, memory: Tensor, visible: Visible) -> Tensor:
    answer: Tensor = attention(x, attention.keys_values(memory), visible)
    return answer


@pytest.mark.parametrize("norm", NORMS)
def test_encoder_layer(norm: Norm) -> None:
    torch.manual_seed(0)
    layer = EncoderLayer(replace(SIZES, norm=norm)).eval()
    shake(layer)
    x = torch.randn(2, 4, 8)
    visible = Visible(torch.rand(2, 4, 4).argsort() < 3)
    first, second = layer.around_attention.norm, layer.around_feedforward.norm
    if norm == "post":
        y = first(x + attend(layer.attention, x, x, visible))
        y = second(y + layer.feedforward(y))
    else:
        y = x + attend(layer.attention, first(x), first(x), visible)
        y = y + layer.feedforward(second(y))
    found, _ = layer(x, visible)
    close(found, y)


@pytest.mark.parametrize("norm", NORMS)
def test_encoder_layer_goes_on_from_a_past(norm: Norm) -> None:
    torch.manual_seed(0)
    layer = EncoderLayer(replace(SIZES, norm=norm)).eval()
    x_BTD = torch.randn(2, 4, 8)
    wanted_BTD, full = layer(x_BTD, Visible(is_causal=True))
    first_BTD, past = layer(x_BTD[:, :3], Visible(is_causal=True))
    last_BTD, kept = layer(x_BTD[:, 3:], Visible(), past)
    close(torch.cat([first_BTD, last_BTD], dim=1), wanted_BTD)
    close(kept.values_BHKE, full.values_BHKE)


def test_only_attention_to_oneself_minds_distances() -> None:
    layer = DecoderLayer(replace(SIZES, d_k=4, positions="rotary"))
    assert isinstance(layer.attention.positions, RotaryPositions)
    assert layer.cross_attention.positions is None
    assert DecoderLayer(SIZES).attention.positions is None


@pytest.mark.parametrize("norm", NORMS)
def test_decoder_layer(norm: Norm) -> None:
    torch.manual_seed(0)
    layer = DecoderLayer(replace(SIZES, norm=norm)).eval()
    shake(layer)
    x, source = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    past, seen = Visible(is_causal=True), Visible(torch.rand(2, 3, 5).argsort() < 4)
    norms = [layer.around_attention.norm, layer.around_cross_attention.norm, layer.around_feedforward.norm]
    if norm == "post":
        y = norms[0](x + attend(layer.attention, x, x, past))
        y = norms[1](y + attend(layer.cross_attention, y, source, seen))
        y = norms[2](y + layer.feedforward(y))
    else:
        y = x + attend(layer.attention, norms[0](x), norms[0](x), past)
        # The source is the encoder's finished answer; only what attends to it is normalised here.
        y = y + attend(layer.cross_attention, norms[1](y), source, seen)
        y = y + layer.feedforward(norms[2](y))
    found, _ = layer(x, layer.remember(source), past, seen)
    close(found, y)


@pytest.mark.parametrize("norm", NORMS)
def test_decoder_layer_goes_on_from_its_memory(norm: Norm) -> None:
    torch.manual_seed(0)
    layer = DecoderLayer(replace(SIZES, norm=norm)).eval()
    x_BTD, source_BSD = torch.randn(2, 5, 8), torch.randn(2, 3, 8)
    begun = layer.remember(source_BSD)
    assert begun.past is None
    wanted_BTD, full = layer(x_BTD, begun, Visible(is_causal=True), Visible())
    found, memory = [], begun
    places = Places.whole(torch.zeros(2, 5))
    for first, last in [(0, 2), (2, 3), (3, 5)]:
        queries = Places.whole(torch.zeros(2, last - first), first)
        keys = replace(places, positions_BT=places.positions_BT[:, :last])
        visible = Mask(causal=True).visible(queries, keys)
        y_BTD, memory = layer(x_BTD[:, first:last], memory, visible, Visible())
        found.append(y_BTD)
    close(torch.cat(found, dim=1), wanted_BTD)
    assert memory.past is not None
    assert full.past is not None
    close(memory.past.keys_BHKE, full.past.keys_BHKE)
    assert memory.source is begun.source


def test_memory_selects_both_its_halves() -> None:
    layer = DecoderLayer(SIZES).eval()
    begun = layer.remember(torch.randn(3, 4, 8))
    rows = torch.tensor([2, 0, 2])
    assert begun.select(rows, rows).past is None
    _, memory = layer(torch.randn(3, 2, 8), begun, Visible(is_causal=True), Visible())
    sentences = torch.tensor([1, 2])
    chosen = memory.select(rows, sentences)
    assert torch.equal(chosen.source.keys_BHKE, memory.source.keys_BHKE[sentences])
    assert torch.equal(chosen.past.values_BHKE, memory.past.values_BHKE[rows])
    assert memory.select(rows, None).source is memory.source


@pytest.mark.parametrize("norm", NORMS)
def test_dropout_falls_on_the_sublayer_not_on_the_road_around_it(norm: Norm) -> None:
    residual = Residual(replace(SIZES, d_model=100, dropout=0.5, norm=norm)).train()
    torch.manual_seed(0)
    x, y = torch.ones(1, 1, 100), torch.ones(1, 1, 100)
    left = residual.leave(x, y)
    torch.manual_seed(0)
    joined = x + residual.dropout(y)
    assert set(joined.flatten().tolist()) == {1.0, 3.0}
    close(left, joined if norm == "pre" else residual.norm(joined))


def test_every_sublayer_has_its_dropout() -> None:
    for layer, sublayers in [(EncoderLayer(SIZES), 2), (DecoderLayer(SIZES), 3)]:
        dropouts = [module.p for module in layer.modules() if isinstance(module, nn.Dropout)]
        assert dropouts == [0.4] * sublayers
