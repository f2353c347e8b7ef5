"""Recorded steps give the scores of plain ones, through prompts, growth and moving rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.decoding import stepping
from regard.decoding.graphs import batch_size, next_size
from regard.decoding.stepping import RecordedSteps, recorded
from regard.errors import InternalError
from regard.models.gpt import GPT, GPTSettings
from tests.contracts.zoo import ZOO

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def model(device: str = "cpu") -> GPT:
    torch.manual_seed(1)
    return GPT(GPTSettings(layers=2, d_model=16, d_ff=24, heads=2, max_positions=40), 11).eval().to(device)


@torch.inference_mode()
def compare(plain: GPT, steps: Any, prompt: int) -> None:
    device = plain.embedding.weight_VD.device
    rows = 3
    state, other = steps.start(None, rows), plain.start(None, rows)
    if prompt:
        tokens = torch.randint(11, (rows, prompt), device=device)
        (found, state), (wanted, other) = steps.step(tokens, state), plain.step(tokens, other)
        torch.testing.assert_close(found, wanted)
    for place in range(24):
        tokens = torch.randint(11, (rows, 1), device=device)
        (found, state), (wanted, other) = steps.step(tokens, state), plain.step(tokens, other)
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
        chosen = {5: [2, 0, 0, 1, 2], 7: [4, 1, 1, 0, 3, 2], 11: [1]}.get(place)
        if chosen:
            kept, rows = torch.tensor(chosen, device=device), len(chosen)
            state, other = state.select(kept), other.select(kept)
    tokens = torch.randint(11, (rows, 3), device=device)
    (found, state), (wanted, other) = steps.step(tokens, state), plain.step(tokens, other)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("prompt", [0, 1, 6])
def test_steps_agree(prompt: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepping, "FIRST_CAPACITY", 8)  # so that memory has to grow
    plain = model()
    steps = RecordedSteps(plain)
    for _ in range(2):  # the second time in memory that is used again
        compare(plain, steps, prompt)


@torch.inference_mode()
def test_memory_is_used_again() -> None:
    steps = RecordedSteps(model())
    for _ in range(3):
        _, state = steps.step(torch.tensor([[1], [2]]), steps.start(None, 2))
        del state
    assert len(steps._free._kept) == 1


@torch.inference_mode()
def test_memory_that_nobody_uses_is_kept_up_to_a_weight() -> None:
    steps = RecordedSteps(model())
    one = stepping._Memory(steps.model, 2, 40, None).weight
    steps._free = stepping._Free(2.5 * one)
    states = [steps.step(torch.tensor([[1], [2]]), steps.start(None, 2))[1] for _ in range(4)]
    newest = states[-1].memory()
    while states:
        states.pop(0)
    assert len(steps._free._kept) == 2
    assert newest in steps._free._kept


@torch.inference_mode()
def test_where_there_is_no_room_what_nobody_uses_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = RecordedSteps(model())
    steps.step(torch.tensor([[1], [2]]), steps.start(None, 2))
    assert len(steps._free._kept) == 1
    plain = stepping._Memory.__init__

    def made(self: Any, *rest: Any) -> None:
        if steps._free._kept:
            raise torch.OutOfMemoryError("CUDA out of memory")
        plain(self, *rest)

    monkeypatch.setattr(stepping._Memory, "__init__", made)
    scores, _ = steps.step(torch.tensor([[1]] * 4), steps.start(None, 4))
    assert len(scores) == 4


@torch.inference_mode()
def test_a_state_serves_once() -> None:
    steps = RecordedSteps(model())
    _, state = steps.step(torch.tensor([[1]]), steps.start(None, 1))
    steps.step(torch.tensor([[2]]), state)
    with pytest.raises(InternalError, match="gone on from once"):
        steps.step(torch.tensor([[3]]), state)


def test_only_where_it_helps() -> None:
    plain = model()
    assert recorded(plain) is plain  # no GPU, nothing to record
    others = ZOO["recurrent-lm"].model(vocabulary=8, seed=0)
    assert recorded(others) is others


def test_sizes_are_few_and_large_enough() -> None:
    assert sorted({batch_size(rows) for rows in range(1, 513)}) == [1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 384, 512]
    assert all(batch_size(rows) >= rows for rows in range(1, 600))
    assert [next_size(length, 32) for length in (1, 32, 33, 128, 129, 257)] == [32, 32, 64, 128, 192, 384]


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("prompt", [0, 6])
def test_recorded_steps_agree_on_a_gpu(prompt: int) -> None:
    plain = model("cuda")
    steps = recorded(plain)
    assert isinstance(steps, RecordedSteps)
    for _ in range(3):  # plain, recorded, replayed
        compare(plain, steps, prompt)
