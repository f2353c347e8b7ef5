"""GPT-2's published vocabulary: the ids are those of an independent reading of the same two files."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import random
import unicodedata
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from regard.batch import Specials
from regard.errors import DataError, MissingError
from regard.text.tokenizer import END_OF_TEXT, GPT2Files, Tokenizer

regex = pytest.importorskip("regex", reason="the plain reading of GPT-2's rules needs `regex`")

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("REGARD_DATA", ROOT / "../shared/data")) / "gpt2-bpe"
ENCODER, MERGES = DATA / "encoder.json.gz", DATA / "vocab.bpe.gz"
there = ENCODER.is_file() and MERGES.is_file()
needs_files = pytest.mark.skipif(not there, reason="needs encoder.json.gz and vocab.bpe.gz in gpt2-bpe of REGARD_DATA")


class PlainGPT2:
    """Byte-level BPE in plain Python: cut into words, spell each in bytes, merge the best pair while there is one."""

    WORD = regex.compile(r"'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")

    def __init__(self, encoder: Path, merges: Path) -> None:
        self.numbers: dict[str, int] = json.loads(gzip.decompress(encoder.read_bytes()))
        lines = gzip.decompress(merges.read_bytes()).decode().split("\n")[1:-1]
        self.ranks = {tuple(line.split(" ")): rank for rank, line in enumerate(lines)}
        # Bytes that print stand for themselves; the others are given the characters from U+0100 on.
        visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        hidden = [byte for byte in range(256) if byte not in visible]
        self.letters = {byte: chr(byte) for byte in visible} | {b: chr(256 + n) for n, b in enumerate(hidden)}
        self.word = cache(self._word)

    def _word(self, word: str) -> list[int]:
        parts = [self.letters[byte] for byte in word.encode()]
        while len(parts) > 1:
            rank, place = min(
                (self.ranks.get(pair, len(self.ranks)), n) for n, pair in enumerate(itertools.pairwise(parts))
            )
            if rank == len(self.ranks):
                break
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
        return [self.numbers[part] for part in parts]

    def encode(self, text: str) -> list[int]:
        return [number for word in self.WORD.findall(text) for number in self.word(word)]


@cache
def ours() -> Tokenizer:
    return Tokenizer.from_gpt2(ENCODER, MERGES)


@cache
def plain() -> PlainGPT2:
    return PlainGPT2(ENCODER, MERGES)


PARTS = [
    *["the", " The", "Hello", " antidisestablishmentarianism", "naïve", "Straße", "Ελλάδα", "Привет", "שלום", "日本語"],
    *["'s", "'re", "'S", "don't", " I'll", "we've", "'d", "''", "’s", " 'tis", "1984", " 3.14159", "٣٤", "Ⅻ", "²"],
    *[" ", "  ", "     ", "\t", "\n", "\n\n", "\r\n", "\u00a0", "\u2003", "\u3000", "\x0b", "\x85", "\u2028"],
    *["😀", "👩‍👩‍👧", "🇩🇪", "e\u0301", "\u200b", "\ufeff", "\x00", "\x1f", "\ufffd", "▁", "Ġ", "Ċ"],
    *["def f(x):", "    return x**2", "a[i] += b->c;", "<div class='x'>", "https://a.b/?q=1&r=%20", "/* */", "\\n"],
    *[END_OF_TEXT, "<eos>", "...", "!!!", "----", "_", "$", "#include <a>", "aaaaaaaaaaaaaaaaaaaa", "中华人民共和国"],
]


def strings(count: int, seed: int) -> list[str]:
    """Text as it comes: words, contractions, numbers, white space, emoji, code, and single characters of any script."""
    draw = random.Random(seed)

    def part() -> str:
        if draw.random() < 0.7:
            return draw.choice(PARTS)
        # What Unicode has assigned since depends on the version a library was built with.
        character = chr(draw.choice([draw.randrange(0x250), draw.randrange(0xD800), draw.randrange(0xE000, 0x110000)]))
        return character if unicodedata.category(character) != "Cn" else "?"

    return ["".join(part() for _ in range(draw.randint(0, 12))) for _ in range(count)]


@pytest.mark.data
@needs_files
def test_the_ids_of_ten_thousand_strings() -> None:
    texts = strings(10_000, seed=1)
    for text, ids in zip(texts, ours().encode_all(texts), strict=True):
        assert ids == plain().encode(text), repr(text)
        assert ours().decode(ids) == text
    assert ours().encode_flat(texts).lists() == ours().encode_all(texts)


@pytest.mark.data
@needs_files
@given(st.text(st.characters(exclude_categories=["Cs", "Cn"])))
def test_the_ids_of_any_string(text: str) -> None:
    assert ours().encode(text) == plain().encode(text)
    assert ours().decode(ours().encode(text)) == text


@pytest.mark.data
@needs_files
def test_known_ids() -> None:
    assert ours().encode("Hello world") == [15496, 995]
    assert ours().size == GPT2Files.vocabulary == 50_257
    assert ours().specials == Specials(padding=50_256, start=50_256, end=50_256)
    assert ours().unknown is None


@pytest.mark.data
@needs_files
def test_the_end_of_text_is_never_read_from_text_nor_written_into_it() -> None:
    assert 50_256 not in ours().encode(f"a{END_OF_TEXT}b")
    assert ours().decode([50_256, *ours().encode("a b"), 50_256, 50_256]) == "a b"
    assert ours().labels([50_256, *ours().encode("a b")]) == (END_OF_TEXT, "a", "▁b")


@pytest.mark.data
@needs_files
def test_it_is_saved_and_chosen_by_a_recipe_like_any_other(tmp_path: Path) -> None:
    plain_files = tmp_path / "encoder.json", tmp_path / "vocab.bpe"
    for packed, file in zip((ENCODER, MERGES), plain_files, strict=True):
        file.write_bytes(gzip.decompress(packed.read_bytes()))
    chosen = Tokenizer.learn([], GPT2Files(str(plain_files[0]), str(plain_files[1])))
    assert chosen.to_json() == ours().to_json()
    (tmp_path / "tokenizer.json").write_text(chosen.to_json(), encoding="utf-8")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    texts = strings(200, seed=2)
    assert again.encode_all(texts) == ours().encode_all(texts)
    assert again.specials == ours().specials


def small_files(place: Path) -> tuple[Path, Path]:
    """A vocabulary of the 256 bytes, one merge and the end of text."""
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "ab", END_OF_TEXT]
    encoder, merges = place / "encoder.json", place / "vocab.bpe"
    encoder.write_text(json.dumps({token: number for number, token in enumerate(tokens)}), encoding="utf-8")
    merges.write_text("#version: 0.2\na b\n", encoding="utf-8")
    return encoder, merges


def test_files_of_one_merge(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_gpt2(*small_files(tmp_path))
    assert (tokenizer.size, tokenizer.specials) == (258, Specials(257, 257, 257))
    assert tokenizer.labels(tokenizer.encode("abba ab")) == ("ab", "b", "a", "▁", "ab")
    assert tokenizer.decode(tokenizer.encode("日 <|endoftext|>\n")) == "日 <|endoftext|>\n"


def test_target_languages_are_added_behind_the_published_tokens(tmp_path: Path) -> None:
    encoder, merges = map(str, small_files(tmp_path))
    tokenizer = Tokenizer.learn([], GPT2Files(encoder, merges), ["de", "fr"])
    assert (tokenizer.size, tokenizer.languages) == (260, {"de": 258, "fr": 259})
    assert tokenizer.encode_sources(["ab <2de>"], "fr")[0][0] == 259
    assert not {258, 259} & set(tokenizer.encode("<2de><2fr>"))
    assert tokenizer.encode("abba ab") == Tokenizer.from_gpt2(Path(encoder), Path(merges)).encode("abba ab")


@pytest.mark.parametrize(
    ("encoder", "merges", "message"),
    [
        (b"{", None, r"encoder\.json: must be JSON"),
        (b"[]", None, r"encoder\.json: must give each token its number"),
        (b'{"a": 0, "b": 2}', None, r"encoder\.json: must give each token its number"),
        (b'{"a": "0"}', None, r"encoder\.json: must give each token its number"),
        (b'{"a": 0}', None, r"encoder\.json: must have <\|endoftext\|> and a token for each byte, but lacks '!'"),
        (b"\xff\xfe", None, r"encoder\.json: must be UTF-8, but byte 0 is not"),
        (None, b"#version: 0.2\na b\na c\n", r"vocab\.bpe:3: a merge must be two tokens .* but is 'a c'"),
        (None, b"ab\n", r"vocab\.bpe:1: a merge must be"),
        (None, gzip.compress(b"a b\n", mtime=0)[:-9], r"vocab\.bpe: must be a whole gzip file"),
    ],
)
def test_files_that_are_wrong_are_named(
    encoder: bytes | None, merges: bytes | None, message: str, tmp_path: Path
) -> None:
    files = small_files(tmp_path)
    for file, content in zip(files, (encoder, merges), strict=True):
        if content is not None:
            file.write_bytes(content)
    with pytest.raises(DataError, match=message):
        Tokenizer.from_gpt2(*files)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    encoder, merges = small_files(tmp_path)
    merges.unlink()
    with pytest.raises(MissingError, match=r"vocab\.bpe: there is no such file"):
        Tokenizer.from_gpt2(encoder, merges)
    with pytest.raises(DataError, match="must be a file that can be read"):
        Tokenizer.from_gpt2(tmp_path, merges)
