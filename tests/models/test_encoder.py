"""The bodies: what each is made of, and how far each sees.

Shapes: B rows, T tokens, D model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.batch import Batch, Tokens
from regard.errors import UsageError
from regard.models.encoder import (
    Body,
    ConvolutionBodySettings,
    RecurrentBody,
    RecurrentBodySettings,
    TransformerBody,
    TransformerBodySettings,
    build_body,
)
from regard.models.transformer import Transformer, TransformerSettings

VOCABULARY = 9
RECURRENT = RecurrentBodySettings(layers=2, d_model=8, d_embedding=5)
CONVOLUTION = ConvolutionBodySettings(layers=3, d_model=6, kernel=3)


def text(length: int, rows: int = 2) -> Tokens:
    return Tokens.whole(torch.randint(VOCABULARY, (rows, length)))


def reached(body: Body, length: int, token: int) -> list[int]:
    """The places whose embedding moves the vector of one token."""
    embedded: list[Tensor] = []

    def keep(module: nn.Module, inputs: Any, output: Tensor) -> None:
        output.retain_grad()
        embedded.append(output)

    table = next(module for module in body.modules() if isinstance(module, nn.Embedding))
    table.register_forward_hook(keep)
    # Squared, because the coordinates of a normalised vector always have the same sum.
    body.double().eval()(text(length, rows=1))[0, token].square().sum().backward()
    assert embedded[0].grad is not None
    return embedded[0].grad[0].abs().sum(dim=-1).nonzero().flatten().tolist()


@pytest.mark.parametrize("norm", ["post", "pre"])
@torch.no_grad()
def test_the_transformer_body_is_the_encoder_of_a_transformer(norm: Any) -> None:
    sizes: dict[str, Any] = {"d_model": 16, "d_ff": 24, "heads": 2, "norm": norm, "window": 3}
    whole = Transformer(TransformerSettings(encoder_layers=2, decoder_layers=1, **sizes), VOCABULARY).eval()
    body = TransformerBody(TransformerBodySettings(layers=2, **sizes), VOCABULARY).eval()
    body.embedding.load_state_dict(whole.embedding.state_dict())
    body.encoder.load_state_dict(whole.encoder.state_dict())
    memories: list[Tensor] = []
    whole.encoder.register_forward_hook(lambda module, inputs, output: memories.append(output))
    source = Tokens.padded([[1, 2, 3, 4, 5], [6, 7]], padding=0)
    whole(Batch(source, source, source.ids_BT))
    torch.testing.assert_close(body(source), memories[0], rtol=0, atol=0)


@torch.no_grad()
def test_the_recurrent_body_is_torchs_stack() -> None:
    body = RecurrentBody(RECURRENT, VOCABULARY).eval()
    torchs = nn.LSTM(5, 4, num_layers=2, bidirectional=True, batch_first=True)
    kernels = [
        kernel
        for layer in body.encoder.layers.children()
        for kernel in layer.modules()
        if isinstance(kernel, nn.RNNBase)
    ]
    for own, weights in zip(kernels, torchs.all_weights, strict=True):
        for mine, its in zip(own.all_weights[0], weights, strict=True):
            its.copy_(mine)
    some = text(7)
    torch.testing.assert_close(body(some), torchs(body.embedding(some.ids_BT))[0])


@pytest.mark.parametrize(
    ("settings", "seen"),
    [
        (TransformerBodySettings(layers=1, d_model=8, d_ff=8, heads=2), range(11)),
        (TransformerBodySettings(layers=1, d_model=8, d_ff=8, heads=2, window=3), range(3, 8)),
        (RECURRENT, range(11)),
        (RecurrentBodySettings(d_model=8, bidirectional=False), range(6)),
        (CONVOLUTION, range(2, 9)),
        (ConvolutionBodySettings(layers=2, d_model=6, kernel=1), range(5, 6)),
    ],
)
def test_what_the_sixth_of_eleven_tokens_sees(settings: Any, seen: range) -> None:
    assert reached(build_body(settings, VOCABULARY), 11, token=5) == list(seen)


def test_the_receptive_field_is_the_formula() -> None:
    assert CONVOLUTION.receptive_field == 7
    assert ConvolutionBodySettings().receptive_field == 25


def test_a_convolution_keeps_the_size_of_what_it_reads() -> None:
    """With dropout as in training, vectors neither vanish nor blow up through many layers."""
    torch.manual_seed(0)
    body = build_body(ConvolutionBodySettings(layers=12, d_model=128), VOCABULARY)
    assert 0.07 < body(text(40, rows=8)).std() < 0.14


def test_learned_positions_end() -> None:
    settings = TransformerBodySettings(layers=1, d_model=8, d_ff=8, heads=2, positions="learned", max_positions=6)
    body = build_body(settings, VOCABULARY)
    assert body(text(6)).shape == (2, 6, 8)
    with pytest.raises(UsageError, match="at most 6 tokens"):
        body(text(7))


@pytest.mark.parametrize(
    ("settings", "values", "message"),
    [
        (TransformerBodySettings, {"layers": 0}, "`layers` must be at least 1, but is 0"),
        (TransformerBodySettings, {"heads": 3}, "`d_model` must be a multiple of `heads`"),
        (RecurrentBodySettings, {"layers": 0}, "`layers` must be at least 1, but is 0"),
        (RecurrentBodySettings, {"d_embedding": 0}, "`d_embedding` must be at least 1, but is 0"),
        (RecurrentBodySettings, {"d_model": 7}, "`d_model` must be even where `bidirectional` is set, but is 7"),
        (RecurrentBodySettings, {"dropout": 1.0}, "`dropout` must be at least 0 and below 1, but is 1.0"),
        (ConvolutionBodySettings, {"d_model": -1}, "`d_model` must be at least 1, but is -1"),
        (ConvolutionBodySettings, {"kernel": 4}, "`kernel` must be odd, to have a middle, and at least 1, but is 4"),
        (ConvolutionBodySettings, {"dropout": -0.1}, "`dropout` must be at least 0 and below 1, but is -0.1"),
    ],
)
def test_impossible_settings_are_named(settings: Callable[..., Any], values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings(**values)
