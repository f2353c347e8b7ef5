from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.batch import Batch, Tokens
from regard.errors import UsageError
from regard.models.wavenet import WaveNet, WaveNetSettings

SMALL = WaveNetSettings(channels=4, skip_channels=6, dilations=(1, 2, 4), repeats=2)


def language(ids_BT: torch.Tensor) -> Batch:
    return Batch(None, Tokens.whole(ids_BT), ids_BT)


def test_the_receptive_field_is_what_gradients_say() -> None:
    """Each token of the field, and none beyond it, moves the last prediction."""
    field = SMALL.receptive_field
    assert field == 1 + 1 + 2 * (1 + 2 + 4)
    model = WaveNet(SMALL, 5).double()
    embedded: list[torch.Tensor] = []

    def keep(module: torch.nn.Module, inputs: Any, output: torch.Tensor) -> None:
        output.retain_grad()
        embedded.append(output)

    model.embedding.register_forward_hook(keep)
    model.features(language(torch.randint(5, (1, field + 4))))[0, -1].sum().backward()
    assert embedded[0].grad is not None
    reached = embedded[0].grad[0].abs().sum(dim=-1).nonzero().flatten().tolist()
    assert reached == list(range(4, field + 4))


def test_the_papers_field_of_one_run_of_dilations() -> None:
    """Section 2.1: dilations 1, 2, 4, …, 512 see 1,024 steps; the entry convolution adds one."""
    assert WaveNetSettings(repeats=1).receptive_field == 1024 + 1
    assert WaveNetSettings().receptive_field == 3071


def test_parameters_by_hand() -> None:
    c, d, v, blocks = 4, 6, 5, 6
    block = (2 * c + 1) * 2 * c + (c + 1) * d + (c + 1) * c
    # The last block has no road onwards.
    expected = v * c + (2 * c + 1) * c + blocks * block - (c + 1) * c + (d + 1) * d + (d + 1) * v
    assert sum(parameter.numel() for parameter in WaveNet(SMALL, v).parameters()) == expected


def test_it_reads_no_source() -> None:
    model, source = WaveNet(SMALL, 5), Tokens.whole(torch.ones(2, 3, dtype=torch.long))
    with pytest.raises(UsageError, match="reads no source"):
        model.start(source, 2)
    with pytest.raises(UsageError, match="reads no source"):
        model(Batch(source, source, source.ids_BT))


def test_a_state_keeps_only_what_each_layer_needs() -> None:
    model = WaveNet(SMALL, 5)
    _, state = model.step(torch.ones(2, 40, dtype=torch.long), model.start(None, 2))
    assert [past.shape[1] for past in state.pasts if past is not None] == [1, 1, 2, 4, 1, 2, 4]
    assert state.seen == 40


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("channels", 0, "`channels` must be at least 1, but is 0"),
        ("skip_channels", -1, "`skip_channels` must be at least 1, but is -1"),
        ("repeats", 0, "`repeats` must be at least 1"),
        ("dilations", (), "`dilations` must be numbers of at least 1"),
        ("dilations", (1, 0), "`dilations` must be numbers of at least 1"),
        ("kernel", 0, "`kernel` must be at least 1"),
        ("dropout", 1.0, "`dropout` must be at least 0 and below 1"),
    ],
)
def test_impossible_settings_are_named(field: str, value: object, message: str) -> None:
    values: dict[str, Any] = {field: value}
    with pytest.raises(ValueError, match=message):
        WaveNetSettings(**values)


def test_it_learns_a_text_by_heart() -> None:
    torch.manual_seed(0)
    model = WaveNet(SMALL, 6)
    text = torch.tensor([[1, 3, 4, 3, 5, 3, 4, 5, 5, 4, 3, 3]])
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(80):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(language(text[:, :-1]))[0], text[0, 1:])
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, about torch
def test_compiled_is_eager() -> None:
    model, batch = WaveNet(SMALL, 5).eval(), language(torch.randint(5, (2, 9)))
    torch.testing.assert_close(torch.compile(model, fullgraph=True)(batch), model(batch), rtol=1e-5, atol=1e-5)
