"""Vocabularies of imported models: tokens that play several parts, and pieces that the model has no number for."""

from __future__ import annotations

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from regard.batch import Specials
from regard.errors import UsageError
from regard.text.imported import HIDDEN, Imported, cast, parts_of
from regard.text.tokenizer import Tokenizer


def by_words(extra: int = 0) -> tokenizers.Tokenizer:
    """<pad> is 0 and starts a text, too; `odd` is beyond the model's words."""
    words = [f"{HIDDEN}<pad>", f"{HIDDEN}</s>", f"{HIDDEN}<unk>", "one", "two", *["odd"][:extra]]
    vocabulary = {word: number for number, word in enumerate(words)}
    inner = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=f"{HIDDEN}<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    cast(inner, {"<pad>": 0, "<bos>": 0, "<eos>": 1, "<2de>": 3})
    return inner


def test_one_token_may_play_two_parts() -> None:
    tokenizer = Tokenizer(by_words())
    assert tokenizer.specials == Specials(padding=0, start=0, end=1)
    assert tokenizer.languages == {"de": 3}
    assert tokenizer.unknown == 2
    assert parts_of(tokenizer.rules) == {"<pad>": 0, "<bos>": 0, "<eos>": 1, "<2de>": 3}


def test_text_never_becomes_a_special_token() -> None:
    assert Tokenizer(by_words()).encode("one </s> <pad>") == [3, 2, 2]
    assert Tokenizer(by_words()).labels([0, 3]) == ("<pad>", "one")


@pytest.mark.parametrize("own_source", [False, True])
def test_pieces_beyond_the_model_are_unknown_to_it(own_source: bool) -> None:
    source = Tokenizer(by_words(extra=1), size=5) if own_source else None
    tokenizer = Tokenizer(by_words(extra=1), source, size=5)
    again = Tokenizer.from_json(tokenizer.to_json())
    for each in (tokenizer, again, again.source):
        assert each.size == 5
        assert each.encode("one odd two") == [3, 2, 4]
        assert each.encode_flat(["one odd two"])[0].tolist() == [3, 2, 4]
    assert (again.source is again) == (not own_source)


def test_it_cannot_be_learned_again() -> None:
    with pytest.raises(UsageError, match="imported"):
        Tokenizer.learn(["one"], Imported(5))
    with pytest.raises(ValueError, match="`vocabulary` must be at least 1"):
        Imported(0)
