"""What is only an address is no text."""

from __future__ import annotations

import time

import pytest

from regard.documents.addresses import has_words, is_address
from regard.documents.document import translated
from regard.documents.reading import read
from tests.documents.files import body_of, upper, word

ADDRESSES = [
    "https://www.example.org/page", "ftp://example.org", "info@example.com", "<info@example.com>", "mailto:a@b.org",
    "example.org", "www.example.org:80/a?b#c", "münchen.de", "report.pdf", "archive.tar.gz", "IMG_2041.JPG", "main.c",
    "docs/readme.md", "/usr/local/bin", "~/notes", "../up", r"C:\Users\me", r"\\server\share", "(example.com).",
]  # fmt: skip
WORDS = [
    "Hello", "U.S.", "e.g.", "e.g", "z.B.", "a.m.", "Ph.D.", "and/or", "km/h", "/month", "Mr.Smith", "Hello.World",
    "3.Mai", "wait...what", "@home", "#tag", "3.5mm", "Hello...", "x@y", "C:",
]  # fmt: skip


@pytest.mark.parametrize("text", ADDRESSES)
def test_an_address_is_left_alone(text: str) -> None:
    assert is_address(text)
    assert not has_words(f"{text}, 42 {text}")
    assert has_words(f"see {text}")


@pytest.mark.parametrize("text", WORDS)
def test_a_word_is_no_address(text: str) -> None:
    assert not is_address(text)
    assert has_words(text)


@pytest.mark.parametrize("piece", ["a.", "a@", "/a", "a", "-", "a.b/", "a.b\\", "aB."])
def test_time_does_not_grow_with_the_square_of_a_word(piece: str) -> None:
    begin = time.perf_counter()
    has_words(piece * 200_000 + "!")
    assert time.perf_counter() - begin < 5


def test_in_every_form() -> None:
    page = '<p>https://www.example.org/page</p><p title="info@example.com"><a href="x">info@example.com</a>, 42</p>'
    assert read("a.html", page.encode()).texts == []
    cue = "1\n00:00:01,000 --> 00:00:02,000\n<i>www.example.org</i>\n"
    assert read("a.srt", cue.encode()).texts == []
    assert read("a.txt", b"- notes.txt\n\n/usr/bin\n").texts == []
    document = word("<w:p><w:r><w:t>www.example.org</w:t></w:r></w:p><w:p><w:r><w:t>one</w:t></w:r></w:p>")
    assert body_of(translated(read("a.docx", document), upper)).count("www.example.org") == 1


def test_a_memory_takes_it_over() -> None:
    text = '<tmx><header srclang="en"/><body>{}</body></tmx>'
    units = [f'<tu><tuv xml:lang="en"><seg>{each}</seg></tuv>' for each in ("info@example.com", "one", "42")]
    document = read("a.tmx", text.format("".join(f"{unit}</tu>" for unit in units)).encode(), target="de")
    assert document.texts == ["one"]
    added = [f'<tuv xml:lang="de"><seg>{each}</seg></tuv></tu>' for each in ("info@example.com", "ONE", "42")]
    expected = text.format("".join(unit + new for unit, new in zip(units, added, strict=True)))
    assert translated(document, upper).decode() == expected


def test_a_link_with_an_address_keeps_it_and_its_title_is_translated() -> None:
    page = '<p>See <a href="x" title="{}">www.example.org</a>{}</p>'
    document = read("a.html", page.format("our page", " now.").encode())
    assert document.texts == ["See www.example.org now.", "our page"]
    found = document.write(["Sehen Sie jetzt wwwlexample.org.", "unsere Seite"], [[(0, 0), (1, 3), (2, 2)], None])
    expected = '<p>Sehen Sie jetzt <a href="x" title="unsere Seite">www.example.org</a>.</p>'
    assert found.decode() == expected
