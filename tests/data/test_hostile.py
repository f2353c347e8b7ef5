"""Corpora that go wrong in every known way: each line is kept, mended, dropped and counted, or the file is refused.

The rules are those of the table in docs/data.md. Every case is read from a file, by each form of corpus that can hold
it, all the way to token ids.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from regard.data.corpus import CorpusSettings, Files, Text
from regard.data.dataset import Dataset, read_dataset
from regard.data.formats import read_lines
from regard.errors import DataError
from regard.text.tokenizer import TokenizerSettings

GOOD = [(f"good {number}", f"gut {number}") for number in range(40)]
BYTES = TokenizerSettings("bytes", 300)
LONG = "word " * 200_000  # a megabyte


def write(place: Path, form: str, sources: list[bytes], targets: list[bytes]) -> CorpusSettings:
    """The lines as a corpus of a form, with validation pairs that nothing is wrong with."""
    valid = place / "valid.tsv"
    valid.write_text("v\tV\n")
    if form == "two files":
        for name, lines in (("a.en", sources), ("a.de", targets)):
            (place / name).write_bytes(b"".join(line + b"\n" for line in lines))
        return Files(str(place / "a.en"), str(place / "a.de"), valid_source=str(valid))
    if form == "table":
        (place / "a.tsv").write_bytes(b"".join(map(b"%b\t%b\n".__mod__, zip(sources, targets, strict=True))))
        return Files(str(place / "a.tsv"), valid_source=str(valid))
    if form == "json":
        rows = [{"source": a.decode(), "target": b.decode()} for a, b in zip(sources, targets, strict=True)]
        (place / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return Files(str(place / "a.jsonl"), valid_source=str(valid))
    (place / "a.txt").write_bytes(b"".join(line + b"\n" for line in targets))
    return Text(str(place / "a.txt"), valid=str(valid))


def read(place: Path, form: str, bad: tuple[bytes, bytes], at: int = 3) -> Dataset:
    """A corpus whose line `at` + 1 is the bad one."""
    lines = [(source.encode(), target.encode()) for source, target in GOOD]
    lines.insert(at, bad)
    sources, targets = (list(side) for side in zip(*lines, strict=True))
    return read_dataset(write(place, form, sources, targets), BYTES, 1)


def texts(data: Dataset) -> list[str]:
    return [data.tokenizer.decode(data.train.target[number]) for number in range(len(data.train))]


ALL = ("two files", "table", "json", "text")


@pytest.mark.parametrize("form", ALL)
@pytest.mark.parametrize(
    "odd", ["a\u2028b", "a\u2029b", "a\x0b\x0cb", "a\x1cb", "a\ufeffb", " a  b ", "a\rb", "▁<eos>"]
)
def test_what_is_text_stays_text(form: str, odd: str, tmp_path: Path) -> None:
    data = read(tmp_path, form, (b"x " + odd.encode(), odd.encode()))
    assert len(data.train) == 41
    assert texts(data)[3] == odd


@pytest.mark.parametrize("form", ["two files", "text"])
def test_a_byte_order_mark_and_carriage_returns_are_taken_away_and_counted(form: str, tmp_path: Path) -> None:
    data = read(tmp_path, form, ("\ufefffirst\r".encode(), "\ufeffzuerst\r".encode()), at=0)
    assert texts(data)[0] == "zuerst"
    assert data.report is not None
    repairs, files = data.report.repairs, {"two files": ["a.de", "a.en"], "text": ["a.txt"]}[form]
    assert sorted(Path(file).name for file in repairs.byte_order_marks) == files
    assert {Path(file).name: count for file, count in repairs.carriage_returns.items()} == dict.fromkeys(files, 1)
    assert "taken away: a byte order mark in" in data.report.to_text()


@pytest.mark.parametrize("form", ALL)
@pytest.mark.parametrize("damage", ["a\0b", "a\ufffdb", "a\x85b"])
def test_damaged_text_is_dropped_counted_and_named(form: str, damage: str, tmp_path: Path) -> None:
    data = read(tmp_path, form, (b"x", damage.encode()))
    assert len(data.train) == 40
    assert data.report is not None
    dropped = data.report.corpora[0].dropped["damaged"]
    assert (dropped.count, dropped.examples[0].line) == (1, 4)
    assert "1 damaged (a." in data.report.to_text()


@pytest.mark.parametrize("form", ["two files", "table", "json"])
@pytest.mark.parametrize(
    ("bad", "reason"),
    [(("", "y"), "empty"), (("x", ""), "empty"), (("x", " \u3000"), "empty"), ((LONG, LONG), "too long")],
)
def test_an_empty_side_and_a_megabyte_are_dropped_counted_and_named(
    form: str, bad: tuple[str, str], reason: str, tmp_path: Path
) -> None:
    data = read(tmp_path, form, (bad[0].encode(), bad[1].encode()))
    assert len(data.train) == 40
    assert data.report is not None
    dropped = data.report.corpora[0].dropped[reason]
    assert (dropped.count, dropped.examples[0].line) == (1, 4)


def test_plain_text_keeps_empty_lines_and_a_megabyte(tmp_path: Path) -> None:
    found = texts(read(tmp_path, "text", (b"", LONG.encode())))
    assert found[3] == LONG
    assert texts(read(tmp_path, "text", (b"", b"")))[3] == ""


@pytest.mark.parametrize("form", ["two files", "table", "text"])
@pytest.mark.parametrize(
    ("bad", "byte"), [(b"ab\xff", 3), (b"a\xed\xa0\x80", 2), (b"\xc3", 1), ("ä".encode("utf-16-le"), 1)]
)
def test_bytes_that_are_no_text_are_refused_with_line_and_byte(
    form: str, bad: bytes, byte: int, tmp_path: Path
) -> None:
    name = {"two files": "a.de", "table": "a.tsv", "text": "a.txt"}[form]
    place = byte + 2 if form == "table" else byte
    with pytest.raises(DataError, match=rf"{name}, line 4: must be UTF-8, but byte {place} of the line .* iconv -f "):
        read(tmp_path, form, (b"x", bad))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"source": "a", "target": "\\ud800"}', "`target` must be Unicode, but its character 1 is the lone surrogate"),
        ('{"source": ["a"], "target": "b"}', "`source` must be a string, but is a list"),
        ('{"source": "a", "target": null}', "`target` must be a string, but is null"),
        ('{"source": "a", "target": 5}', "`target` must be a string, but is a number"),
        ('{"source": "a"}', "must have the key `target`, but has 'source'"),
        ('["a", "b"]', "must have the key `source`, but has a list"),
        ('"a"', "must have the key `source`, but has a string"),
        ('{"source": "a", ', "must be a JSON object, but cannot be read as one"),
        ("[" * 100_000, "must be a JSON object, but cannot be read as one"),
        ('{"source": "a", "target": "b"} {}', "must be a JSON object, but cannot be read as one"),
    ],
)
def test_json_that_is_no_pair_is_refused_with_file_and_line(line: str, words: str, tmp_path: Path) -> None:
    good = [json.dumps({"source": source, "target": target}) for source, target in GOOD]
    (tmp_path / "a.jsonl").write_text("".join(f"{row}\n" for row in [*good[:3], line, *good[3:]]))
    with pytest.raises(DataError, match="line 4: ") as caught:
        read_dataset(Files(str(tmp_path / "a.jsonl")), BYTES, 1)
    assert f"{tmp_path / 'a.jsonl'}, line 4: {words}" in str(caught.value)


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
@pytest.mark.parametrize("damage", ["header", "garbage", "cut"])
def test_no_part_of_a_compressed_file_is_lost_without_a_word(
    ending: str, pack: Callable[[bytes], bytes], damage: str, tmp_path: Path
) -> None:
    """Two streams in one file, as `cat a.bz2 b.bz2` makes them, of which the second is damaged."""
    first, second = (pack("".join(f"{side[number]}\n" for side in GOOD).encode()) for number in (0, 0))
    broken = {"header": b"\x00" + second[1:], "garbage": second + b"garbage", "cut": second[:-5]}[damage]
    (tmp_path / f"a.en{ending}").write_bytes(first + second)
    (tmp_path / "a.de").write_text("".join(f"{target} {n}\n" for n in range(2) for _, target in GOOD))
    settings = Files(str(tmp_path / f"a.en{ending}"), str(tmp_path / "a.de"))
    data = read_dataset(settings, BYTES, 1)
    assert len(data.train) + len(data.valid) == 80
    (tmp_path / f"a.en{ending}").write_bytes(first + broken)
    with pytest.raises(DataError, match=rf"a\.en\{ending}: must be readable to its end, but is not"):
        read_dataset(settings, BYTES, 1)


def test_compressed_bytes_under_another_name_are_called_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(gzip.compress(b"a\tb\n" * 40))
    with pytest.raises(DataError, match=r"a\.tsv: must be text, but begins as a \.gz file does"):
        read_dataset(Files(str(tmp_path / "a.tsv")), BYTES, 1)


@pytest.mark.parametrize("lines", [b"\n\n\n", b" \n\t\n\n"])
def test_plain_text_without_any_text_is_refused(lines: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(lines * 20)
    with pytest.raises(DataError, match=r"a\.txt: must hold text, but there is none in any of its 60 lines"):
        read_dataset(Text(str(tmp_path / "a.txt")), BYTES, 1)


def test_json_may_hold_line_ends_and_they_are_text(tmp_path: Path) -> None:
    data = read(tmp_path, "json", (b"two\nlines", b"zwei\r\nZeilen"))
    assert texts(data)[3] == "zwei\r\nZeilen"


def test_a_table_with_too_few_columns_and_sides_of_different_lengths_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("a\tb\nonly one\n")
    with pytest.raises(DataError, match=r"a\.tsv, line 2: "):
        read_dataset(Files(str(tmp_path / "a.tsv")), BYTES, 1)
    settings = write(tmp_path, "two files", [b"a", b"b", b"c"], [b"A", b"B"])
    with pytest.raises(DataError, match=r"a\.en and .*a\.de: both sides must have the same number of lines"):
        read_dataset(settings, BYTES, 1)


@pytest.mark.parametrize(
    ("begin", "said"),
    [
        ("wörter\n".encode("utf-16"), r"It is UTF-16: iconv -f UTF-16 -t UTF-8 .*a\.en > .*a\.en\.utf-8$"),
        ("wörter\n".encode("cp1252"), r"If it is WINDOWS-1252: iconv -f WINDOWS-1252 -t UTF-8 "),
        (b"PK\x03\x04\xff\n", r"a document or a table of an office program: save its text as UTF-8"),
    ],
)
def test_who_brings_other_bytes_is_told_what_they_are(begin: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.en").write_bytes(begin)
    with pytest.raises(DataError, match=said):
        list(read_lines(tmp_path / "a.en"))
