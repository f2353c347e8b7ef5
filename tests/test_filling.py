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
    ids, gaps = cut(reader, gapped)
    assert len(gaps) == text.count(word)
    if kind == "characters":
        assert reader.decode(ids).replace("<unk>", "_") == gapped
    else:
        one = reader.encode(text)[len(reader.encode(text[: text.index(word)]))]
        filled = [one if place in gaps else token for place, token in enumerate(ids)]
        assert filled == reader.encode(text)


@pytest.mark.parametrize("kind", ["bpe", "bytes", "words", "characters"])
def test_a_gap_at_either_end(kind: Any) -> None:
    ids, gaps = cut(tokenizer(kind), "_ be or _")
    assert gaps == [0, len(ids) - 1]


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
    everything = filler.fill("to _", count=1_000).gaps[0]
    assert sum(everything.probabilities) == pytest.approx(1.0, abs=1e-5)
    assert found.to_json()["text"] == found.text
    assert filler.fill("to ? or ?", gap="?").gaps == filler.fill("to _ or _").gaps


def test_what_is_refused(filler: Filler) -> None:
    with pytest.raises(UsageError, match="must have a gap, written _"):
        filler.fill("to be")
    with pytest.raises(UsageError, match="must have a gap"):
        filler.fill("to be", gap="")
    with pytest.raises(UsageError, match="gaps must be told apart"):  # where tokens are words, these two are one
        filler.fill("to __ be")
    if filler._context is not None:
        with pytest.raises(UsageError, match="less than 10 tokens"):
            filler.fill("to be " * 6 + "_")
    reader = tokenizer("words")
    with pytest.raises(TypeError, match="fills gaps, but has a GPT"):
        Filler(GPT(GPTSettings(**SIZES), reader.size), reader, None)
