"""Files of text: read exactly, whatever their form, with every mistake in them named by file, line and byte."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import random
import re
import sys
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from regard.data import formats
from regard.data.formats import (
    Block,
    Repairs,
    find_files,
    find_partners,
    format_by_name,
    json_blocks,
    lines_of,
    open_text,
    partner_blocks,
    read_lines,
    stem,
    table_blocks,
    text_blocks,
)
from regard.data.generated import Generated, generate
from regard.data.suspicion import first_suspicious_line
from regard.errors import DataError, MissingError, UsageError

ODD = ["plain", "", "with \u2028 and \u2029", "vertical \x0b tab", "form \x0c feed", "next \x85 line", "car\rriage"]
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstandard.ZstdCompressor().compress,
}  # fmt: skip

# Characters that mean something, more often than chance would have them.
odd_or_any = st.sampled_from("\r\ufeff\u2028\0ü") | st.characters(exclude_characters="\n", exclude_categories=["Cs"])
any_lines = st.lists(st.text(odd_or_any), min_size=1)
plain_text = st.text(st.characters(exclude_characters="\n\r\t\ufeff", exclude_categories=["Cs"]))


def write(file: Path, lines: Iterable[str], end: str = "\n") -> Path:
    file.write_bytes("".join(line + end for line in lines).encode())
    return file


def rows(blocks: Iterable[Block]) -> list[tuple[str, str]]:
    return [pair for block in blocks for pair in zip(block.sources, block.targets, strict=True)]


# ---- lines


def test_a_line_ends_at_a_newline_and_nowhere_else(tmp_path: Path) -> None:
    assert read_lines(write(tmp_path / "odd.txt", ODD)) == ODD


@given(any_lines, st.integers(1, 9), st.booleans())
def test_any_lines_come_back_however_they_arrive(lines: list[str], piece: int, ended: bool) -> None:
    class Slow(io.BytesIO):
        """Gives a few bytes at a time, as a pipe may."""

        def read1(self, size: int | None = -1) -> bytes:
            return self.read(piece)

    content = "\n".join(lines).encode() + (b"\n" if ended else b"")
    repairs = Repairs()
    found = list(lines_of(Slow(content), "here", repairs))
    # What is taken away is counted, and nothing else is taken away.
    if not ended and not lines[-1]:
        lines = lines[:-1]
    expected = [line.removesuffix("\r") for line in lines]
    if expected and expected[0].startswith("\ufeff"):
        expected[0] = expected[0][1:]
    assert found == expected
    assert repairs.carriage_returns.get("here", 0) == sum(line.endswith("\r") for line in lines)
    assert repairs.byte_order_marks == (["here"] if lines and lines[0].startswith("\ufeff") else [])


def test_the_last_line_needs_no_line_end(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\ntwo")
    (tmp_path / "b").write_bytes(b"one\n\n")
    assert read_lines(tmp_path / "a") == ["one", "two"]
    assert read_lines(tmp_path / "b") == ["one", ""]
    (tmp_path / "c").write_bytes(b"one\r\ntwo\r")
    assert read_lines(tmp_path / "c") == ["one", "two"]


def test_a_byte_order_mark_and_carriage_returns_are_taken_away_and_counted(tmp_path: Path) -> None:
    file = write(tmp_path / "windows.txt", ["\ufeffone", "two\r", "", "\ufeffkept"], end="\r\n")
    repairs = Repairs()
    assert rows(text_blocks(str(file), repairs)) == [("", "one"), ("", "two\r"), ("", ""), ("", "\ufeffkept")]
    assert repairs == Repairs([str(file)], {str(file): 4})


def test_lines_are_given_out_as_they_come_in() -> None:
    class Typing(io.BytesIO):
        """Somebody who waits for an answer before going on."""

        def read1(self, size: int | None = -1) -> bytes:
            assert answered == asked
            asked.append(line := self.readline())
            return line

    asked: list[bytes] = []
    answered: list[bytes] = []
    # A byte order mark is one at the beginning only, and not whenever something new comes in.
    typed = "one\n\ufefftwo\nthree\n".encode()
    for line in lines_of(Typing(typed), "terminal"):
        answered.append(f"{line}\n".encode())
        if len(answered) == 3:
            break
    assert b"".join(answered) == typed


@pytest.mark.parametrize("ending", PACKERS)
def test_compressed_files_are_opened_as_they_are(ending: str, tmp_path: Path) -> None:
    file = tmp_path / f"a.en{ending}"
    whole = PACKERS[ending]("".join(f"{line}\n" for line in ODD * 500).encode())
    file.write_bytes(whole)
    assert read_lines(file) == ODD * 500
    # Several streams in one file, as `cat` makes.
    file.write_bytes(whole + whole)
    assert read_lines(file) == ODD * 1_000
    # Cut short, damaged where the content begins and in the middle, and not compressed at all.
    damaged = [whole[:place] + b"\xff" * 40 + whole[place + 40 :] for place in (12, len(whole) // 2)]
    for broken in (whole[:-9], *damaged, b"just text\n"):
        file.write_bytes(broken)
        with pytest.raises(DataError, match=rf"a\.en\{ending}: must be readable to its end, but is not"):
            read_lines(file)


@pytest.mark.parametrize("ending", PACKERS)
def test_no_stream_of_a_compressed_file_is_lost(ending: str, tmp_path: Path) -> None:
    file, whole = tmp_path / f"a.en{ending}", PACKERS[ending](b"one\ntwo\n" * 100)
    damaged = [bytes([whole[0] ^ 1]) + whole[1:], whole[:1] + bytes([whole[1] ^ 1]) + whole[2:], b"x", b"more text\n"]
    for tail in damaged:
        file.write_bytes(whole + tail)
        with pytest.raises(DataError, match=rf"a\.en\{ending}: must be readable to its end, but is not"):
            read_lines(file)


def test_xz_may_be_filled_up_with_zeros_and_bz2_may_not(tmp_path: Path) -> None:
    file = tmp_path / "a.xz"
    whole = PACKERS[".xz"](b"one\n")
    for filled in (whole + bytes(8), whole + bytes(2 * formats.CHUNK), whole + bytes(4) + whole + bytes(4)):
        file.write_bytes(filled)
        assert set(read_lines(file)) == {"one"}
    assert len(read_lines(file)) == 2
    (tmp_path / "a.bz2").write_bytes(PACKERS[".bz2"](b"one\n") + bytes(8))
    with pytest.raises(DataError, match="must be readable to its end"):
        read_lines(tmp_path / "a.bz2")


@pytest.mark.parametrize("ending", [".bz2", ".xz"])
def test_a_few_bytes_that_stand_for_many_do_not_fill_memory(ending: str, tmp_path: Path) -> None:
    (tmp_path / f"a{ending}").write_bytes(PACKERS[ending](b"a\n" * 2**24))
    tracemalloc.start()
    with open_text(tmp_path / f"a{ending}") as stream:
        assert sum(len(stream.read(2**16)) for _ in range(512)) == 2**25
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**24  # half of it is what .xz looks back into


@pytest.mark.parametrize("ending", PACKERS)
def test_endings_are_known_in_capitals_and_compressed_bytes_without_one_are_recognised(
    ending: str, tmp_path: Path
) -> None:
    for name in (f"A.TSV{ending.upper()}", "a.en"):
        (tmp_path / name).write_bytes(PACKERS[ending]("".join(f"{line}\n" for line in ODD).encode()))
    assert read_lines(tmp_path / f"A.TSV{ending.upper()}") == ODD
    assert format_by_name(f"A.TSV{ending.upper()}") == "tsv"
    with pytest.raises(DataError) as caught:
        read_lines(tmp_path / "a.en")
    assert f"a.en: must be text, but begins as a {ending} file does. Decompress it, or let its" in str(caught.value)
    assert "iconv" not in str(caught.value)


@given(any_lines)
def test_compressed_is_as_plain(lines: list[str]) -> None:
    content = "".join(f"{line}\n" for line in lines).encode()
    with TemporaryDirectory() as folder:
        (plain := Path(folder, "a")).write_bytes(content)
        for ending, pack in PACKERS.items():
            (packed := Path(folder, f"a{ending}")).write_bytes(pack(content))
            assert read_lines(packed) == read_lines(plain)
        assert len(read_lines(plain)) == len(lines)


def test_zstandard_that_is_not_there_is_named_with_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(UsageError, match=r"a\.zst: .* must be installed, but is not.*pip install 'regard\[data\]'"):
        open_text(tmp_path / "a.zst")


@pytest.mark.parametrize(
    ("content", "line", "byte", "value"),
    [
        (b"fine\nf\xfcr\n", "2", "2", "0xfc"),
        (b"\xff", "1", "1", "0xff"),
        (b"a\nb\nlong \xe2\x80\n", "3", "6", "0xe2"),
        (b"surrogate \xed\xa0\x80\n", "1", "11", "0xed"),
        (b"\xef\xbb\xbfmark \xff\n", "1", "9", "0xff"),
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


def test_what_comes_before_a_mistake_is_read() -> None:
    lines = lines_of(io.BytesIO(b"one\ntwo\n\xff\nfour\n"), "here")
    assert [next(lines), next(lines)] == ["one", "two"]
    with pytest.raises(DataError, match="line 3"):
        next(lines)


def test_long_lines_are_read_and_endless_ones_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "x" * 3_000_000
    assert read_lines(write(tmp_path / "long", ["short", long])) == ["short", long]
    monkeypatch.setattr(formats, "LONGEST_LINE", 1_000_000)
    with pytest.raises(DataError, match="long, line 2: must be at most 1,000,000 bytes long, but is longer"):
        read_lines(tmp_path / "long")


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


# ---- which files


def test_a_place_is_a_file_a_folder_or_a_pattern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("b.en", "a.en", ".hidden.en", "a.de", "[1].en", "deep/c.en"):
        Path(name).parent.mkdir(exist_ok=True)
        write(Path(name), ["x"])
    assert find_files("a.en") == ["a.en"]
    assert find_files("-") == ["-"]
    assert find_files("*.en") == ["[1].en", "a.en", "b.en"]
    assert find_files("[1]*") == ["[1].en"]
    assert find_files("**/?.en") == ["a.en", "b.en", "deep/c.en"]
    assert find_files(f"{tmp_path}/deep/*") == [f"{tmp_path}/deep/c.en"]
    assert find_files(".") == ["[1].en", "a.de", "a.en", "b.en"]
    assert find_files("nothing.en") == ["nothing.en"]  # whoever opens it says that it is not there
    with pytest.raises(MissingError, match=r"\*\.fr: must name at least one file, but there is none"):
        find_files("*.fr")


def test_partners_have_the_same_name_but_for_the_ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("news.1.en.gz", "talks.en", "news.1.de", "talks.de.bz2"):
        write(Path(name), ["x"])
    assert find_partners("*.en*", "*.de*") == [("news.1.en.gz", "news.1.de"), ("talks.en", "talks.de.bz2")]
    assert find_partners("talks.en", "news.1.de") == [("talks.en", "news.1.de")]  # two named files need no rule
    write(Path("news.2.en"), ["x"])
    with pytest.raises(DataError, match=r"news\.2\.en would stand beside talks\.de\.bz2"):
        find_partners("*.en*", "*.de*")
    Path("news.2.en").rename("zoo.en")
    with pytest.raises(DataError, match=r"name 3 and 2\. zoo\.en has no partner"):
        find_partners("*.en*", "*.de*")


def test_partners_in_two_folders_are_found_whatever_the_order_of_their_endings(tmp_path: Path) -> None:
    for name in ("p/news.en", "p/news.test.en", "q/news.zh", "q/news.test.zh"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, ["x"])
    found = find_partners(str(tmp_path / "p"), str(tmp_path / "q"))
    names = [tuple(str(Path(file).relative_to(tmp_path)) for file in pair) for pair in found]
    assert names == [("p/news.en", "q/news.zh"), ("p/news.test.en", "q/news.test.zh")]


def test_names_say_the_form() -> None:
    assert [format_by_name(name) for name in ("a.tsv", "a.tsv.bz2", "a.jsonl.zst", "b/a.ndjson", "a.txt", "-")] == [
        "tsv", "tsv", "jsonl", "jsonl", None, None,
    ]  # fmt: skip
    assert stem("a/news.1.de.gz") == "news.1"
    assert stem("gz") == "gz"


# ---- pairs


def test_pairs_join_line_by_line(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a", ["x", "", "z"]), write(tmp_path / "b", ["X", "Y", ""])
    assert list(partner_blocks(str(a), str(b), Repairs())) == [Block(str(a), 1, ["x", "", "z"], ["X", "Y", ""])]


def test_blocks_say_where_they_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "BLOCK", 2)
    lines = ["a\tA", "b\tB", "c\tC", "d\tD"]
    table, side = write(tmp_path / "a.tsv", lines), write(tmp_path / "a", "abcd")
    for blocks in (table_blocks(str(table), (1, 2), Repairs()), partner_blocks(str(side), str(side), Repairs())):
        assert [(block.first, block.sources) for block in blocks] == [(1, ["a", "b"]), (3, ["c", "d"])]


@given(st.lists(st.tuples(plain_text, plain_text), min_size=1))
def test_all_forms_give_the_same_pairs(pairs: list[tuple[str, str]]) -> None:
    with TemporaryDirectory() as folder:
        table = write(Path(folder, "a.tsv"), (f"{source}\tnote\t{target}" for source, target in pairs))
        assert rows(table_blocks(str(table), (1, 3), Repairs())) == pairs
        assert rows(table_blocks(str(table), (3, 1), Repairs())) == [(target, source) for source, target in pairs]
        objects = (json.dumps({"en": source, "to": {"de": target}}) for source, target in pairs)
        assert rows(json_blocks(str(write(Path(folder, "a.jsonl"), objects)), ("en", "to.de"), Repairs())) == pairs
        sides = [write(Path(folder, f"a.{side}"), (pair[side] for pair in pairs)) for side in (0, 1)]
        assert rows(partner_blocks(str(sides[0]), str(sides[1]), Repairs())) == pairs


def test_tables_know_no_quotes_and_take_an_empty_line_for_an_empty_pair(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", ['"a\t"b\\t"', "", "c\t", "\td"])
    assert rows(table_blocks(str(file), (1, 2), Repairs())) == [('"a', '"b\\t"'), ("", ""), ("c", ""), ("", "d")]


def test_a_line_with_too_few_columns_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", ["a\tA\t1", "b\tB"])
    with pytest.raises(DataError, match=r"a\.tsv, line 2: must have at least 3 columns .* but has 2\. Mend"):
        list(table_blocks(str(file), (1, 3), Repairs()))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"de": "x"}', "must have the key `en`, but has 'de'. Choose other `keys`."),
        ("{}", "must have the key `en`, but has none"),
        ("[1]", "must have the key `en`, but has a list"),
        ('{"en": 3, "de": ""}', "`en` must be a string, but is a number"),
        ('{"en": "x"', "must be a JSON object, but cannot be read as one"),
        ("[" * 100_000, "must be a JSON object, but cannot be read as one"),
        ('{"en": "a\\ud800b", "de": ""}', "`en` must be Unicode, but its character 2 is the lone surrogate U+D800"),
    ],
)
def test_json_that_does_not_fit_is_named(line: str, words: str, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", ['{"en": "fine", "de": "gut"}', "", line])
    with pytest.raises(DataError) as caught:
        list(json_blocks(str(file), ("en", "de"), Repairs()))
    assert f"{file}, line 3: {words}" in str(caught.value)


def test_a_key_with_a_dot_is_a_key(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", ['{"a.b": "x", "a": {"b": "y", "c": "z"}}'])
    assert rows(json_blocks(str(file), ("a.b", "a.c"), Repairs())) == [("x", "z")]


def test_the_standard_input_is_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\tA\nb\tB\n")))
    assert rows(table_blocks("-", (1, 2), Repairs())) == [("a", "A"), ("b", "B")]
    with pytest.raises(DataError, match="-: must hold at least one line of text, but is empty"):
        list(table_blocks("-", (1, 2), Repairs()))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\nb\n")))
    other = write(tmp_path / "other", ["A"])
    with pytest.raises(DataError, match=r"have 2 and 1\. Look for a line too many in -"):
        list(partner_blocks("-", str(other), Repairs()))
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UsageError, match="stdin: must be open to be read from, but is closed"):
        list(table_blocks("-", (1, 2), Repairs()))


# ---- sides that do not fit each other


@pytest.mark.parametrize("longer", ["source", "target"])
def test_different_line_counts_are_named_with_both_counts_and_the_place(longer: str, tmp_path: Path) -> None:
    pairs = generate(Generated(pairs=2_000, valid=0, test=0)).train
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    (sources if longer == "source" else targets).insert(1_200, "This line has no partner on the other side.")
    a, b = write(tmp_path / "a.en", sources), write(tmp_path / "b.de", targets)
    with pytest.raises(DataError) as caught:
        list(partner_blocks(str(a), str(b), Repairs()))
    counts = "2,001 and 2,000" if longer == "source" else "2,000 and 2,001"
    assert f"{a} and {b}: both sides must have the same number of lines, but have {counts}" in str(caught.value)
    line = first_suspicious_line(sources, targets)
    assert abs(line - 1_201) <= 1
    assert f"look at line {line:,} of {a if longer == 'source' else b}" in str(caught.value)


@pytest.mark.parametrize(("left", "right"), [(2, 4), (5, 4), (4, 0), (0, 1)])
def test_counts_are_right_wherever_a_side_ends(
    left: int, right: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "BLOCK", 2)
    a, b = write(tmp_path / "a", "x" * left), write(tmp_path / "b", "x" * right)
    empty = "/a: must hold at least" if not left else "/b: must hold at least"
    with pytest.raises(DataError, match=f"have {left} and {right}" if left and right else empty):
        list(partner_blocks(str(a), str(b), Repairs()))


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


def test_texts_inside_lists(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps({"body": ["One.", "Two."], "short": [{"text": "x"}, {"text": "y"}]}) + "\n")
    assert rows(json_blocks(str(file), ("body.*", "short.1.text"), Repairs())) == [("One. Two.", "y")]
    for key, said in (
        ("body", "`body` must be a string, but is a list"),
        ("body.2", "must have the key `body.2`, but has a list"),
        ("short.*", "must have the key `short.*`, but has a list"),
    ):
        with pytest.raises(DataError, match=re.escape(said)):
            list(json_blocks(str(file), (key, "short.0.text"), Repairs()))
