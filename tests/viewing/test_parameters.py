"""What a model is made of."""

from __future__ import annotations

import json

import torch
from torch import nn

from regard.models.build import build
from regard.recipe import build_recipe, load_recipe
from regard.viewing.parameters import Matrix, anatomy


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)
        self.outer = nn.Linear(3, 2, bias=False)
        self.outer.weight = self.inner.weight


def test_every_matrix_once_even_if_it_is_used_twice() -> None:
    found = anatomy(Tied(), "small", "tied", 7)
    assert found.matrices == (Matrix("inner.weight", (2, 3), 6), Matrix("inner.bias", (2,), 2))
    assert found.parameters == 8


def test_as_json_it_says_the_same() -> None:
    found = anatomy(Tied(), "small", "tied", 7)
    again = json.loads(json.dumps(found.to_json()))
    assert (again["name"], again["kind"], again["vocabulary"], again["parameters"]) == ("small", "tied", 7, 8)
    assert again["matrices"] == [
        {"name": "inner.weight", "shape": [2, 3], "parameters": 6},
        {"name": "inner.bias", "shape": [2], "parameters": 2},
    ]


def test_the_papers_base_model_has_the_sum_of_its_matrices() -> None:
    with torch.device("meta"):
        found = anatomy(build(load_recipe("base").model, 37_000), "base", "transformer", 37_000)
    d, f, layers = 512, 2048, 6
    attention = 4 * (d * d + d)
    feed_forward, norm = 2 * d * f + f + d, 2 * d
    encoder, decoder = attention + feed_forward + 2 * norm, 2 * attention + feed_forward + 3 * norm
    assert found.parameters == 37_000 * d + layers * (encoder + decoder) == 63_082_496


def test_gains_of_queries_and_keys_are_counted() -> None:
    plain, normed = (
        build_recipe({}, [f"model={{encoder_layers=2, decoder_layers=3, qk_norm={word}}}"], "t").model
        for word in ("false", "true")
    )
    with torch.device("meta"):
        counts = [anatomy(build(model, 50), "one", "transformer", 50).parameters for model in (plain, normed)]
    assert counts[1] - counts[0] == (2 + 2 * 3) * 2 * 64
