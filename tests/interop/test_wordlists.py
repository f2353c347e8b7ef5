"""fairseq's and OpenNMT-py's checkpoints, against plain forward passes written after their papers' formulas."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.batch import Batch, Tokens
from regard.errors import DataError, MissingError, UsageError
from regard.interop import reading
from regard.models.transformer import TransformerSettings

WORDS = ["the", "cat", "un@@", "believ@@", "able", "low", "lo@@", "er", "w@@", "e@@", "r"]
WIDTH, HEADS, INNER = 24, 3, 40
State = dict[str, Tensor]


# ---- one plain Transformer, whose parts are told where their tensors are


def linear(state: State, name: str, x: Tensor) -> Tensor:
    return F.linear(x, state[f"{name}.weight"], state.get(f"{name}.bias"))


def norm(state: State, name: str, x: Tensor, epsilon: float) -> Tensor:
    return F.layer_norm(x, (WIDTH,), state[f"{name}.weight"], state[f"{name}.bias"], epsilon)


def attend(state: State, names: list[str], x: Tensor, memory: Tensor, causal: bool) -> Tensor:
    q, k, v = (linear(state, name, each).unflatten(-1, (HEADS, -1)).transpose(1, 2)
               for name, each in zip(names, (x, memory, memory), strict=False))  # fmt: skip
    scores = q @ k.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf)
    return linear(state, names[3], (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))


def around(pre: bool, normed: Callable[[Tensor], Tensor], x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
    return x + part(normed(x)) if pre else normed(x + part(x))


# ---- fairseq


def fairseq_state(vocabulary: int, learned: bool, pre: bool) -> State:
    torch.manual_seed(1)
    state: State = {}

    def add(name: str, *shape: int) -> None:
        state[name] = torch.randn(shape) * 0.3

    for side, attentions in (("encoder", ["self_attn"]), ("decoder", ["self_attn", "encoder_attn"])):
        add(f"{side}.embed_tokens.weight", vocabulary, WIDTH)
        if learned:
            add(f"{side}.embed_positions.weight", 34, WIDTH)
        else:
            state[f"{side}.embed_positions._float_tensor"] = torch.zeros(1)
        state[f"{side}.version"] = torch.tensor([3.0])
        for number in range(2):
            root = f"{side}.layers.{number}"
            for attention in attentions:
                for which in ("q", "k", "v", "out"):
                    add(f"{root}.{attention}.{which}_proj.weight", WIDTH, WIDTH)
                    add(f"{root}.{attention}.{which}_proj.bias", WIDTH)
            for name in [*(f"{each}_layer_norm" for each in attentions), "final_layer_norm"]:
                add(f"{root}.{name}.weight", WIDTH)
                add(f"{root}.{name}.bias", WIDTH)
            for name, sizes in (("fc1", (INNER, WIDTH)), ("fc2", (WIDTH, INNER))):
                add(f"{root}.{name}.weight", *sizes)
                add(f"{root}.{name}.bias", sizes[0])
        if pre:
            add(f"{side}.layer_norm.weight", WIDTH)
            add(f"{side}.layer_norm.bias", WIDTH)
    return state


def fairseq_scores(state: State, source: Tensor, target: Tensor, learned: bool, pre: bool, output: Tensor) -> Tensor:
    def embed(side: str, ids: Tensor) -> Tensor:
        x = state[f"{side}.embed_tokens.weight"][ids] * math.sqrt(WIDTH)
        places = torch.arange(2, 2 + ids.shape[1])
        if learned:
            return x + state[f"{side}.embed_positions.weight"][places]
        half = WIDTH // 2
        speeds = torch.tensor([10_000 ** (-i / (half - 1)) for i in range(half)])
        angles = places[:, None].float() * speeds
        return x + torch.cat([angles.sin(), angles.cos()], dim=1)

    def run(side: str, x: Tensor, memory: Tensor | None) -> Tensor:
        for number in range(2):
            root = f"{side}.layers.{number}"

            def names(attention: str, root: str = root) -> list[str]:
                return [f"{root}.{attention}.{which}_proj" for which in ("q", "k", "v", "out")]

            def normed(name: str, root: str = root) -> Callable[[Tensor], Tensor]:
                return lambda each: norm(state, f"{root}.{name}_layer_norm", each, 1e-5)

            own, asks, causal = names("self_attn"), names("encoder_attn"), memory is not None
            x = around(pre, normed("self_attn"), x, lambda e, n=own, c=causal: attend(state, n, e, e, c))
            if memory is not None:
                x = around(pre, normed("encoder_attn"), x, lambda e, n=asks: attend(state, n, e, memory, False))
            x = around(pre, normed("final"), x,
                       lambda e, r=root: linear(state, f"{r}.fc2", linear(state, f"{r}.fc1", e).relu()))  # fmt: skip
        return norm(state, f"{side}.layer_norm", x, 1e-5) if pre else x

    memory = run("encoder", embed("encoder", source), None)
    return run("decoder", embed("decoder", target), memory) @ output.T


def fairseq_folder(place: Path, tie: str, learned: bool, pre: bool, zipped: bool = True, old: bool = False) -> State:
    vocabulary = 4 + len(WORDS) + 1
    state = fairseq_state(vocabulary, learned, pre)
    if tie == "all":
        state["encoder.embed_tokens.weight"] = state["decoder.embed_tokens.weight"]
    if tie == "none":
        state["decoder.output_projection.weight"] = torch.randn(vocabulary, WIDTH)
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder")
             for name, value in (("layers", 2), ("embed_dim", WIDTH), ("ffn_embed_dim", INNER),
                                 ("attention_heads", HEADS), ("normalize_before", pre),
                                 ("learned_pos", learned))}  # fmt: skip
    args = argparse.Namespace(
        arch="transformer", source_lang="en", target_lang="de", share_all_embeddings=tie == "all",
        share_decoder_input_output_embed=tie != "none", dropout=0.1, **sides,
    )  # fmt: skip
    content: dict[str, Any] = {"args": args, "model": _older(state) if old else state, "extra_state": {"epoch": 3}}
    torch.save(content, place / "model.pt", _use_new_zipfile_serialization=zipped)
    lines = "".join(f"{word} {100 - number}\n" for number, word in enumerate(WORDS))
    for language in ("en", "de"):
        (place / f"dict.{language}.txt").write_text(lines, encoding="utf-8")
    return state


def _older(state: State) -> State:
    """The names of 2018."""
    found = {}
    for name, tensor in state.items():
        if ".q_proj." in name:
            others = [state[name.replace(".q_proj.", f".{which}_proj.")] for which in "qkv"]
            found[name.replace(".q_proj.", ".in_proj_")] = torch.cat(others)
        elif ".k_proj." in name or ".v_proj." in name:
            continue
        elif "layer_norm." in name and ".layers." in name:
            kinds = ["self_attn", "final"] if name.startswith("encoder") else ["self_attn", "encoder_attn", "final"]
            kind = next(each for each in kinds if f"{each}_layer_norm" in name)
            found[name.replace(f"{kind}_layer_norm", f"layer_norms.{kinds.index(kind)}")] = tensor
        else:
            found[name] = tensor
    return found


@pytest.mark.parametrize(
    ("tie", "learned", "pre", "zipped", "old"),
    [
        ("all", False, False, True, False),
        ("all", False, False, False, True),
        ("target", True, True, True, False),
        ("none", False, True, True, False),
        ("all", True, False, True, False),
    ],
)
@torch.inference_mode()
def test_fairseq_comes_in(tie: str, learned: bool, pre: bool, zipped: bool, old: bool, tmp_path: Path) -> None:
    state = fairseq_folder(tmp_path, tie, learned, pre, zipped, old)
    loaded = reading.read(tmp_path)
    specials = loaded.tokenizer.specials
    assert (specials.padding, specials.start, specials.end) == (1, 2, 2)
    source, target = torch.randint(15, (2, 6)), torch.randint(15, (2, 5))
    output = state.get("decoder.output_projection.weight", state["decoder.embed_tokens.weight"])
    wanted = fairseq_scores(state, source, target, learned, pre, output)
    found = loaded.model(Batch(Tokens.whole(source), Tokens.whole(target), target))
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


def test_fairseq_words_have_their_numbers(tmp_path: Path) -> None:
    fairseq_folder(tmp_path, "all", False, False)
    ours = reading.read(tmp_path).tokenizer
    assert ours.encode("the cat un@@ believ@@ able dog </s>") == [4, 5, 6, 7, 8, 3, 3]
    assert ours.decode([4, 6, 7, 8, 5, 2]) == "the unbelievable cat"
    assert ours.size == 16


def test_fairseq_codes_cut_as_subword_nmt(tmp_path: Path) -> None:
    fairseq_folder(tmp_path, "all", False, False)
    codes = ["#version: 0.2", "l o", "lo w</w>", "e r</w>", "t h", "th e</w>", "x y"]
    (tmp_path / "bpecodes").write_text("\n".join([*codes, ""]), encoding="utf-8")
    ours = reading.read(tmp_path).tokenizer
    # low; lo@@ w@@ er; the; of `xy` and `lo` at an end the list has no word, so that is unknown
    assert ours.encode("low") == [9]
    assert ours.encode("lower the") == [10, 12, 11, 4]
    assert ours.encode("xyr") == [3, 14]
    assert ours.size == 16
    assert ours.decode([10, 12, 11, 4, 2]) == "lower the"


@pytest.mark.parametrize("line", ["no version", "#version: 0.1"])
def test_other_codes_are_refused(line: str, tmp_path: Path) -> None:
    fairseq_folder(tmp_path, "all", False, False)
    (tmp_path / "bpecodes").write_text(f"{line}\nl o\n")
    with pytest.raises(UsageError, match="must begin with"):
        reading.read(tmp_path)


def test_without_the_words_of_both_languages_it_says_which_files_are_needed(tmp_path: Path) -> None:
    fairseq_folder(tmp_path, "all", False, False)
    (tmp_path / "dict.en.txt").rename(tmp_path / "dict.txt")
    (tmp_path / "dict.de.txt").unlink()
    with pytest.raises(MissingError, match=r"must hold dict\.LANGUAGE\.txt of source and target"):
        reading.read(tmp_path)


def test_of_three_languages_none_is_guessed_to_be_the_target(tmp_path: Path) -> None:
    fairseq_folder(tmp_path, "all", False, False)
    words = (tmp_path / "dict.de.txt").read_text(encoding="utf-8")
    (tmp_path / "dict.de.txt").unlink()
    for language in ("fr", "it"):
        (tmp_path / f"dict.{language}.txt").write_text(words, encoding="utf-8")
    with pytest.raises(UsageError, match="of the source and of the target alone, but has 3"):
        reading.read(tmp_path)


def test_fairseq_settings_that_cannot_be(tmp_path: Path) -> None:
    state = fairseq_folder(tmp_path, "all", False, False)
    sides = dict.fromkeys([f"{side}_attention_heads" for side in ("encoder", "decoder")], HEADS)
    args = argparse.Namespace(layernorm_embedding=True, **sides)
    torch.save({"args": args, "model": state}, tmp_path / "model.pt")
    with pytest.raises(UsageError, match="layernorm_embedding"):
        reading.read(tmp_path)


# ---- OpenNMT-py


def opennmt_file(place: Path, shared: bool, biases: bool = True) -> tuple[State, Tensor, Tensor]:
    torch.manual_seed(2)
    state: State = {}
    special = ["<unk>", "<blank>", "<s>", "</s>"]
    target = [*special, *WORDS]
    source = target if shared else ["<unk>", "<blank>", "dog", "runs", *WORDS]

    def add(name: str, *shape: int) -> None:
        state[name] = torch.randn(shape) * 0.3

    for side, words in (("encoder", source), ("decoder", target)):
        add(f"{side}.embeddings.make_embedding.emb_luts.0.weight", len(words), WIDTH)
        state[f"{side}.embeddings.make_embedding.pe.pe"] = torch.zeros(50, 1, WIDTH)
        for number in range(2):
            root = f"encoder.transformer.{number}" if side == "encoder" else f"decoder.transformer_layers.{number}"
            attentions = ["self_attn"] if side == "encoder" else ["self_attn", "context_attn"]
            for attention in attentions:
                for name in ("linear_query", "linear_keys", "linear_values", "final_linear"):
                    add(f"{root}.{attention}.{name}.weight", WIDTH, WIDTH)
                    if biases:
                        add(f"{root}.{attention}.{name}.bias", WIDTH)
            names = ["layer_norm"] if side == "encoder" else ["layer_norm_1", "layer_norm_2"]
            for name in [*names, "feed_forward.layer_norm"]:
                add(f"{root}.{name}.weight", WIDTH)
                add(f"{root}.{name}.bias", WIDTH)
            for name, sizes in (("w_1", (INNER, WIDTH)), ("w_2", (WIDTH, INNER))):
                add(f"{root}.feed_forward.{name}.weight", *sizes)
                add(f"{root}.feed_forward.{name}.bias", sizes[0])
        add(f"{side}.layer_norm.weight", WIDTH)
        add(f"{side}.layer_norm.bias", WIDTH)
    if shared:
        name = "embeddings.make_embedding.emb_luts.0.weight"
        state[f"encoder.{name}"] = state[f"decoder.{name}"]
    output, bias = torch.randn(len(target), WIDTH), torch.randn(len(target))
    opt = argparse.Namespace(
        heads=HEADS, enc_layers=2, dec_layers=2, transformer_ff=INNER, position_encoding=True,
        share_embeddings=shared, share_decoder_embeddings=False, max_relative_positions=0,
    )  # fmt: skip
    content = {"model": state, "generator": {"0.weight": output, "0.bias": bias},
               "vocab": {"src": source, "tgt": target}, "opt": opt, "optim": None}  # fmt: skip
    torch.save(content, place / "model_step_100.pt")
    return state, output, bias


def opennmt_scores(state: State, source: Tensor, target: Tensor, output: Tensor, bias: Tensor) -> Tensor:
    def embed(side: str, ids: Tensor) -> Tensor:
        speeds = torch.exp(torch.arange(0, WIDTH, 2) * -(math.log(10_000) / WIDTH))
        angles = torch.arange(ids.shape[1])[:, None] * speeds
        table = torch.zeros(ids.shape[1], WIDTH)
        table[:, 0::2], table[:, 1::2] = angles.sin(), angles.cos()
        return state[f"{side}.embeddings.make_embedding.emb_luts.0.weight"][ids] * math.sqrt(WIDTH) + table

    def names(root: str) -> list[str]:
        return [f"{root}.{name}" for name in ("linear_query", "linear_keys", "linear_values", "final_linear")]

    def network(root: str, x: Tensor) -> Tensor:
        y = norm(state, f"{root}.layer_norm", x, 1e-6)
        return x + linear(state, f"{root}.w_2", linear(state, f"{root}.w_1", y).relu())

    x, y = embed("encoder", source), embed("decoder", target)
    for number in range(2):
        root = f"encoder.transformer.{number}"
        z = norm(state, f"{root}.layer_norm", x, 1e-6)
        x = network(f"{root}.feed_forward", x + attend(state, names(f"{root}.self_attn"), z, z, False))
    memory = norm(state, "encoder.layer_norm", x, 1e-6)
    for number in range(2):
        root = f"decoder.transformer_layers.{number}"
        z = norm(state, f"{root}.layer_norm_1", y, 1e-6)
        y = y + attend(state, names(f"{root}.self_attn"), z, z, True)
        z = norm(state, f"{root}.layer_norm_2", y, 1e-6)
        y = network(f"{root}.feed_forward", y + attend(state, names(f"{root}.context_attn"), z, memory, False))
    return norm(state, "decoder.layer_norm", y, 1e-6) @ output.T + bias


@pytest.mark.parametrize(("shared", "biases"), [(True, True), (False, False)])
@torch.inference_mode()
def test_opennmt_comes_in(shared: bool, biases: bool, tmp_path: Path) -> None:
    state, output, bias = opennmt_file(tmp_path, shared, biases)
    loaded = reading.read(tmp_path)
    settings = loaded.recipe.model
    assert isinstance(settings, TransformerSettings)
    assert settings.tie == ("embeddings" if shared else "none")
    source, target = torch.randint(15, (2, 6)), torch.randint(15, (2, 5))
    wanted = opennmt_scores(state, source, target, output, bias)
    # Sources end there with their last word. Ours have an end behind it, which this model does not see.
    end = loaded.tokenizer.specials.end
    read = Tokens.padded([[*row, end] for row in source.tolist()], loaded.tokenizer.specials.padding)
    found = loaded.model(Batch(read, Tokens.whole(target), target))
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


def test_opennmt_words_have_their_numbers(tmp_path: Path) -> None:
    opennmt_file(tmp_path, shared=False)
    ours = reading.read(tmp_path).tokenizer
    assert ours.source.encode("dog runs the <s> cat") == [2, 3, 4, 0, 5]
    assert ours.encode("the <s> cat dog") == [4, 0, 5, 0]


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    torch.save({"weights": {"a": torch.ones(2)}}, tmp_path / "model.pt")
    with pytest.raises(DataError, match="model, generator, vocab and opt"):
        reading.read(tmp_path)
