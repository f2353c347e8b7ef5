from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.music.encoding import Encoding, vocabulary
from regard.text.tokenizer import MusicEvents, Tokenizer

ENCODINGS: list[Encoding] = ["performance", "chorale"]


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(data=st.data())
def test_each_word_is_one_token_and_comes_back(encoding: Encoding, data: st.DataObject) -> None:
    tokenizer = Tokenizer.learn([], MusicEvents(encoding=encoding))
    words = data.draw(st.lists(st.sampled_from(vocabulary(encoding)), max_size=30))
    ids = tokenizer.encode(" ".join(words))
    assert len(ids) == len(words)
    assert tokenizer.decode(ids).split() == words
    assert tokenizer.encode_flat([" ".join(words)]).ids.tolist() == ids
    assert Tokenizer.from_json(tokenizer.to_json()).encode(" ".join(words)) == ids


@pytest.mark.parametrize(("encoding", "size"), [("performance", 392), ("chorale", 520)])
def test_the_vocabulary_is_fixed(encoding: Encoding, size: int) -> None:
    settings = MusicEvents(encoding=encoding)
    assert settings.vocabulary == Tokenizer.learn(["on60"], settings).size == size


def test_what_is_no_event_is_unknown() -> None:
    tokenizer = Tokenizer.learn([], MusicEvents())
    assert tokenizer.encode("on60 on128 wait0 <eos> on6x 0")[1:] == [tokenizer.unknown] * 5
