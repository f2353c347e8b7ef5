"""Small models with random weights, as exploring takes them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from regard.models.build import build
from regard.models.interface import SequenceModel
from regard.recipe import Recipe, build_recipe
from regard.text.tokenizer import Tokenizer
from tests.tiny import ENGLISH, GERMAN

SIZES = "d_model=16, d_ff=24, heads=2, dropout=0.0"
MODELS = {
    "transformer": f"kind='transformer', encoder_layers=2, decoder_layers=2, {SIZES}",
    "pre-norm": f"kind='transformer', encoder_layers=2, decoder_layers=1, norm='pre', activation='swiglu', {SIZES}",
    "rotary": f"kind='transformer', encoder_layers=1, decoder_layers=2, positions='rotary', {SIZES}",
    "qk-norm": f"kind='transformer', encoder_layers=1, decoder_layers=2, qk_norm=true, {SIZES}",
    "relative": f"kind='transformer', encoder_layers=1, decoder_layers=1, positions='relative', reach=3, {SIZES}",
    "alibi": f"kind='transformer', encoder_layers=1, decoder_layers=1, positions='alibi', {SIZES}",
    "window": f"kind='transformer', encoder_layers=1, decoder_layers=1, window=2, {SIZES}",
    "gpt": f"kind='gpt', layers=2, max_positions=64, {SIZES}",
    "post-norm gpt": f"kind='gpt', layers=1, norm='post', positions='sinusoidal', activation='relu', {SIZES}",
    "transformer-xl": f"kind='transformer-xl', layers=1, memory=8, {SIZES}",
    "xlnet": f"kind='xlnet', layers=2, {SIZES}",
    "decoder-only": f"kind='decoder-only', layers=2, max_positions=128, {SIZES}",
    "recurrent": "kind='recurrent', d_model=16",
    "experts": "kind='transformer', encoder_layers=1, decoder_layers=1, d_model=16, d_ff=24, heads=2, experts=3",
    "convs2s": "kind='convs2s', encoder=[[1, 16, 3]], decoder=[[2, 16, 3]], embedding=16",
    "bytenet": "kind='bytenet', channels=8, dilations=[1], repeats=1",
}


@dataclass(frozen=True)
class Tiny:
    """A bundle without a folder."""

    recipe: Recipe
    tokenizer: Tokenizer
    network: SequenceModel[Any]


@cache
def tiny(name: str, tokens: str = "kind='bpe', vocabulary=120") -> Tiny:
    """One of MODELS; its tokenizer knows the words of `tests.tiny`."""
    settings = [f"name={name.replace(' ', '-')}", f"tokenizer={{{tokens}}}", f"model={{{MODELS[name]}}}"]
    recipe = build_recipe({}, [*settings, "search.extra_length=6"], "tiny")
    tokenizer = Tokenizer.learn(ENGLISH + GERMAN, recipe.tokenizer)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(3)
        network = build(recipe.model, tokenizer.size).eval()
        for parameter in network.parameters():
            # A fresh model has zeros (biases) behind which a mistake could hide, and little to tell tokens apart.
            parameter.add_(0.3 * torch.randn_like(parameter))
    return Tiny(recipe, tokenizer, network)


def by_sentence(bundle: Tiny) -> Tiny:
    """The same model, which translates each sentence by itself."""
    return replace(bundle, recipe=replace(bundle.recipe, search=replace(bundle.recipe.search, each_sentence=True)))


def running(bundle: Tiny) -> Tiny:
    """The same language model, which learned from running text."""
    return replace(bundle, recipe=replace(bundle.recipe, batch=replace(bundle.recipe.batch, layout="blocks")))
