"""Tokens as older papers had them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.evaluation.moses import plain_quotes, split_compounds, tokenise


@pytest.mark.parametrize(
    ("language", "text", "tokens"),
    [
        ("en", "Hello, world!", "Hello , world !"),
        ("en", "It's the dogs' 1990's.", "It 's the dogs ' 1990 's ."),
        ("en", "1,000.5 and 2, 3,", "1,000.5 and 2 , 3 ,"),
        ("en", "Mr. Smith met J. Doe, i.e. me.", "Mr. Smith met J. Doe , i.e. me ."),
        ("en", "No. 5 said no.", "No. 5 said no ."),
        ("en", "Wait... what?", "Wait ... what ?"),
        ("en", 'a well-known (and) "quoted" a_b', 'a well-known ( and ) " quoted " a _ b'),
        ("en", "approx. five", "approx. five"),
        ("en", "e\u0301te\u0301, naïve", "e\u0301te\u0301 , naïve"),
        ("fr", "L'arbre, c'est l'été.", "L' arbre , c' est l' été ."),
        ("de", "Am 14. März kam Dr. Meyer, bzw. 'Hans'.", "Am 14. März kam Dr. Meyer , bzw. ' Hans ' ."),
        ("de", "Im Jahr 1990. Danach", "Im Jahr 1990 . Danach"),
        ("de", "dieser Art.", "dieser Art ."),
        ("cs", "it's", "it ' s"),
        ("en", "  spaces \t\u00a0 gone ", "spaces gone"),
        ("en", "", ""),
    ],
)
def test_tokens(language: str, text: str, tokens: str) -> None:
    assert tokenise(text, language) == tokens


def test_compounds_are_split_as_tensor2tensor_split_them() -> None:
    assert split_compounds("rich-text format - a - b") == "rich ##AT##-##AT## text format - a - b"
    # A substitution that has eaten its right neighbour goes on behind it, as in the original.
    assert split_compounds("a-b-c") == "a ##AT##-##AT## b-c"


def test_quotes_are_typed_plainly() -> None:
    assert plain_quotes("“It’s” …") == '"It\'s" ...'


@given(st.text(max_size=40), st.sampled_from(["de", "en", "fr", "cs"]))
def test_nothing_but_spaces_is_added_or_lost(text: str, language: str) -> None:
    assert "".join(tokenise(text, language).split()) == "".join(text.split())
