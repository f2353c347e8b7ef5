"""Translation memories: targets are added or filled, nothing else changes."""

from __future__ import annotations

import pytest

from regard.documents.document import translated
from regard.documents.reading import read
from regard.errors import DataError, UsageError
from tests.documents.files import upper

FILE = """<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4"><header srclang="en-US"/><body>
  <tu tuid="1">
    <tuv xml:lang="en"><seg>one &amp; <bpt i="1">&lt;b></bpt>two<ept i="1">&lt;/b></ept></seg></tuv>
  </tu>
  <tu><tuv xml:lang="EN-us"><seg>three<ph x="1"/></seg></tuv><tuv xml:lang="de-DE"><seg></seg></tuv></tu>
  <tu><tuv xml:lang="en"><seg>four</seg></tuv><tuv xml:lang="de"><seg>vier</seg></tuv></tu>
  <tu><tuv xml:lang="fr"><seg>cinq</seg></tuv></tu>
  <tu><tuv lang="en"><seg>a <hi type="x">b <bpt i="2"/>c</hi> d</seg></tuv></tu>
</body></tmx>
"""


def test_targets_are_added_and_filled() -> None:
    document = read("a.tmx", FILE.encode(), target="de")
    assert document.texts == ["one & two", "three", "a b c d"]
    found = translated(document, upper).decode()
    expected = FILE.replace(
        "two<ept i=\"1\">&lt;/b></ept></seg></tuv>\n",
        "two<ept i=\"1\">&lt;/b></ept></seg></tuv>\n"
        '    <tuv xml:lang="de"><seg>ONE &amp; <bpt i="1">&lt;b></bpt>TWO<ept i="1">&lt;/b></ept></seg></tuv>\n',
    ).replace('<tuv xml:lang="de-DE"><seg></seg>', '<tuv xml:lang="de-DE"><seg>THREE<ph x="1"/></seg>')  # fmt: skip
    last = '<hi type="x">b <bpt i="2"/>c</hi> d</seg></tuv>'
    added = '<tuv xml:lang="de"><seg>A <hi type="x">B <bpt i="2"/>C</hi> D</seg></tuv>'
    assert found == expected.replace(last, last + added)
    # There is nothing left to do.
    again = read("a.tmx", found.encode(), target="de")
    assert again.texts == []
    assert again.write([]) == found.encode()


def test_a_translation_that_is_its_source_is_written_too() -> None:
    text = '<tmx><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>Anna</seg></tuv></tu></body></tmx>'
    found = read("a.tmx", text.encode(), target="de").write(["Anna"]).decode()
    assert found == text.replace("</tu>", '<tuv xml:lang="de"><seg>Anna</seg></tuv></tu>')


def test_utf16_stays() -> None:
    data = b"\xff\xfe" + FILE.replace("UTF-8", "UTF-16").encode("utf-16-le")
    found = translated(read("a.tmx", data, target="de"), upper)
    assert found.startswith(b"\xff\xfe")
    assert "TWO" in found[2:].decode("utf-16-le")


def test_the_target_may_be_known_from_the_file() -> None:
    two = FILE.replace('<tu><tuv xml:lang="fr"><seg>cinq</seg></tuv></tu>', "").replace("de-DE", "de")
    assert len(read("a.tmx", two.encode()).texts) == 3
    with pytest.raises(UsageError, match=r"a\.tmx: the language to translate into must be given"):
        read("a.tmx", FILE.encode())


def test_a_document_type_that_declares_nothing_stays() -> None:
    # Programs for translators write it.
    text = FILE.replace("<tmx", '<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx')
    assert translated(read("a.tmx", text.encode(), target="de"), upper).decode().startswith(text[:100])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<!DOCTYPE x [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]><tmx>&b;</tmx>", "must declare nothing in its <!DOC"),
        ('<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx>&nbsp;</tmx>', "line 2: must be readable by itself, but `&nbsp;` is"),
        ("<html/>", "must be a translation memory with <tmx>"),
        ("<tmx>\n\n&nope;</tmx>", "line 3: must be XML"),
        ("<tmx>", "line 1: must be XML"),
        ("", "must be XML"),
    ],
)
def test_traps_and_damage_are_refused(text: str, words: str) -> None:
    with pytest.raises(DataError) as refused:
        read("a.tmx", text.encode(), target="de")
    assert words in str(refused.value)
