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
        (("--to", "tensorflow"), "--to must be one of: huggingface, ctranslate2, onnx, regard"),
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


@pytest.mark.parametrize("target", ["ctranslate2", "onnx"])
def test_what_fewer_bits_cost_is_printed(target: str, words_model: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2" if target == "ctranslate2" else "onnxruntime")
    options = ("--to", target, "--numbers", "int8")
    ran = regard("export", words_model, tmp_path / "out", *options, "--json")
    assert ran.code == 0, ran.err
    quality = json.loads(ran.out)["proof"]["quality"]
    assert quality["against"] == "references"
    assert set(quality["regard"]) == set(quality[target]) == {"BLEU", "chrF"}
    (tmp_path / "texts.txt").write_text("nine\nten\nfour\n")
    ran = regard("export", words_model, tmp_path / "more", *options, "--texts", tmp_path / "texts.txt")
    assert f"  quality   {target} BLEU " in ran.out
    assert "against what regard wrote" in ran.out


def test_how_many_positions_go_out_is_told(words_model: Path, tmp_path: Path) -> None:
    out = regard("export", words_model, tmp_path / "hf", "--to", "huggingface", "--count", 2).out
    assert "positions: 1,024 of them are written" in out


def test_a_strangers_file_does_not_speak_to_the_terminal(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    foreign.gpt2(tmp_path / "theirs")
    file = tmp_path / "theirs" / "model.safetensors"
    save_file(load_file(file) | {"\x1b[31mred\x1b]0;x\x07\nregard: all is well": torch.ones(1)}, file)
    ran = regard("import", tmp_path / "theirs", tmp_path / "ours")
    assert ran.code == 65
    assert r"\x1b[31mred\x1b]0;x\x07\nregard: all is well" in ran.err
    assert "\x1b" not in ran.err
    assert ran.err.count("\n") == 1


def test_every_tensor_left_over_is_named(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    foreign.gpt2(tmp_path / "theirs")
    file = tmp_path / "theirs" / "model.safetensors"
    more = {f"more.{number}.weight": torch.ones(1) for number in range(60)}
    save_file(load_file(file) | more, file)
    failed(regard("import", tmp_path / "theirs", tmp_path / "ours"), 65, "60 unused", *more)


def test_the_card_goes_along(words_model: Path, tmp_path: Path) -> None:
    for target, name in (("huggingface", "README.md"), ("onnx", "card.md")):
        out = tmp_path / target
        ran = regard("export", words_model, out, "--to", target, "--count", "2")
        assert ran.code == 0, ran.err
        assert (out / name).read_text() == (words_model / "card.md").read_text()
    twice = regard("export", tmp_path / "onnx", tmp_path / "twice", "--to", "huggingface")
    failed(twice, 2, "must be a model of Regard's own, but was exported for onnx")


def test_a_shipped_model_without_its_corpus_is_asked_random_texts_and_says_so(tmp_path: Path) -> None:
    ran = regard("export", "writer", tmp_path / "writer", "--to", "huggingface", "--count", "2")
    assert ran.code == 0, ran.err
    assert "note      texts: none were found, so these are random tokens; name real ones with --texts FILE" in ran.out
    assert "cc0-1.0" in (tmp_path / "writer" / "README.md").read_text()
    assert json.loads((tmp_path / "writer" / "tokenizer_config.json").read_text())["padding_side"] == "left"


@pytest.mark.parametrize("number", [2**31, 3])
def test_a_vocabulary_that_does_not_number_its_tokens_once_each_is_refused(number: int, tmp_path: Path) -> None:
    assert regard("export", "writer", tmp_path / "out", "--to", "huggingface", "--count", "1").code == 0
    file = tmp_path / "out" / "tokenizer.json"
    tree = json.loads(file.read_text())
    tree["model"]["vocab"]["h"] = number
    file.write_text(json.dumps(tree))
    ran = regard("import", tmp_path / "out", tmp_path / "back", "--count", "1")
    failed(ran, 65, "must number its tokens from 0, each once, but does not")


def test_a_config_that_asks_for_too_much_is_refused(tmp_path: Path) -> None:
    assert regard("export", "writer", tmp_path / "out", "--to", "huggingface", "--count", "1").code == 0
    file = tmp_path / "out" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"n_embd": 2**30, "n_head": 1}))
    ran = regard("import", tmp_path / "out", tmp_path / "back", "--count", "1")
    failed(ran, 65, "numbers, but by its settings it would be")
