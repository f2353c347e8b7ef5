"""Perplexity: the product of the probabilities that a step-by-step reading gives, whatever the batch."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.api import Model, load
from regard.batch import Tokens
from regard.evaluation import likelihood as module
from regard.evaluation.likelihood import Likelihood, in_batches, likelihood, perplexity
from tests.tiny import ENGLISH, GERMAN

TARGETS = ["eins zwei", "", "drei", "fünf vier sechs sieben"]
SOURCES = ["one two", "", "four", "six"]


@pytest.fixture(scope="module")
def model(words_model: Path) -> Model:
    return load(words_model)


def by_steps(model: Model, source: str, target: str) -> float:
    """−log P(target | source), one token after another."""
    specials = model.tokenizer.specials
    read = Tokens.padded([[*model.tokenizer.source.encode(source), specials.end]], specials.padding)
    total, last = 0.0, specials.start
    with torch.inference_mode():
        state = model.network.start(read, 1)
        for token in [*model.tokenizer.encode(target), specials.end]:
            scores, state = model.network.step(torch.tensor([[last]]), state)
            total -= scores.log_softmax(dim=-1)[0, token].item()
            last = token
    return total


def test_it_is_what_steps_give_in_any_batch(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int]] = []
    found = likelihood(model.network, model.tokenizer, SOURCES, TARGETS, lambda *now: seen.append(now))
    expected = [by_steps(model, *pair) for pair in zip(SOURCES, TARGETS, strict=True)]
    assert found.nats_L.tolist() == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert seen[-1] == ("perplexity", 4)
    monkeypatch.setattr(module, "SLOTS", 1)
    alone = likelihood(model.network, model.tokenizer, SOURCES, TARGETS)
    assert alone.nats_L.tolist() == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert alone.tokens_L.tolist() == found.tokens_L.tolist()


def test_long_sources_with_short_targets_are_read_a_few_at_a_time(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Summaries: by their targets alone, hundreds of long texts would be read at once."""
    sizes = []
    features = model.network.features
    monkeypatch.setattr(
        model.network, "features", lambda batch: sizes.append(batch.source.ids_BT.numel()) or features(batch)
    )
    monkeypatch.setattr(module, "SLOTS", 50)
    likelihood(model.network, model.tokenizer, [" ".join(["one"] * 40)] * 6, ["zwei"] * 6)
    assert len(sizes) >= 3
    assert max(sizes) <= 2 * 50


def test_tokens_bytes_and_unknown_tokens_are_counted(model: Model) -> None:
    found = likelihood(model.network, model.tokenizer, ["x", "y"], ["fünf", "日"])
    assert found.tokens_L.tolist() == [len(model.tokenizer.encode(text)) + 1 for text in ("fünf", "日")]
    assert found.bytes_L.tolist() == [6, 4]
    assert found.unknown == 1
    assert likelihood(model.network, model.tokenizer, ENGLISH, GERMAN).unknown == 0


def test_perplexities_by_hand() -> None:
    found = Likelihood(np.array([2.0, 4.0]), np.array([1.0, 2.0]), np.array([3.0, 9.0]), 0, 120)
    token, byte = (tally.score() for tally in found.tallies())
    assert (token.value, byte.value) == (pytest.approx(math.exp(2)), pytest.approx(math.exp(0.5)))
    assert token.signature == "first reference|tokens:3|end tokens:yes|vocabulary:120"
    assert byte.signature == "first reference|bytes:12|UTF-8|line ends:yes"
    assert float(perplexity(np.array([1e9, 1.0]))) < math.inf


def test_what_is_known_by_heart_is_hardly_a_surprise(model: Model) -> None:
    right = likelihood(model.network, model.tokenizer, ENGLISH, GERMAN).tallies()[0].score().value
    wrong = likelihood(model.network, model.tokenizer, ENGLISH, GERMAN[::-1]).tallies()[0].score().value
    assert 1 <= right < 1.5 < wrong


def test_batches_hold_every_line_once_and_no_more_than_their_slots() -> None:
    lengths = [3, 9, 1, 1, 4, 20]
    batches = list(in_batches(lengths, 10))
    assert sorted(place for batch in batches for place in batch) == list(range(6))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[place] for place in batch) <= 10
    assert list(in_batches([], 10)) == []
