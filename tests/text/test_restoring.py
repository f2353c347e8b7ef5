"""Capitals and punctuation: taken away, told by tags, and put back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from regard.text.restoring import TAGS, bare, restored


def test_words_and_tags() -> None:
    words, tags = bare("Hello, Mr. Smith: the EU (yes!) has 3.5 people ; really?")
    assert words == ["hello", "mr", "smith", "the", "eu", "yes", "has", "3.5", "people", "really"]
    assert tags == ["C,", "C.", "C:", "l", "U", "l!", "l", "l", "l;", "l?"]


def test_a_single_capital_does_not_shout() -> None:
    assert bare("I see U2, A and NATO")[1] == ["C", "l", "C,", "C", "l", "U"]


def test_of_several_marks_the_first_counts() -> None:
    assert bare("What ? ! Yes! ; so?!")[1] == ["C?", "C!", "l?"]


def test_what_is_lost() -> None:
    assert restored(*bare('"I said – McDonald\'s," he said...')) == "I said Mcdonald's, he said."


def test_nothing_but_marks() -> None:
    assert bare(" … ?! ") == ([], [])
    assert restored([], []) == ""


@given(st.text())
def test_any_text_has_one_known_tag_a_word_and_comes_to_rest(text: str) -> None:
    words, tags = bare(text)
    assert len(words) == len(tags)
    assert set(tags) <= set(TAGS)
    assert all(word and not any(map(str.isspace, word)) for word in words)


@given(st.lists(st.tuples(st.from_regex(r"[a-z]{2,6}", fullmatch=True), st.sampled_from(TAGS))))
def test_what_was_put_back_can_be_taken_again(pairs: list[tuple[str, str]]) -> None:
    words, tags = [word for word, _ in pairs], [tag for _, tag in pairs]
    assert bare(restored(words, tags)) == (words, tags)
