"""The Transformer against torch.nn.Transformer with the same weights: post-norm and pre-norm, padded, forth and back.

Shapes: B rows, S source tokens, T target tokens, D model.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from regard.batch import Batch, Tokens
from regard.layers.attention import Attention
from regard.layers.block import DecoderLayer, EncoderLayer, Norm, Residual
from regard.models.transformer import Transformer, TransformerSettings

SOURCES = [[3, 4, 5, 6, 7], [8, 9], [4, 4, 3]]
TARGETS = [[1, 5, 9], [1, 3, 4, 8, 8, 6], [1]]


def ours(norm: Norm) -> Transformer:
    settings = TransformerSettings(encoder_layers=3, decoder_layers=2, d_model=24, d_ff=40, heads=4, norm=norm)
    model = Transformer(settings, vocabulary=10).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # No parameter stays at zero or one, so that none can be forgotten or exchanged unseen.
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def theirs(model: Transformer) -> nn.Transformer:
    """torch's Transformer with the weights of `model`; without embeddings, which it does not have."""
    chosen = model.settings
    d_model, heads, d_ff = chosen.d_model, chosen.heads, chosen.d_ff
    pre = chosen.norm == "pre"
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(d_model, heads, d_ff, dropout=0.0, batch_first=True, norm_first=pre),
        chosen.encoder_layers,
        nn.LayerNorm(d_model) if pre else None,
        enable_nested_tensor=False,
    )
    decoder = nn.TransformerDecoder(
        nn.TransformerDecoderLayer(d_model, heads, d_ff, dropout=0.0, batch_first=True, norm_first=pre),
        chosen.decoder_layers,
        nn.LayerNorm(d_model) if pre else None,
    )
    other = nn.Transformer(d_model, heads, custom_encoder=encoder, custom_decoder=decoder, batch_first=True)
    for mine, layer in zip(model.encoder.layers, encoder.layers, strict=True):
        copy_layer(mine, layer)
    for mine, layer in zip(model.decoder, decoder.layers, strict=True):
        copy_layer(mine, layer)
    if pre:
        assert encoder.norm is not None
        assert decoder.norm is not None
        encoder.norm.load_state_dict(model.encoder.norm.state_dict())
        decoder.norm.load_state_dict(model.decoder_norm.state_dict())
    return other.eval()


def copy_layer(mine: nn.Module, other: nn.Module) -> None:
    assert isinstance(mine, EncoderLayer | DecoderLayer)
    copy_attention(mine.attention, other.self_attn)
    roads = [mine.around_attention, mine.around_feedforward]
    if isinstance(mine, DecoderLayer):
        copy_attention(mine.cross_attention, other.multihead_attn)
        roads.insert(1, mine.around_cross_attention)
    copy_norms(roads, other)
    for linear, name in [(mine.feedforward.inner, "linear1"), (mine.feedforward.outer, "linear2")]:
        other.get_submodule(name).load_state_dict(linear.state_dict())


def copy_norms(roads: list[Residual], other: nn.Module) -> None:
    for number, road in enumerate(roads, 1):
        other.get_submodule(f"norm{number}").load_state_dict(road.norm.state_dict())


def copy_attention(mine: Attention, other: object) -> None:
    assert isinstance(other, nn.MultiheadAttention)
    other.load_state_dict(
        {
            "in_proj_weight": torch.cat([mine.query.weight, mine.key_value.weight]),
            "in_proj_bias": torch.cat([mine.query.bias, mine.key_value.bias]),
            "out_proj.weight": mine.output.weight,
            "out_proj.bias": mine.output.bias,
        }
    )


def batch() -> Batch:
    target = Tokens.padded(TARGETS, padding=0)
    return Batch(Tokens.padded(SOURCES, padding=0), target, target.ids_BT)


def features(other: nn.Transformer, x_BSD: Tensor, y_BTD: Tensor, both: Batch) -> Tensor:
    assert both.source is not None
    no_source_BS = both.source.places.segments_or_ones() == 0
    length = y_BTD.shape[1]
    answer: Tensor = other(
        x_BSD,
        y_BTD,
        tgt_mask=torch.ones(length, length, dtype=torch.bool).triu(1),
        src_key_padding_mask=no_source_BS,
        tgt_key_padding_mask=both.target.places.segments_or_ones() == 0,
        memory_key_padding_mask=no_source_BS,
        tgt_is_causal=False,
    )
    return answer


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_features_and_logits_agree(norm: Norm) -> None:
    torch.manual_seed(1)
    model, both = ours(norm), batch()
    other = theirs(model)
    real_BT = both.target.places.segments_or_ones() != 0
    wanted_BTD = features(other, model.embedding(both.source), model.embedding(both.target), both)
    found_BTD = model.features(both)
    torch.testing.assert_close(found_BTD[real_BT], wanted_BTD[real_BT], rtol=1e-5, atol=1e-5)
    wanted_BTV = wanted_BTD @ model.embedding.weight_VD.T
    torch.testing.assert_close(model(both)[real_BT], wanted_BTV[real_BT], rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_gradients_agree(norm: Norm) -> None:
    torch.manual_seed(1)
    model, both = ours(norm), batch()
    other = theirs(model)
    real_BT = both.target.places.segments_or_ones() != 0
    x_BSD, y_BTD = (model.embedding(tokens).detach() for tokens in (both.source, both.target))
    direction = torch.randn(int(real_BT.sum()), model.settings.d_model)
    (model.features(both)[real_BT] * direction).sum().backward()
    (features(other, x_BSD, y_BTD, both)[real_BT] * direction).sum().backward()
    first, last = model.encoder.layers[0], model.decoder[-1]
    assert isinstance(first, EncoderLayer)
    assert isinstance(last, DecoderLayer)
    for mine, name in [
        (first.feedforward.inner.weight, "encoder.layers.0.linear1.weight"),
        (first.around_attention.norm.bias, "encoder.layers.0.norm1.bias"),
        (last.cross_attention.output.weight, "decoder.layers.1.multihead_attn.out_proj.weight"),
        (last.feedforward.outer.bias, "decoder.layers.1.linear2.bias"),
    ]:
        torch.testing.assert_close(mine.grad, other.get_parameter(name).grad, rtol=1e-4, atol=1e-4)
