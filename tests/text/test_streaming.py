"""Text that comes token by token."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.text.streaming import HALF, TextStream
from regard.text.tokenizer import Tokenizer, TokenizerSettings

LINES = ["héllo wörld, 日本語 and more", "the quick brown fox", "…!? ж 😀"]
TOKENIZERS = {
    kind: Tokenizer.learn(LINES, TokenizerSettings(kind=kind, vocabulary=300))  # type: ignore[arg-type]
    for kind in ("bpe", "bpe-end", "bytes", "words", "characters")
}
TEXTS = st.text(alphabet=st.sampled_from("héloö 日本😀…!thequickж"), max_size=30)


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(text=TEXTS, cut=st.integers(0, 30))
def test_the_pieces_are_the_text(kind: str, text: str, cut: int) -> None:
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode(text)
    stream = TextStream(tokenizer)
    assert "".join([*map(stream.push, ids), stream.end()]) == tokenizer.decode(ids)
    prompt, rest = ids[:cut], ids[cut:]
    after = TextStream(tokenizer, prompt)
    joined = tokenizer.decode(prompt) + "".join([*map(after.push, rest), after.end()])
    if HALF not in tokenizer.decode(prompt):  # a prompt is text, so it ends with a character
        assert joined == tokenizer.decode(ids)


@given(text=TEXTS)
def test_no_piece_ends_inside_a_character(text: str) -> None:
    tokenizer = TOKENIZERS["bytes"]
    stream = TextStream(tokenizer)
    assert all(HALF not in stream.push(token) for token in tokenizer.encode(text))
    assert stream.end() == ""


class EachByte:
    """Each byte is a token, and of half a character each byte is shown by itself."""

    def decode(self, ids: Sequence[int]) -> str:
        whole = bytes(ids).decode(errors="ignore")
        return whole + HALF * (len(ids) - len(whole.encode()))


def test_a_character_comes_when_its_last_byte_does() -> None:
    stream = TextStream(EachByte())
    assert [stream.push(byte) for byte in "a😀é".encode()] == ["a", "", "", "", "😀", "", "é"]


def test_bytes_that_never_become_a_character_are_not_held_for_ever() -> None:
    tokenizer = TOKENIZERS["bytes"]
    (first, *_) = tokenizer.encode("😀")
    stream = TextStream(tokenizer)
    pieces = [stream.push(first) for _ in range(8)]
    assert "".join([*pieces, stream.end()]) == tokenizer.decode([first] * 8)
    assert any(pieces)
    stream.push(first)
    assert stream.end() == HALF
    assert stream.end() == ""


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_the_end_of_a_line(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    end, lines = tokenizer.specials.end, ["the fox", "", "quick 😀"]
    stream = TextStream(tokenizer, line_end=end)
    ids = [token for line in lines for token in (*tokenizer.encode(line), end)]
    assert "".join(map(stream.push, ids)) == "".join(f"{tokenizer.decode(tokenizer.encode(line))}\n" for line in lines)
    assert stream.end() == ""
