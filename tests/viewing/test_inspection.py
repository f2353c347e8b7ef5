"""What `regard inspect` says, in JSON and in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from regard.api import inspect
from regard.cli import app
from regard.errors import UsageError
from regard.viewing import inspection
from regard.viewing.inspection import Inspection, matrix_table
from regard.viewing.parameters import Anatomy, Matrix


@pytest.fixture(scope="module")
def demo() -> Inspection:
    return inspect("demo")


def test_json_has_everything_but_the_drawing(demo: Inspection) -> None:
    found: dict[str, Any] = json.loads(json.dumps(demo.to_json()))
    assert list(found) == [
        "name",
        "kind",
        "vocabulary",
        "parameters",
        "matrices",
        "vocabulary_is_limit",
        "labels",
        "flops",
        "memory",
        "optimiser",
    ]
    assert (found["name"], found["kind"], found["vocabulary"]) == ("demo", "transformer", 512)
    assert found["parameters"] == sum(matrix["parameters"] for matrix in found["matrices"])
    assert found["flops"]["source_length"] == found["flops"]["target_length"] == 25
    assert found["memory"]["rows"] == 1_024 // 25  # batch.tokens of the recipe
    assert found["memory"]["beams"] == 4  # search.beam


def test_the_page_names_every_matrix_and_every_cost(demo: Inspection) -> None:
    page = demo.to_text()
    assert page.startswith("demo: transformer, 512 tokens, 571,776 parameters\n")
    assert demo.wiring in page
    for words in ("decoder.*.cross_attention.query.weight", "to read the source once", "Adam's moments", "4 beams"):
        assert words in page


@pytest.mark.parametrize(
    ("kind", "moments", "told"), [("muon", 1, "Muon's and Adam's moments"), ("sgd", 0, "no moments,")]
)
def test_moments_are_those_of_the_optimiser(demo: Inspection, kind: str, moments: int, told: str) -> None:
    found = inspect("demo", [f"training.optimiser={{kind = '{kind}', rate = 1e-3}}"])
    assert told in found.to_text()
    assert moments * found.memory.weights <= found.memory.moments < demo.memory.moments == 2 * demo.memory.weights
    assert found.memory.training - demo.memory.training == found.memory.moments - demo.memory.moments


def test_overrides_vocabulary_and_length() -> None:
    language_model = 'model={kind="gpt", layers=1, d_model=8, d_ff=8, heads=1, max_positions=6}'
    found = inspect("demo", [language_model, "batch.tokens=12", "batch.row=12", "search.beam=2"], vocabulary=10)
    assert (found.kind, found.vocabulary, found.flops.target_length) == ("gpt", 10, 6)
    assert (found.memory.rows, found.memory.beams) == (2, 2)
    assert "source" not in found.to_text()
    assert inspect("demo", [language_model], length=3).flops.target_length == 3
    with pytest.raises(UsageError, match="at most 6 tokens"):
        inspect("demo", [language_model], length=7)


def test_a_window_saves_no_products(demo: Inspection) -> None:
    assert inspect("demo", ["model.window=5"]).flops == demo.flops


def test_memory_says_in_which_numbers(demo: Inspection) -> None:
    assert "memory in float32, with the same lengths" in demo.to_text()
    assert demo.memory.weights == 4 * demo.parameters


def test_what_labels_cost_and_that_nothing_is_decoded() -> None:
    found = inspect("tag-restoring")
    page = found.to_text()
    assert page.startswith("tag-restoring: tagger, 8,000 tokens, 21 labels, 5,212,949 parameters\n\nmatrix ")
    assert "with 25 tokens (--length)\n  training  19.3 MFLOP a token, forward and backward\n  reading   160 M" in page
    assert "for a batch of 655 rows: weights 20.9 MB" in page  # batch.tokens of the recipe
    assert "decoding" not in page
    gaps = inspect("bert-small", vocabulary=68)
    assert (gaps.labels, gaps.flops.target_length) == (0, 64)
    assert gaps.wiring in gaps.to_text()


def test_sizes_must_be_sizes() -> None:
    with pytest.raises(UsageError, match="`vocabulary` must be at least 1, but is 0"):
        inspect("demo", vocabulary=0)
    with pytest.raises(UsageError, match="`length` must be at least 1, but is -1"):
        inspect("demo", length=-1)


def test_a_recipe_file_can_be_inspected(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('extends = "demo"\nname = "mine"\nmodel.encoder_layers = 1\nmodel.decoder_layers = 1\n')
    answer = CliRunner().invoke(app, ["inspect", str(file), "tokenizer.vocabulary=300", "--length", "2", "--json"])
    found = json.loads(answer.stdout)
    assert (found["name"], found["vocabulary"], found["flops"]["target_length"]) == ("mine", 300, 2)


def test_layers_share_a_row_where_their_shapes_agree() -> None:
    shapes = {"a.0.w": (2, 3), "a.1.w": (2, 3), "a.2.w": (5, 3), "b": (4,)}
    matrices = tuple(Matrix(name, shape, shape[0] * (shape[1:] or (1,))[0]) for name, shape in shapes.items())
    table = matrix_table(Anatomy("n", "k", 1, 31, matrices)).split("\n")
    assert [line.split() for line in table] == [
        ["matrix", "shape", "how", "many", "parameters"],
        ["a.*.w", "2", "×", "3", "2", "12"],
        ["a.*.w", "5", "×", "3", "1", "15"],
        ["b", "4", "1", "4"],
        ["total", "4", "31"],
    ]
    assert len(set(map(len, table))) == 1


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0 "), (999, "999 "), (1000, "1.00 k"), (9_995, "10.0 k"), (82_542_592, "82.5 M"), (999_499_999, "999 M"),
     (999_500_000, "1.00 G"), (15_690_777_228, "15.7 G"), (10**18, "1000 P")],
)  # fmt: skip
def test_short_numbers(value: int, words: str) -> None:
    assert inspection._short(value) == words
