"""A title gets no full stop."""

from __future__ import annotations

import pytest

from regard.documents.document import translated
from regard.documents.endings import like
from regard.documents.reading import read
from tests.documents.files import body_of, word

CUE = "1\n00:00:01,000 --> 00:00:02,000\n"
MEMORY = '<tmx><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>{}</seg></tuv>{}</tu></body></tmx>'


@pytest.mark.parametrize(
    ("source", "translation", "found"),
    [
        ("My holiday", "Mein Urlaub.", "Mein Urlaub"),
        ("My holiday", "Mein Urlaub?!", "Mein Urlaub"),
        ("My holiday", "Mes vacances\u202f!", "Mes vacances"),
        ("my holiday", "我的假期。", "我的假期"),
        ("“My holiday”", "„Mein Urlaub.“", "„Mein Urlaub“"),
        ("(my holiday)", "(mein Urlaub).", "(mein Urlaub)"),
        ("Chapter 5", "Kapitel 5.", "Kapitel 5"),
        ("Visit example.org", "Besuchen Sie example.org.", "Besuchen Sie example.org"),
        # What has a mark may keep another one.
        ("My holiday.", "Mein Urlaub!", "Mein Urlaub!"),
        ("Name:", "Name.", "Name."),
        ("“My holiday!”", "„Mein Urlaub!“", "„Mein Urlaub!“"),
        ("我的假期。", "My holiday.", "My holiday."),
        # A full stop that belongs to the word, and a translation that is nothing else.
        ("9 Uhr", "9 a.m.", "9 a.m."),
        ("a", "...", "..."),
        ("a", "", ""),
    ],
)
def test_a_translation_ends_as_its_source_does(source: str, translation: str, found: str) -> None:
    assert like(source, translation) == found


def ended(texts: list[str]) -> list[str]:
    return [f"{text.upper().rstrip('.')}." for text in texts]


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("a.html", "<title>my <b>holiday</b></title><td title='a b'>One. Two</td><p>Three.",
         "<title>MY &lt;B&gt;HOLIDAY&lt;/B&gt;</title><td title='A B'>ONE. TWO</td><p>THREE."),
        ("a.srt", f"{CUE}one\ntwo\n", f"{CUE}ONE TWO\n"),
        ("a.tmx", MEMORY.format("one", ""), MEMORY.format("one", '<tuv xml:lang="de"><seg>ONE</seg></tuv>')),
        ("a.txt", "- one\n- two.\n", "- ONE\n- TWO.\n"),
    ],
)  # fmt: skip
def test_in_every_form(name: str, before: str, after: str) -> None:
    assert translated(read(name, before.encode(), target="de"), ended).decode() == after


def test_in_a_word_document() -> None:
    found = body_of(translated(read("a.docx", word("<w:p><w:r><w:t>one</w:t></w:r></w:p>")), ended))
    assert ">ONE</w:t>" in found


def test_what_differs_in_the_mark_alone_is_left_as_it_was() -> None:
    assert read("a.html", b"<p>Anna\n Smith</p>").write(["Anna Smith."]) == b"<p>Anna\n Smith</p>"


def test_lines_are_translated_as_they_come() -> None:
    assert translated(read("a", b"one\ntwo", "lines"), ended) == b"ONE.\nTWO."
