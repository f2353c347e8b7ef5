"""The pages about translating and generating: their commands and their Python run, and their tables are complete."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from regard.api import Generation, Translation
from regard.layers import quantised
from regard.translation.result import FLAGS, to_json
from tests.tiny import language_model, regard

from .pages import DOCS, blocks, run, table_rows

NUMBER = re.compile(r"-?\d+\.\d+")
TRANSLATE, GENERATE = DOCS / "translate.md", DOCS / "generate.md"


def follow(page: Path) -> None:
    """Run every command and all Python of a page, in order; what a model that comes with Regard answers is shown."""
    names: dict[str, object] = {}
    answers = ""
    for block in blocks(page, "sh", "python", "text"):
        if block.language == "text":
            if answers:
                assert parts(answers) == rounded(parts(block.text))
            answers = ""
            continue
        if block.language == "python":
            with redirect_stdout(StringIO()) as printed:
                exec(compile(block.text, str(page), "exec"), names)
            assert printed.getvalue() or "print" not in block.text
            continue
        answers = ""
        for line in block.text.strip().split("\n"):
            answer = run(line)
            assert answer.code == 0, f"{line}\n{answer.errors}"
            answers += answer.output if "everyday-en-de" in line else ""


def parts(answers: str) -> list[str | float]:
    """Words and numbers."""
    found = [part for part in re.split(f"({NUMBER.pattern})", answers.strip()) if part]
    return [float(part) if NUMBER.fullmatch(part) else part for part in found]


def rounded(shown: list[str | float]) -> list[Any]:
    """The same for machines that sum up in another order."""
    return [pytest.approx(part, abs=2e-3) if isinstance(part, float) else part for part in shown]


def keys(page: Path) -> list[str]:
    """The keys of the table that describes the JSON."""
    text = page.read_text(encoding="utf-8").partition("## JSON")[2].partition("\n## ")[0]
    return [row[0].strip("`") for row in table_rows(text) if len(row) == 3]


def test_the_page_about_translating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # A vocabulary of bytes knows every word that the page wishes for.
    sizes = "encoder_layers=1, decoder_layers=1, d_model=16, d_ff=24, heads=2, dropout=0.0"
    language_model(Path("demo/model"), [f"model={{kind='transformer', {sizes}}}"])
    follow(TRANSLATE)
    assert Path("lines.de").read_text(encoding="utf-8").count("\n") == 4


def test_the_page_about_generating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # nothing is here: whoever pastes the commands has the model they name
    follow(GENERATE)


def test_every_check_is_shown(words_model: Path) -> None:
    shown = next(block.text for block in blocks(TRANSLATE, "text") if "neighbours" in block.text)
    answer = regard("verify", words_model, "--texts", 2)
    assert [line[:20] for line in answer.out.split("\n")] == [line[:20] for line in shown.split("\n")]


def test_every_option_of_search_is_described() -> None:
    described = {row[0].strip("`") for row in table_rows(TRANSLATE.read_text(encoding="utf-8")) if len(row) == 2}
    for name in (
        "beam",
        "penalty",
        "alpha",
        "coverage",
        "extra_length",
        "min_length",
        "nbest",
        "no_repeat",
        "diversity",
    ):
        assert f"--{name.replace('_', '-')}" in described


@pytest.mark.skipif(not quantised.can_quantise(), reason="no 8-bit products here")
def test_the_example_of_the_page_about_speed(
    words_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(words_model, "my-model")
    (example,) = blocks(DOCS / "speed.md", "python")
    names: dict[str, Any] = {}
    exec(compile(example.text, "speed.md", "exec"), names)
    assert names["model"].translate(["one"]) == ["eins"]


def test_the_json_is_described() -> None:
    translation = to_json([Translation("", 0.0, 0.0, cut=False)])
    assert keys(TRANSLATE) == list(translation)
    assert keys(GENERATE) == list(Generation("", (), (), (), "end").to_json())
    shown = next(block.text for block in blocks(TRANSLATE, "text") if block.text.startswith("{"))
    assert list(json.loads(shown)) == list(translation)


def test_every_flag_is_described() -> None:
    rows = table_rows(TRANSLATE.read_text(encoding="utf-8"))
    described = [row[0].strip("`") for row in rows if len(row) == 2 and not row[0].startswith("`--")]
    assert described == list(FLAGS)
    assert all(f"  {flag} " in (Translation.__doc__ or "") for flag in FLAGS)
