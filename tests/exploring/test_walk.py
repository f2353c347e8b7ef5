"""Every step of a walk holds what the real modules compute, seen by hooks on them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard.errors import UsageError
from regard.exploring.bundle import source_ids
from regard.exploring.steps import MOST
from regard.exploring.walk import Walk, can_walk, walk
from regard.layers.attention import Attention
from regard.viewing.capture import Call, watching
from tests.exploring.bundles import Tiny, by_sentence, running, tiny

TEXT, TARGET = "one two three", "eins zwei"
WALKS = [
    ("transformer", "encoder"),
    ("transformer", "decoder"),
    ("pre-norm", "encoder"),
    ("pre-norm", "decoder"),
    ("rotary", "encoder"),
    ("rotary", "decoder"),
    ("qk-norm", "encoder"),
    ("qk-norm", "decoder"),
    ("relative", "encoder"),
    ("alibi", "decoder"),
    ("window", "encoder"),
    ("gpt", "decoder"),
    ("post-norm gpt", "decoder"),
    ("decoder-only", "decoder"),
]


def taken(bundle: Tiny, stack: str, layer: int, head: int = 1, position: int = 2) -> Walk:
    target = TARGET if bundle.network.reads_source else None
    found = walk(bundle, TEXT, target, stack, layer, head, position)  # type: ignore[arg-type]
    json.dumps(found.to_json(), allow_nan=False)
    return found


def shown(found: Walk, step: str, name: str) -> np.ndarray:
    """One table of a step; NaN where something is hidden."""
    (chosen,) = [each for each in found.steps if each.id == step]
    (tensor,) = [each for each in chosen.tensors if each.name == name]
    return np.array([[np.nan if value is None else value for value in row] for row in tensor.values])


def close(found: np.ndarray, wanted: Tensor) -> bool:
    return np.allclose(found, wanted.float().numpy(), rtol=1e-3, atol=1e-4)


@contextmanager
def hooked(network: nn.Module) -> Iterator[dict[str, tuple[Any, Any]]]:
    """What every module was given last and gave back, by name."""
    seen: dict[str, tuple[Any, Any]] = {}
    handles = [
        module.register_forward_hook(lambda _, given, gave, name=name: seen.__setitem__(name, (given, gave)))
        for name, module in network.named_modules()
    ]
    yield seen
    for handle in handles:
        handle.remove()


def run(bundle: Tiny) -> tuple[dict[str, tuple[Any, Any]], dict[str, Tensor], Tensor]:
    """The real call: what its modules did, its attention weights, its logits."""
    translates = bundle.network.reads_source
    source = source_ids(bundle, TEXT)[:-1] if translates else None
    written = bundle.tokenizer.encode(TARGET if translates else TEXT)
    batch = Call(bundle.network, bundle.tokenizer, source, written).batch
    with hooked(bundle.network) as seen, watching(bundle.network) as weights, torch.inference_mode():
        logits = bundle.network(batch)
    return seen, weights, logits


def place(bundle: Tiny, stack: str, layer: int) -> str:
    if bundle.recipe.model.kind == "transformer":
        return f"encoder.layers.{layer}" if stack == "encoder" else f"decoder.{layer}"
    return f"layers.{layer}"


@pytest.mark.parametrize(("name", "stack"), WALKS)
def test_each_step_is_what_the_modules_compute(name: str, stack: str) -> None:
    bundle = tiny(name)
    seen, weights, _ = run(bundle)
    pre = getattr(bundle.recipe.model, "norm", None) == "pre"
    layers = 2 if f"{place(bundle, stack, 1)}.attention" in weights else 1
    for layer in range(layers):
        found, at = taken(bundle, stack, layer), place(bundle, stack, layer)
        keys, values = seen[f"{at}.attention.key_value"][1][0].chunk(2, dim=-1)
        for part, made, norm in (("q", seen[f"{at}.attention.query"][1][0], "query_norm"), ("k", keys, "key_norm")):
            _, normed = seen.get(f"{at}.attention.{norm}", (None, made.unflatten(-1, (2, -1))[None]))
            assert close(shown(found, "qkv", part), normed[0, :, 1])
        assert close(shown(found, "qkv", "v"), values.unflatten(-1, (2, -1))[:, 1])
        assert close(shown(found, "softmax", "w"), weights[f"{at}.attention"][0, 1])
        joined, through = seen[f"{at}.attention.output"]
        assert close(shown(found, "join", "z_1 … z_h"), joined[0][0])
        assert close(shown(found, "sum", "z"), joined[0][0].unflatten(-1, (2, -1))[:, 1])
        assert close(shown(found, "join", "y"), through[0])
        assert close(shown(found, "feedforward", "inner"), seen[f"{at}.feedforward.outer"][0][0][0])
        assert close(shown(found, "feedforward", "y"), seen[f"{at}.feedforward"][1][0])
        last = seen[at][1][0][0]
        assert close(shown(found, "add2" if pre else "norm2", "x + y" if pre else "LayerNorm(x + y)"), last)
        normed = shown(found, "norm1", "LayerNorm(x)" if pre else "LayerNorm(x + y)")
        assert close(normed, seen[f"{at}.around_attention.norm"][1][0])
        if layer:
            assert close(shown(found, "input", "x"), seen[place(bundle, stack, layer - 1)][1][0][0])


def test_norms_of_queries_and_keys_are_told() -> None:
    found = {step.id: step for step in taken(tiny("qk-norm"), "decoder", 0).steps}
    assert found["qkv"].formula == "q = RMSNorm(x·W_Q),  k = RMSNorm(x·W_K),  v = x·W_V"
    assert found["cross-qkv"].formula == "q = RMSNorm(x·W_Q),  k = RMSNorm(memory·W_K),  v = memory·W_V"
    assert all("mean square of 1" in found[step].sentence for step in ("qkv", "cross-qkv"))


@pytest.mark.parametrize("name", ["transformer", "pre-norm", "rotary", "alibi", "qk-norm"])
def test_a_decoder_looks_across_at_the_source(name: str) -> None:
    bundle = tiny(name)
    seen, weights, _ = run(bundle)
    found = taken(bundle, "decoder", 0)
    assert close(shown(found, "cross-softmax", "w"), weights["decoder.0.cross_attention"][0, 1])
    keys, values = seen["decoder.0.cross_attention.key_value"][1][0].chunk(2, dim=-1)
    _, normed = seen.get("decoder.0.cross_attention.key_norm", (None, keys.unflatten(-1, (2, -1))[None]))
    assert close(shown(found, "cross-qkv", "k"), normed[0, :, 1])
    assert close(shown(found, "cross-sum", "v"), values.unflatten(-1, (2, -1))[:, 1])
    assert close(shown(found, "cross-join", "y"), seen["decoder.0.cross_attention.output"][1][0])
    (step,) = [each for each in found.steps if each.id == "cross-qkv"]
    assert (step.kept, step.computed) == (tuple(range(len(found.tokens))), ())
    assert found.target_tokens is not None
    assert found.tokens[-1] == "‹end›"
    assert found.target_tokens[0] == "‹start›"


@pytest.mark.parametrize("name", ["transformer", "gpt", "decoder-only", "post-norm gpt"])
def test_the_last_step_gives_the_models_probabilities(name: str) -> None:
    bundle = tiny(name)
    _, _, logits = run(bundle)
    reads = 4 if name == "decoder-only" else 0  # the source and its end come first there
    found = taken(bundle, "decoder", 0, position=reads + 2)
    wanted = logits[0, 2].softmax(dim=-1).topk(10)
    assert shown(found, "logits", "probabilities")[0] == pytest.approx(wanted.values.numpy(), rel=1e-3)
    assert shown(found, "logits", "logits")[0] == pytest.approx(logits[0, 2].topk(10).values.numpy(), rel=1e-3)


@pytest.mark.parametrize(("name", "stack"), WALKS)
def test_embedding_and_position_are_what_enters_the_first_layer(name: str, stack: str) -> None:
    bundle = tiny(name)
    seen, _, _ = run(bundle)
    found = taken(bundle, stack, 0)
    entered = seen[place(bundle, stack, 0)][0][0][0]
    added = [step.id for step in found.steps if step.id == "position"]
    assert close(shown(found, "position", "x + PE") if added else shown(found, "embedding", "x"), entered)


@pytest.mark.parametrize(("name", "stack"), WALKS)
def test_scores_lead_to_weights_step_by_step(name: str, stack: str) -> None:
    found = taken(tiny(name), stack, 0)
    ids = [step.id for step in found.steps]
    rotary = "turn" in ids
    query, keys = (shown(found, "turn" if rotary else "qkv", part) for part in "qk")
    assert np.allclose(shown(found, "scores", "q·kᵀ"), query @ keys.T, rtol=1e-2, atol=1e-2)
    scores = shown(found, "scale", "s")
    assert np.allclose(scores, shown(found, "scores", "q·kᵀ") / np.sqrt(8), rtol=1e-2, atol=1e-3)
    if "bias" in ids:
        assert np.allclose(scores + shown(found, "bias", "b"), shown(found, "bias", "s + b"), rtol=1e-2, atol=1e-2)
    masked = shown(found, "mask", "s")
    hidden = np.isnan(masked)
    causal = stack == "decoder"
    assert hidden[np.triu_indices_from(hidden, 1)].all() == (causal or name == "window") or name == "window"
    assert not hidden.diagonal().any()
    powers = np.where(hidden, 0, np.exp(masked - np.nanmax(masked, axis=1, keepdims=True)))
    assert np.allclose(shown(found, "softmax", "w"), powers / powers.sum(axis=1, keepdims=True), rtol=2e-2, atol=1e-3)
    assert np.allclose(
        shown(found, "sum", "w") @ shown(found, "sum", "v"), shown(found, "sum", "z"), rtol=2e-2, atol=1e-2
    )


@pytest.mark.parametrize("layer", [0, 1])
def test_what_was_kept_is_what_the_cache_holds(layer: int) -> None:
    bundle = tiny("gpt")
    ids = [bundle.tokenizer.specials.start, *bundle.tokenizer.encode(TEXT)]
    position = 3
    with torch.inference_mode():
        _, before = bundle.network.step(torch.tensor([ids[:position]]), bundle.network.start(None, 1))
        _, after = bundle.network.step(torch.tensor([[ids[position]]]), before)
    found = taken(bundle, "decoder", layer, position=position)
    (step,) = [each for each in found.steps if each.id == "qkv"]
    assert step.kept == (0, 1, 2)
    assert step.computed == (3,)
    assert before.layers[layer].keys_BHKE.shape[2] == len(step.kept)
    assert close(shown(found, "qkv", "k")[:3], before.layers[layer].keys_BHKE[0, 1])
    assert close(shown(found, "qkv", "v")[:4], after.layers[layer].values_BHKE[0, 1])
    assert "all tokens before it (3) were kept" in step.sentence
    encoder = walk(tiny("transformer"), TEXT, TARGET, "encoder")
    assert all(each.kept is None and each.computed is None for each in encoder.steps)


def test_a_long_text_shows_the_part_around_the_word() -> None:
    bundle = tiny("transformer")
    text = "one " * 99
    first, last = (walk(bundle, text, "eins", "encoder", position=place) for place in (5, 90))
    for found, begin in ((first, 0), (last, 90 + 1 - MOST)):
        for step in found.steps:
            for tensor in step.tensors:
                assert len(tensor.values) <= MOST
                assert len(tensor.values[0]) <= MOST
                assert len(tensor.rows) == len(tensor.values)
                assert tensor.whole[0] == 100
                assert tensor.first[0] == begin
    small = walk(bundle, "one", "eins", "encoder")
    assert small.steps[0].tensors[0].first == (0, 0)


def test_the_order_of_steps_is_the_layers() -> None:
    post = [step.id for step in taken(tiny("transformer"), "encoder", 0).steps]
    attention = ["qkv", "scores", "scale", "mask", "softmax", "sum", "join"]
    assert post == ["embedding", "position", *attention, "norm1", "feedforward", "norm2"]
    pre = [step.id for step in taken(tiny("gpt"), "decoder", 0).steps]
    assert pre == [
        "embedding", "position", "norm1", *attention, "add1", "norm2", "feedforward", "add2", "logits"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "words"), [("transformer", "two matrices, with relu"), ("pre-norm", "three matrices")]
)
def test_a_gated_network_has_a_matrix_more(name: str, words: str) -> None:
    (step,) = [each for each in taken(tiny(name), "encoder", 0).steps if each.id == "feedforward"]
    assert words in step.sentence


def test_what_cannot_be_walked_is_said() -> None:
    assert can_walk(tiny("gpt").network)
    assert not can_walk(tiny("recurrent").network)
    with pytest.raises(UsageError, match="needs a Transformer or a GPT, but `recurrent` is a `recurrent`"):
        walk(tiny("recurrent"), TEXT)
    assert not can_walk(tiny("experts").network)
    with pytest.raises(UsageError, match="not a choice of experts, so `experts` cannot be walked through"):
        walk(tiny("experts"), TEXT)
    assert not can_walk(tiny("transformer-xl").network)
    with pytest.raises(UsageError, match="ask for content and for distance, so `transformer-xl` cannot"):
        walk(tiny("transformer-xl"), TEXT)
    with pytest.raises(UsageError, match="has one stack, the decoder"):
        walk(tiny("gpt"), TEXT, stack="encoder")
    for name, value in (("layer", 2), ("head", 2), ("position", 99), ("layer", -1)):
        with pytest.raises(UsageError, match=f"`{name}` must be from 0 to"):
            walk(tiny("transformer"), TEXT, TARGET, **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_joined_products_give_the_same_steps(stack: str) -> None:
    apart = tiny("transformer")
    joined = Tiny(apart.recipe, apart.tokenizer, deepcopy(apart.network))
    for name, module in joined.network.named_modules():
        if isinstance(module, Attention) and not name.endswith("cross_attention"):
            module.join()
    one, other = taken(apart, stack, 1), taken(joined, stack, 1)
    assert [step.id for step in one.steps] == [step.id for step in other.steps]
    for step in one.steps:
        for tensor in step.tensors:
            assert np.allclose(
                shown(one, step.id, tensor.name),
                shown(other, step.id, tensor.name),
                rtol=1e-3,
                atol=1e-4,
                equal_nan=True,
            )


def test_of_several_sentences_the_first_walks_where_each_is_translated_by_itself() -> None:
    bundle = by_sentence(tiny("transformer"))
    found = walk(bundle, "One two. Three!", stack="decoder")
    assert found.source == found.to_json()["source"] == "One two."
    assert found.tokens == walk(bundle, "One two.").tokens


def test_the_lines_of_running_text_begin_as_in_training() -> None:
    found = walk(running(tiny("gpt")), "one\ntwo")
    assert (found.source, found.tokens) == (None, ("‹start›", "one", "‹start›", "two"))
