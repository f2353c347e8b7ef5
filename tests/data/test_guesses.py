"""Guesses at languages: right where there is ground for one, and none where there is not."""

from __future__ import annotations

import pytest

from regard.data import guesses as module
from regard.data.guesses import Guess, cosine, guess_language, trigrams
from tests.data.talk import TALK


@pytest.mark.parametrize("language", TALK)
def test_languages_with_a_profile_are_known_and_others_are_not_mistaken(language: str) -> None:
    guess = guess_language([TALK[language]] * 3)
    if language in ("en", "de", "fr", "zh"):
        assert guess is not None
        assert guess.language == language
        assert guess.sure
    else:
        assert guess is None


def test_too_little_text_is_no_ground_for_a_guess() -> None:
    assert guess_language([]) is None
    assert guess_language(["the"]) is None
    assert guess_language(["12 34 !"] * 50) is None
    assert guess_language(["字"]) is None


def test_a_mixture_is_a_guess_of_little_confidence() -> None:
    guess = guess_language([TALK["en"], TALK["de"]] * 5)
    assert guess is not None
    assert not guess.sure
    assert Guess("de", 0.8).sure


def test_no_word_speaks_for_two_languages() -> None:
    lists = [*module.FREQUENT.values(), *module.COMMON.values()]
    words = [word for listed in lists for word in listed.split(" ")]
    assert len(words) == len(set(words))
    assert "du" not in words  # it is German and French


@pytest.mark.parametrize(
    ("language", "texts"),
    [
        (
            "de",
            ["Hallo", "guten morgen", "Danke", "Tschüss", "Tschu\u0308ss", "Bitte", "ja", "Straße", "Wie geht es dir?"],
        ),
        ("en", ["Hello!", "good morning", "thanks", "Yes.", "two", "I agree", "How are you?"]),
        ("fr", ["Bonjour", "merci", "Ça va ?", "oui", "garçon"]),
    ],
)
def test_a_few_words_speak_for_their_language(language: str, texts: list[str]) -> None:
    for text in texts:
        found = module.shares(text)
        assert max((found.get(code, 0.0), code) for code in ("en", "de", "fr"))[1] == language, text


def test_letters_speak_for_all_that_have_them() -> None:
    assert set(module.shares("Öl")) == {"de", "et", "fi", "hu", "nl", "sv", "tr"}
    assert set(module.shares("größte")) == {"de"}
    assert module.shares("") == module.shares("Tom 12") == module.shares("字") == {}
    assert module.shares("ja") == {"de": 0.5}  # less sure than of many words
    assert module.shares("ja ja ja") == {"de": 0.75}


def test_texts_of_one_language_are_more_alike() -> None:
    english, german = trigrams([TALK["en"]]), trigrams([TALK["de"]])
    assert cosine(english, english) == pytest.approx(1)
    assert cosine(english, german) < 0.5
    assert cosine(english, trigrams([])) == 0
    assert trigrams(["ab"]) == {" ab": 1, "ab ": 1}
