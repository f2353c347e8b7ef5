"""Text to ids and back: nothing is lost, and nothing a user writes is mistaken for a special token."""

from __future__ import annotations

import json
import random
import unicodedata
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regard.errors import DataError, MissingError
from regard.text.tokenizer import END, PADDING, START, UNKNOWN, Tokenizer, TokenizerSettings

LINES = [
    "The train leaves on Saturday at 3:04 PM.",
    "Der Zug fährt am Samstag um 15:04 Uhr ab.",
    "one thousand nine hundred and eighty-four",
    "1984, 2015, 42",
]
Kind = Literal["bpe", "bytes"]
KINDS: tuple[Kind, ...] = ("bpe", "bytes")


def hostile_lines() -> list[str]:
    """Text in which the spellings of special tokens are the most frequent thing of all."""
    draw = random.Random(7)

    def word() -> str:
        return "".join(draw.choice("abcdefgh") for _ in range(3))

    return [f"{word()}{END}{word()} {UNKNOWN}{word()} {PADDING} {START}" for _ in range(500)]


def learn(kind: Kind, lines: list[str] = LINES, vocabulary: int = 400, split_digits: bool = True) -> Tokenizer:
    return Tokenizer.learn(lines, TokenizerSettings(kind, vocabulary, split_digits))


BYTES = learn("bytes")
BPE = learn("bpe")
HOSTILE = {kind: learn(kind, hostile_lines()) for kind in KINDS}


@given(st.text(st.characters(exclude_categories=["Cs"])))
@example("")
@example("  two spaces, \t tab, \u2028 line separator, \r\n, \x00 and \x85  ")
@example("<eos> <pad><bos> <unk> ▁ Ġ")
@example("😀👩‍👩‍👧 日本語 עברית e\u0301")
def test_bytes_give_any_text_back_exactly(text: str) -> None:
    for tokenizer in (BYTES, HOSTILE["bytes"]):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert all(0 <= token < tokenizer.size for token in ids)


@given(st.lists(st.sampled_from(" ".join(LINES).split(" ")), min_size=1).map(" ".join))
def test_bpe_gives_text_of_known_characters_back(text: str) -> None:
    assert BPE.decode(BPE.encode(text)) == text


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.lists(st.sampled_from(["a", "b", " ", "<", ">", "eos", PADDING, START, END, UNKNOWN])).map("".join))
@example(text="<eos>")
@example(text="a<eos>b <pad>")
@example(text="<<eos>>")
def test_special_tokens_written_by_a_user_are_text(kind: Kind, text: str) -> None:
    tokenizer = HOSTILE[kind]
    special = {tokenizer.specials.padding, tokenizer.specials.start, tokenizer.specials.end}
    assert not special & set(tokenizer.encode(text))
    # All characters are known, so <unk> would be the special token too.
    if kind == "bytes" or text == text.strip():
        assert tokenizer.decode(tokenizer.encode(text)).replace(" ", "") == text.replace(" ", "")
    assert tokenizer._inner.token_to_id(UNKNOWN) not in tokenizer.encode(text)


def test_special_tokens_have_ids_of_their_own() -> None:
    for tokenizer in (BPE, BYTES):
        ids = vars(tokenizer.specials).values()
        assert len(set(ids)) == 3
        assert tokenizer.labels(list(ids)) == (PADDING, START, END)


def test_decode_leaves_special_tokens_out_wherever_they_stand() -> None:
    for tokenizer in (BPE, BYTES):
        specials = tokenizer.specials
        inner = tokenizer.encode("Samstag um")
        noisy = [specials.start, *inner[:2], specials.padding, *inner[2:], specials.end, specials.padding]
        assert tokenizer.decode(noisy) == "Samstag um"


def test_an_unknown_character_stays_visible_in_bpe_and_is_no_problem_in_bytes() -> None:
    assert BPE.decode(BPE.encode("Zug 日 ab")) == f"Zug {UNKNOWN} ab"
    assert BYTES.decode(BYTES.encode("Zug 日 ab")) == "Zug 日 ab"


@pytest.mark.parametrize("kind", KINDS)
def test_digits_are_single_tokens_if_asked(kind: Kind) -> None:
    numbers = ["1984 1984 1984"] * 50
    split, joined = (learn(kind, numbers, split_digits=choice) for choice in (True, False))
    # The space before a number is a token of its own or part of the first digit's.
    assert [label for label in split.labels(split.encode("1984")) if label != "▁"] == ["1", "9", "8", "4"]
    assert len(split.encode("1984 1984")) >= 8
    assert len(joined.encode("1984 1984")) <= 3
    for tokenizer in (split, joined):
        assert tokenizer.decode(tokenizer.encode("1984 1984")) == "1984 1984"


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_tokenizer_is_the_same_one(kind: Kind, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    for tokenizer in (learn(kind), HOSTILE[kind]):
        file.write_text(tokenizer.to_json(), encoding="utf-8")
        again = Tokenizer.load(file)
        assert again.to_json() == tokenizer.to_json()
        assert (again.size, again.specials) == (tokenizer.size, tokenizer.specials)
        texts = [*LINES, "<eos> a<eos>", "unknown ж", ""]
        assert again.encode_all(texts) == tokenizer.encode_all(texts)
    json.loads(tokenizer.to_json())


@pytest.mark.parametrize("kind", KINDS)
def test_learning_is_deterministic(kind: Kind) -> None:
    assert learn(kind).to_json() == learn(kind).to_json()


def test_many_texts_are_encoded_like_one() -> None:
    texts = [*LINES, "", "x"]
    assert BPE.encode_all(texts) == [BPE.encode(text) for text in texts]
    assert BPE.encode_all([]) == []
    assert BPE.encode("") == []


def test_the_vocabulary_is_at_most_what_was_asked_for() -> None:
    for kind in KINDS:
        tokenizer = learn(kind, vocabulary=300)
        assert tokenizer.size <= 300
        used = {token for line in LINES for token in tokenizer.encode(line)}
        assert max(used) < tokenizer.size


def test_text_is_not_normalised() -> None:
    decomposed = unicodedata.normalize("NFD", "fährt")
    assert BYTES.decode(BYTES.encode(decomposed)) == decomposed != "fährt"


def test_labels_show_spaces_and_join_to_the_text() -> None:
    for tokenizer in (BPE, BYTES):
        ids = tokenizer.encode("Der Zug")
        labels = tokenizer.labels(ids)
        assert len(labels) == len(ids)
        assert "".join(labels).replace("▁", " ").strip() == "Der Zug"


def test_a_lone_surrogate_is_named() -> None:
    for tokenizer in (BPE, BYTES):
        with pytest.raises(DataError, match=r"text 2: must be Unicode, but character 3 is the lone surrogate U\+DCFF"):
            tokenizer.encode_all(["fine", "so\udcff"])
        with pytest.raises(DataError, match="text 1"):
            tokenizer.encode("\ud800")


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="`vocabulary` must be at least 260 for kind `bytes`, but is 259"):
        TokenizerSettings("bytes", 259)
    with pytest.raises(ValueError, match="at least 4 for kind `bpe`, but is 3"):
        TokenizerSettings("bpe", 3)


@pytest.mark.parametrize("content", ["", "{", "{}", '{"version": "1.0"}', "\x00\x01"])
def test_a_file_that_is_no_tokenizer_is_named(content: str, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(content)
    with pytest.raises(DataError, match=r"tokenizer\.json: must be a tokenizer"):
        Tokenizer.load(file)


def test_a_tokenizer_without_our_special_tokens_is_named(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(BPE.to_json().replace(END, "<fin>"), encoding="utf-8")
    with pytest.raises(DataError, match=f"must have the token {END}"):
        Tokenizer.load(file)


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"tokenizer\.json"):
        Tokenizer.load(tmp_path / "tokenizer.json")
