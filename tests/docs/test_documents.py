"""The pages about documents and about other servers' clients: what runs, runs; tables and limits are true."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from regard.documents import encoding, package, passage, xml
from regard.documents.reading import FORMS, SUFFIXES, read
from tests.tiny import language_model

from .pages import DOCS, blocks, run, table_rows

PAGE, HTTP = DOCS / "documents.md", DOCS / "http.md"


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = "encoder_layers=1, decoder_layers=1, d_model=16, d_ff=24, heads=2, dropout=0.0"
    language_model(Path("demo/model"), [f"model={{kind='transformer', {sizes}}}", "search.extra_length=2"])
    names: dict[str, object] = {}
    for block in blocks(PAGE, "sh", "python"):
        if block.language == "python":
            with redirect_stdout(StringIO()) as printed:
                exec(compile(block.text, str(PAGE), "exec"), names)
            assert printed.getvalue()
            continue
        for line in block.text.strip().split("\n"):
            answer = run(line)
            assert answer.code == 0, f"{line}\n{answer.errors}"
    assert Path("train.de.srt").read_text(encoding="utf-8").startswith("1\n00:00:01,000 --> 00:00:03,500\n")


def test_the_subtitles_it_shows_are_what_comes_out() -> None:
    (shown,) = (block.text for block in blocks(PAGE, "text") if "-->" in block.text)
    command = next(line for block in blocks(PAGE, "sh") for line in block.text.split("\n") if line.startswith("printf"))
    before = command.split("'")[1].replace("\\n", "\n").encode()
    document = read("train.srt", before)
    translation = re.sub("<.*?>", "", " ".join(shown.strip().split("\n")[2:]))
    source, target = document.texts[0].split(), translation.split()
    together = {"The": "Der", "train": "Zug", "arrives": "kommt", "on": "am", "Thursday": "Donnerstag", "at": "um"}
    links = [(source.index(ours), target.index(theirs)) for ours, theirs in together.items()]
    assert document.write([translation], [links]).decode().strip() == shown.strip()


def test_every_form_and_limit_is_described() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = " ".join(row[0] for row in table_rows(text))
    assert all(f"`{suffix}`" in rows for suffix in SUFFIXES)
    assert ", ".join(f"`{form}`" for form in ("lines", *FORMS[:-1])) in text
    limits = [encoding.LARGEST // 2**20, package.MOST_BYTES // 2**20, package.MOST_ENTRIES, package.MOST_RATIO,
              xml.MOST_ELEMENTS, xml.DEEPEST, passage.DEEPEST]  # fmt: skip
    for limit in limits:
        assert re.search(rf"\b{limit:,}\b", text), limit


def test_every_route_and_field_is_described() -> None:
    from regard.serve.openai import CompletionBody

    text = HTTP.read_text(encoding="utf-8")
    assert all(f"`{field}" in text or f"{field}`" in text for field in CompletionBody.model_fields if field != "user")
    for route in ("/v1/models", "/v1/completions", "/translate", "/detect", "/languages", "/translate_file",
                  "/download_file", "/frontend/settings"):  # fmt: skip
        assert f" {route}" in text
