"""Vocabularies are learned as asked: as large, from as much, the same every time."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
import unicodedata
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regard.errors import DataError, UsageError
from regard.text import learning
from regard.text.learning import SPECIALS, Kind, TokenizerSettings
from regard.text.survey import survey
from regard.text.tokenizer import Tokenizer

KINDS: tuple[Kind, ...] = ("bpe", "bpe-end", "bytes", "words", "characters")
TEXT = "der zug fährt am samstag um acht uhr ab und kommt am sonntag an; 很久以后，御史邓庠到贵州核查事情"
LINES = [" ".join(TEXT.split()[number % 7 :: 1 + number % 3]) for number in range(60)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_vocabulary_is_as_large_as_asked_for(kind: Kind) -> None:
    whole = Tokenizer.learn(LINES, TokenizerSettings(kind, 2_000)).size
    smaller = 300 if kind == "bytes" else whole - 7
    assert Tokenizer.learn(LINES, TokenizerSettings(kind, smaller)).size == smaller
    # A small corpus has no more to learn: then the size says so.
    assert whole < 2_000


def test_characters_that_do_not_fit_are_the_rarest() -> None:
    lines = ["aaaa bbb ccc dd", "é"]
    for kind, marks in (("bpe", "▁"), ("bpe-end", "▁"), ("characters", " ")):
        tokenizer = Tokenizer.learn(lines, TokenizerSettings(kind, len(SPECIALS) + 4))  # type: ignore[arg-type]
        assert tokenizer.size == 8
        # Of two that are equally frequent, the one with the smaller code point stays.
        assert set(tokenizer.labels(range(4, 8))) == {marks, "a", "b", "c"}


@pytest.mark.parametrize("kind", ["bpe", "bpe-end", "words", "characters"])
def test_what_is_rarer_than_the_minimum_is_not_learned(kind: Kind) -> None:
    lines = ["ab ab ab xy", "ab x."]
    often = Tokenizer.learn(lines, TokenizerSettings(kind, 100, min_frequency=2))
    assert often.unknown not in often.encode("ab ab")
    assert often.unknown in often.encode("y")
    seldom = Tokenizer.learn(lines, TokenizerSettings(kind, 100))
    assert seldom.unknown not in seldom.encode("xy")


def test_merges_rarer_than_the_minimum_are_not_learned() -> None:
    lines = ["abc abc abc", "abd"]
    pieces = {
        often: Tokenizer.learn(lines, TokenizerSettings("bytes", 400, min_frequency=often)).size for often in (1, 2, 4)
    }
    assert pieces[4] == 260 + 1  # ab; the others occur once, twice or three times
    assert pieces[4] < pieces[2] < pieces[1]


PROGRAM = """
import json, sys
from regard.text.learning import TokenizerSettings, learn
kinds, lines = json.load(sys.stdin)
json.dump([learn(lines, TokenizerSettings(kind, 300)).to_str(pretty=True) for kind in kinds], sys.stdout)
"""


def test_learning_in_another_process_gives_the_same_bytes() -> None:
    # Another process hashes differently, and has other threads.
    others = os.environ | {"PYTHONHASHSEED": "5", "RAYON_NUM_THREADS": "3"}
    given = json.dumps([KINDS, LINES])
    there = subprocess.run([sys.executable, "-c", PROGRAM], input=given, capture_output=True, text=True, env=others)
    assert there.stderr == ""
    here = [Tokenizer.learn(LINES, TokenizerSettings(kind, 300)).to_json() for kind in KINDS]
    assert json.loads(there.stdout) == here


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_lines_does_not_matter(kind: Kind) -> None:
    settings = TokenizerSettings(kind, 300)
    assert Tokenizer.learn(LINES[::-1], settings).to_json() == Tokenizer.learn(LINES, settings).to_json()


@pytest.mark.parametrize("kind", KINDS)
def test_a_megabyte_without_a_space_is_learned_from_quickly(kind: Kind) -> None:
    line = "".join(chr(0x4E00 + (number * number) % 499) for number in range(350_000))
    assert len(line.encode()) > 1e6
    started = time.process_time()
    tokenizer = Tokenizer.learn([line], TokenizerSettings(kind, 600))
    ids = tokenizer.encode(line)
    assert tokenizer.decode(ids) == (line if kind != "words" else "<unk>")
    if kind in learning.MERGING:
        part = line[:30_000]
        assert tokenizer.decode(tokenizer.with_dropout(0.1, seed=1).encode_all([part])[0]) == part
    assert time.process_time() - started < 10  # a single word would take minutes with dropout


@pytest.mark.parametrize("kind", learning.MERGING)
def test_no_subword_is_longer_than_a_piece(kind: Kind) -> None:
    tokenizer = Tokenizer.learn(["a" * 5_000], TokenizerSettings(kind, 400))
    assert max(map(len, tokenizer.labels(range(tokenizer.size)))) == learning.LONGEST_PIECE


def test_of_much_unspaced_text_an_even_sample_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "MOST_UNSPACED", 2_000)
    lines = [line for number in range(1_000) for line in (f"{number}", "很久以后御史邓庠到贵州核查")]
    found = survey(lines, lambda text: text)
    assert found.unspaced == 13_000
    fed = list(learning._fed(lines, found))
    kinds = Counter(line.isascii() for line in fed)
    assert 100 < kinds[True] < 210
    assert 100 < kinds[False] < 210
    assert fed == list(learning._fed(lines, found))
    monkeypatch.undo()
    assert list(learning._fed(lines, found)) == lines


def test_long_lines_are_fed_in_parts() -> None:
    line = "word " * 5_000
    fed = list(learning._fed([line, "", "x"], survey([line], lambda text: text)))
    assert "".join(fed) == line + "x"
    assert max(map(len, fed)) == learning.LONGEST_LINE


MIXED = "aAäÄ\u0308éÉ\u0301 \t\u00a0\u2028▁ﬁΣİ"
PAIRS = ["".join(pair) for pair in itertools.product(MIXED, repeat=2)]
EXACT: tuple[Kind, ...] = ("bpe", "bpe-end", "characters")
NORMALISING = {
    (kind, rule): Tokenizer.learn(PAIRS, TokenizerSettings(kind, 200, normalise=rule))
    for kind in EXACT
    for rule in ("nfc", "none")
}


@pytest.mark.parametrize("kind", EXACT)
@given(text=st.text(st.sampled_from(MIXED), max_size=20))
@example(text=" a\t ä\u2028")
@example(text="a\u0308")
@example(text="▁a▁")
def test_the_rules_of_normalisation(kind: Kind, text: str) -> None:
    for rule in ("nfc", "none"):
        tokenizer = NORMALISING[kind, rule]
        once = tokenizer.decode(tokenizer.encode(text))
        expected = unicodedata.normalize("NFC", text) if rule == "nfc" else text
        if kind != "characters":
            expected = " ".join(expected.replace("▁", " ").split())
        assert once == expected
        assert tokenizer.decode(tokenizer.encode(once)) == once


def test_nfc_is_the_rule_unless_bytes_are_read() -> None:
    for kind in KINDS:
        tokenizer = Tokenizer.learn(["fährt"] * 3, TokenizerSettings(kind, 300))
        same = tokenizer.encode(unicodedata.normalize("NFD", "fährt")) == tokenizer.encode("fährt")
        assert same == (kind != "bytes")


@pytest.mark.parametrize("kind", KINDS)
def test_capitals_become_small_if_asked(kind: Kind) -> None:
    tokenizer = Tokenizer.learn(["Der ZUG FÄHRT"], TokenizerSettings(kind, 300, lowercase=True))
    for text in ("der zug fährt", "DER Zug Fährt"):
        assert tokenizer.decode(tokenizer.encode(text)) == "der zug fährt"


def test_lines_that_can_be_read_once_only_are_refused() -> None:
    with pytest.raises(UsageError, match="must be something that can be read twice"):
        Tokenizer.learn((line for line in LINES), TokenizerSettings())
    with pytest.raises(UsageError, match="must be something that can be read twice"):
        Tokenizer.learn_pair(iter([]), TokenizerSettings())


def test_a_line_that_is_not_unicode_is_named() -> None:
    with pytest.raises(DataError, match=r"line 3: must be Unicode, but character 2 is the lone surrogate U\+D800"):
        Tokenizer.learn(["a", "b", "c\ud800"], TokenizerSettings())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kind": "bytes", "vocabulary": 259}, "`vocabulary` must be at least 260 for kind `bytes`, but is 259"),
        ({"kind": "bpe", "vocabulary": 4}, "at least 5 for kind `bpe`, but is 4"),
        ({"min_frequency": 0}, "`min_frequency` must be at least 1, but is 0"),
        ({"dropout": 1.0}, "`dropout` must be at least 0 and below 1, but is 1.0"),
        ({"dropout": 0.1, "kind": "words"}, "`dropout` must be 0 for kind `words`"),
        ({"dropout_cuts": 0}, "`dropout_cuts` must be at least 1, but is 0"),
        ({"kind": "characters", "split_punctuation": True}, "left out for kind `characters`"),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TokenizerSettings(**wrong)  # type: ignore[arg-type]
