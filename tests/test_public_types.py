"""The types that Python users see: their signatures are a list, and a program that uses them is checked by mypy."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import regard

SIGNATURES = {
    "load": "(path: 'str | Path', device: 'str' = 'auto', precision: \"Precision | Literal['auto']\" = 'auto', "
    "engine: \"Engine | Literal['auto']\" = 'auto') -> 'Model'",
    "train": "(recipe: 'Recipe | str | Path', out: 'str | Path', overrides: 'Sequence[str]' = ()) -> 'Model'",
    "Model.translate": "(self, texts: 'Sequence[str]', search: 'SearchSettings | None' = None, "
    "language: 'str | None' = None) -> 'list[str]'",
    "Model.generate": "(self, prompts: 'Sequence[str]', sampling: 'SamplingSettings | None' = None, "
    "seed: 'int' = 1) -> 'list[str]'",
    "Model.score": "(self, texts: 'Sequence[str]', sources: 'Sequence[str] | None' = None, "
    "language: 'str | None' = None) -> 'list[Scored]'",
    "Model.stream": "(self, prompt: 'str' = '', sampling: 'SamplingSettings | None' = None, "
    "seed: 'int' = 1) -> 'Iterator[str]'",
}

PROGRAM = """
from pathlib import Path
from typing import assert_type

import torch

import regard
from regard.decoding.search import SearchSettings

model = regard.load(Path("folder"), device="cpu", precision="int8")
assert_type(model, regard.Model)
assert_type(model.translate(["one"], SearchSettings(beam=2)), list[str])
assert_type(model.generate(["one"], seed=3), list[str])
module: torch.nn.Module = model.network
assert_type([each.text for best in model.translations(["one"]) for each in best], list[str])
assert_type("".join(model.stream("one")), str)
"""

MISTAKES = [
    "regard.load(3)",
    'regard.load("folder", precision="int4")',
    'regard.load("folder", engine="abacus")',
    'regard.load("folder").translate(["one"], beam=4)',
    'regard.load("folder").generate(["one"], seed="x")',
    'number: int = regard.load("folder").translate(["one"])',
]


def test_the_public_signatures_are_these() -> None:
    for name, wanted in SIGNATURES.items():
        found: object = regard
        for part in name.split("."):
            found = getattr(found, part)
        assert callable(found)
        assert str(inspect.signature(found)) == wanted, name


def test_every_public_function_says_its_types() -> None:
    for name, method in inspect.getmembers(regard.Model, inspect.isfunction):
        if not name.startswith("_"):
            signature = inspect.signature(method)
            bare = [each.name for each in signature.parameters.values()
                    if each.annotation is inspect.Parameter.empty and each.name != "self"]  # fmt: skip
            assert not bare, f"{name}: {bare}"
            assert signature.return_annotation is not inspect.Signature.empty, name


@pytest.mark.slow
def test_mypy_understands_a_program(tmp_path: Path) -> None:
    lines = ["import regard", *MISTAKES]
    (tmp_path / "right.py").write_text(PROGRAM)
    (tmp_path / "wrong.py").write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--follow-imports=silent"]
    right = subprocess.run([*command, "right.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert right.returncode == 0, right.stdout
    wrong = subprocess.run([*command, "wrong.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    found = {int(line.split(":")[1]) for line in wrong.stdout.split("\n") if ": error:" in line}
    assert found == set(range(2, len(lines) + 1)), wrong.stdout
