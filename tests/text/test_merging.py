"""Merges are learned as the library learns them, ties and all."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers

from regard.text import counting
from regard.text.learning import UNKNOWN, Kind, TokenizerSettings, learn
from regard.text.merging import Learned, learn_merges


def library(pieces: Counter[str], alphabet: str, size: int, min_frequency: int) -> Learned:
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=size, min_frequency=min_frequency, special_tokens=[UNKNOWN], initial_alphabet=list(alphabet),
        limit_alphabet=len(alphabet), show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator(pieces.elements(), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return Learned(sorted(model["vocab"], key=model["vocab"].get), [tuple(merge) for merge in model["merges"]])


@settings(max_examples=200)
@given(
    st.integers(1, 3).flatmap(lambda letters: st.lists(st.text("abc"[:letters] + "z", min_size=1, max_size=14))),
    st.integers(5, 60),
    st.integers(1, 3),
)
@example(["aaaa", "aaa", "aaaaa"], 30, 1)  # runs, which overlap with themselves
@example(["abab", "babab", "bab"], 30, 1)
@example(["abcb", "bcab", "abcab", "cabc"], 40, 1)  # abc is made in two ways
@example(["azb", "ab"], 30, 1)  # what is not in the alphabet is passed over
def test_merges_are_those_of_the_library(words: list[str], size: int, min_frequency: int) -> None:
    pieces = Counter(words)
    found = learn_merges(pieces, [UNKNOWN, *"abc"], size, min_frequency)
    assert found == library(pieces, "abc", size, min_frequency)


def trained(lines: list[str], kind: Kind, size: int) -> str:
    """What the library makes of the lines by the rules of a kind."""
    rules = json.loads(learn(lines, TokenizerSettings(kind, size)).to_str())
    merges = rules["model"]["merges"]
    alphabet = [token for token in rules["model"]["vocab"] if len(token) == 1]
    rules["model"] |= {"vocab": {}, "merges": []}
    empty = tokenizers.Tokenizer.from_str(json.dumps({**rules, "added_tokens": []}))
    specials = [token["content"] for token in rules["added_tokens"]]
    assert merges
    empty.train_from_iterator(
        lines,
        trainers.BpeTrainer(
            vocab_size=size, special_tokens=specials, initial_alphabet=alphabet, limit_alphabet=len(alphabet),
            show_progress=False,
        ),
    )  # fmt: skip
    return empty.to_str()


@pytest.mark.parametrize("kind", ["bpe", "bpe-end", "bytes"])
def test_a_whole_vocabulary_is_the_one_the_library_trains(kind: Kind) -> None:
    lines = [f"Der {n}. Zug fährt  um {n * n} Uhr\tab, <dann> kommt's: {'ab' * (n % 7)} é\u0301" for n in range(99)]
    lines += ["", "  ", "    def f(x):\n        return x", "a\u2028b ▁ c"]
    assert learn(lines, TokenizerSettings(kind, 420)).to_str() == trained(lines, kind, 420)


def test_when_different_words_are_too_many_the_rarest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "MOST_CHARACTERS", 400)
    monkeypatch.setattr(counting, "LOOK_EVERY", 300)
    monkeypatch.setattr("regard.text.survey.CHUNK", 100)
    # Half of them are counted by words, and those with a tab by pieces.
    lines = [f"often again {number}x{number}" + "\ty" * (number % 2) for number in range(2_000)]
    inner = learn(["often again"], TokenizerSettings(vocabulary=30, split_digits=False))
    found = counting.count_pieces(lines, inner)
    assert found["▁often"] == found["▁again"] == 2_000
    assert sum(map(len, found)) < 2_000
