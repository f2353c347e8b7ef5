"""`regard import` and `regard export` as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.interop import foreign
from tests.tiny import failed, regard


def test_out_and_in_again(words_model: Path, tmp_path: Path) -> None:
    out = regard("export", words_model, tmp_path / "hf", "--to", "huggingface", "--count", 5)
    assert out.code == 0, out.err
    assert "greedy    5 of 5 the same" in out.out
    assert "The model is in" in out.err
    back = regard("import", tmp_path / "hf", tmp_path / "back", "--count", 5, "--json")
    assert back.code == 0, back.err
    assert json.loads(back.out)["proof"]["passed"] is True
    asked = b"seven\neight\n"
    texts = [regard("translate", place, stdin=asked).out for place in (words_model, tmp_path / "back", tmp_path / "hf")]
    assert texts[0] == texts[1] == texts[2] == "sieben\nacht\n"


@pytest.mark.parametrize("target", ["ctranslate2", "onnx"])
def test_to_the_engines(target: str, words_model: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2" if target == "ctranslate2" else "onnxruntime")
    ran = regard("export", words_model, tmp_path / "out", "--to", target, "--count", 5, "--json")
    assert ran.code == 0, ran.err
    proof = json.loads(ran.out)["proof"]
    assert proof["passed"] is True
    assert proof["same"]["greedy"] == {"same": 5, "of": 5}


def test_a_proof_that_fails_fails_the_command(
    words_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.interop.export.prove", lambda *_, **__: _failed())
    ran = regard("export", words_model, tmp_path / "out", "--to", "huggingface")
    assert ran.code == 65
    assert "FAILED" in ran.out
    assert "left as it is" in ran.err
    assert (tmp_path / "out" / "model.safetensors").is_file()


def _failed() -> object:
    from regard.interop.proof import Proof

    return Proof("regard", "transformers", 3, 0.5, 12, {"greedy": (1, 3)}, (1, 1), (1.0, 1.0))


def test_texts_may_be_given(words_model: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("nine\nten\nfour\n")
    options = ("--to", "huggingface", "--texts", tmp_path / "texts.txt")
    assert "asked about 3 texts" in regard("export", words_model, tmp_path / "out", *options).out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--to", "tensorflow"), "--to must be one of: huggingface, ctranslate2, onnx"),
        (("--to", "huggingface", "--numbers", "int8"), "--numbers must be one of: float32 for huggingface"),
        (("--to", "onnx", "--numbers", "int16"), "--numbers must be one of"),
    ],
)
def test_wrong_wishes(options: tuple[str, ...], words: str, words_model: Path, tmp_path: Path) -> None:
    failed(regard("export", words_model, tmp_path / "out", *options), 2, words)
    assert not (tmp_path / "out").exists()


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_what_cannot_be_compared_says_so(tmp_path: Path) -> None:
    from tests.interop.test_torch_transformer import folder

    (tmp_path / "theirs").mkdir()
    torch.manual_seed(1)
    folder(tmp_path / "theirs", norm_first=False)
    ran = regard("import", tmp_path / "theirs", tmp_path / "ours")
    assert ran.code == 0, ran.err
    assert "nothing was compared" in ran.out


def test_without_transformers_nothing_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    foreign.gpt2(tmp_path / "theirs")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "transformers" else find(name))
    ran = regard("import", tmp_path / "theirs", tmp_path / "ours")
    assert ran.code == 0, ran.err
    assert "pip install transformers" in ran.out
