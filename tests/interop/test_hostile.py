"""Files that mean harm, or were harmed: each is refused with one sentence, and nothing is run or left behind."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.errors import RegardError
from regard.interop.reading import read
from tests.interop import foreign
from tests.tiny import failed, regard

WEIGHTS = "model.safetensors"


def cut(place: Path) -> None:
    content = (place / WEIGHTS).read_bytes()
    (place / WEIGHTS).write_bytes(content[: len(content) // 2])


def cut_header(place: Path) -> None:
    (place / WEIGHTS).write_bytes((place / WEIGHTS).read_bytes()[:6])


def huge_header(place: Path) -> None:
    (place / WEIGHTS).write_bytes(struct.pack("<Q", 2**60) + b"{}")


def whole_numbers(place: Path) -> None:
    weights = load_file(place / WEIGHTS)
    save_file(weights | {"transformer.wpe.weight": torch.zeros(64, 24, dtype=torch.int32)}, place / WEIGHTS)


def no_numbers(place: Path) -> None:
    weights = load_file(place / WEIGHTS)
    save_file(weights | {"transformer.wpe.weight": torch.full((64, 24), torch.nan)}, place / WEIGHTS)


def config(**changes: object) -> Callable[[Path], None]:
    def change(place: Path) -> None:
        found = json.loads((place / "config.json").read_text())
        (place / "config.json").write_text(json.dumps(found | changes))

    return change


def generation(values: str) -> Callable[[Path], None]:
    return lambda place: (place / "generation_config.json").write_text(values) and None


def no_config(place: Path) -> None:
    (place / "config.json").write_text('{"model_type": "gpt2", ')


def listed_config(place: Path) -> None:
    (place / "config.json").write_text("[" * 100_000)


def other_folder(place: Path) -> None:
    (place / WEIGHTS).unlink()
    index = {"weight_map": {"transformer.wte.weight": "../../etc/passwd"}}
    (place / "model.safetensors.index.json").write_text(json.dumps(index))


def no_shard(place: Path) -> None:
    (place / WEIGHTS).unlink()
    index = {"weight_map": {"transformer.wte.weight": "model-1.safetensors"}}
    (place / "model.safetensors.index.json").write_text(json.dumps(index))


class _Runs:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.mark}",)


def code(place: Path) -> None:
    (place / WEIGHTS).unlink()
    torch.save({"transformer.wte.weight": _Runs(place / "it-was-run")}, place / "pytorch_model.bin")


def no_vocabulary(place: Path) -> None:
    (place / "vocab.json").unlink()


def too_many_tokens(place: Path) -> None:
    inner = foreign.library_tokenizer()
    inner.add_special_tokens(["<more>"])
    inner.save(str(place / "tokenizer.json"))


def broken_tokenizer(place: Path) -> None:
    (place / "tokenizer.json").write_text('{"model": {"type": "BPE"')


CASES: dict[str, tuple[Callable[[Path], None], int, str]] = {
    "cut short": (cut, 65, "must be a whole safetensors file"),
    "a header cut short": (cut_header, 65, "must be a whole safetensors file"),
    "an endless header": (huge_header, 65, "must be a whole safetensors file"),
    "whole numbers": (whole_numbers, 65, "wpe.weight must hold floating-point numbers, but holds int32"),
    "no numbers": (no_numbers, 65, "must be a finite number"),
    "a terabyte": (config(n_embd=60_000, n_head=1, n_layer=12), 65, "wte.weight must be [259, 60000]"),
    "a terabyte of words": (
        config(vocab_size=2**31 - 1, eos_token_id=0, bos_token_id=0),
        65,
        "must be [2147483647, 24]",
    ),
    "a terabyte of places": (config(n_positions=2**31 - 1), 65, "wpe.weight must be [2147483647, 24]"),
    "a billion layers": (config(n_layer=10**9), 65, "1,000,000,000 layers"),
    "no layers": (config(n_layer=0), 65, "`n_layer` must be a whole number above 0"),
    "a word for a number": (config(n_embd="many"), 65, "`n_embd` must be a whole number"),
    "heads that do not fit": (config(n_head=5), 65, "`d_model` must be a multiple of `heads`"),
    "a token that is not there": (config(eos_token_id=10**6), 65, "`eos_token_id` must be the number of one of"),
    "a list for a word": (config(activation_function=["x"]), 2, "`activation_function` must be one of"),
    "nothing for a number": (config(layer_norm_epsilon=None), 65, "`layer_norm_epsilon` must be a number"),
    "a word for a small number": (config(layer_norm_epsilon="x"), 65, "`layer_norm_epsilon` must be a number"),
    "endless beams": (generation('{"num_beams": Infinity}'), 65, "`num_beams` must be a finite number"),
    "a penalty that is none": (generation('{"length_penalty": NaN}'), 65, "`length_penalty` must be a finite number"),
    "beams that no float holds": (generation(f'{{"num_beams": {10**400}}}'), 65, "must describe a search"),
    "a penalty that no float holds": (generation(f'{{"length_penalty": {10**400}}}'), 65, "must describe a search"),
    "a dropout that no float holds": (config(resid_pdrop=10**400), 65, "must describe a model"),
    "a list of beams": (generation('{"num_beams": [4]}'), 65, "`num_beams` must be a finite number"),
    "a broken config": (no_config, 65, "must be JSON"),
    "a deep config": (listed_config, 65, "must be JSON"),
    "files elsewhere": (other_folder, 65, "must name files of its folder"),
    "a shard that is not there": (no_shard, 66, "names this file, but it is not there"),
    "code": (code, 65, "asks for posix.system. It was not run"),
    "no vocabulary": (no_vocabulary, 66, "must hold a vocabulary"),
    "too many tokens": (too_many_tokens, 65, "must have at most 259 tokens"),
    "a broken tokenizer": (broken_tokenizer, 65, "must be a tokenizer"),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused_with_a_sentence(case: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    place = tmp_path / "theirs"
    foreign.gpt2(place)
    harm, exit_code, words = CASES[case]
    harm(place)
    failed(regard("import", place, tmp_path / "ours"), exit_code, words)
    assert [file.name for file in tmp_path.iterdir()] == ["theirs"]
    assert not (place / "it-was-run").exists()


def test_any_damaged_byte_of_the_config_is_survived(tmp_path: Path) -> None:
    foreign.gpt2(tmp_path)
    whole = (tmp_path / "config.json").read_bytes()
    draw = torch.Generator().manual_seed(1)
    refused = 0
    for _ in range(60):
        where, what = (int(torch.randint(size, (1,), generator=draw)) for size in (len(whole), 256))
        (tmp_path / "config.json").write_bytes(whole[:where] + bytes([what]) + whole[where + 1 :])
        try:
            read(tmp_path)
        except RegardError:
            refused += 1
    assert refused > 10


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    foreign.gpt2(tmp_path / "theirs")
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "thesis.txt").write_text("years of work")
    failed(regard("import", tmp_path / "theirs", tmp_path / "ours"), 2, "must be new or empty")
    assert [file.name for file in (tmp_path / "ours").iterdir()] == ["thesis.txt"]


def test_what_nobody_wrote_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    failed(regard("import", tmp_path / "theirs", tmp_path / "ours"), 65, "none of their files is there")
    failed(regard("import", tmp_path / "nowhere", tmp_path / "ours"), 66, "is not there")
