"""The page about scores: its commands and its Python run, and its tables are those of the code."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import get_args

import pytest

from regard.evaluation.catalogue import Scoring, Tokenize, tallies
from regard.evaluation.metrics import Lines
from regard.evaluation.report import NEWSTEST2014
from regard.evaluation.significance import LEVEL, SAMPLES, SEED, SWAPS
from tests.tiny import ENGLISH, GERMAN, write_lines

from .pages import DOCS, blocks, prose, run, table_rows

PAGE = DOCS / "evaluation.md"
TEXT = PAGE.read_text(encoding="utf-8")


def section(title: str) -> str:
    return TEXT.partition(f"# {title}\n")[2].partition("\n#")[0]


def keys(text: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", text))


@pytest.fixture
def place(words_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(words_model, "french")
    write_lines(Path("test.en"), ENGLISH)
    write_lines(Path("test.fr"), [*GERMAN[:-1], "douze"])
    return tmp_path


def test_the_commands_run_in_order(place: Path) -> None:
    answers = {}
    for block in blocks(PAGE, "sh"):
        for line in block.text.strip().split("\n"):
            command = re.sub(r"^sacrebleu ", f"{sys.executable} -m sacrebleu ", line)
            answers[line] = run(command)
            assert answers[line].code == 0, f"{line}\n{answers[line].errors}"
    scores = json.loads(answers["regard evaluate french test.en test.fr --json"].output)["scores"]
    theirs = json.loads(answers["sacrebleu test.fr -i found.fr -m bleu chrf ter"].output)
    ours = {score["signature"]: score["value"] for score in scores}
    assert len(theirs) == 3
    for figure in theirs:
        assert ours[figure["signature"]] == pytest.approx(figure["score"], abs=0.06)
    assert len(Path("test.align").read_text().split("\n")) == 14


def test_the_python_runs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = blocks(PAGE, "python")
    exec(compile(example.text, str(PAGE), "exec"), {})
    assert "perplexity per byte" in capsys.readouterr().out


def test_every_figure_is_described() -> None:
    named = [name for row in table_rows(section("The figures")) for name in row[0].split(", ")]
    lines = Lines(["eins zwei"], [["eins drei"]])
    found = [tally.name for choice in ("13a", "intl") for tally in tallies(lines, Scoring(choice))]  # type: ignore[arg-type]
    optional = {"ROUGE-1", "ROUGE-2", "ROUGE-L"}
    assert set(named) == {*found, *optional, "perplexity per token", "perplexity per byte"}


def test_the_json_is_as_described(place: Path) -> None:
    first, second = TEXT.partition("\n## JSON\n")[2].split("`regard compare --json`")
    evaluated = json.loads(run("regard evaluate french test.en test.fr --json").output)
    compared = json.loads(run("regard compare test.fr test.en test.fr --json").output)
    for text, found in ((first, evaluated), (second, compared)):
        rows = {name: row[1] for row in table_rows(text) for name in keys(row[0])}
        assert set(rows) == set(found)
        for name, value in found.items():
            inner = value[0] if isinstance(value, list) and value else value
            if isinstance(inner, dict):
                assert set(inner) == keys(rows[name]) - {"A", "B"}, name


def test_the_numbers_are_those_of_the_code() -> None:
    text = " ".join(prose(PAGE).split())
    assert f"replacement, {SAMPLES:,} times" in text
    assert f"coin, {SWAPS:,} times" in text
    assert f"seed {SEED}" in text
    assert f"p is below {LEVEL}" in text
    whole, cut = NEWSTEST2014
    assert f"a version with {cut:,} lines and one with {whole:,}" in text
    assert set(get_args(Tokenize)) <= set(re.findall(r"`(\w+)`", section("Evaluate")))
