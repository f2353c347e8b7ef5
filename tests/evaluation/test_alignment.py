"""Word alignments: the words of subwords, the best of many attentions, and error rates worked out by hand."""

from __future__ import annotations

import random
from typing import Any, get_args

import numpy as np
import pytest
import torch

from regard.errors import DataError, UsageError
from regard.evaluation import alignment as module
from regard.evaluation.alignment import (
    Gold,
    Link,
    Quality,
    WordAttention,
    choose,
    prediction_gain,
    quality,
    read_pharaoh,
    to_pharaoh,
    usual,
    word_attention,
)
from regard.models.build import ModelSettings, build
from regard.models.bytenet import ByteNetSettings
from regard.models.convs2s import ConvS2SSettings
from regard.models.interface import SequenceModel
from regard.models.recurrent import RecurrentSettings
from regard.models.transformer import TransformerSettings
from regard.text.learning import Kind
from regard.text.tokenizer import Tokenizer, TokenizerSettings
from regard.viewing.capture import attention_maps

TEXTS = ["der kleine Zug fährt", "the small train leaves", "neunundneunzig Züge", "ninety-nine trains 42", "a  b"]
SETTINGS: dict[str, ModelSettings] = {
    "transformer": TransformerSettings(encoder_layers=1, decoder_layers=2, d_model=16, d_ff=16, heads=2),
    "convs2s": ConvS2SSettings(encoder=((1, 8, 3),), decoder=((2, 8, 3),), embedding=8),
    "recurrent": RecurrentSettings(d_model=8),
}
NAMES = {
    "transformer": ("1.1", "1.2", "1.mean", "2.1", "2.2", "2.mean"),
    "convs2s": ("1.1", "2.1"),
    "recurrent": ("1.1",),
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.learn(TEXTS * 3, TokenizerSettings("bpe", 60))


def made(settings: ModelSettings, tokenizer: Tokenizer) -> SequenceModel[Any]:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return build(settings, tokenizer.size, tokenizer.source.size).eval()


@pytest.mark.parametrize("kind", SETTINGS)
def test_the_attention_of_words_is_that_of_their_tokens(kind: str, tokenizer: Tokenizer) -> None:
    model = made(SETTINGS[kind], tokenizer)
    source, target = TEXTS[2], TEXTS[3]
    (found,) = word_attention(model, tokenizer, [source], [target])
    assert found.names == NAMES[kind]
    assert found.weights_ATS.shape == (len(NAMES[kind]), 3, 3)
    assert found.weights_ATS.sum(axis=2) == pytest.approx(1.0, abs=1e-5)

    maps = attention_maps(model, tokenizer, tokenizer.encode(source), tokenizer.encode(target))
    last = max((one for one in maps if one.name == "cross"), key=lambda one: one.layer).weights[0]
    # A word begins where its first token has the mark, and the end token stands apart.
    rows, columns = (
        [place for place, label in enumerate(tokenizer.labels(tokenizer.encode(text))) if label.startswith("▁")]
        for text in (target, source)
    )
    first_word = last[rows[1] : rows[2], columns[0] : columns[1]].sum(axis=1).mean()
    place = len(found.names) - (3 if kind == "transformer" else 1)
    assert found.weights_ATS[place, 1, 0] == pytest.approx(first_word, abs=1e-6)
    assert found.weights_ATS[place, 1, 2] == pytest.approx(last[rows[1] : rows[2], -1].mean(), abs=1e-6)


@pytest.mark.parametrize("kind", SETTINGS)
def test_neighbours_and_order_change_nothing(kind: str, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    model = made(SETTINGS[kind], tokenizer)
    together = word_attention(model, tokenizer, TEXTS, TEXTS[::-1])
    monkeypatch.setattr(module, "SLOTS", 1)
    alone = word_attention(model, tokenizer, TEXTS, TEXTS[::-1])
    for one, other in zip(together, alone, strict=True):
        assert one.weights_ATS == pytest.approx(other.weights_ATS, abs=1e-5)


def test_an_empty_side_has_no_links(tokenizer: Tokenizer) -> None:
    model = made(SETTINGS["transformer"], tokenizer)
    for found in word_attention(model, tokenizer, ["", "der Zug", " "], ["the train", "", ""]):
        assert found.links("1.1") == []
    assert word_attention(model, tokenizer, [], []) == []


def test_watchers_are_gone_afterwards(tokenizer: Tokenizer) -> None:
    model = made(SETTINGS["transformer"], tokenizer)
    word_attention(model, tokenizer, ["a"], ["b"])
    assert all(getattr(part, "watcher", None) is None for part in model.modules())


def test_a_model_without_attention_is_refused(tokenizer: Tokenizer) -> None:
    model = made(ByteNetSettings(channels=6, dilations=(1, 2), repeats=1), tokenizer)
    with pytest.raises(UsageError, match="needs a model that attends to its source, but ByteNet does not"):
        word_attention(model, tokenizer, ["a"], ["b"])


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_kind_of_token_finds_its_word(kind: Kind) -> None:
    tokenizer = Tokenizer.learn(TEXTS * 3, TokenizerSettings(kind, 280))
    text = "  neunundneunzig  Züge, 日本 fährt\u00a0x "
    (words,) = module._words(tokenizer, [text])
    assert len(words) == len(tokenizer.encode(text))
    assert set(words) - {-1} == {0, 1, 2, 3, 4}
    assert [word for word in words if word >= 0] == sorted(word for word in words if word >= 0)


def test_links_go_to_the_heaviest_word_or_nowhere() -> None:
    weights = np.array([[[0.2, 0.5, 0.3], [0.1, 0.2, 0.7], [0.9, 0.1, 0.0]]], dtype=np.float32)
    links = WordAttention(("1.1",), weights).links("1.1")
    assert [(link.source, link.target) for link in links] == [(1, 0), (0, 2)]
    assert links[0].weight == pytest.approx(0.5)
    with pytest.raises(UsageError, match=r"must be one of 1\.1, but is `3\.1`"):
        WordAttention(("1.1",), weights).links("3.1")


# Pharaoh's format and quality


def test_pharaoh_writes_and_reads() -> None:
    assert to_pharaoh([Link(2, 0), Link(0, 1), Link(0, 0)]) == "0-0 0-1 2-0"
    assert to_pharaoh([]) == ""
    assert read_pharaoh("0-0 1?2 3p1", "gold") == Gold(frozenset({(0, 0)}), frozenset({(0, 0), (1, 2), (3, 1)}))
    assert read_pharaoh("", "gold") == Gold(frozenset(), frozenset())
    with pytest.raises(DataError, match=r"gold, line 3: must hold links such as 0-0 .* but holds `0:1`"):
        read_pharaoh("0-0 0:1", "gold, line 3")


def test_quality_by_hand() -> None:
    gold = [read_pharaoh("0-0 1-1 2?1", ""), read_pharaoh("0-1", "")]
    found = [[Link(0, 0), Link(2, 1), Link(2, 2)], [Link(0, 1)]]
    # Of 4 links 3 are possible and 2 sure; of 3 sure ones 2 are found: 1 − (2 + 3) / (4 + 3).
    assert quality(found, gold) == Quality(pytest.approx(2 / 7), 3 / 4, pytest.approx(2 / 3))
    assert quality([[]], [read_pharaoh("", "")]) == Quality(0.0, 1.0, 1.0)
    with pytest.raises(DataError, match="there are 1 for 2"):
        quality([[], []], gold[:1])


# Choosing


def made_up(lines: int) -> tuple[list[str], list[str], list[WordAttention], list[Gold]]:
    """Sentences translated word by word into reverse order, and five attentions, of which the fourth is right."""
    chance = random.Random(3)
    sources, targets, found, gold = [], [], [], []
    for _ in range(lines):
        words = [chance.choice("abcdefghij") for _ in range(chance.randint(3, 6))]
        size = len(words)
        nowhere, straight, drawn = np.zeros((size, size + 1)), np.eye(size, size + 1), np.zeros((size, size + 1))
        nowhere[:, size] = 1
        drawn[range(size), [chance.randrange(size) for _ in range(size)]] = 1
        right = np.eye(size, size + 1)[:, [*range(size - 1, -1, -1), size]]
        first = np.zeros((size, size + 1))
        first[:, 0] = 1
        stack = np.stack([nowhere, straight, drawn, right, first]).astype(np.float32)
        found.append(WordAttention(("1.1", "1.2", "2.1", "2.2", "3.1"), stack))
        sources.append(" ".join(words))
        targets.append(" ".join(word.upper() * 2 for word in reversed(words)))
        gold.append(read_pharaoh(" ".join(f"{size - 1 - place}-{place}" for place in range(size)), ""))
    return sources, targets, found, gold


def test_the_right_attention_is_chosen_with_and_without_gold() -> None:
    sources, targets, found, gold = made_up(30)
    assert choose(found, sources, targets).name == "2.2"
    chosen = choose(found, sources, targets, gold)
    assert chosen.name == "2.2"
    assert chosen.reason == "which has the lowest alignment error rate of 5 attentions: 0.000 on 30 lines"


def test_what_tells_nothing_gains_nothing() -> None:
    sources, targets, found, _ = made_up(200)
    gains = {name: prediction_gain([one.links(name) for one in found], sources, targets) for name in found[0].names}
    assert gains["2.2"] > 2.0  # ten words: at most log 10 nats
    assert max(gains[name] for name in ("1.1", "2.1", "3.1")) < 0.1


def test_where_no_attention_gains_the_usual_one_aligns() -> None:
    names, straight = ("1.1", "2.1", "2.2", "2.mean"), np.eye(3, 4, dtype=np.float32)
    for source, target in (("x y z", "a b c"), ("x x x", "a b c")):  # gains of 0, and below it
        chosen = choose([WordAttention(names, np.stack([straight] * 4))], [source], [target])
        assert chosen.name == "2.mean"
        assert chosen.reason.startswith("the usual one: 1 line cannot tell which of 4 attentions aligns best.")
    assert usual(["1.1"]) == "1.1"
    assert usual(["1.1", "1.2", "1.mean"]) == "1.mean"
    assert usual(["1.1", "2.1", "3.1"]) == "2.1"


def test_nothing_to_choose_by_is_named() -> None:
    with pytest.raises(DataError, match="at least one pair"):
        choose([], [], [])
