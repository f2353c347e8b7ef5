"""The page about shipped models: its commands answer as shown, and its figures are those of the cards."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from regard import folder, shipped

from .pages import DOCS, ROOT, blocks, run, table_rows

PAGE = DOCS / "shipped.md"
TEXT = PAGE.read_text(encoding="utf-8")
TRANSLATORS = ("everyday-en-de", "everyday-de-en")
BOOKS = ("the last tenth of the plays", "the last tenth of the novel")
SVG = "{http://www.w3.org/2000/svg}"


def card(name: str) -> dict[str, list[list[str]]]:
    """The rows of a card's table of scores, by the score's name."""
    text = (shipped.path(name) / folder.CARD).read_text(encoding="utf-8")
    found: dict[str, list[list[str]]] = {}
    for row in table_rows(text):
        if len(row) == 4 and "…" in row[2]:
            found.setdefault(row[0], []).append(row)
    return found


def marked(picture: Path) -> tuple[list[str | None], list[tuple[str | None, str | None]]]:
    """The words of a picture of an alignment, and where its rings are."""
    root = ET.fromstring(picture.read_text(encoding="utf-8"))
    rings = [(rect.get("x"), rect.get("y")) for rect in root.iter(f"{SVG}rect") if rect.get("class") == "ring"]
    return [word.text for word in root.iter(f"{SVG}text")], rings


def test_the_picture_of_the_readme_shows_a_shipped_model() -> None:
    words, rings = marked(DOCS / "pictures/attention.svg")
    for name in ("README.md", "README.zh-CN.md"):
        text = " ".join((ROOT / name).read_text(encoding="utf-8").split())
        command = re.search(r"`regard view everyday-en-de \"([^\"]+)\" --what alignment`", text)
        assert command is not None
        assert set(command[1].split()) <= set(words)
    assert {"regnet,", "bleiben", "Hause."} <= set(words)
    assert len(rings) == 8  # one for each word


def test_the_readmes_say_how_large_the_translators_are() -> None:
    sizes = {name: re.findall(r"of ([\d,]+) parameters", (shipped.path(name) / folder.CARD).read_text(encoding="utf-8"))
             for name in TRANSLATORS}  # fmt: skip
    assert {round(int(number.replace(",", "")) / 1e6) for (number,) in sizes.values()} == {15}
    assert "have 15 million weights" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "各有一千五百万个权重" in (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")


def test_how_many_bits_a_weight_has_is_said_as_it_is() -> None:
    stored = {name: load_file(shipped.path(name) / folder.WEIGHTS).values() for name in shipped.ORDER}
    bits = {name: {8 * tensor.itemsize for tensor in tensors if tensor.ndim > 1} for name, tensors in stored.items()}
    assert bits == {"everyday-en-de": {8}, "everyday-de-en": {8}, "writer": {16}}
    assert "the translators have 8 bits a weight, the writer 16" in " ".join((shipped.__doc__ or "").split())
    sizes = {f"{(shipped.path(name) / folder.WEIGHTS).stat().st_size / 1e6:.1f}" for name in TRANSLATORS}
    assert sizes == set(re.findall(r"where those of today take ([\d.]+)\. ", TEXT))


@pytest.mark.parametrize("page", [PAGE, ROOT / "README.md", ROOT / "README.zh-CN.md"], ids=lambda page: page.name)
def test_translations_come_out_as_shown(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if page == PAGE:
        shown = [block.text.strip().split("\n") for block in blocks(page, "console")]
        assert len(shown) >= 3
    else:
        line, answer = blocks(page, "sh")[0].text.strip(), blocks(page, "text")[0].text.strip()
        shown = [[f"$ {line}", answer]]
    for command, *lines in shown:
        said = run(command.removeprefix("$ "))
        assert said.code == 0, said.errors
        assert said.output.rstrip("\n").split("\n") == lines


def test_its_other_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks(PAGE, "sh"):
        for line in block.text.strip().split("\n"):
            said = run(line)
            assert said.code == 0, f"{line}\n{said.errors}"
    assert Path("attention.html").is_file()
    assert f"`{Path('station.de.html').read_text(encoding='utf-8').strip()}`" in TEXT
    assert marked(Path("alignment.svg")) == marked(DOCS / "pictures/shipped.svg")


def test_the_python_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks(PAGE, "python")
    exec(compile(block.text, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.startswith(str(list(shipped.ORDER)))


def test_its_scores_are_those_of_the_cards() -> None:
    rows = {row[0]: row[1:] for row in table_rows(TEXT) if len(row) == 3 and "…" in row[1]}
    assert {"exact match", "BLEU", "chrF", "TER", "perplexity per token"} <= set(rows)
    for score, cells in rows.items():
        if score in BOOKS:
            continue
        for name, cell in zip(TRANSLATORS, cells, strict=True):
            ((_, value, interval, signature),) = card(name)[score]
            assert cell == f"{value} ({interval})", score
            if score in ("BLEU", "chrF", "TER"):
                assert signature.strip("`").replace("\\|", "|") in TEXT
    for number, (book, cells) in enumerate((book, rows[book]) for book in BOOKS):
        for score, cell in zip(("perplexity per byte", "perplexity per token"), cells, strict=True):
            _, value, interval, _ = card("writer")[score][number]
            assert cell == f"{value} ({interval})", book


def events(name: str) -> list[dict[str, Any]]:
    """What the log of a shipped model's training holds."""
    return [json.loads(line) for line in (shipped.path(name) / folder.METRICS).read_bytes().splitlines()]


def test_it_says_what_its_times_count() -> None:
    steps = [[event["took"] for event in events(name) if event["event"] == "step"] for name in shipped.ORDER]
    alone = [round(sum(took)) for took in steps]
    compiling = [round(took[0]) for took in steps]
    said = re.search(
        r"The steps alone took (\d+), (\d+) and (\d+) seconds; of these, the first ten took (\d+), (\d+) and (\d+),",
        " ".join(TEXT.split()),
    )
    assert said is not None
    assert [int(number) for number in said.groups()] == alone + compiling


def test_sizes_and_times_are_those_of_the_folders() -> None:
    rows = {row[0].strip("`"): row for row in table_rows(TEXT) if len(row) == 6}
    assert set(rows) == set(shipped.ORDER)
    for name, row in rows.items():
        place = shipped.path(name)
        size = sum(file.stat().st_size for file in place.iterdir())
        assert row[3] == f"{size / 1e6:.1f} MB"
        last = events(name)[-1]
        assert row[4] == f"{int(last['seconds'] // 60)}:{round(last['seconds'] % 60):02}"
        (parameters,) = re.findall(r"of ([\d,]+) parameters", (place / folder.CARD).read_text(encoding="utf-8"))
        assert row[2] == parameters
