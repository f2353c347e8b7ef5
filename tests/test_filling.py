"""Gaps in texts: where they are cut, what is put into them, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.errors import UsageError
from regard.filling import Filler, cut
from regard.models.bert import Bert, BertSettings
from regard.models.gpt import GPT, GPTSettings
from regard.models.xlnet import XLNet, XLNetSettings
from regard.text.tokenizer import Tokenizer, TokenizerSettings

LINES = ["to be, or not to be, that is the question.", "not the question to be that"] * 8
SIZES: Any = {"layers": 1, "d_model": 16, "d_ff": 16, "heads": 2}


def tokenizer(kind: Any) -> Tokenizer:
    cuts = True if kind == "bpe" else None  # so small a corpus would make one token of a word and its full stop
    return Tokenizer.learn(LINES, TokenizerSettings(kind, vocabulary=320, split_punctuation=cuts))


@pytest.mark.parametrize("kind", ["bpe", "bytes", "words", "characters"])
@pytest.mark.parametrize("word", [" not", " question", " be"])
def test_a_gap_stands_for_one_token_and_leaves_the_others_as_they_are(kind: Any, word: str) -> None:
    """A text with a word in it is cut as the text with a gap there, if that word is one token."""
    reader, text = tokenizer(kind), LINES[0]
    gapped = text.replace(word, " _")
    pieces = cut(reader, gapped)
    ids, gaps = pieces.ids, pieces.gaps
    assert len(gaps) == text.count(word)
    if kind == "characters":
        assert reader.decode(ids).replace("<unk>", "_") == gapped
    else:
        one = reader.encode(text)[len(reader.encode(text[: text.index(word)]))]
        filled = [one if place in gaps else token for place, token in enumerate(ids)]
        assert filled == reader.encode(text)
        assert pieces.put([one] * len(gaps), reader) == text


@pytest.mark.parametrize("kind", ["bpe", "bytes", "words", "characters"])
def test_a_gap_at_either_end(kind: Any) -> None:
    pieces = cut(tokenizer(kind), "_ be or _")
    assert pieces.gaps == [0, len(pieces.ids) - 1]


@pytest.mark.parametrize("kind", ["bpe", "bytes", "words", "characters"])
def test_what_the_vocabulary_does_not_cover_stays_as_it_is_written(kind: Any) -> None:
    reader = tokenizer(kind)
    put = " not" if kind in ("bytes", "bpe") else "t" if kind == "characters" else "not"
    (token,) = reader.encode(put)
    pieces = cut(reader, "Tö  € <unk> _ be, _ 日本語")
    assert pieces.put([token, token], reader) == f"Tö  € <unk> {put.strip()} be, {put.strip()} 日本語"


@pytest.fixture(scope="module", params=["bert", "xlnet"])
def filler(request: pytest.FixtureRequest) -> Filler:
    torch.manual_seed(1)
    reader = tokenizer("words")
    if request.param == "xlnet":
        return Filler(XLNet(XLNetSettings(**SIZES), reader.size), reader, None)
    return Filler(Bert(BertSettings(**SIZES, max_positions=10), reader.size), reader, 10)


def test_what_is_told_of_a_gap(filler: Filler) -> None:
    found = filler.fill("to be or _ to _", count=3)
    assert len(found.gaps) == 2
    for gap in found.gaps:
        assert len(gap.tokens) == 3
        assert list(gap.probabilities) == sorted(gap.probabilities, reverse=True)
        assert 0 < sum(gap.probabilities) <= 1
        assert not {"<pad>", "<bos>", "<eos>", "<unk>"} & set(gap.tokens)
    everything = filler.fill("to _", count=1_000).gaps[0]
    assert sum(everything.probabilities) == pytest.approx(1.0, abs=1e-5)
    assert len(everything.tokens) == tokenizer("words").size - 4, "all tokens that are text, and no others"
    assert found.to_json()["text"] == found.text
    assert filler.fill("to ? or ?", gap="?").gaps == filler.fill("to _ or _").gaps


def test_a_space_can_be_seen() -> None:
    reader = tokenizer("characters")
    torch.manual_seed(1)
    found = Filler(Bert(BertSettings(**SIZES), reader.size), reader, None).fill("to_be", count=1_000).gaps[0]
    assert "▁" in found.tokens
    assert " " not in found.tokens


def test_what_is_refused(filler: Filler) -> None:
    with pytest.raises(UsageError, match="must have a gap, written _"):
        filler.fill("to be")
    with pytest.raises(UsageError, match="`gap` must be a sign that stands for a gap, but is empty"):
        filler.fill("to be", gap="")
    with pytest.raises(UsageError, match="gaps must be told apart"):  # where tokens are words, these two are one
        filler.fill("to __ be")
    if filler._context is not None:
        with pytest.raises(UsageError, match="less than 10 tokens"):
            filler.fill("to be " * 6 + "_")
    reader = tokenizer("words")
    with pytest.raises(TypeError, match="fills gaps, but has a GPT"):
        Filler(GPT(GPTSettings(**SIZES), reader.size), reader, None)
