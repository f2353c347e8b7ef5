"""Plain text, encodings and wrapped lines."""

from __future__ import annotations

import codecs
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.documents.document import translated
from regard.documents.encoding import LARGEST, check_size
from regard.documents.reading import FORMS, form_of, read
from regard.documents.wrapping import balanced, wrap
from regard.errors import DataError, UsageError
from tests.documents.files import upper

WRAPPED = "These lines were wrapped at some width, as\nmany mail programs do, and belong together.\nThe end.\n"


def through(text: str) -> str:
    return translated(read("a.txt", text.encode()), upper).decode()


def test_blank_lines_indentation_bullets_and_line_ends_stay() -> None:
    text = "\n\n  One. Two.\r\n\t\n- three\n  2) four  \n\n\n42\n* five"
    assert read("a.txt", text.encode()).texts == ["One.", "Two.", "three", "four", "five"]
    assert through(text) == text.upper()


def test_wrapped_lines_are_one_passage_and_others_are_not() -> None:
    document = read("a.txt", WRAPPED.encode())
    assert document.texts == ["These lines were wrapped at some width, as many mail programs do, and belong together.",
                              "The end."]  # fmt: skip
    assert through(WRAPPED) == WRAPPED.upper()
    found = document.write(["a" * 30 + " " + "b" * 30, "c"]).decode()
    assert found == "a" * 30 + "\n" + "b" * 30 + " c\n"
    assert through(WRAPPED.replace("\n", "\r\n")) == WRAPPED.replace("\n", "\r\n").upper()
    assert len(read("a.txt", b"roses are red\nviolets are blue\n").texts) == 2


def test_lines_stay_lines_even_if_they_look_wrapped() -> None:
    document = read("q", WRAPPED.encode(), "lines")
    assert document.texts == WRAPPED.splitlines()
    assert document.write(["x" * 60, "y", "z"]).decode() == "x" * 60 + "\ny\nz\n"
    assert read("a.lines", b" - One. Two.\r\n\n3", "lines").write(["a", "b"]) == b" - a b\r\n\n3"


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE])
def test_the_encoding_stays(mark: bytes) -> None:
    encoding = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}.get(mark, "utf-8")
    data = mark + "größe 大\n".encode(encoding)
    document = read("a.txt", data)
    assert document.texts == ["größe 大"]
    assert document.write(document.texts) == data
    assert document.write(["Ünder"]) == mark + "Ünder\n".encode(encoding)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("gut\ngrößer".encode("latin-1"), "a.txt, line 2: must be UTF-8, or UTF-16 with a byte order mark, but byte 7"),
        ("größe".encode("utf-32"), "begins as UTF-32 does"),
        ("a\nb".encode("utf-16-le"), "line 1: must be text, but holds a NUL"),
        (codecs.BOM_UTF16_LE + b"\x00\xd8\x00", "must be UTF-8, or UTF-16"),
        (b"PK\x03\x04", "begins as a zip file does"),
        (b"%PDF-1.4", "begins as a PDF file does"),
    ],
)
def test_other_encodings_are_refused(data: bytes, words: str) -> None:
    with pytest.raises(DataError) as refused:
        read("a.txt", data)
    assert words in str(refused.value)


def test_large_documents_are_refused() -> None:
    class Large(bytes):
        def __len__(self) -> int:
            return LARGEST + 1

    with pytest.raises(DataError, match=r"a\.srt: a document must have at most 64 MiB"):
        check_size("a.srt", Large())


def test_forms() -> None:
    assert [form_of(f"x/A.{form.upper()}") for form in FORMS] == list(FORMS)
    assert form_of("a.htm") == "html"
    assert form_of("a.pdf") is None
    with pytest.raises(UsageError, match=r"a\.pdf: a document must be one of: \.txt"):
        read("a.pdf", b"")
    for name, said in (("a.pdf", "its name ends in `.pdf`. Convert it"), ("a", "its name has no ending. Convert it")):
        with pytest.raises(UsageError, match=re.escape(said)):
            read(name, b"one")
    assert read("a.pdf", b"one", "txt").texts == ["one"]


def test_each_text_needs_a_translation_and_repeated_ones_are_asked_once() -> None:
    document = read("a.txt", b"one\n\ntwo\n\none\n")
    with pytest.raises(UsageError, match="needs one translation for each of its 3 texts, but has 2"):
        document.write(["eins", "zwei"])
    asked: list[str] = []

    def ask(texts: list[str]) -> list[str]:
        asked.extend(texts)
        return upper(texts)

    assert translated(document, ask) == b"ONE\n\nTWO\n\nONE\n"
    assert asked == ["one", "two"]


def test_a_translation_is_one_line_and_keeps_its_no_break_spaces() -> None:
    assert read("a.txt", b"one\n").write([" a\n\nb\u2028c !\r "]).decode() == "a b c !\n"


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    data = text.replace("\0", "").encode(errors="replace")
    document = read("a.txt", data)
    assert document.write(document.texts) == data
    assert all(sentence.strip() == sentence != "" for sentence in document.texts)
    again = read("a.txt", translated(document, lambda texts: [f"x{text}" for text in texts]))
    assert len(again.texts) >= bool(document.texts)


@given(st.lists(st.text("ab大", min_size=1, max_size=8), min_size=1, max_size=20), st.integers(1, 30))
def test_wrapping(words: list[str], width: int) -> None:
    text = " ".join(words)
    for lines in (wrap(text, width), balanced(text, width)):
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")
        # Only what cannot be cut is longer: letters in a row.
        assert all(len(line) <= width or ("大" not in line[:-1] and " " not in line) for line in lines)
    assert len(balanced(text, width)) == len(wrap(text, width))
