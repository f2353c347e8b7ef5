"""Attention taken while it happens: the right weights, under the right names, and no trace left behind."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.data.batching import collate
from regard.errors import UsageError
from regard.layers.attention import Attention
from regard.models.build import ModelSettings, build
from regard.models.bytenet import ByteNetSettings
from regard.models.convs2s import ConvS2SSettings
from regard.models.encoder import BodySettings, ConvolutionBodySettings, RecurrentBodySettings, TransformerBodySettings
from regard.models.gpt import GPTSettings
from regard.models.labelling import Classifier, ClassifierSettings, Tagger, TaggerSettings
from regard.models.recurrent import RecurrentSettings
from regard.models.transformer import Transformer, TransformerSettings
from regard.text.tokenizer import Tokenizer, TokenizerSettings
from regard.viewing.capture import Call, attention_maps, label_maps, watching
from regard.viewing.figures import AttentionMap
from regard.viewing.labels import readable

TOKENIZER = Tokenizer.learn(["one two three", "eins zwei drei"], TokenizerSettings(vocabulary=60))
SETTINGS = TransformerSettings(encoder_layers=2, decoder_layers=2, d_model=16, d_ff=32, heads=4, dropout=0.5)


@pytest.fixture
def model() -> Transformer:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Transformer(SETTINGS, TOKENIZER.size).eval()


def test_every_attention_is_seen_by_its_name_and_sums_to_one(model: Transformer) -> None:
    batch = collate([([4, 5, 6], [7, 8])], TOKENIZER.specials)
    with watching(model) as seen, torch.inference_mode():
        model(batch)
    names = [name for name, module in model.named_modules() if isinstance(module, Attention)]
    assert list(seen) == names
    assert len(names) == 6
    for weights in seen.values():
        assert weights.shape[:2] == (1, 4)
        assert torch.allclose(weights.sum(-1), torch.ones(()))


def test_watching_changes_nothing_and_ends_with_the_block(model: Transformer) -> None:
    batch = collate([([4, 5, 6], [7, 8])], TOKENIZER.specials)
    with torch.inference_mode():
        before = model(batch)
        with watching(model):
            during = model(batch)
        assert torch.allclose(before, during, atol=1e-5)
        assert torch.equal(model(batch), before)
    with pytest.raises(RuntimeError, match="halfway"), watching(model):
        raise RuntimeError("halfway")
    assert all(module.watcher is None for module in model.modules() if isinstance(module, Attention))


def test_maps_are_named_by_what_is_read_and_written(model: Transformer) -> None:
    source, target = TOKENIZER.encode("one two"), TOKENIZER.encode("eins")
    maps = attention_maps(model.train(), TOKENIZER, source, target)
    read = (*readable(TOKENIZER, source), "‹end›")
    written = (*readable(TOKENIZER, target), "‹end›")
    fed = ("‹start›", *readable(TOKENIZER, target))
    expected = {"encoder": (read, read), "decoder": (written, fed), "cross": (written, read)}
    assert sorted((one.name, one.layer) for one in maps) == [
        (name, layer) for name in ("cross", "decoder", "encoder") for layer in (0, 1)
    ]
    for one in maps:
        assert (one.queries, one.keys) == expected[one.name]
        assert one.weights.shape == (4, len(one.queries), len(one.keys))
        assert np.allclose(one.weights.sum(-1), 1, atol=1e-5)


def test_the_decoder_does_not_look_ahead_and_dropout_is_off(model: Transformer) -> None:
    source, target = TOKENIZER.encode("one two"), TOKENIZER.encode("eins zwei")
    first, second = (attention_maps(model.train(), TOKENIZER, source, target) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert (one.weights == other.weights).all()
        if one.name == "decoder":
            assert (np.triu(one.weights, k=1) == 0).all()


def test_an_empty_translation_can_be_looked_at(model: Transformer) -> None:
    maps = attention_maps(model, TOKENIZER, TOKENIZER.encode("one"), [])
    assert {one.queries for one in maps if one.name == "cross"} == {("‹end›",)}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (RecurrentSettings(d_model=8), {("cross", 0): 1}),
        (RecurrentSettings(d_model=8, attention="dot", hard=True), {("cross", 0): 1}),
        (ConvS2SSettings(encoder=((1, 8, 3),), decoder=((2, 8, 3),), embedding=6), {("cross", 0): 1, ("cross", 1): 1}),
    ],
)
def test_one_head_looks_at_the_source(settings: ModelSettings, expected: dict[tuple[str, int], int]) -> None:
    source, target = TOKENIZER.encode("one two"), TOKENIZER.encode("eins")
    maps = attention_maps(build(settings, TOKENIZER.size), TOKENIZER, source, target)
    assert {(one.name, one.layer): len(one.weights) for one in maps} == expected
    for one in maps:
        assert one.queries == (*readable(TOKENIZER, target), "‹end›")
        assert one.keys == (*readable(TOKENIZER, source), "‹end›")


def test_a_model_without_attention_has_nothing_to_look_at() -> None:
    model = build(ByteNetSettings(channels=4, dilations=(1,), repeats=1), TOKENIZER.size)
    with pytest.raises(UsageError, match="ByteNet as it is set up has no attention to look at"):
        attention_maps(model, TOKENIZER, TOKENIZER.encode("one"), TOKENIZER.encode("eins"))


def test_a_language_model_looks_back_at_what_it_has_read() -> None:
    text = TOKENIZER.encode("one two three")
    model = build(GPTSettings(layers=2, d_model=8, d_ff=8, heads=2), TOKENIZER.size)
    maps = attention_maps(model, TOKENIZER, None, text)
    assert [(one.name, one.layer) for one in maps] == [("decoder", 0), ("decoder", 1)]
    assert maps[0].queries == maps[0].keys == ("‹start›", *readable(TOKENIZER, text))
    assert (np.triu(maps[1].weights, k=1) == 0).all()


TRANSFORMER_BODY = TransformerBodySettings(layers=2, d_model=8, d_ff=8, heads=2)


def test_a_tagger_shows_where_each_token_looks() -> None:
    text = TOKENIZER.encode("one two three")
    maps = label_maps(Tagger(TaggerSettings(body=TRANSFORMER_BODY), TOKENIZER.size, 3).train(), TOKENIZER, text)
    assert [(one.name, one.layer) for one in maps] == [("encoder", 0), ("encoder", 1)]
    for one in maps:
        assert one.queries == one.keys == readable(TOKENIZER, text)
        assert np.allclose(one.weights.sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize(
    "body", [TRANSFORMER_BODY, RecurrentBodySettings(d_model=8), ConvolutionBodySettings(d_model=8)]
)
def test_a_classifier_shows_what_it_decides_from(body: BodySettings) -> None:
    text = TOKENIZER.encode("one two three")
    model = Classifier(ClassifierSettings(body=body, pooling="attention"), TOKENIZER.size, 3)
    *inside, pooling = label_maps(model, TOKENIZER, text)
    assert [one.name for one in inside] == ["encoder"] * (2 if body is TRANSFORMER_BODY else 0)
    assert (pooling.name, pooling.queries, pooling.keys) == ("pooling", ("the text",), readable(TOKENIZER, text))
    assert pooling.weights.sum() == pytest.approx(1)


def test_one_layer_can_be_asked_for_alone(model: Transformer) -> None:
    source, target = TOKENIZER.encode("one two"), TOKENIZER.encode("eins")
    call = Call(model, TOKENIZER, source, target)
    found: list[AttentionMap] = []
    call.show(found.append, only=("cross", 1))
    (wanted,) = [one for one in call.maps() if (one.name, one.layer) == ("cross", 1)]
    assert [(one.name, one.layer) for one in found] == [("cross", 1)]
    assert np.allclose(found[0].weights, wanted.weights, atol=1e-5)


def test_the_start_the_end_and_punctuation_are_separators(model: Transformer) -> None:
    tokenizer = Tokenizer.learn(["one , two ."], TokenizerSettings(vocabulary=60))
    maps = attention_maps(model, tokenizer, tokenizer.encode("one , two ."), tokenizer.encode("two ."))
    marks = {one.name: [one.keys[place] for place in one.marks] for one in maps}
    assert marks == {"encoder": [",", ".", "‹end›"], "decoder": ["‹start›", "."], "cross": [",", ".", "‹end›"]}
    for one in maps:
        assert one.separators() == pytest.approx(one.weights[:, :, list(one.marks)].sum(-1).mean(-1), abs=1e-6)
