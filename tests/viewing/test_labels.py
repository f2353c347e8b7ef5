"""Tokens as readers see them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.text.tokenizer import Tokenizer, TokenizerSettings
from regard.viewing.labels import pieces, readable, separators

LINES = ["one two three", "eins zwei drei", "naïve café 日本語"]


@pytest.mark.parametrize("kind", ["bpe", "bpe-end", "words", "bytes", "characters"])
def test_marks_are_gone_and_letters_stay(kind: str) -> None:
    tokenizer = Tokenizer.learn(LINES, TokenizerSettings(kind=kind, vocabulary=300))  # type: ignore[arg-type]
    ids = tokenizer.encode("one two three")
    labels = readable(tokenizer, ids)
    assert len(labels) == len(ids)
    assert "".join(labels).replace("␣", "") == "onetwothree"
    assert not any("▁" in label or " " in label for label in labels)
    specials = tokenizer.specials
    assert readable(tokenizer, [specials.start, specials.end, specials.padding]) == ("‹start›", "‹end›", "‹padding›")


def test_white_space_and_control_characters_are_visible() -> None:
    tokenizer = Tokenizer.learn(LINES, TokenizerSettings(kind="bytes", vocabulary=260))
    assert readable(tokenizer, tokenizer.encode("a\n\t \x08")) == ("a", "⏎", "⇥", "␣", "␈")


@given(st.text(max_size=20))
def test_pieces_are_the_text(text: str) -> None:
    tokenizer = Tokenizer.learn(LINES, TokenizerSettings(kind="bytes", vocabulary=300))
    ids = tokenizer.encode(text)
    found = pieces(tokenizer, ids)
    assert len(found) == len(ids)
    assert "".join(found) == text


def test_separators_are_special_tokens_and_punctuation() -> None:
    tokenizer = Tokenizer.learn(["a . b , c !"], TokenizerSettings(kind="words", vocabulary=60))
    ids = [tokenizer.specials.start, *tokenizer.encode("a . b !"), tokenizer.specials.end]
    labels = readable(tokenizer, ids)
    assert [labels[place] for place in separators(tokenizer, ids)] == ["‹start›", ".", "!", "‹end›"]
