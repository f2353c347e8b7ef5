"""Texts encoded by words have the tokens that the library gives them, whatever they hold."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st

from regard.errors import DataError
from regard.text import words as module
from regard.text.learning import Kind
from regard.text.tokenizer import Tokenizer, TokenizerSettings
from regard.text.words import WordTable, spaces_of

KINDS: tuple[Kind, ...] = ("bpe", "bpe-end", "bytes", "words", "characters")
LINES = ["The train, on Saturday at 3:04.", "Der Zug fährt <um> 15:04 ab; it's", "  def f(x):\n\treturn  x"] * 3
# What separates words, what looks as if, what melts into its neighbour, and what has a meaning of its own.
ODD = [*" \t\n\v\f\r\x1c\x1f\x85\xa0\u1680\u180e\u2000\u200b\u2028\u2029\u202f\u205f\u2060\u3000\ufeff▁Ġ\0"]
ODD += [
    *"\u0301\u0308\u0345\u3099\u1161",
    "e",
    "Σ",
    "İ",
    "ﬁ",
    "日本",
    "<",
    "eos>",
    "'s",
    "1",
    "x" * 70,
    "👩‍👧",
    "\u00ad",
]
TEXTS = st.lists(st.lists(st.sampled_from([*ODD, " ", "  ", "Zug", "it"]), max_size=8).map("".join), max_size=4)


def variants() -> list[Tokenizer]:
    settings = [TokenizerSettings(kind, 400) for kind in KINDS]
    settings += [TokenizerSettings(kind, 400, normalise="none", lowercase=True) for kind in KINDS]
    settings += [TokenizerSettings("bytes", 400, False, normalise="nfc"), TokenizerSettings("words", 400, False, False)]
    return [Tokenizer.learn([*LINES, "".join(ODD)], each) for each in settings]


VARIANTS = variants()


@given(TEXTS)
@example(["", " ", "  ", "a  b", " a ", "a\t b", "a \tb"])
@example(["< \n<", "\n<"])
@example(["e \u0301a", "x" * 64 + " " + "x" * 65])
def test_the_tokens_are_those_of_the_library(texts: list[str]) -> None:
    for tokenizer in VARIANTS:
        plain = tokenizers.Tokenizer.from_str(tokenizer.to_json())
        plain.encode_special_tokens = True
        expected = [found.ids for found in plain.encode_batch(texts, add_special_tokens=False)]
        assert tokenizer.encode_flat(texts).lists() == tokenizer.encode_all(texts) == expected


def test_any_two_odd_characters_beside_a_word() -> None:
    texts = ["a " + "".join(pair) + " b" for pair in itertools.product(ODD[:40], repeat=2)]
    texts += ["".join(pair) + "b" for pair in itertools.product([*ODD[:40], " "], repeat=2)]
    for tokenizer in VARIANTS:
        assert tokenizer.encode_flat(texts).lists() == tokenizer.encode_all(texts)


def test_a_word_is_cut_once() -> None:
    asked: Counter[str] = Counter()

    def encode(texts: list[str]) -> list[list[int]]:
        asked.update(texts)
        return [[len(text)] for text in texts]

    table = WordTable(encode, "before")
    for _ in range(2):
        by_text, by_word = table.look_up(["the cat the", "the\tcat"])
        assert by_text.lists() == [[3, 4, 4], [7]]
        assert by_word.lists() == [[3], [4], [4], [7]]
    assert asked == {"the": 1, " cat": 1, " the": 1, "the\tcat": 2}


def test_only_so_many_words_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WORDS", 3)
    tokenizer = Tokenizer.learn(LINES, TokenizerSettings(vocabulary=200))
    texts = [f"{LINES[number % 3]} {number}" for number in range(50)]
    for _ in range(3):
        for first in range(0, 50, 5):
            some = texts[first : first + 5]
            assert tokenizer.encode_flat(some).lists() == tokenizer.encode_all(some)


def test_no_texts_and_lone_surrogates() -> None:
    for tokenizer in VARIANTS:
        assert tokenizer.encode_flat([]).lists() == []
        with pytest.raises(DataError, match=r"text 2: must be Unicode, but character 3 is the lone surrogate U\+DCFF"):
            tokenizer.encode_flat(["fine", "so\udcff"])


def test_rules_nobody_here_wrote_are_left_to_the_library(tmp_path: Path) -> None:
    tokenizer = Tokenizer.learn(LINES, TokenizerSettings(vocabulary=200))
    rules = json.loads(tokenizer.to_json())
    assert spaces_of(tokenizers.Tokenizer.from_str(json.dumps(rules))) == "between"
    for name, value in (("normalizer", None), ("pre_tokenizer", None), ("pre_tokenizer", {"type": "BertPreTokenizer"})):
        other = tokenizers.Tokenizer.from_str(json.dumps({**rules, name: value}))
        assert spaces_of(other) is None
        assert Tokenizer(other).encode_flat([" a  b"]).lists() == [Tokenizer(other).encode(" a  b")]
