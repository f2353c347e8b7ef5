from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from regard.batch import Batch, Places, Tokens
from regard.errors import UsageError
from regard.models.convs2s import ConvS2S, ConvS2SSettings, MultiStepAttention

SMALL = ConvS2SSettings(
    encoder=((2, 6, 3), (1, 8, 1)), decoder=((2, 6, 3), (1, 8, 1)), embedding=5, max_positions=8, dropout=0.0
)
ENGLISH_ROMANIAN = ((20, 512, 3),)
ENGLISH_FRENCH = ((5, 512, 3), (4, 768, 3), (3, 1024, 3), (1, 2048, 1), (1, 4096, 1))


def pair(source: list[list[int]], target: list[list[int]]) -> Batch:
    tokens = Tokens.padded(target, 0)
    return Batch(Tokens.padded(source, 0), tokens, tokens.ids_BT)


def test_the_papers_context_sizes() -> None:
    """The English-French decoder sees 25 words, as the paper says of it."""
    french = ConvS2SSettings(encoder=ENGLISH_FRENCH, decoder=ENGLISH_FRENCH)
    assert french.decoder_receptive_field == french.encoder_receptive_field == 25
    assert ConvS2SSettings(decoder=ENGLISH_ROMANIAN).decoder_receptive_field == 41
    assert ConvS2SSettings().decoder_receptive_field == 27
    # Section 3.2: six layers of width 5 see 25 inputs.
    assert ConvS2SSettings(decoder=((6, 512, 5),)).decoder_receptive_field == 25


def test_the_receptive_fields_are_what_gradients_say() -> None:
    model = ConvS2S(SMALL, 9).double()
    embedded: list[torch.Tensor] = []

    def keep(module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
        output.retain_grad()
        embedded.append(output)

    model.source.register_forward_hook(keep)
    model.target.register_forward_hook(keep)
    source, target = (Tokens.whole(torch.randint(3, 9, (1, 12))) for _ in range(2))
    # One encoder output: its key is z alone, without the embedding that the values add.
    model.start(source, 1).memory.keys_BHKE[0, 0, 6].sum().backward()
    # Attention reads all of the source, but of the target only what the convolutions see.
    model.features(Batch(source, target, target.ids_BT))[0, -1].sum().backward()
    reached = []
    for embedded_BTE in (embedded[0], embedded[2]):
        assert embedded_BTE.grad is not None
        reached.append(embedded_BTE.grad[0].abs().sum(dim=-1).nonzero().flatten().tolist())
    assert reached == [[4, 5, 6, 7, 8], [7, 8, 9, 10, 11]]
    assert SMALL.encoder_receptive_field == SMALL.decoder_receptive_field == 5


def test_positions_past_the_last_share_its_embedding() -> None:
    model = ConvS2S(SMALL, 9).eval()
    words = torch.tensor([[4, 4]])
    last, beyond, before = (
        model.source(Tokens(words, Places(torch.tensor([[0, place]]))))[0, 1] for place in (7, 5000, 6)
    )
    torch.testing.assert_close(beyond, last, rtol=0, atol=0)
    assert not torch.equal(before, last)
    long = Tokens.whole(torch.randint(3, 9, (1, 30)))
    assert model(Batch(long, long, long.ids_BT)).isfinite().all()


def test_the_encoder_learns_at_one_decoder_layers_pace() -> None:
    """Section 3.4: its gradient is divided by the number of attentions; the scores stay what they are."""
    model = ConvS2S(SMALL, 9)
    source = Tokens.whole(torch.randint(3, 9, (1, 4)))
    memory = model.start(source, 1).memory
    weights = torch.randn_like(memory.keys_BHKE)
    (memory.keys_BHKE * weights).sum().backward()
    bias = model.encoder_exit.bias
    assert bias.grad is not None
    torch.testing.assert_close(bias.grad, weights.sum(dim=(0, 1, 2)) / 3)


def test_layers_start_by_keeping_variance() -> None:
    """Section 3.5. Deep stacks neither fade nor burst before training."""
    torch.manual_seed(0)
    settings = replace(SMALL, encoder=((20, 64, 3),), decoder=((1, 64, 3),), embedding=64)
    model = ConvS2S(settings, 50).eval()
    tokens = Tokens.whole(torch.randint(50, (4, 40)))
    first_BSC = x_BSC = model.encoder_entry(model.source(tokens))
    for layer in model.encoder:
        x_BSC = layer(x_BSC, tokens.places)
    assert x_BSC.std().item() == pytest.approx(first_BSC.std().item(), rel=0.3)
    taps = model.encoder.get_submodule("0.convolution.taps")
    assert isinstance(taps, nn.Linear)
    assert taps.weight.std().item() == pytest.approx(math.sqrt(4 / (3 * 64)), rel=0.05)


@pytest.mark.parametrize("tied", [False, True])
def test_parameters_by_hand(tied: bool) -> None:
    e, v, p = 5, 9, 8

    def linear(inputs: int, outputs: int) -> int:
        return (inputs + 1) * outputs

    stack = 2 * linear(3 * 6, 2 * 6) + linear(6, 2 * 8) + linear(6, 8)
    attentions = 2 * (linear(6, e) + linear(e, 6)) + linear(8, e) + linear(e, 8)
    around = linear(e, 6) + linear(8, e)
    tables = v * e if tied else 3 * v * e
    expected = 2 * (stack + around) + attentions + tables + v + 2 * p * e
    model = ConvS2S(replace(SMALL, tied=tied), v)
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


def test_tied_are_one_matrix() -> None:
    model = ConvS2S(replace(SMALL, tied=True), 9)
    assert model.output.weight is model.source.words.weight is model.target.words.weight


@pytest.mark.parametrize("sources", [[[], [3, 2]], [[], []]])
def test_an_empty_source_gives_nothing_watched_or_not(sources: list[list[int]]) -> None:
    model, batch = ConvS2S(SMALL, 9), pair(sources, [[1, 4], [1, 5]])
    scores_BTV = model(batch)
    assert scores_BTV.isfinite().all()
    for module in model.modules():
        if isinstance(module, MultiStepAttention):
            module.watcher = lambda weights_BHTS: None
    torch.testing.assert_close(model(batch), scores_BTV)


@pytest.mark.parametrize("source", [None, Tokens.whole(torch.ones(2, 3, dtype=torch.long))])
def test_each_target_needs_its_source(source: Tokens | None) -> None:
    with pytest.raises(UsageError, match=r"must have 3 rows, but is (None|2 rows)"):
        ConvS2S(SMALL, 9).start(source, 3)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("encoder", (), "`encoder` must have at least one run of layers"),
        ("decoder", ((0, 8, 3),), r"`decoder` must be runs .* but has \(0, 8, 3\)"),
        ("encoder", ((1, 8, 2),), "`encoder's kernel` must be odd"),
        ("decoder", ((1, 8, 0),), "`decoder's kernel` must be at least 1"),
        ("embedding", 0, "`embedding` must be at least 1"),
        ("max_positions", 0, "`max_positions` must be at least 1"),
        ("dropout", 1.5, "`dropout` must be at least 0 and below 1"),
    ],
)
def test_impossible_settings_are_named(field: str, value: object, message: str) -> None:
    values: dict[str, Any] = {field: value}
    with pytest.raises(ValueError, match=message):
        ConvS2SSettings(**values)


def test_it_learns_to_reverse() -> None:
    torch.manual_seed(0)
    model = ConvS2S(replace(SMALL, embedding=16), 9)
    text = torch.tensor([[3, 5, 4, 8, 2], [7, 7, 3, 6, 2], [4, 6, 8, 5, 2]])
    turned = torch.cat([text[:, :-1].flip(1), text[:, -1:]], dim=1)
    fed = Tokens.whole(F.pad(turned[:, :-1], (1, 0), value=1))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(80):
        optimiser.zero_grad()
        scores_BTV = model(Batch(Tokens.whole(text), fed, turned))
        loss = F.cross_entropy(scores_BTV.flatten(0, 1), turned.flatten())
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, about torch
def test_compiled_is_eager() -> None:
    model, batch = ConvS2S(SMALL, 9).eval(), pair([[3, 4, 5, 6], [3, 7]], [[1, 4, 5], [1, 7, 5, 3, 3]])
    torch.testing.assert_close(torch.compile(model, fullgraph=True)(batch), model(batch), rtol=1e-5, atol=1e-5)
