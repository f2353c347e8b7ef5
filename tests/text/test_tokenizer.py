"""Text to ids and back: nothing is lost, and nothing a user writes is mistaken for a special token."""

from __future__ import annotations

import json
import random
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regard.data.generated import Pair
from regard.errors import DataError, MissingError, UsageError
from regard.text.learning import Kind
from regard.text.tokenizer import END, PADDING, START, UNKNOWN, Tokenizer, TokenizerSettings

LINES = [
    "The train leaves on Saturday at 3:04 PM.",
    "Der Zug fährt am Samstag um 15:04 Uhr ab.",
    "one thousand nine hundred and eighty-four",
    "1984, 2015, 42",
]
KINDS: tuple[Kind, ...] = ("bpe", "bpe-end", "bytes", "words", "characters")
UNICODE = st.text(st.characters(exclude_categories=["Cs"]))


def hostile_lines() -> list[str]:
    """Text in which the spellings of special tokens are the most frequent thing of all."""
    draw = random.Random(7)

    def word() -> str:
        return "".join(draw.choice("abcdefgh") for _ in range(3))

    return [f"{word()}{END}{word()} {UNKNOWN}{word()} {PADDING} 1{END} {START}" for _ in range(500)]


def learn(kind: Kind, lines: list[str] = LINES, vocabulary: int = 400, split_digits: bool = True) -> Tokenizer:
    return Tokenizer.learn(lines, TokenizerSettings(kind, vocabulary, split_digits))


KNOWN = {kind: learn(kind) for kind in KINDS}
BPE, BYTES = KNOWN["bpe"], KNOWN["bytes"]
HOSTILE = [
    Tokenizer.learn(hostile_lines(), TokenizerSettings(kind, 400, digits, punctuation))
    for kind in KINDS
    for digits in (True, False)
    for punctuation in ((None, True, False) if kind in ("bpe", "bpe-end", "words") else (None,))
]


@given(UNICODE)
@example("")
@example("  two spaces, \t tab, \u2028 line separator, \r\n, \x00 and \x85  ")
@example("<eos> <pad><bos> <unk> ▁ Ġ")
@example("😀👩‍👩‍👧 日本語 עברית e\u0301")
def test_bytes_give_any_text_back_exactly(text: str) -> None:
    for tokenizer in (BYTES, *HOSTILE):
        ids = tokenizer.encode(text)
        assert all(0 <= token < tokenizer.size for token in ids)
        if tokenizer.unknown is None:
            assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.lists(st.sampled_from(" ".join(LINES).split(" ")), min_size=1).map(" ".join))
def test_text_of_known_words_comes_back(kind: Kind, text: str) -> None:
    assert KNOWN[kind].decode(KNOWN[kind].encode(text)) == text


@given(st.text(st.sampled_from(sorted(set("".join(LINES)))), max_size=40))
def test_text_of_known_characters_comes_back(text: str) -> None:
    assert KNOWN["characters"].decode(KNOWN["characters"].encode(text)) == text
    for kind in ("bpe", "bpe-end"):
        # These know single spaces between words, and no others.
        assert KNOWN[kind].decode(KNOWN[kind].encode(text)) == " ".join(text.split())


@given(st.lists(st.sampled_from(["a", "b", " ", "1", "<", ">", "eos", PADDING, START, END, UNKNOWN])).map("".join))
@example("<eos>")
@example("a<eos>b <pad>")
@example("1<eos>1<unk>")
@example("<<eos>>")
@example("x" * 64 + "<eos>")
def test_special_tokens_written_by_a_user_are_text(text: str) -> None:
    for tokenizer in HOSTILE:
        special = {tokenizer.specials.padding, tokenizer.specials.start, tokenizer.specials.end}
        ids = tokenizer.encode(text)
        assert not special & set(ids)
        # What is known comes back; so an <unk> in the text was not mistaken for the special token either.
        if tokenizer.unknown not in ids:
            assert tokenizer.decode(ids).split() == text.split()


# ---- several target languages

ASKING = [
    Tokenizer.learn([*LINES, *["<2de> <2fr>"] * 50], TokenizerSettings(kind, 400, digits), languages=["de", "zh-Hans"])
    for kind in KINDS
    for digits in (True, False)
]


@given(st.lists(st.sampled_from(["<2de>", "<2", "de", ">", "<2zh-Hans>", " ", "a", "<eos>"])).map("".join))
@example("<2de>")
@example("a<2de>b <2de> <2zh-Hans>")
def test_no_text_becomes_the_token_of_a_language(text: str) -> None:
    for tokenizer in ASKING:
        tags = set(tokenizer.languages.values())
        assert not tags & set(tokenizer.encode(text))
        assert not tags & set(tokenizer.encode_flat([text]).ids.tolist())
        if tokenizer.unknown is None:
            assert not tags & set(tokenizer.with_dropout(0.3, seed=1).encode_all([text])[0])


@pytest.mark.parametrize("tokenizer", ASKING)
def test_a_source_asks_for_a_language_by_its_first_token(tokenizer: Tokenizer, tmp_path: Path) -> None:
    assert list(tokenizer.languages) == ["de", "zh-Hans"]
    assert tokenizer.labels(list(tokenizer.languages.values())) == ("<2de>", "<2zh-Hans>")
    first, second = tokenizer.encode_sources(["Samstag", ""], "de")
    assert first == [tokenizer.languages["de"], *tokenizer.encode("Samstag")]
    assert second == [tokenizer.languages["de"]]
    assert tokenizer.decode(first) == "Samstag"
    file = tmp_path / "tokenizer.json"
    file.write_text(tokenizer.to_json(), encoding="utf-8")
    again = Tokenizer.load(file)
    assert again.languages == tokenizer.languages
    assert again.encode_sources(["Samstag", ""], "de") == [first, second]
    for wrong, words in (("fr", "but it is `fr`"), (None, "but none is given")):
        with pytest.raises(UsageError, match=rf"must be one the model can translate into \(de, zh-Hans\), {words}"):
            tokenizer.encode_sources(["Samstag"], wrong)


def test_a_model_of_one_language_is_not_asked_for_it() -> None:
    assert BPE.languages == {}
    assert BPE.encode_sources(["Der Zug"]) == [BPE.encode("Der Zug")]
    with pytest.raises(UsageError, match="language: must be left out, because the model knows only one"):
        BPE.encode_sources(["Der Zug"], "de")


def test_only_sources_ask_where_each_side_has_its_vocabulary() -> None:
    settings = TokenizerSettings(vocabulary=120, shared=False)
    pair = Tokenizer.learn_pair([Pair("abc abd", "xyz xyw yyy")], settings, ["de", "fr"])
    assert list(pair.source.languages) == ["de", "fr"]
    assert pair.languages == {}
    assert pair.encode_sources(["abc"], "fr") == [[pair.source.languages["fr"], *pair.source.encode("abc")]]
    assert pair.with_dropout(0.1, seed=1).source.languages == pair.source.languages


def test_languages_must_fit_the_vocabulary() -> None:
    with pytest.raises(UsageError, match=r"tokenizer\.vocabulary: must be at least 7 to hold .* 2 languages, but is 6"):
        Tokenizer.learn(LINES, TokenizerSettings(vocabulary=6), ["de", "fr"])


def test_special_tokens_have_ids_of_their_own() -> None:
    for tokenizer in KNOWN.values():
        ids = vars(tokenizer.specials).values()
        assert len(set(ids)) == 3
        assert tokenizer.labels(list(ids)) == (PADDING, START, END)


@pytest.mark.parametrize("kind", KINDS)
def test_decode_leaves_special_tokens_out_wherever_they_stand(kind: Kind) -> None:
    tokenizer = KNOWN[kind]
    specials = tokenizer.specials
    inner = tokenizer.encode("Samstag um")
    noisy = [specials.start, *inner[:2], specials.padding, *inner[2:], specials.end, specials.padding]
    assert tokenizer.decode(noisy) == "Samstag um"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_unknown_stays_visible_and_can_be_counted(kind: Kind) -> None:
    tokenizer = KNOWN[kind]
    ids = tokenizer.encode("Zug 日 ab")
    if kind == "bytes":
        assert tokenizer.unknown is None
        assert tokenizer.decode(ids) == "Zug 日 ab"
    else:
        assert tokenizer.labels(ids).count(UNKNOWN) == sum(token == tokenizer.unknown for token in ids) == 1
        assert tokenizer.decode(ids) == f"Zug {UNKNOWN} ab"
    # Of pieces the characters, of words the whole.
    lacking = {"bytes": [], "words": ["日本", "Zugé本"]}.get(kind, ["日", "本", "é"])
    assert tokenizer.lacks("Zug 日本 ab Zugé本 日本") == lacking


def test_an_unknown_word_stands_apart_and_a_word_that_reads_unknown_is_a_word() -> None:
    words = Tokenizer.learn(["the <unk> cat sat"], TokenizerSettings("words", 50, False, split_punctuation=False))
    assert words.labels(words.encode("the <unk> sat")) == ("▁the", "▁<unk>", "▁sat")
    assert words.unknown in words.encode("the dog sat")
    assert words.decode(words.encode("the dog <unk> sat")) == "the <unk> <unk> sat"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "characters"])
def test_digits_are_single_tokens_if_asked(kind: Kind) -> None:
    numbers = ["1984 1984 1984"] * 50
    split, joined = (learn(kind, numbers, split_digits=choice) for choice in (True, False))
    # The space beside a number is a token of its own or part of a digit's.
    assert [label for label in split.labels(split.encode("1984")) if label != "▁"] == ["1", "9", "8", "4"]
    assert len(split.encode("1984 1984")) >= 8
    assert len(joined.encode("1984 1984")) <= 3
    for tokenizer in (split, joined):
        assert tokenizer.decode(tokenizer.encode("1984 1984")) == "1984 1984"


def test_what_nobody_sees_is_taken_out_unless_it_was_learned() -> None:
    """A soft hyphen that is in the alphabet alone tears words apart; in a piece of a word it has a meaning."""
    hidden = "\ufeffrail\u00ad\u200bway\x01 \u202astation\u202c\u2069\x1cone"
    lines = ["railway station one"] * 3
    for known in ([], ["\u00ad x"]):
        tokenizer = Tokenizer.learn([*lines, *known], TokenizerSettings(vocabulary=60))
        assert ("\u00ad" in tokenizer.tokens) == bool(known)
        assert tokenizer.readable([hidden, "a\tb\nc\u200dd\u200ce"]) == ["railway station one", "a\tb\nc\u200dd\u200ce"]
        assert tokenizer.lacks(f"{hidden} 猫") == ["猫"]
    learned = Tokenizer.learn([*lines, *["rail\u00adway"] * 9], TokenizerSettings(vocabulary=60))
    assert learned.readable(["rail\u00adw\u200bay"]) == ["rail\u00adway"]
    words = Tokenizer.learn([*lines, "rail\u00adway"], TokenizerSettings(kind="words"))
    assert words.readable(["rail\u00adw\u200bay"]) == ["rail\u00adway"]
    assert Tokenizer.learn(lines, TokenizerSettings(kind="bytes")).readable([hidden]) == [hidden]


def test_digits_are_cut_out_of_words_that_keep_their_punctuation() -> None:
    words = Tokenizer.learn(["a1<eos> b2,"], TokenizerSettings("words", 50, True, split_punctuation=False))
    assert words.labels(words.encode("a1<eos> b2,")) == ("▁a", "1", "<", "eos>", "▁b", "2", ",")


def test_bytes_that_look_like_digits_are_none() -> None:
    """The last byte of ü is written ¼ inside."""
    tokenizer = learn("bytes", ["für über ³"] * 20, 300)
    assert tokenizer.labels(tokenizer.encode("für über")) == ("für", "▁über")


@pytest.mark.parametrize("kind", ["bpe", "bpe-end", "words"])
def test_punctuation_stands_alone_if_asked(kind: Kind) -> None:
    apart, attached = (
        Tokenizer.learn(["(yes), no."] * 9, TokenizerSettings(kind, 400, split_punctuation=choice))
        for choice in (True, False)
    )
    assert {"(", "yes", ")"} <= {label.strip("▁") for label in apart.labels(apart.encode("(yes), no."))}
    assert [label.strip("▁") for label in attached.labels(attached.encode("(yes), no."))] == ["(yes),", "no."]
    assert apart.decode(apart.encode("(yes), no.")) == "(yes), no."


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_tokenizer_is_the_same_one(kind: Kind, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    for tokenizer in (KNOWN[kind], learn(kind, hostile_lines())):
        file.write_text(tokenizer.to_json(), encoding="utf-8")
        again = Tokenizer.load(file)
        assert again.to_json() == tokenizer.to_json()
        assert (again.size, again.specials, again.unknown) == (tokenizer.size, tokenizer.specials, tokenizer.unknown)
        texts = [*LINES, "<eos> a<eos>", "unknown ж", ""]
        assert again.encode_all(texts) == tokenizer.encode_all(texts)
        assert [again.decode(ids) for ids in again.encode_all(texts)] == [
            tokenizer.decode(ids) for ids in tokenizer.encode_all(texts)
        ]


def test_each_language_may_have_its_own_vocabulary(tmp_path: Path) -> None:
    settings = TokenizerSettings(vocabulary=120, shared=False)
    pair = Tokenizer.learn_pair([Pair("abc abd", "xyz xyw yyy")], settings)
    assert pair.source.unknown not in pair.source.encode("abc")
    assert set(pair.encode("abc")[-3:]) == {pair.unknown}
    assert pair.decode(pair.encode("xyz")) == "xyz"
    assert pair.source.specials == pair.specials
    file = tmp_path / "tokenizer.json"
    file.write_text(pair.to_json(), encoding="utf-8")
    assert set(json.loads(pair.to_json())) == {"source", "target"}
    again = Tokenizer.load(file)
    assert again.to_json() == pair.to_json()
    assert (again.source.size, again.size) == (pair.source.size, pair.size)
    assert again.source.encode("abd") == pair.source.encode("abd")


def test_a_shared_vocabulary_knows_both_languages() -> None:
    both = Tokenizer.learn_pair([Pair("abc", "xyz")], TokenizerSettings(vocabulary=120))
    assert both.source is both
    assert both.unknown not in both.encode("abc xyz")


def test_many_texts_are_encoded_like_one() -> None:
    texts = [*LINES, "", "x"] * 2_000
    assert BPE.encode_all(texts) == [BPE.encode(text) for text in texts[:6]] * 2_000
    assert BPE.encode_all([]) == []
    assert all(tokenizer.encode("") == [] for tokenizer in KNOWN.values())


def test_bytes_are_not_normalised() -> None:
    decomposed = unicodedata.normalize("NFD", "fährt")
    assert BYTES.decode(BYTES.encode(decomposed)) == decomposed != "fährt"


def test_labels_show_spaces_and_join_to_the_text() -> None:
    for kind in ("bpe", "bpe-end", "bytes", "words"):
        ids = KNOWN[kind].encode("Der Zug")
        labels = KNOWN[kind].labels(ids)
        assert len(labels) == len(ids)
        assert "".join(labels).replace("▁", " ").strip() == "Der Zug"


def test_a_word_is_marked_where_it_begins_or_where_it_ends() -> None:
    begins, ends = (learn(kind, ["low lower"] * 20, 40) for kind in ("bpe", "bpe-end"))
    assert begins.labels(begins.encode("low lower")) == ("▁low", "▁lower")
    assert ends.labels(ends.encode("low lower")) == ("low▁", "lower▁")


def test_a_lone_surrogate_is_named() -> None:
    for tokenizer in KNOWN.values():
        with pytest.raises(DataError, match=r"text 2: must be Unicode, but character 3 is the lone surrogate U\+DCFF"):
            tokenizer.encode_all(["fine", "so\udcff"])
        with pytest.raises(DataError, match="text 1"):
            tokenizer.encode("\ud800")


@pytest.mark.parametrize("content", ["", "{", "{}", "[]", '{"version": "1.0"}', '{"target": {}}', "\x00\x01"])
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
