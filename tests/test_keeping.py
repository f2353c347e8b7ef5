"""No command writes over a file that it reads, however that is called."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

from regard import cli
from regard.cli.keeping import READ, WRITTEN, keep_inputs, must_not_be_read
from regard.errors import UsageError
from tests.tiny import ENGLISH, GERMAN, failed, regard, write_lines

LOST = "must not be both read"


@pytest.mark.parametrize("out", ["a.en", "./x/../a.en", "link"])
@pytest.mark.parametrize("more", [[], ["--resume"], ["--json"]])
def test_translations_never_take_the_place_of_their_texts(
    out: str, more: list[str], words_model: Path, tmp_path: Path
) -> None:
    text = write_lines(tmp_path / "a.en", ENGLISH)
    (tmp_path / "x").mkdir()
    (tmp_path / "link").symlink_to(text)
    failed(regard("translate", words_model, text, "--out", f"{tmp_path}/{out}", *more), 2, LOST, "--out names it")
    assert text.read_text(encoding="utf-8") == "".join(f"{line}\n" for line in ENGLISH)
    assert {file.name for file in tmp_path.iterdir()} == {"a.en", "x", "link"}


def test_nor_do_translations_take_that_of_a_document(words_model: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<p>one</p>")
    failed(regard("translate", words_model, page, "--out", page), 2, f"{page}: {LOST} and written")
    assert page.read_text() == "<p>one</p>"


def test_what_is_evaluated_stays_as_it_is(words_model: Path, tmp_path: Path) -> None:
    source, first = write_lines(tmp_path / "s", ENGLISH), write_lines(tmp_path / "r", GERMAN)
    second = write_lines(tmp_path / "r2", GERMAN)
    for out in (source, first, second):
        before = out.read_bytes()
        failed(regard("evaluate", words_model, source, first, second, "--out", out), 2, out, LOST)
        assert out.read_bytes() == before


def test_so_does_the_test_set_of_the_recipe(words_model: Path) -> None:
    test = words_model.parent / "words.de"  # see `tests.tiny.word_recipe`
    before = test.read_bytes()
    failed(regard("evaluate", words_model, "--out", test), 2, test, LOST)
    assert test.read_bytes() == before


def test_a_primer_stays_as_it_is_even_where_files_are_numbered(tmp_path: Path) -> None:
    primer = write_lines(tmp_path / "a-2.mid", ["notes"])
    for midi, count in ((primer, 1), (tmp_path / "a.mid", 2)):
        asked = ["generate", tmp_path, "--primer", primer, "--midi", midi, "--count", count]
        failed(regard(*asked), 2, primer, LOST, "Name another file for --midi")


def test_what_comes_in_by_redirection_is_read_too(tmp_path: Path) -> None:
    text = write_lines(tmp_path / "a.en", ENGLISH)
    before = text.read_bytes()
    command = [sys.executable, "-m", "regard", "translate", "everyday-en-de"]
    with text.open("rb") as stdin, text.open("ab") as stdout:
        for more, fed, out, words in (
            (["--out", str(text)], stdin, None, f"{text}: must not be both read (as stdin) and written"),
            ([str(text)], None, stdout, f"{text}: must not be both read and written, but stdout goes into it"),
            ([], stdin, stdout, "stdin: must not be both read and written, but stdout goes into it"),
        ):
            done = subprocess.run([*command, *more], stdin=fed, stdout=out, stderr=subprocess.PIPE, check=False)
            assert done.returncode == 2
            assert words in done.stderr.decode()
    assert text.read_bytes() == before


def test_output_that_is_named_as_a_stream_leaves_what_stands_before_it(words_model: Path, tmp_path: Path) -> None:
    text = write_lines(tmp_path / "a.en", ENGLISH)
    kept = tmp_path / "kept"
    kept.write_text("before\n", encoding="utf-8")
    command = [sys.executable, "-m", "regard", "translate", str(words_model), str(text), "--out", "/dev/stdout"]
    with kept.open("ab") as stdout:
        subprocess.run(command, stdout=stdout, check=True)
    assert kept.read_text(encoding="utf-8") == "".join(f"{line}\n" for line in ["before", *GERMAN])
    failed(regard("translate", words_model, text, "--out", "-"), 2, "-: must be the name of a file to write")


def test_what_is_no_file_yet_and_what_loses_nothing_may_be_both(tmp_path: Path) -> None:
    other = write_lines(tmp_path / "b", [])
    for out, read in ((tmp_path / "new", tmp_path / "new"), (Path("/dev/null"), Path("/dev/null")), (other, tmp_path)):
        must_not_be_read("--out", out, [read])
    must_not_be_read("--out", other, ["x" * 5_000, "a\0b", tmp_path / "c"])
    with pytest.raises(UsageError, match="--out names it"):
        must_not_be_read("--out", other, [str(other)])


def test_a_text_is_no_file_that_is_read(words_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # the second time, there is a file that is called so
        assert regard("view", words_model, "one.svg", "--what", "alignment", "--out", "one.svg").code == 0


def test_values_are_known_in_whatever_form_they_come(tmp_path: Path) -> None:
    text = write_lines(tmp_path / "a", ENGLISH)
    for read in (text, str(text), [text], (str(text),)):
        for out in (text, str(text)):
            with pytest.raises(UsageError, match="--out names it"):
                keep_inputs({"reference": read, "out": out})
    keep_inputs({"reference": None, "out": text})


def test_whatever_names_a_file_is_known_to_be_read_or_written() -> None:
    named = {
        name: "Path" in str(getattr(hint, "__origin__", hint))
        for command in cli.app.registered_commands
        if command.callback is not None
        for name, hint in get_type_hints(command.callback, include_extras=True).items()
    }
    known = {*READ, *WRITTEN}
    assert {name for name, is_place in named.items() if is_place} <= known <= set(named)
