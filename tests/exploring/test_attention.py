"""What heads looked at: the captured weights, their summaries, and the same numbers for long texts."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from regard.data.batching import collate
from regard.decoding.search import SearchSettings
from regard.errors import UsageError
from regard.exploring import attention
from regard.exploring.attention import look
from regard.exploring.bundle import best, source_ids
from regard.viewing.capture import watching
from tests.exploring.bundles import by_sentence, running, tiny

TEXT = "one two three"


def test_weights_are_those_the_model_computed() -> None:
    bundle = tiny("transformer")
    looked = look(bundle, TEXT)
    source = source_ids(bundle, TEXT)
    written = best(bundle, source).tokens
    with watching(bundle.network) as seen, torch.inference_mode():
        bundle.network(collate([(source[:-1], written)], bundle.tokenizer.specials))
    assert len(looked.layers) == len(seen) == 6
    for layer, (name, weights) in zip(looked.layers, seen.items(), strict=True):
        assert layer.name in name or layer.name == "cross"
        for head in range(2):
            assert np.allclose(looked.head(layer.name, layer.layer, head), weights[0, head], atol=1e-6)
        assert np.allclose(looked.head(layer.name, layer.layer, "mean"), weights[0].mean(dim=0), atol=1e-6)


def test_summaries_are_those_of_the_weights() -> None:
    looked = look(tiny("transformer"), TEXT)
    for layer in looked.layers:
        weights = np.stack([looked.head(layer.name, layer.layer, head) for head in range(2)]).astype(float)
        entropy = -(weights * np.log(np.maximum(weights, 1e-30))).sum(-1).mean(-1)
        assert layer.entropy == pytest.approx(entropy, abs=1e-3)
        apart = np.abs(np.arange(len(layer.queries))[:, None] - np.arange(len(layer.keys)))
        assert layer.distance == pytest.approx((weights * apart).sum(-1).mean(-1), abs=1e-3)
        special = [place for place, key in enumerate(layer.keys) if key in ("‹start›", "‹end›")]
        assert special
        assert layer.separators == pytest.approx(weights[:, :, special].sum(-1).mean(-1), abs=1e-3)


def test_the_mean_of_heads_has_an_entropy_of_its_own() -> None:
    looked = look(tiny("transformer"), TEXT)
    for layer, found in zip(looked.layers, looked.maps(), strict=True):
        (wanted,) = found.mean().entropy()
        assert layer.mean_entropy == pytest.approx(wanted, abs=1e-4)
        assert layer.mean_entropy > np.mean(layer.entropy)
        assert layer.to_json()["mean_entropy"] == layer.mean_entropy


def test_a_long_text_gives_the_same_layer_by_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = tiny("transformer")
    kept = look(bundle, TEXT)
    monkeypatch.setattr(attention, "KEPT", 0)
    asked = look(bundle, TEXT)
    assert asked.layers == kept.layers
    for name, layer in (("cross", 1), ("encoder", 0), ("cross", 1)):
        assert np.allclose(asked.head(name, layer, 1), kept.head(name, layer, 1), atol=1e-6)
    assert len(asked._kept) == 1
    assert [one.place for one in asked.maps()] == [one.place for one in kept.maps()]


@pytest.mark.parametrize(
    ("name", "stacks"),
    [("recurrent", {"cross"}), ("convs2s", {"cross"}), ("gpt", {"decoder"}), ("decoder-only", {"decoder"})],
)
def test_every_kind_of_model_can_be_looked_at(name: str, stacks: set[str]) -> None:
    looked = look(tiny(name), TEXT)
    assert {layer.name for layer in looked.layers} == stacks
    told = json.loads(json.dumps(looked.to_json(), allow_nan=False))
    for entry in told["maps"]:
        shown = json.loads(json.dumps(looked.head_json(entry["name"], entry["layer"], 0), allow_nan=False))
        assert np.array(shown["weights"]).shape == (len(entry["queries"]), len(entry["keys"]))
        assert np.array(shown["weights"]).sum(axis=1) == pytest.approx(1, abs=0.005)
        assert entry["heads"] == len(entry["entropy"])


def test_words_are_readable() -> None:
    looked = look(tiny("transformer"), TEXT, target="eins zwei")
    layers = {layer.name: layer for layer in looked.layers}
    assert layers["cross"].keys == ("one", "two", "three", "‹end›")
    assert layers["decoder"].keys[0] == "‹start›"
    assert layers["cross"].queries[-1] == "‹end›"
    assert "".join(layers["cross"].queries[:-1]) == "einszwei"
    assert (looked.source, looked.target) == (TEXT, "eins zwei")


def test_a_stack_that_reads_everything_names_rows_by_who_looks() -> None:
    gpt = look(tiny("gpt"), "one two").layers[0]
    assert gpt.queries == gpt.keys == ("‹start›", "one", "two")
    both = look(tiny("decoder-only"), "one two", target="eins").layers[0]
    assert both.queries == both.keys
    assert both.keys[:4] == ("one", "two", "‹end›", "‹start›")


def test_what_cannot_be_looked_at_is_said() -> None:
    with pytest.raises(UsageError, match="at least one word"):
        look(tiny("transformer"), " ")
    with pytest.raises(UsageError, match="ByteNet as it is set up has no attention"):
        look(tiny("bytenet"), TEXT)
    with pytest.raises(UsageError, match="has no target beside its text"):
        look(tiny("gpt"), TEXT, target="eins")
    with pytest.raises(UsageError, match="less than 64 tokens"):
        look(tiny("gpt"), "one " * 80)
    looked = look(tiny("gpt"), TEXT)
    # Pictures count from 1, code from 0.
    with pytest.raises(UsageError, match=r"must be one of decoder 1 to 2, but is cross 9 \(8, counted from 0\)"):
        looked.map("cross", 8)
    with pytest.raises(UsageError, match=r"has heads 1 to 2, but head 3 \(2, counted from 0\)"):
        looked.head("decoder", 0, 2)


def test_of_two_streams_one_is_shown() -> None:
    """XLNet attends twice in every layer; its content stream sees the past, itself among it."""
    found = look(tiny("xlnet"), "one two three")
    assert [(each.name, each.layer) for each in found.layers] == [("decoder", 0), ("decoder", 1)]
    weights = found.head("decoder", 0, 0)
    assert np.allclose(weights.sum(axis=1), 1, atol=1e-5)
    assert (np.triu(weights, 1) == 0).all()
    assert (np.diag(weights) > 0).all()


def test_of_several_sentences_the_first_is_looked_at_where_each_is_translated_by_itself() -> None:
    bundle = by_sentence(tiny("transformer"))
    first, several = look(bundle, "One two."), look(bundle, "One two. Three! Four five.")
    assert (several.source, several.target) == ("One two.", first.target)
    assert several.layers == first.layers
    assert look(bundle, "One two. Three!", target="Eins.").source == "One two. Three!"
    assert look(tiny("transformer"), "One two. Three!").source == "One two. Three!"
    assert look(bundle, "One two. Three!", search=SearchSettings(beam=1)).source == "One two. Three!"


def test_the_lines_of_running_text_begin_as_in_training() -> None:
    assert look(running(tiny("gpt")), "one two\nthree").layers[0].keys == ("‹start›", "one", "two", "‹start›", "three")
