"""Whole documents through a model: from Python, and by the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard import shipped
from regard.api import Options, load
from regard.errors import MissingError, UsageError
from tests.documents.files import body_of, word
from tests.tiny import failed, regard

SUBTITLES = "1\n00:00:01,000 --> 00:00:02,000\n<i>two</i>\n\n2\n00:00:03,000 --> 00:00:04,000\nthree\n"
GERMAN = SUBTITLES.replace("two", "zwei").replace("three", "drei")


def test_from_python(words_model: Path, tmp_path: Path) -> None:
    model = load(words_model)
    (tmp_path / "a.docx").write_bytes(word("<w:p><w:r><w:t>two</w:t></w:r></w:p>"))
    found = model.translate_document(tmp_path / "a.docx", tmp_path / "b.docx")
    assert {text: best.text for text, best in found.items()} == {"two": "zwei"}
    assert ">zwei</w:t>" in body_of((tmp_path / "b.docx").read_bytes())
    done: list[int] = []
    (tmp_path / "a").write_text("two\n\none\n\ntwo\n")
    model.translate_document(tmp_path / "a", tmp_path / "b", form="txt", progress=lambda texts, _: done.append(texts))
    assert (tmp_path / "b").read_text() == "zwei\n\neins\n\nzwei\n"
    assert sum(done) == 2
    with pytest.raises(MissingError, match="no such file"):
        model.translate_document(tmp_path / "none.srt", tmp_path / "c")
    with pytest.raises(MissingError, match="must be in a folder that is there"):
        model.translate_document(tmp_path / "a.docx", tmp_path / "none/b.docx")


def test_words_are_linked_by_attention(words_model: Path) -> None:
    (links,) = load(words_model).word_links(["two"], ["zwei"]) or [None]
    assert links in ([(0, 0)], [])


def test_of_two_layers_the_last_says_where_a_mark_goes(tmp_path: Path) -> None:
    """The first layer of a shipped model looks elsewhere: it left `rotes` outside."""
    (tmp_path / "a.html").write_text("<p>Yesterday I bought a <a href='x'>red car</a> for my mother.</p>")
    load(shipped.path("everyday-en-de")).translate_document(tmp_path / "a.html", tmp_path / "b.html")
    assert "<a href='x'>rotes Auto</a>" in (tmp_path / "b.html").read_text(encoding="utf-8")


def test_a_language_model_is_refused(babbling_model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs a model that translates"):
        load(babbling_model).translate_document("a.srt", tmp_path / "b.srt")


def test_the_target_of_a_memory(words_model: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "a.tmx", tmp_path / "b.tmx"
    file.write_text('<tmx><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>two</seg></tuv></tu></body></tmx>')
    load(words_model).translate_document(file, out)  # the files it learned from were words.en and words.de
    assert '<tuv xml:lang="de"><seg>zwei</seg></tuv>' in out.read_text()
    load(words_model).translate_document(file, out, options=Options(language="de-AT"))
    assert '<tuv xml:lang="de-AT"><seg>zwei</seg></tuv>' in out.read_text()


def test_by_the_name_of_the_file(words_model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.srt").write_text(SUBTITLES)
    ran = regard("translate", words_model, tmp_path / "a.srt", "--out", tmp_path / "b.srt")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert (tmp_path / "b.srt").read_text() == GERMAN
    (tmp_path / "a.html").write_text("<p>two</p>")
    assert regard("translate", words_model, tmp_path / "a.html", "--out", tmp_path / "b.html", "--beam", 2).code == 0
    assert (tmp_path / "b.html").read_text() == "<p>zwei</p>"
    (tmp_path / "c.html").write_text("<p>two</p><p>猫 two</p>", encoding="utf-8")
    ran = regard("translate", words_model, tmp_path / "c.html", "--out", tmp_path / "d.html")
    assert ran.code == 0
    assert "c.html: 1 sentence has characters that the model does not know, first '猫 two' (猫). It reads" in ran.err


def test_lines_and_paragraphs_of_a_text_file(words_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("  two\n\n- one\n")
    assert regard("translate", words_model, file).out.count("\n") == 3
    assert regard("translate", words_model, file, "--as", "txt", "--out", tmp_path / "b.txt").code == 0
    assert (tmp_path / "b.txt").read_text() == "  zwei\n\n- eins\n"
    (tmp_path / "a.srt").write_text("two\n")
    assert regard("translate", words_model, tmp_path / "a.srt", "--as", "lines").out == "zwei\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "--out must name the document to write"),
        (["--out", "x", "--nbest", "2"], "--nbest must be left out with a document"),
        (["--out", "x", "--json"], "--json must be left out with a document"),
        (["--out", "x", "--resume"], "--resume must be left out with a document"),
        (["--as", "pdf"], "--as must be one of: lines, txt, srt, html, docx, tmx; but is `pdf`"),
        (["--out", "x", "--require", "日本"], "must be in the model's vocabulary"),
    ],
)
def test_what_cannot_be_is_refused(words_model: Path, tmp_path: Path, options: list[str], words: str) -> None:
    (tmp_path / "a.srt").write_text(SUBTITLES)
    failed(regard("translate", words_model, tmp_path / "a.srt", *options), 2, words)
    assert [file.name for file in tmp_path.iterdir()] == ["a.srt"]


def test_stdin_stays_lines(words_model: Path) -> None:
    failed(regard("translate", words_model, "--as", "srt", "--out", "x", stdin=b"two"), 2, "a document must be a file")
    assert regard("translate", words_model, "--as", "lines", stdin=b"two\n").out == "zwei\n"


def test_bad_documents_are_named(words_model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.srt").write_text("hello\n")
    ran = regard("translate", words_model, tmp_path / "a.srt", "--out", tmp_path / "b.srt")
    failed(ran, 65, tmp_path / "a.srt", "line 1: must be the number of the first cue")
    failed(regard("translate", words_model, tmp_path / "no.srt", "--out", tmp_path / "b.srt"), 66, "no such file")
