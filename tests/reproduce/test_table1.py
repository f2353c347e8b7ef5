"""Table 1: the layers are what they say, the counts are those of the formulas, the paths those of the paper."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from regard.cli import app
from regard.errors import MissingError, UsageError
from regard.reproduce import table1
from regard.reproduce.layer_types import (
    KERNEL,
    NEIGHBOURHOOD,
    REACH,
    TABLE,
    TIMED,
    Convolutional,
    DilatedConvolutional,
    LayerType,
    Masked,
    Recurrent,
    Restricted,
    SelfAttention,
)
from regard.reproduce.table1 import growth, multiply_adds, operations_needed, path_length

EVERY = sorted({*TABLE, *TIMED}, key=lambda kind: kind.name)


@pytest.mark.parametrize("kind", EVERY)
@given(length=st.integers(1, 3 * REACH))
@settings(max_examples=5, deadline=None)
def test_a_layer_gives_a_vector_for_each_token(kind: type[LayerType], length: int) -> None:
    layer, x_BTD = kind(16), torch.randn(2, length, 16)
    y_BTD = layer(x_BTD)
    assert y_BTD.shape == x_BTD.shape
    # The second row must not depend on the first: blocks are rows, too.
    assert torch.allclose(y_BTD[1:], layer(x_BTD[1:]), atol=1e-6)


@given(st.integers(1, 4 * REACH))
@settings(max_examples=20, deadline=None)
def test_blocks_give_what_the_mask_gives(length: int) -> None:
    blocks, mask = Restricted(16), Masked(16)
    mask.load_state_dict(blocks.state_dict())
    x_BTD = torch.randn(2, length, 16)
    assert torch.allclose(blocks(x_BTD), mask(x_BTD), atol=1e-5)


@given(st.integers(1, 9))
@settings(max_examples=5, deadline=None)
def test_a_recurrent_layer_is_its_operations_one_after_another(length: int) -> None:
    layer, x_BTD = Recurrent(8), torch.randn(2, length, 8)
    states_BTD = torch.zeros_like(x_BTD)
    for _ in range(length):
        states_BTD = layer.operation(x_BTD, states_BTD)
    assert torch.allclose(states_BTD, layer(x_BTD), atol=1e-5)


@given(st.integers(2, 40))
@settings(max_examples=8, deadline=None)
def test_paths_are_as_long_as_the_paper_says(n: int) -> None:
    assert path_length(SelfAttention, n) == 1
    assert path_length(Recurrent, n) == operations_needed(Recurrent, n) == n
    assert path_length(Convolutional, n) == math.ceil((n - 1) / (KERNEL - 1))
    assert KERNEL ** path_length(DilatedConvolutional, n) >= n > KERNEL ** (path_length(DilatedConvolutional, n) - 1)
    assert path_length(Restricted, n) == path_length(Masked, n) == math.ceil((n - 1) / ((NEIGHBOURHOOD - 1) / 2))


@pytest.mark.parametrize("kind", [kind for kind in EVERY if kind is not Recurrent])
def test_these_layers_take_one_operation(kind: type[LayerType]) -> None:
    assert operations_needed(kind, 20) == 1


@pytest.mark.parametrize("kind", TABLE)
def test_a_real_stack_hears_of_the_farthest_token_at_that_height_and_not_below(kind: type[LayerType]) -> None:
    n, layers_needed = 21, path_length(kind, 21) // operations_needed(kind, 21)
    for height in (layers_needed - 1, layers_needed):
        torch.manual_seed(0)
        x_TD = torch.randn(1, n, 8, dtype=torch.double, requires_grad=True)
        y_TD = x_TD
        for layer in range(height):
            y_TD = kind(8, layer).double()(y_TD)
        (gradient_TD,) = torch.autograd.grad(y_TD[0, -1].sum(), x_TD)
        assert bool(gradient_TD[0, 0].any()) == (height == layers_needed)


@given(st.integers(1, 300))
@settings(max_examples=10, deadline=None)
def test_multiply_adds_are_those_of_the_formulas(n: int) -> None:
    d = 16
    projections, blocks = 4 * n * d * d, math.ceil(n / REACH)
    # The query of a block's filling is projected, too, and so is what comes out for it.
    filled = (2 * n + 2 * blocks * REACH) * d * d
    assert multiply_adds(SelfAttention, d, n) == multiply_adds(Masked, d, n) == projections + 2 * n * n * d
    assert multiply_adds(Recurrent, d, n) == 2 * n * d * d
    assert multiply_adds(Convolutional, d, n) == KERNEL * n * d * d
    assert multiply_adds(Restricted, d, n) == filled + 2 * blocks * REACH * 3 * REACH * d


@given(st.floats(0.1, 3), st.floats(1e-6, 1e3))
def test_growth_finds_the_exponent(power: float, factor: float) -> None:
    lengths = [64, 128, 512, 4096]
    assert growth(lengths, [factor * n**power for n in lengths]) == pytest.approx(power)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table1, "SECONDS_EACH", 0.0)
    monkeypatch.setattr(table1, "PATH_LENGTHS", (4, 9))
    out = tmp_path / "curves.svg"
    answer = CliRunner().invoke(app, ["reproduce", "table1", "--lengths=16,4,8", "--width=8", f"--out={out}"])
    title, computed, measured, grown = answer.stdout.strip().split("\n\n")
    assert "d = 8, k = 3, r = 33" in title
    assert re.findall(r"recurrent .*O\(n\) +(\d+) +(\d+) +O\(n\) +(\d+) +(\d+)", computed) == [("4", "9", "4", "9")]
    assert re.search(r"^milliseconds +n = 4 +8 +16$", measured, re.MULTILINE)
    for kind in TIMED:
        assert kind.name in measured
        assert kind.name in grown
        assert kind.name in out.read_text(encoding="utf-8")
    assert str(out) in answer.stderr
    line = ["reproduce", "table1", "--lengths=16,4,8", "--width=8", f"--out={out}", "--json"]
    plain = json.loads(CliRunner().invoke(app, line).stdout)
    assert (plain["width"], plain["lengths"], plain["path_lengths"]) == (8, [4, 8, 16], [4, 9])
    assert plain["computed"]["recurrent"]["operations"] == [4, 9]
    assert list(plain["measured"]) == [kind.name for kind in TIMED]


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (["novel"], "must be one of: table1, table2, table3"),
        (["novel"], "but is `novel`. Choose one that exists."),
        (["tabel3"], "but is `tabel3`. Did you mean `table3`?"),
        (["everyday-ende", "--check", "everyday-en-de"], "Did you mean `everyday-en-de`?"),
        (["table3", "--rows", "bas"], "`bas` is not one. Did you mean `base`?"),
        (["table3", "--rows", "novel"], "`novel` is not one. There are: base, "),
        (["table1", "--lengths", "1,two"], "whole numbers with commas between them, but is '1,two'"),
        (["table1", "--lengths", "64,64,32"], "at least 3 different lengths"),
        (["table1", "--lengths", "0,1,2"], "of 1 or more, but are [0, 1, 2]"),
        (["table1", "--width", "20"], "multiple of 8"),
        (["table1", "--width", "0"], "multiple of 8"),
        (["table1", "--width", "9223372036854775808"], "at most 16,384, but is 9223372036854775808"),
        (["table1", "--lengths", "1,2,9223372036854775808"], "at most 65,536, but the longest is 9223372036854775808"),
        (["table1", "--out", "curves.png"], "must end in .svg, but ends in `.png`"),
    ],
)
def test_mistakes_are_named(arguments: list[str], rule: str) -> None:
    error = CliRunner().invoke(app, ["reproduce", *arguments]).exception
    assert isinstance(error, UsageError)
    assert rule in str(error)


def test_a_folder_that_is_not_there_is_named_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table1, "reproduce", lambda *_: pytest.fail("measured first"))
    error = CliRunner().invoke(app, ["reproduce", "table1", f"--out={tmp_path}/missing/curves.svg"]).exception
    assert isinstance(error, MissingError)
    assert "must be in a folder that is there" in str(error)


def test_the_page_shows_what_is_computed() -> None:
    page = (Path(__file__).parents[2] / "docs/table1.md").read_text(encoding="utf-8")
    nothing_timed = table1.Table1(512, (1, 2, 3), "nothing", table1.structures(), timings=())
    computed = nothing_timed.to_text().split("\n\n")[1]
    assert f"```text\n{computed}\n```" in page
    lengths = re.findall(r"multiply-adds, n = (\d+)$", page, re.MULTILINE)
    assert lengths
    for kind in TIMED:
        counted = re.findall(rf"^{re.escape(kind.name)}  .* ([\d,]{{6,}})$", page, re.MULTILINE)
        assert counted == [f"{multiply_adds(kind, 512, int(length)):,}" for length in lengths]
