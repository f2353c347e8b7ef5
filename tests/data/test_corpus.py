"""Corpora in files: read exactly, with every mistake in them named by file, line and byte."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.corpus import Files, first_suspicious_line, lines_of, load_corpus, open_text, read_lines, read_pairs
from regard.data.generated import Generated, Pair, generate
from regard.errors import DataError, MissingError

ODD = [
    "plain",
    "",
    "with \u2028 and \u2029",
    "vertical \x0b tab",
    "form \x0c feed",
    "next \x85 line",
    "car\rriage",
    "\r",
]


def write(file: Path, lines: list[str], end: str = "\n") -> Path:
    file.write_bytes("".join(line + end for line in lines).encode())
    return file


def test_a_line_ends_at_a_newline_and_nowhere_else(tmp_path: Path) -> None:
    assert read_lines(write(tmp_path / "odd.txt", ODD)) == ODD


@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])), min_size=1))
def test_any_lines_come_back(lines: list[str]) -> None:
    content = "".join(f"{line}\n" for line in lines).encode()
    assert list(lines_of(io.BytesIO(content), "here")) == lines


def test_the_last_line_needs_no_line_end(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\ntwo")
    (tmp_path / "b").write_bytes(b"one\n\n")
    assert read_lines(tmp_path / "a") == ["one", "two"]
    assert read_lines(tmp_path / "b") == ["one", ""]


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
def test_compressed_files_are_opened_as_they_are(ending: str, pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    file = tmp_path / f"a.en{ending}"
    whole = pack("".join(f"{line}\n" for line in ODD * 500).encode())
    file.write_bytes(whole)
    assert read_lines(file) == ODD * 500
    # Cut short, damaged where the content begins and in the middle, and not compressed at all.
    damaged = [whole[:place] + b"\xff" * 40 + whole[place + 40 :] for place in (12, len(whole) // 2)]
    for broken in (whole[:-9], *damaged, b"just text\n"):
        file.write_bytes(broken)
        with pytest.raises(DataError, match=rf"a\.en\{ending}: must be readable to its end, but is not"):
            read_lines(file)


@pytest.mark.parametrize(
    ("content", "line", "byte", "value"),
    [
        (b"fine\nf\xfcr\n", "2", "2", "0xfc"),
        (b"\xff", "1", "1", "0xff"),
        (b"a\nb\nlong \xe2\x80\n", "3", "6", "0xe2"),
        (b"surrogate \xed\xa0\x80\n", "1", "11", "0xed"),
        (b"x\n" * 1_234 + b"\x00\x80\n", "1,235", "2", "0x80"),
    ],
)
def test_invalid_utf8_is_named_by_file_line_and_byte(
    content: bytes, line: str, byte: str, value: str, tmp_path: Path
) -> None:
    file = tmp_path / "a.de"
    file.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_lines(file)
    for words in (f"{file}, line {line}:", f"byte {byte} of the line is {value}", "iconv"):
        assert words in str(caught.value)


def test_missing_empty_and_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"nothing\.en: there is no such file"):
        read_lines(tmp_path / "nothing.en")
    with pytest.raises(DataError, match=r"empty\.en: must hold at least one line"):
        read_lines(write(tmp_path / "empty.en", []))
    with pytest.raises(DataError, match="must be a file of text, but is a folder"):
        read_lines(tmp_path)
    with pytest.raises(DataError, match=r"empty\.en/deeper: must be a file that can be read"):
        read_lines(tmp_path / "empty.en" / "deeper")


def test_a_mistake_of_the_reader_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    file = write(tmp_path / "a.en", ["one", "two"])

    def copy_to_nobody() -> None:
        with open_text(file) as stream:
            for _ in lines_of(stream, "a.en"):
                raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        copy_to_nobody()


def test_pairs_join_line_by_line(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a", ["x", "", "z"]), write(tmp_path / "b", ["X", "Y", ""])
    assert read_pairs(a, b) == [Pair("x", "X"), Pair("", "Y"), Pair("z", "")]


@pytest.mark.parametrize("longer", ["source", "target"])
def test_different_line_counts_are_named_with_both_counts_and_the_place(longer: str, tmp_path: Path) -> None:
    pairs = generate(Generated(pairs=2_000, valid=0, test=0)).train
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    (sources if longer == "source" else targets).insert(1_200, "This line has no partner on the other side.")
    a, b = write(tmp_path / "a.en", sources), write(tmp_path / "b.de", targets)
    with pytest.raises(DataError) as caught:
        read_pairs(a, b)
    counts = "2,001 and 2,000" if longer == "source" else "2,000 and 2,001"
    assert f"{a} and {b}: both sides must have the same number of lines, but have {counts}" in str(caught.value)
    line = first_suspicious_line(sources, targets)
    assert abs(line - 1_201) <= 1
    assert f"look at line {line:,} of {a if longer == 'source' else b}" in str(caught.value)


def test_the_suspicious_line_is_the_inserted_one_in_most_cases() -> None:
    pairs = generate(Generated(pairs=400, valid=0, test=0)).train
    draw, near, trials = random.Random(3), 0, 60
    for _ in range(trials):
        sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
        place = draw.randrange(len(pairs) + 1)
        longer = draw.choice((sources, targets))
        longer.insert(place, draw.choice(pairs).source)
        near += abs(first_suspicious_line(sources, targets) - (place + 1)) <= 1
    assert near >= 0.8 * trials


def test_a_lost_tail_is_found_at_the_end() -> None:
    pairs = generate(Generated(pairs=300, valid=0, test=0)).train
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs[:-40]]
    assert abs(first_suspicious_line(sources, targets) - 261) <= 3


def corpus(tmp_path: Path, pairs: int) -> Files:
    # Two translations of each sentence: the same source must not stand on both sides of the split.
    lines = [f"sentence {number // 2}" for number in range(pairs)]
    source = write(tmp_path / "c.en", lines)
    target = write(tmp_path / "c.de", [f"Satz {number}" for number in range(pairs)])
    return Files(str(source), str(target))


@pytest.mark.parametrize("pairs", [60, 400, 4_000])
def test_held_out_pairs_share_no_source_with_training_and_never_change(pairs: int, tmp_path: Path) -> None:
    files = corpus(tmp_path, pairs)
    splits = load_corpus(files)
    assert {pair.source for pair in splits.train}.isdisjoint({pair.source for pair in splits.valid})
    assert sorted(splits.train + splits.valid, key=str) == sorted(
        read_pairs(Path(files.source), Path(files.target)), key=str
    )
    assert splits == load_corpus(files)
    assert 2 <= len(splits.valid) <= len(splits.train)
    assert splits.test == []


def test_a_sentence_stays_on_its_side_when_the_corpus_grows(tmp_path: Path) -> None:
    small, large = (load_corpus(corpus(tmp_path, pairs)) for pairs in (4_000, 4_400))
    assert {pair.source for pair in small.valid} <= {pair.source for pair in large.valid}


def test_given_files_are_used_and_nothing_is_held_out(tmp_path: Path) -> None:
    files = corpus(tmp_path, 10)
    a, b = write(tmp_path / "v.en", ["v"]), write(tmp_path / "v.de", ["V"])
    splits = load_corpus(Files(files.source, files.target, "files", str(a), str(b), str(b), str(a)))
    assert (len(splits.train), splits.valid, splits.test) == (10, [Pair("v", "V")], [Pair("V", "v")])


@pytest.mark.parametrize("lines", [["only"], ["same"] * 50])
def test_too_few_different_sentences_to_hold_out_are_named(lines: list[str], tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.en", lines), write(tmp_path / "a.de", lines)
    with pytest.raises(DataError) as caught:
        load_corpus(Files(str(a), str(b)))
    for words in ("a.en: there must be enough different sentences", f"only {len(lines)} pairs", "data.valid_source"):
        assert words in str(caught.value)


def test_one_side_alone_is_refused() -> None:
    with pytest.raises(ValueError, match="`valid_source` and `valid_target` must be given together"):
        Files("a", "b", valid_source="v")
    with pytest.raises(ValueError, match="`test_source` and `test_target` must be given together"):
        Files("a", "b", test_target="t")
