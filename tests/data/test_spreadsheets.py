"""Tables of spreadsheet programs: cells as they were typed, whatever stands between them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.corpus import Files, open_corpus
from regard.data.formats import Block, Repairs
from regard.data.labelled import Labelled
from regard.data.spreadsheets import csv_blocks
from regard.errors import DataError

any_cell = st.text(st.characters(exclude_characters="\r\ufeff", exclude_categories=["Cs"]), max_size=20)


def write(file: Path, rows: Iterable[Iterable[str]], separator: str = ",", begin: str = "") -> Path:
    """As spreadsheet programs write it, which end rows with CR LF."""
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=separator).writerows(rows)
    file.write_bytes((begin + text.getvalue()).encode())
    return file


def pairs_of(file: Path, keys: tuple[str, str] | None = None, columns: tuple[int, int] = (1, 2)) -> list[Block]:
    return list(csv_blocks(str(file), columns, Repairs(), keys))


def both(blocks: Iterable[Block]) -> list[tuple[str, str]]:
    return [pair for block in blocks for pair in zip(block.sources, block.targets, strict=True)]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@given(rows=st.lists(st.tuples(any_cell, any_cell, any_cell), min_size=1))
def test_what_was_typed_is_read(separator: str, rows: list[tuple[str, str, str]]) -> None:
    # A name for each column tells what stands between them, however odd the cells are.
    with TemporaryDirectory() as folder:
        file = write(Path(folder, "a.csv"), [("source", "note", "target"), *rows], separator)
        assert both(pairs_of(file, ("source", "target"))) == [(one, other) for one, _, other in rows]


def test_rows_are_counted_as_the_program_shows_them(tmp_path: Path) -> None:
    rows = [("en", "de"), ('She said "hi",\nthen left', "Sie sagte „hi“"), ("two", "zwei")]
    [block] = pairs_of(write(tmp_path / "a.csv", rows, begin="\ufeff"), ("de", "en"))
    assert block == Block(block.file, 2, [rows[1][1], "zwei"], [rows[1][0], "two"])
    assert pairs_of(tmp_path / "a.csv")[0].first == 1


def test_commas_in_sentences_do_not_hide_the_semicolons_between_them(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("Hello, you;Hallo, du\nYes, no, yes;Ja, nein, ja\n\nOne;Eins\n")
    found = both(pairs_of(file))
    assert found == [("Hello, you", "Hallo, du"), ("Yes, no, yes", "Ja, nein, ja"), ("", ""), ("One", "Eins")]
    file.write_text("Well; yes,Nun; ja\nNo,Nein\n")
    assert both(pairs_of(file)) == [("Well; yes", "Nun; ja"), ("No", "Nein")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\nc\n", "a.csv, row 2: must have at least 2 cells, but has 1. Mend the row"),
        ('a,b\n"c,d\n', "a.csv, row 2: must be cells with commas, semicolons or tabs"),
        ('a,b\n"c"d,e\n', "a.csv, row 2: must be cells with commas, semicolons or tabs"),
        ("", "a.csv: must hold at least one line of text, but is empty"),
    ],
)
def test_damage_is_named(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError) as refused:
        pairs_of(tmp_path / "a.csv")
    assert words in str(refused.value)


def test_names_that_are_not_there_are_told(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", [("English", "German"), ("one", "eins")])
    with pytest.raises(DataError, match="row 1: must name the columns `en`, `de`, but has `English`, `German`"):
        pairs_of(file, ("en", "de"))
    assert both(pairs_of(file, ("English", "German"))) == [("one", "eins")]


def test_a_corpus_may_be_such_a_table(tmp_path: Path) -> None:
    numbers = [(str(number), f"the {number}", f"die {number}") for number in range(60)]
    write(tmp_path / "a.csv", [("id", "source", "target"), *numbers])
    write(tmp_path / "b.csv", [("id", "source", "target"), *numbers[:3]])
    files = Files(str(tmp_path / "a.csv"), valid_source=str(tmp_path / "b.csv"))
    corpus = open_corpus(files)
    assert [(pair.source, pair.target) for pair in corpus.train()] == [row[1:] for row in numbers]
    assert len(corpus.valid()) == 3


def test_texts_with_labels_may_stand_in_such_a_table(tmp_path: Path) -> None:
    rows = [(f'{number}, "a"', "odd" if number % 2 else "even") for number in range(40)]
    settings = Labelled(str(write(tmp_path / "a.csv", rows, ";")), valid=str(write(tmp_path / "b.csv", rows[:2], ";")))
    assert [(pair.source, pair.target) for pair in open_corpus(settings).train()] == rows
