from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from regard.batch import Batch, Places, Tokens
from regard.errors import UsageError
from regard.models.bytenet import ByteNet, ByteNetSettings

SMALL = ByteNetSettings(channels=4, dilations=(1, 2), repeats=2)
PAIR = (Tokens.padded([[3, 4, 5, 6, 7, 2], [3, 2]], 0), Tokens.padded([[1, 5, 4], [1, 3, 3]], 0))


def batch(source: Tokens = PAIR[0], target: Tokens = PAIR[1]) -> Batch:
    return Batch(source, target, target.ids_BT)


@pytest.mark.parametrize(
    ("stretch", "extra", "lengths"),
    # a·|s| + b, rounded up: of 6 and of 2 tokens
    [(1.0, 0, [6, 2]), (1.2, 0, [8, 3]), (1.1, 0, [7, 3]), (1.5, 2, [11, 5]), (1.0, 3, [9, 5])],
)
def test_the_source_unfolds_to_the_papers_length(stretch: float, extra: int, lengths: list[int]) -> None:
    model = ByteNet(replace(SMALL, stretch=stretch, extra_columns=extra), 9).eval()
    columns_BUD = model.start(PAIR[0], 2).columns_BUD
    assert columns_BUD.shape == (2, lengths[0], 8)
    used = columns_BUD.abs().sum(dim=-1) > 0
    assert used.sum(dim=1).tolist() == lengths
    assert used[1, : lengths[1]].all(), "the zeros come after the sentence"


@torch.no_grad()
def test_the_decoder_reads_column_after_column_and_then_zeros() -> None:
    """A change in column t is seen at position t and after, never before; past the last there is nothing."""
    model = ByteNet(SMALL, 9).eval()
    state = model.start(PAIR[0], 2)
    long = torch.randint(3, 9, (2, 12))
    wanted = _features(model, long, state)
    columns = state.columns_BUD.shape[1]
    for t in range(columns):
        other = state.columns_BUD.clone()
        other[:, t, 0] += 1.0
        changed = (_features(model, long, replace(state, columns_BUD=other)) - wanted).abs().sum(dim=(0, 2)) > 1e-6
        assert not changed[:t].any()
        assert changed[t]
    further = F.pad(state.columns_BUD, (0, 0, 0, 4))
    torch.testing.assert_close(_features(model, long, replace(state, columns_BUD=further)), wanted)


def _features(model: ByteNet, ids_BT: torch.Tensor, state: Any) -> torch.Tensor:
    features_BTD, _ = model.decode(Tokens.whole(ids_BT), state)
    return features_BTD


def test_the_receptive_fields_are_what_gradients_say() -> None:
    """Six source tokens to each side, and thirteen target tokens: 2 · (1 + 2) · 2 steps of reach."""
    assert SMALL.encoder_receptive_field == SMALL.decoder_receptive_field == 13
    model = ByteNet(replace(SMALL, stretch=1.0), 9).double()
    embedded: list[torch.Tensor] = []

    def keep(module: torch.nn.Module, inputs: Any, output: torch.Tensor) -> None:
        output.retain_grad()
        embedded.append(output)

    model.embedding.register_forward_hook(keep)
    source, target = torch.randint(3, 9, (1, 30)), torch.randint(3, 9, (1, 20))
    model.start(Tokens.whole(source), 1).columns_BUD[0, 15, 0].backward()
    model.features(batch(Tokens.whole(source), Tokens.whole(target)))[0, -1].sum().backward()
    assert _reached(embedded[0]) == list(range(15 - 6, 15 + 7))
    assert _reached(embedded[2]) == list(range(7, 20))


def _reached(embedded_BTD: torch.Tensor) -> list[int]:
    assert embedded_BTD.grad is not None
    return [int(t) for t in embedded_BTD.grad[0].abs().sum(dim=-1).nonzero().flatten()]


def test_the_papers_translation_model() -> None:
    settings = ByteNetSettings()
    blocks = len(settings.dilations) * settings.repeats
    assert (blocks, settings.channels, settings.stretch, settings.extra_columns) == (30, 800, 1.2, 0)
    assert settings.decoder_receptive_field == 1 + 6 * 2 * 31


def test_parameters_by_hand() -> None:
    d, v, blocks = 4, 9, 4
    block = 4 * d + (2 * d + 1) * d + 2 * d + (3 * d + 1) * d + 2 * d + (d + 1) * 2 * d
    ends = 4 * d + 4 * d + (2 * d + 1) * 2 * d
    expected = v * 2 * d + 2 * d + 2 * blocks * block + ends + (2 * d + 1) * v
    assert sum(parameter.numel() for parameter in ByteNet(SMALL, v).parameters()) == expected


def test_two_sentences_in_a_row_are_refused() -> None:
    model = ByteNet(SMALL, 9)
    assert not ByteNet.packs_sentences
    ids = torch.tensor([[3, 2, 4, 2]])
    packed = Tokens(ids, Places(torch.tensor([[0, 1, 0, 1]]), torch.tensor([[1, 1, 2, 2]])))
    with pytest.raises(UsageError, match=r"ByteNet, source: needs one sentence a row, but row . holds 2"):
        model.start(packed, 1)
    with pytest.raises(UsageError, match=r"ByteNet, target: needs one sentence a row, but row . holds 2"):
        model(batch(Tokens.whole(ids), packed))


def test_an_empty_source_is_all_zeros() -> None:
    columns_BUD = ByteNet(SMALL, 9).start(Tokens.padded([[], [3, 2]], 0), 2).columns_BUD
    assert not columns_BUD[0].any()
    assert ByteNet(SMALL, 9)(batch(source=Tokens.padded([[], []], 0))).isfinite().all()


@pytest.mark.parametrize("source", [None, PAIR[0]])
def test_each_target_needs_its_source(source: Tokens | None) -> None:
    with pytest.raises(UsageError, match=r"must have 3 rows, but is (None|2 rows)"):
        ByteNet(SMALL, 9).start(source, 3)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("channels", 0, "`channels` must be at least 1, but is 0"),
        ("repeats", 0, "`repeats` must be at least 1"),
        ("dilations", (2, 0), "`dilations` must be numbers of at least 1"),
        ("encoder_kernel", 2, "`encoder_kernel` must be odd"),
        ("decoder_kernel", 0, "`decoder_kernel` must be at least 1"),
        ("stretch", 0.9, "`stretch` must be at least 1"),
        ("stretch", 1e9, "`stretch` must be .* at most 100"),
        ("stretch", float("nan"), "`stretch` must be at least 1"),
        ("extra_columns", -1, "`extra_columns` must be at least 0"),
        ("dropout", -0.1, "`dropout` must be at least 0 and below 1"),
    ],
)
def test_impossible_settings_are_named(field: str, value: object, message: str) -> None:
    values: dict[str, Any] = {field: value}
    with pytest.raises(ValueError, match=message):
        ByteNetSettings(**values)


def test_it_learns_to_copy() -> None:
    torch.manual_seed(0)
    model = ByteNet(replace(SMALL, channels=8), 9)
    text = torch.tensor([[3, 5, 4, 8, 2], [7, 7, 3, 6, 2], [4, 6, 8, 5, 2]])
    fed = F.pad(text[:, :-1], (1, 0), value=1)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimiser.zero_grad()
        scores_BTV = model(batch(Tokens.whole(text), Tokens.whole(fed)))
        loss = F.cross_entropy(scores_BTV.flatten(0, 1), text.flatten())
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, about torch
def test_compiled_is_eager() -> None:
    model = ByteNet(SMALL, 9).eval()
    torch.testing.assert_close(torch.compile(model, fullgraph=True)(batch()), model(batch()), rtol=1e-5, atol=1e-5)
