"""Where long texts are cut, and how they are joined again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.text.sentences import join, pieces, sentences

TEXTS = st.text(alphabet=st.sampled_from("abcXYZ 19.,;!?…。！，ж日本\n\"()'"), max_size=120)


def characters(texts: Sequence[str]) -> list[int]:
    return [len(text) for text in texts]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four…", ["One. ", "Two! ", "Three? ", "Four…"]),
        ('He said: "Stop!" Then he left.', ['He said: "Stop!" ', "Then he left."]),
        ("It costs 3.14 euros. Really.", ["It costs 3.14 euros. ", "Really."]),
        ("Dr. Smith met Mr. J. R. Brown, e.g. here. Good.", ["Dr. Smith met Mr. J. R. Brown, e.g. here. ", "Good."]),
        ("Am 3. Mai war es kalt. Im Jahr 1999. Nie.", ["Am 3. Mai war es kalt. ", "Im Jahr 1999. ", "Nie."]),
        ("See example.org for more. Bye.", ["See example.org for more. ", "Bye."]),
        ("Wait... what? no.", ["Wait... what? no."]),
        ("今天很好。我们走吧！好吗？", ["今天很好。", "我们走吧！", "好吗？"]),
        ("「行く。」と言った。終わり", ["「行く。」", "と言った。", "終わり"]),
        ("यह है। वह है।", ["यह है। ", "वह है।"]),
        ("¿Qué? ¡No!", ["¿Qué? ", "¡No!"]),
        ("I can't. Good night.", ["I can't. ", "Good night."]),
        ("no end at all", ["no end at all"]),
        ("", []),
    ],
)  # fmt: skip
def test_sentences_end_where_a_reader_would_say(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("it is late. i am tired. good night.", ["it is late. ", "i am tired. ", "good night."]),
        ("es ist spät! bist du müde? gute nacht.", ["es ist spät! ", "bist du müde? ", "gute nacht."]),
        ("see e.g. this. approx. two, mr. brown.", ["see e.g. this. ", "approx. two, mr. brown."]),
        ("z. b. heute, am 3. mai, zzgl. steuer. ja.", ["z. b. heute, am 3. mai, zzgl. steuer. ", "ja."]),
        ("см. ниже. это всё.", ["см. ниже. ", "это всё."]),
        ("so gehört, sog. čvrt. größen. é là. bon.", ["so gehört, sog. čvrt. größen. ", "é là. ", "bon."]),
        ("try it. it costs 3.14 at example.org now. bye.", ["try it. ", "it costs 3.14 at example.org now. ", "bye."]),
        ("no, i can't. not 'mr. x'. good night.", ["no, i can't. ", "not 'mr. x'. ", "good night."]),
        ("გამარჯობა. როგორ ხარ?", ["გამარჯობა. ", "როგორ ხარ?"]),  # which is written without capitals
        ("wait... what? no.", ["wait... what? ", "no."]),
        ('"stop!" he said. then "go."', ['"stop!" he said. ', 'then "go."']),
        ('he said: "no." (it was late.) bye', ['he said: "no." (it was late.) bye']),
        # One capital, and small letters say that a sentence goes on.
        ("It is late. i am tired. good night.", ["It is late. i am tired. good night."]),
        ("it is late. I am tired. good night.", ["it is late. ", "I am tired. good night."]),
    ],
)  # fmt: skip
def test_where_there_are_no_capitals_small_letters_begin_sentences(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@given(TEXTS, st.integers(1, 30))
def test_pieces_fit_and_nothing_is_lost(text: str, longest: int) -> None:
    found = pieces(text, characters, longest)
    assert "".join(found) == text
    assert all(length <= longest for length in characters(found))


def test_a_long_sentence_is_cut_at_commas_then_at_spaces_then_anywhere() -> None:
    assert pieces("one two, three four, five", characters, 20) == ["one two, ", "three four, five"]
    assert pieces("one two three four", characters, 10) == ["one two ", "three four"]
    assert pieces("abcdefghij", characters, 4) == ["abcd", "efgh", "ij"]
    assert pieces("short. " + "x" * 8, characters, 7) == ["short. ", "xxxxxxx", "x"]


@given(st.lists(st.sampled_from(["a", "bb,", "cc;", "dd"]), min_size=1, max_size=60), st.integers(2, 12))
def test_a_piece_has_as_much_as_fits(words: list[str], longest: int) -> None:
    """In tokens and an end, which every piece has once: two neighbours in one would be too long."""

    def with_end(texts: Sequence[str]) -> list[int]:
        return [len(text.split()) + 1 for text in texts]

    text = " ".join(words)
    found = pieces(text, with_end, longest)
    assert "".join(found) == text
    assert max(with_end(found)) <= longest
    spaced = pieces(text.translate({ord(","): None, ord(";"): None}), with_end, longest)
    assert [length for length in with_end(spaced)[:-1] if length < longest] == []


def test_what_has_no_break_at_all_is_cut_small() -> None:
    """A model takes far longer for one piece of 512 tokens than for eight of 64, and these letters say nothing."""
    assert pieces("x" * 512, characters, 512) == ["x" * 512]
    assert list(map(len, pieces("x" * 513, characters, 512))) == [64] * 8 + [1]
    assert list(map(len, pieces("one, " + "x" * 513, characters, 512))) == [5] + [64] * 8 + [1]


def test_a_long_text_does_not_take_long() -> None:
    """The letters that are measured, over and over again, are some times those of the text."""
    read = 0

    def read_by(texts: Sequence[str]) -> list[int]:
        nonlocal read
        read += sum(map(len, texts))
        return characters(texts)

    assert len(pieces("word " * 4000, read_by, 100)) == 200
    assert read < 12 * 20_000
    read = 0
    assert len("".join(pieces("x" * 20_000, read_by, 512))) == 20_000
    assert read < 12 * 20_000


@pytest.mark.parametrize(
    ("parts", "translations", "expected"),
    [
        (["A. ", "B."], ["Ja.", "Nein."], "Ja. Nein."),
        (["A. ", "B."], [" Ja. ", "Nein. "], "Ja. Nein."),
        (["A. ", "B."], ["好。", "不。"], "好。不。"),
        (["好。", "不。"], ["Yes.", "No."], "Yes. No."),
        (["xxx", "yyy"], ["aaa", "bbb"], "aaabbb"),
        (["A. ", "B. ", "C."], ["a", "", "c"], "a c"),
        ([], [], ""),
    ],
)
def test_translations_are_joined_as_their_script_wants(
    parts: list[str], translations: list[str], expected: str
) -> None:
    assert join(parts, translations) == expected
