"""The page about errors shows what really happens."""

from __future__ import annotations

from pathlib import Path

import pytest

import regard
from regard.cli.common import READER_LEFT, STOPPED_BY

from .pages import DOCS, blocks, run, table_rows

PAGE = DOCS / "errors.md"


def test_the_codes_are_those_of_the_exceptions() -> None:
    rows = [row for row in table_rows(PAGE.read_text(encoding="utf-8")) if row[0].isdecimal()]
    listed = {row[1].strip("`"): int(row[0]) for row in rows if row[1]}
    kinds: list[type[regard.RegardError]] = regard.RegardError.__subclasses__()
    assert listed == {kind.__name__: kind.exit_code for kind in kinds}
    assert {int(row[0]) for row in rows if not row[1]} == {0, 1, READER_LEFT, *STOPPED_BY.values()}


def test_the_examples_answer_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("talks.toml").write_text(blocks(PAGE, "toml")[0].text, encoding="utf-8")
    # The second German sentence is missing.
    Path("talks.en").write_text("Yes.\nWe will see each other again in spring.\nWhy?\nGo now.\n", encoding="utf-8")
    Path("talks.de").write_text("Ja.\nWarum?\nGeh jetzt.\n", encoding="utf-8")
    Path("lines.en").write_text("Yes.\n", encoding="utf-8")
    examples = blocks(PAGE, "console")
    assert len(examples) >= 3
    for block in examples:
        command, *shown = block.text.strip().split("\n")
        answer = run(command.removeprefix("$ "))
        assert [*answer.errors.strip().split("\n"), "$ echo $?", str(answer.code)] == shown
        assert answer.output == ""


def test_the_python_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks(PAGE, "python"):
        exec(block.text, {})
    assert "nowhere" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", ["regard train --sorce a.en", "regard nosuch", "regard translate"])
def test_an_unknown_option_is_a_mistake_in_usage(wrong: str) -> None:
    assert run(wrong).code == 2
