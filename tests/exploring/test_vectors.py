"""Vectors of positions and words: the model's own, and truly the nearest."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from regard.errors import UsageError
from regard.exploring.vectors import neighbours, positions, word_to_try
from regard.text.tokenizer import Tokenizer, TokenizerSettings
from tests.exploring.bundles import tiny


def test_waves_are_the_papers() -> None:
    found = positions(tiny("transformer"), length=9, dimensions=6)
    wanted = np.array(
        [[np.sin(p / 10000 ** (i / 16)), np.cos(p / 10000 ** (i / 16))] for p in range(9) for i in (0, 2, 4)]
    )
    assert np.allclose(np.array(found.values), wanted.reshape(9, 6), atol=1e-4)
    similarity = np.array(found.similarity)
    assert similarity.shape == (9, 9)
    assert np.allclose(similarity.diagonal(), 1)
    # How alike two positions are depends on their distance alone.
    assert np.allclose(similarity[0, 2], similarity[5, 7], atol=1e-4)
    assert (found.kind, found.rows, found.columns) == ("sinusoidal", "position", "dimension")


@pytest.mark.parametrize(
    ("name", "kind", "rows", "first"),
    [
        ("gpt", "learned", 8, 0),
        ("rotary", "rotary", 8, 0),
        ("relative", "relative", 7, -3),
        ("alibi", "alibi", 8, 0),
        ("transformer-xl", "relative-waves", 9, -4),
        ("convs2s", "learned", 8, 0),
    ],
)
def test_every_kind_of_position_can_be_seen(name: str, kind: str, rows: int, first: int) -> None:
    bundle = tiny(name)
    found = positions(bundle, length=8, dimensions=4)
    assert (found.kind, found.first) == (kind, first)
    assert len(found.values) == len(found.similarity) == rows
    json.dumps(found.to_json(), allow_nan=False)
    if name == "gpt":
        table = bundle.network.embedding.positions.table.weight[:8, :4].detach().numpy()  # type: ignore[union-attr]
        assert np.allclose(np.array(found.values), table, atol=1e-4)


def test_models_without_positions_say_so() -> None:
    with pytest.raises(UsageError, match="needs a model with positions of its own, but `recurrent` has none"):
        positions(tiny("recurrent"))
    with pytest.raises(UsageError, match="`length` must be from 1 to 4,096, but is 0"):
        positions(tiny("gpt"), length=0)


@pytest.mark.parametrize("name", ["transformer", "gpt", "recurrent", "convs2s", "bytenet"])
def test_neighbours_are_the_nearest_by_cosine(name: str) -> None:
    bundle = tiny(name)
    found = neighbours(bundle, "seven", count=5)
    size = bundle.tokenizer.size
    tables = [each for each in bundle.network.modules() if getattr(each, "num_embeddings", 0) == size]
    table = tables[0].weight.detach()
    ids = bundle.tokenizer.encode("seven")
    cosine = torch.cosine_similarity(table, table[ids].mean(dim=0)[None])
    specials = bundle.tokenizer.specials
    cosine[[*ids, specials.padding, specials.start, specials.end, bundle.tokenizer.unknown or 0]] = -2
    assert [each.similarity for each in found.tokens] == pytest.approx(cosine.topk(5).values.tolist(), abs=1e-3)
    assert "seven" not in [each.text for each in found.tokens] or len(ids) > 1
    json.dumps(found.to_json(), allow_nan=False)


def test_the_map_keeps_near_things_near() -> None:
    found = neighbours(tiny("transformer"), "one", count=8)
    spots = np.array([found.place, *((each.x, each.y) for each in found.tokens)])
    assert np.allclose(spots.mean(axis=0), 0, atol=1e-3)
    assert spots[:, 0].var() >= spots[:, 1].var() > 0


def test_a_word_of_several_pieces_is_their_mean() -> None:
    bundle = tiny("transformer")
    assert "".join(neighbours(bundle, "onetwo").pieces) == "onetwo"
    with pytest.raises(UsageError, match="at least one word"):
        neighbours(bundle, " ")
    with pytest.raises(UsageError, match="`count` must be from 1 to"):
        neighbours(bundle, "one", count=0)


@pytest.mark.parametrize("tokens", ["kind='bpe', vocabulary=120", "kind='bytes', vocabulary=300", "kind='characters'"])
def test_the_word_to_begin_with_has_a_vector_of_its_own(tokens: str) -> None:
    bundle = tiny("gpt", tokens)
    word = word_to_try(bundle.tokenizer)
    assert word.isalpha()
    assert len(neighbours(bundle, word).pieces) == 1
    assert (len(word) == 1) == ("characters" in tokens)


def test_a_model_that_knows_none_of_our_words_begins_with_one_of_its_own() -> None:
    tokenizer = Tokenizer.learn(["une maison", "la maison rouge"] * 5, TokenizerSettings(kind="bpe", vocabulary=60))
    assert word_to_try(tokenizer) == "maison"
