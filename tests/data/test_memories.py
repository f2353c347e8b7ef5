"""Translation memories as corpora: the pairs of two languages, without the codes of programs."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import pytest

from regard.data import memories
from regard.data.corpus import Files, open_corpus
from regard.data.formats import Block
from regard.data.glance import alphabet, measure
from regard.data.memories import memory_blocks
from regard.errors import DataError

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4">'
UNITS = """<header srclang="en-US"><note>not a text</note></header><body>
<tu><note>nor this</note><tuv xml:lang="de"><seg>eins &amp; <bpt i="1">&lt;b></bpt>zwei<ept i="1"/></seg></tuv>
  <tuv xml:lang="EN-us"><seg>one &amp; <bpt i="1">&lt;b><sub>x</sub></bpt>two<ept i="1"/></seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>three</seg></tuv></tu>
<tu><tuv lang="en"><seg>a <hi>b <ph>{1}</ph>c</hi> d</seg></tuv><tuv lang="de_DE"><seg>
  e
  f </seg></tuv></tu>
</body></tmx>"""
PAIRS = [("one & two", "eins & zwei"), ("", ""), ("a b c d", "e f")]


def write(file: Path, units: str = UNITS, head: str = HEAD, encoding: str = "utf-8") -> Path:
    file.write_bytes((head + units).encode(encoding))
    return file


def unit(**texts: str) -> str:
    sides = "".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in texts.items())
    return f"<tu>{sides}</tu>"


def memory(units: Sequence[str], source: str = "*all*") -> str:
    return f'<header srclang="{source}"/><body>{"".join(units)}</body></tmx>'


def read(file: Path, source: str | None = None, target: str | None = None) -> list[tuple[str, str]]:
    blocks = memory_blocks(str(file), source, target)
    return [pair for block in blocks for pair in zip(block.sources, block.targets, strict=True)]


def test_pairs_go_from_the_source_of_the_file_to_its_other_language(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tmx")
    assert read(file) == PAIRS
    assert read(file, "de", "en") == read(file, target="en") == read(file, "de") == [pair[::-1] for pair in PAIRS]
    assert read(file, "en", "de") == read(file, "en") == read(file, target="de") == PAIRS


@pytest.mark.parametrize("encoding", ["utf-16", "windows-1252"])
def test_a_file_is_read_in_the_encoding_it_names(encoding: str, tmp_path: Path) -> None:
    text = memory([unit(en="you", de="für dich")], "en")
    assert read(write(tmp_path / "a.tmx", text, HEAD.replace("UTF-8", encoding), encoding)) == [("you", "für dich")]


def test_of_more_than_two_languages_two_must_be_named(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tmx", memory([unit(en="one"), unit(en="two", de="zwei", fr="deux")]))
    with pytest.raises(DataError, match=r"unit 2: the two languages must be told .* has `en`, `de`, `fr`\. Set"):
        read(file)
    assert read(file, "de", "fr") == [("", ""), ("zwei", "deux")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (memory([unit(en="a", de="b"), unit(en="c", fr="d")]), "must have units with text in `en` and `it`, but has "
         "none of them; their languages are: `en` (2), `de` (1), `fr` (1). Set"),
        (memory([]), "must hold at least one line of text, but is empty"),
        (memory([unit(en="a &b; c")]), "line 3: must be readable by itself, but `&b;` is"),
        ("<body>", "line 3: must be XML, but is not (no element found)"),
    ],
)  # fmt: skip
def test_damage_is_named(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as refused:
        read(write(tmp_path / "a.tmx", text), "en", "it")
    assert f"{tmp_path / 'a.tmx'}" in str(refused.value)
    assert words in str(refused.value)


def test_one_language_is_not_enough(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tmx", memory([unit(en="one"), unit(en="two")]))
    with pytest.raises(DataError, match=r"text in two languages, but has none of them; their .* are: `en` \(2\)\. Set"):
        read(file)


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("<html>", "must be a translation memory with <tmx> around it, but has <html>"),
        ('<!DOCTYPE tmx [<!ENTITY a "aa">]><tmx>', "line 1: must declare nothing in its <!DOCTYPE>"),
    ],
)
def test_other_files_and_traps_are_refused(head: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as refused:
        read(write(tmp_path / "a.tmx", memory([unit(en="a", de="b")]), head))
    assert words in str(refused.value)


def test_a_corpus_may_be_a_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memories, "BLOCK", 7)
    units = [unit(en=f"the {number}", de=f"die {number}") for number in range(20)]
    file = tmp_path / "a.tmx.gz"
    file.write_bytes(gzip.compress((HEAD + memory([*units, unit(en="alone")], "en")).encode()))
    blocks = list(memory_blocks(str(file), None, None))
    assert [block.first for block in blocks] == [1, 8, 15]
    assert blocks[0] == Block(
        str(file), 1, [f"the {number}" for number in range(7)], [f"die {number}" for number in range(7)]
    )
    settings = Files(str(file), valid_source=str(file), source_language="en", target_language="de")
    corpus = open_corpus(settings)
    assert [(pair.source, pair.target) for pair in corpus.train()] == [(f"the {n}", f"die {n}") for n in range(20)]
    assert corpus.report().corpora[0].dropped["empty"].count == 1
    size = measure(settings)
    assert size is not None
    assert (size.pairs, size.source, size.target) == (21, 110, 110)
    letters = alphabet(settings, compose=True)
    assert letters is not None
    assert letters.characters == set("the di0123456789")
