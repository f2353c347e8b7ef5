"""Subtitles: numbers and times stay, text is wrapped anew."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.documents.document import translated
from regard.documents.reading import read
from regard.errors import DataError
from tests.documents.files import upper

TIME = "00:00:0{0},000 --> 00:00:0{0},900"


def cue(number: int, text: str) -> str:
    return f"{number}\n{TIME.format(number)}\n{text}\n\n"


def through(text: str, *translations: str) -> str:
    document = read("a.srt", text.encode())
    return document.write(list(translations)).decode() if translations else translated(document, upper).decode()


def test_only_the_text_changes() -> None:
    text = cue(1, "Hello there,\nmy friend.") + cue(2, "") + cue(3, "42") + cue(4, "Good.")
    assert read("a.srt", text.encode()).texts == ["Hello there, my friend.", "Good."]
    found = through(text)
    assert found == text.replace("Hello there,\nmy friend.", "HELLO THERE, MY FRIEND.").replace("Good", "GOOD")
    windows = text.replace("\n", "\r\n")
    assert through(windows) == found.replace("\n", "\r\n")


def test_long_lines_are_wrapped_evenly() -> None:
    found = through(cue(1, "short"), "these are some more words than have room in a single line")
    assert found == cue(1, "these are some more words than\nhave room in a single line")
    chinese = through(cue(1, "short."), "这" * 50 + "。")
    assert [len(line) for line in chinese.split("\n")[2:4]] == [26, 25]


def test_speakers_are_passages_of_their_own() -> None:
    text = cue(1, "- Who is it?\n- Me.")
    assert read("a.srt", text.encode()).texts == ["Who is it?", "Me."]
    assert through(text) == text.upper()


def test_tags_stay() -> None:
    text = cue(1, '{\\an8}<i>He said <font color="red">no</font>.</i>')
    document = read("a.srt", text.encode())
    assert document.texts == ["He said no."]
    assert document.write(["Er sagte no."]).decode() == text.replace("He said", "Er sagte")
    unclosed = cue(1, "<i>one two</b>")
    assert through(unclosed) == unclosed.replace("one two", "ONE TWO")


def test_a_cue_may_hold_blank_lines_and_numbers_may_be_missing() -> None:
    text = f"1\n{TIME.format(1)}\none\n\ntwo\n\n{TIME.format(2)}  X1:40\nthree\n"
    document = read("a.srt", text.encode())
    assert document.texts == ["one two", "three"]
    assert document.write(document.texts).decode() == text


@pytest.mark.parametrize("text", ["Hello\nworld\n", "x\n" + cue(1, "one"), "1\nnot a time\nx\n"])
def test_what_is_no_subtitles_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(DataError, match=r"a\.srt, line 1: must be the number of the first cue"):
        read("a.srt", text.encode())


@given(st.lists(st.text(st.sampled_from("ab .<i>/{}\\-\n\r1:,"), max_size=20)))
def test_whatever_is_in_a_cue_comes_back(texts: list[str]) -> None:
    text = "".join(cue(number % 10, text) for number, text in enumerate(texts))
    document = read("a.srt", text.encode())
    assert document.write(document.texts).decode() == text
    translated(document, upper)
