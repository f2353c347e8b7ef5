"""Word documents: what is text is translated, everything else stays."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.documents.document import translated
from regard.documents.reading import read
from regard.errors import DataError
from tests.documents.files import WORD, body_of, unzipped, upper, word, word_parts, zipped

BOLD = "<w:rPr><w:b/></w:rPr>"
RUN = "<w:r><w:t>{}</w:t></w:r>"


def through(paragraph: str, translate=upper) -> str:  # type: ignore[no-untyped-def]
    """The content of a paragraph, translated, without what only protects spaces."""
    found = body_of(translated(read("a.docx", word(f"<w:p>{paragraph}</w:p>")), translate))
    return found.removeprefix("<w:body><w:p>").removesuffix("</w:p></w:body>").replace(' xml:space="preserve"', "")


def test_parts_without_text_and_documents_without_a_change_are_the_same_bytes() -> None:
    data = word(f"<w:p>{RUN.format('One &amp; two.')}</w:p>", header1=f"<w:p>{RUN.format('Head')}</w:p>")
    document = read("a.docx", data)
    assert document.texts == ["One & two.", "Head"]
    assert document.write(document.texts) == data
    found = unzipped(document.write(["Eins.", "Head"]))
    before = unzipped(data)
    assert list(found) == list(before)
    assert {name for name in found if found[name] != before[name]} == {"word/document.xml"}


def test_runs_of_one_format_are_one_text_and_formats_stay_with_their_words() -> None:
    split = (
        "<w:r><w:t>Hel</w:t></w:r><w:proofErr w:type='x'/><w:r><w:rPr><w:lang w:val='en'/></w:rPr><w:t>lo</w:t></w:r>"
    )
    assert through(split) == "<w:r><w:t>HELLO</w:t></w:r>"
    mixed = f"<w:r><w:t xml:space='preserve'>a </w:t></w:r><w:r>{BOLD}<w:t>big</w:t></w:r><w:r><w:t> house</w:t></w:r>"
    assert through(mixed) == f"<w:r><w:t>A </w:t></w:r><w:r>{BOLD}<w:t>BIG</w:t></w:r><w:r><w:t> HOUSE</w:t></w:r>"


def test_tables_properties_headers_footers_and_notes() -> None:
    inside = f"<w:p><w:pPr><w:jc w:val='left'/></w:pPr>{RUN.format('cell')}</w:p>"
    cell = f"<w:tbl><w:tr><w:tc><w:tcPr/>{inside}</w:tc></w:tr></w:tbl>"
    note = f"<w:footnote w:id='2'><w:p>{RUN.format('remark')}</w:p></w:footnote>"
    data = word(cell, header1=f"<w:p>{RUN.format('head')}</w:p>", footnotes=note)
    found = translated(read("a.docx", data), upper)
    for part, text in (("document", "cell"), ("header1", "head"), ("footnotes", "remark")):
        after = body_of(found, part).replace(' xml:space="preserve"', "")
        assert after == body_of(data, part).replace(text, text.upper())


def test_links_fields_pictures_and_note_numbers_stay() -> None:
    linked = f"<w:hyperlink r:id='r1' xmlns:r='r'><w:r>{BOLD}<w:t>this page</w:t></w:r></w:hyperlink>"
    link = RUN.format("see ") + linked + RUN.format(" now")
    assert through(link) == (
        f"<w:r><w:t>SEE </w:t></w:r><w:hyperlink r:id='r1' xmlns:r='r'><w:r>{BOLD}<w:t>THIS PAGE</w:t></w:r>"
        "</w:hyperlink><w:r><w:t> NOW</w:t></w:r>"
    )
    field = "".join(
        f"<w:r>{inside}</w:r>"
        for inside in (
            "<w:fldChar w:fldCharType='begin'/>", "<w:instrText>REF x</w:instrText>",
            "<w:fldChar w:fldCharType='separate'/>", "<w:t>the field</w:t>", "<w:fldChar w:fldCharType='end'/>",
        )
    )  # fmt: skip
    assert through(RUN.format("in ") + field) == f"<w:r><w:t>IN </w:t></w:r>{field.replace('the field', 'THE FIELD')}"
    atom = "<w:r><w:footnoteReference w:id='2'/></w:r>"
    assert through(f"{RUN.format('word')}{atom}{RUN.format(' more')}") == (
        f"<w:r><w:t>WORD</w:t></w:r>{atom}<w:r><w:t> MORE</w:t></w:r>"
    )


def test_tabs_and_breaks_end_a_passage_also_inside_a_run_or_a_link() -> None:
    assert through("<w:r><w:t>one</w:t><w:tab/><w:t>two</w:t><w:br/></w:r>") == (
        "<w:r><w:t>ONE</w:t></w:r><w:r><w:tab/></w:r><w:r><w:t>TWO</w:t></w:r><w:r><w:br/></w:r>"
    )
    link = (
        "<w:hyperlink w:anchor='t'><w:r><w:t>Title</w:t></w:r><w:r><w:tab/></w:r><w:r><w:t>7</w:t></w:r></w:hyperlink>"
    )
    assert through(link) == link.replace("Title", "TITLE")
    document = read("a.docx", word(f"<w:p>{link}</w:p>"))
    assert document.texts == ["Title"]


def test_a_text_box_inside_a_paragraph_is_translated_with_it() -> None:
    box = f"<w:r><w:pict><w:txbxContent><w:p>{RUN.format('inner')}</w:p></w:txbxContent></w:pict></w:r>"
    assert through(RUN.format("outer") + box) == RUN.format("OUTER") + box.replace("inner", "INNER")
    # The box changes, the paragraph around it does not.
    assert through(RUN.format("OUTER") + box) == RUN.format("OUTER") + box.replace("inner", "INNER")


def test_other_names_for_the_same_namespace() -> None:
    body = f'<p xmlns="{WORD}"><r><t>one</t></r></p>'
    found = body_of(translated(read("a.docx", word(body)), upper))
    assert '<r><t xml:space="preserve">ONE</t></r></p>' in found


def test_what_xml_cannot_hold_is_not_written() -> None:
    assert through(RUN.format("x"), lambda _: ["a\0b<&\ud800"]) == RUN.format("a\ufffdb&lt;&amp;\ufffd")


@given(
    st.lists(st.tuples(st.text("ab .", min_size=1, max_size=6), st.sampled_from(["", BOLD, "<w:rPr><w:i/></w:rPr>"])))
)
def test_all_words_arrive_in_some_run(runs: list[tuple[str, str]]) -> None:
    body = "".join(f"<w:r>{style}<w:t xml:space='preserve'>{text}</w:t></w:r>" for text, style in runs)
    document = read("a.docx", word(f"<w:p>{body}</w:p>"))
    assert unzipped(document.write(document.texts)) == unzipped(word(f"<w:p>{body}</w:p>"))
    found = re.sub("<[^>]*>", "", body_of(translated(document, lambda texts: [f"x {text} y" for text in texts])))
    assert found.split() == (" ".join(f"x {text} y" for text in document.texts).split() or found.split())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"word/document.xml": b"<!DOCTYPE a [<!ENTITY b 'c'>]><a/>"},
            "a.docx, word/document.xml, line 1: must declare nothing",
        ),
        ({"word/document.xml": b"<a>" * 300 + b"</a>" * 300}, "at most 256 inside each other"),
        ({"word/document.xml": b"<a><b></a>"}, "word/document.xml, line 1: must be XML, but is not (mismatched tag)"),
        ({"word/document.xml": "<a>é</a>".encode("latin-1")}, "must be UTF-8"),
        ({"word/document.xml": b"<?xml version='1.0' encoding='latin1'?><a/>"}, "says that it is in `latin1`"),
        ({"../outside.xml": b"x"}, "must be inside the document"),
        ({"/etc/passwd": b"x"}, "must be inside the document"),
        ({"a\\b": b"x"}, "must be inside the document"),
        ({"word/zeros.bin": bytes(2**24)}, "unpack to at most 200 times its size"),
        ({"[Content_Types].xml": b"<Types/>"}, "must be a Word document, but has no text"),
    ],
)
def test_traps_and_damage_are_refused(change: dict[str, bytes], words: str) -> None:
    data = zipped({**word_parts(f"<w:p>{RUN.format('one')}</w:p>"), **change})
    with pytest.raises(DataError) as refused:
        read("a.docx", data)
    assert words in str(refused.value)


def test_zip_files_that_are_no_documents_are_refused() -> None:
    for data, words in (
        (b"nothing", "must be a zip file"),
        (b"\xd0\xcf\x11\xe0rest", "older or an encrypted one"),
        (zipped({"a": b"b"}), "has no [Content_Types].xml"),
        (zipped({str(n): b"" for n in range(10_001)}), "have at most 10,000 entries"),
        (word("<w:p/>")[:-30], "(File is not a zip file). Copy it again, or save it again as .docx."),
    ):
        with pytest.raises(DataError, match=re.escape(words)):
            read("a.docx", data)


def test_a_damaged_part_is_named() -> None:
    data = bytearray(word(f"<w:p>{RUN.format('one')}</w:p>"))
    place = data.index(b"word/document.xml") + len("word/document.xml") + 5
    data[place] ^= 0xFF
    with pytest.raises(DataError, match=r"a\.docx, word/document\.xml"):
        read("a.docx", bytes(data))


def test_overlapping_entries_are_refused() -> None:
    data = word(f"<w:p>{RUN.format('one')}</w:p>")
    # The second entry of the directory is made to point to the first one's bytes.
    first = data.index(b"PK\x01\x02")
    second = data.index(b"PK\x01\x02", first + 4)
    with pytest.raises(DataError):
        read("a.docx", data[: second + 42] + data[first + 42 : first + 46] + data[second + 46 :])
