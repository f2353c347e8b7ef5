"""Memory that stays in place holds what growing memory holds, however the beams move.

Shapes: B sentences, N beams, R = B·N rows, V vocabulary.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from regard.batch import Places, Tokens
from regard.layers.fixed import Slots, fixed, written_slots
from regard.layers.mask import Mask
from regard.models.gpt import GPT
from regard.models.transformer import Transformer
from tests.contracts.zoo import ZOO

STEPS, CAPACITY = 7, 12
WITH_SOURCE = sorted(name for name in ZOO if name.startswith("transformer") and ZOO[name].reads_source)
LANGUAGE_MODELS = sorted(name for name in ZOO if name.startswith(("gpt", "transformer-xl")))


def tokens(rows: int) -> torch.Tensor:
    return torch.randint(3, 12, (rows, 1))


@pytest.mark.parametrize("name", WITH_SOURCE)
@torch.inference_mode()
def test_beams_find_what_they_wrote(name: str) -> None:
    torch.manual_seed(1)
    model = ZOO[name].model(vocabulary=12, seed=0)
    assert isinstance(model, Transformer)
    source, sentences, beams = Tokens.padded([[3, 4, 5], [6, 7, 8, 9, 3]], 0), 2, 3
    growing: Any = model.start(source, sentences)
    staying = model.fixed(sentences, beams, CAPACITY, source_length=8)
    staying.load(growing, torch.arange(sentences))
    growing = growing.select(torch.arange(sentences).repeat_interleave(beams))
    for step in range(STEPS):
        last_R1 = tokens(sentences * beams)
        wanted_RV, growing = model.step(last_R1, growing)
        found_RV, _ = model.step(last_R1, staying.first(CAPACITY if step % 2 else step + 1))
        torch.testing.assert_close(found_RV, wanted_RV, atol=1e-5, rtol=1e-5)
        beam_BN = torch.randint(beams, (sentences, beams))
        staying.slots().follow(beam_BN)
        growing = growing.select((torch.arange(sentences)[:, None] * beams + beam_BN).flatten())


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
@torch.inference_mode()
def test_a_prompt_moves_in_and_rows_move_on(name: str) -> None:
    torch.manual_seed(1)
    model = ZOO[name].model(vocabulary=12, seed=0)
    assert isinstance(model, GPT)
    _, growing = model.step(torch.randint(3, 12, (3, 4)), model.start(None, 3))
    staying = model.fixed(3, 1, 9)
    staying.load(growing, torch.arange(3))
    for _ in range(3):
        last_R1 = tokens(3)
        wanted_RV, growing = model.step(last_R1, growing)
        found_RV, _ = model.step(last_R1, staying)
        torch.testing.assert_close(found_RV, wanted_RV, atol=1e-5, rtol=1e-5)
        staying.slots().follow(torch.zeros(3, 1, dtype=torch.long))
    rows = torch.tensor([2, 0, 2, 1])
    larger = model.fixed(4, 1, CAPACITY)
    larger.load(staying, rows)
    last_R1 = tokens(1).expand(4, 1)
    wanted_RV, _ = model.step(last_R1, growing.select(rows))
    found_RV, _ = model.step(last_R1, larger)
    torch.testing.assert_close(found_RV, wanted_RV, atol=1e-5, rtol=1e-5)


def test_the_table_follows_the_beams() -> None:
    slots = Slots.empty(1, 2, 4, torch.device("cpu"))
    slots.visible(Mask(causal=True))
    slots.follow(torch.tensor([[1, 1]]))  # both go on from beam 1
    assert slots.ancestor_BNL.tolist() == [[[1, -1, -1, -1], [1, -1, -1, -1]]]
    seen = slots.visible(Mask(causal=True)).allowed_BQK
    assert seen is not None
    # Slots are (position 0, beam 0), (0, 1), (1, 0), (1, 1), …: the past of beam 1, and each its own newest.
    assert seen.int().tolist() == [[[0, 1, 1, 0, 0, 0, 0, 0], [0, 1, 0, 1, 0, 0, 0, 0]]]
    near = slots.visible(Mask(causal=True, window=1)).allowed_BQK
    assert near is not None
    assert near.int().tolist() == [[[0, 0, 1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0, 0, 0]]]


@torch.inference_mode()
def test_fixed_memory_is_loaded_not_selected() -> None:
    model = ZOO["transformer"].model(vocabulary=12, seed=0)
    assert isinstance(model, Transformer)
    with pytest.raises(TypeError, match="loaded into another"):
        model.fixed(1, 1, 4, 4).select(torch.tensor([0]))
    growing = model.start(Tokens.padded([[3]], 0), 1)
    with pytest.raises(TypeError, match="only a state of fixed memory"):
        written_slots(growing.seen)
    with pytest.raises(TypeError, match="only those of fixed memory"):
        fixed(growing.layers[0].past)
    assert isinstance(replace(growing).seen, Places)
