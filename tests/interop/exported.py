"""Small random models of every kind that is exported, in folders of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from regard.folder import Loaded
from regard.models.build import build
from regard.recipe import build_recipe
from regard.text.tokenizer import Tokenizer

LINES = ["one two three four five six seven", "eins zwei drei vier fünf sechs sieben", "a b c d e f g h i j k l"]
SMALL = "encoder_layers=2, decoder_layers=3, d_model=16, d_ff=24, heads=2, dropout=0.0"
TRANSLATORS = {
    "paper": f"{{{SMALL}}}",
    "pre": f'{{{SMALL}, norm="pre", activation="gelu", positions="learned", max_positions=40}}',
    "swiglu": f'{{{SMALL}, norm="pre", activation="swiglu", tie="none"}}',
    "marian": f'{{{SMALL}, activation="swish", output_bias=true, tie="target", norm_epsilon=1e-3}}',
    "five-minutes": f'{{{SMALL}, norm="pre", positions="rotary", activation="relu2", zero_start=true}}',
}
GPTS = {
    "gpt2": '{kind="gpt", layers=2, d_model=16, d_ff=24, heads=2, max_positions=40, dropout=0.0}',
    "post": '{kind="gpt", layers=2, d_model=16, d_ff=24, heads=2, dropout=0.0, norm="post", activation="relu", '
    'positions="sinusoidal", tied=false}',
    "rotary": '{kind="gpt", layers=2, d_model=24, d_ff=24, heads=3, dropout=0.0, positions="rotary"}',
}


def random_model(model: str, overrides: Sequence[str] = ()) -> Loaded:
    """A model of these settings with weights far enough from 0 that its answers differ."""
    recipe = build_recipe({}, ["name=random", "tokenizer.vocabulary=60", f"model={model}", *overrides], "random")
    tokenizer = Tokenizer.learn(LINES, recipe.tokenizer)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        network = build(recipe.model, tokenizer.size, tokenizer.source.size).eval()
        for parameter in network.parameters():
            parameter.data.add_(0.2 * torch.randn_like(parameter))
    return Loaded(recipe, tokenizer, network)


def random_sources(loaded: Loaded, count: int = 12) -> list[list[int]]:
    """Sources of 1 to 9 words, with the end token."""
    draw = torch.Generator().manual_seed(5)
    specials = loaded.tokenizer.specials
    words = [token for token in range(loaded.tokenizer.size) if token not in vars(specials).values()]
    return [
        [*(words[int(torch.randint(len(words), (1,), generator=draw))] for _ in range(1 + number % 9)), specials.end]
        for number in range(count)
    ]


def empty(place: Path) -> Path:
    place.mkdir(parents=True)
    return place
