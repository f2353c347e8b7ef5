"""The kernel for few queries against the formula: in Triton's interpreter, on a GPU, and in a whole search.

Shapes: B rows, Q queries, K keys, H heads, E size of one head's key and value.
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor

from regard.batch import Specials, Tokens
from regard.decoding.fast import search
from regard.decoding.search import Hypothesis, SearchSettings
from regard.layers.attention import KeyValue, attention_weights, fused_attention
from regard.layers.fixed import Slots
from regard.layers.mask import Mask, Visible
from regard.models.transformer import Transformer, TransformerSettings

ROOT = Path(__file__).parents[2]
SPECIALS = Specials(padding=0, start=1, end=2)
NEAR = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def asked(rows: int, queries: int, keys: int, size: int, dtype: torch.dtype, device: str) -> tuple[Tensor, KeyValue]:
    """Queries as a projection leaves them, and the first keys and values of a larger memory."""
    query_BQHE = torch.randn(rows, queries, 2, size, device=device).to(dtype)
    kept = (torch.randn(rows, 2, keys + 16, size, device=device).to(dtype)[:, :, :keys] for _ in range(2))
    return query_BQHE.transpose(1, 2), KeyValue(*kept)


def some_allowed(rows: int, queries: int, keys: int, device: str) -> Tensor:
    """A random mask; the first query of the first row sees nothing."""
    allowed_BQK = torch.rand(rows, queries, keys, device=device) > 0.6
    allowed_BQK[0, 0] = False
    return allowed_BQK


def by_formula(query_BHQE: Tensor, kv: KeyValue, allowed_BQK: Tensor | None) -> Tensor:
    weights_BHQK = attention_weights(query_BHQE.double(), kv.keys_BHKE.double(), Visible(allowed_BQK))
    return weights_BHQK @ kv.values_BHKE.double()


def check(query_BHQE: Tensor, kv: KeyValue, allowed_BQK: Tensor | None) -> None:
    from regard.layers import few_queries

    found_BHQE = few_queries.attend(query_BHQE, kv.keys_BHKE, kv.values_BHKE, allowed_BQK)
    assert found_BHQE.dtype == query_BHQE.dtype
    near = NEAR[query_BHQE.dtype]
    torch.testing.assert_close(found_BHQE.double(), by_formula(query_BHQE, kv, allowed_BQK), atol=near, rtol=near)


def interpret() -> None:
    """Run in a process of its own: Triton reads at its import whether to interpret."""
    from regard.layers import few_queries

    def ends(*values: object) -> range:
        # Triton hands a number over as an array of one, which newer numpy takes for no index.
        return range(*(int(value.handle.data[0]) if hasattr(value, "handle") else value for value in values))  # type: ignore[call-overload]

    few_queries.range = ends  # type: ignore[attr-defined]
    torch.manual_seed(0)
    # No bf16, which the interpreter multiplies as if its bits were whole numbers.
    for queries, keys, size, dtype in (
        (4, 37, 64, torch.float32), (1, 5, 32, torch.float16), (16, 80, 16, torch.float32), (3, 0, 16, torch.float32),
    ):  # fmt: skip
        query_BHQE, kv = asked(2, queries, keys, size, dtype, "cpu")
        check(query_BHQE, kv, some_allowed(2, queries, keys, "cpu"))
        check(query_BHQE, kv, None if queries == 16 else torch.rand(1, 1, keys) > 0.5)
    print("interpreted")


@pytest.mark.skipif(find_spec("triton") is None, reason="needs triton, which torch brings along where there are GPUs")
def test_the_interpreter_finds_what_the_formula_says() -> None:
    run = subprocess.run(
        [sys.executable, "-c", "from tests.layers.test_few_queries import interpret; interpret()"],
        env={**os.environ, "TRITON_INTERPRET": "1"}, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.stdout == "interpreted\n", run.stderr


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("size", [16, 32, 64, 128])
@torch.inference_mode()
def test_it_finds_what_the_formula_says(size: int, dtype: torch.dtype) -> None:
    torch.manual_seed(size)
    for rows, queries, keys in product((1, 3), (1, 4, 16), (1, 16, 37, 64, 128, 300)):
        query_BHQE, kv = asked(rows, queries, keys, size, dtype, "cuda")
        check(query_BHQE, kv, None)
        allowed_BQK = some_allowed(rows, queries, keys, "cuda")
        check(query_BHQE, kv, allowed_BQK)
        check(query_BHQE, kv, (torch.rand(rows, 1, keys, device="cuda") > 0.5).expand(-1, queries, -1))
        check(query_BHQE, kv, torch.rand(1, 1, keys, device="cuda") > 0.5)


@gpu
@pytest.mark.gpu
@torch.inference_mode()
def test_strides_are_minded() -> None:
    torch.manual_seed(1)
    joint_BTD = torch.randn(6, 5, 3 * 2 * 64, device="cuda")
    query, keys, values = (part.unflatten(-1, (2, 64)).transpose(1, 2) for part in joint_BTD.split(2 * 64, dim=-1))
    allowed_BKQ = torch.rand(6, 5, 5, device="cuda") > 0.3
    check(query, KeyValue(keys, values), allowed_BKQ.transpose(1, 2))
    every_second = KeyValue(keys[::2], values.flip(0)[::2])
    check(query[1::2], every_second, allowed_BKQ[::2, :, :])


@gpu
@pytest.mark.gpu
@torch.inference_mode()
def test_what_nobody_sees_is_not_read_and_what_is_no_number_stays_so() -> None:
    from regard.layers import few_queries

    query_BHQE, kv = asked(1, 4, 64, 64, torch.bfloat16, "cuda")
    allowed_BQK = torch.zeros(1, 4, 64, dtype=torch.bool, device="cuda")
    allowed_BQK[:, :, :40] = True
    kv.keys_BHKE[:, :, 40:] = torch.nan
    kv.values_BHKE[:, :, 40:] = torch.nan
    assert few_queries.attend(query_BHQE, kv.keys_BHKE, kv.values_BHKE, allowed_BQK).isfinite().all()
    query_BHQE[:, :, 2] = torch.nan
    found_BHQE = few_queries.attend(query_BHQE, kv.keys_BHKE, kv.values_BHKE, allowed_BQK)
    assert found_BHQE.isnan().all(dim=-1).all(dim=1).tolist() == [[False, False, True, False]]


@gpu
@pytest.mark.gpu
@torch.inference_mode()
def test_a_recording_of_it_reads_what_is_there_when_it_is_replayed() -> None:
    torch.manual_seed(2)
    query_BHQE, kv = asked(8, 4, 128, 64, torch.bfloat16, "cuda")
    allowed_BQK = some_allowed(8, 4, 128, "cuda")
    visible = Visible(allowed_BQK)
    fused_attention(query_BHQE, kv, visible)  # compiled before it is recorded
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found_BHQE = fused_attention(query_BHQE, kv, visible)
    for tensor in (query_BHQE, kv.keys_BHKE, kv.values_BHKE):
        tensor.normal_()
    allowed_BQK.logical_not_()
    graph.replay()
    wanted_BHQE = by_formula(query_BHQE, kv, allowed_BQK)
    torch.testing.assert_close(found_BHQE.double(), wanted_BHQE, atol=2e-2, rtol=2e-2)


@gpu
@pytest.mark.gpu
def test_what_it_does_not_serve_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.layers import few_queries

    served = []
    plain = few_queries.attend
    monkeypatch.setattr(few_queries, "attend", lambda *parts: (served.append(1), plain(*parts))[1])

    def serves(query_BHQE: Tensor, kv: KeyValue, visible: Visible, bias_BHQK: Tensor | None = None) -> bool:
        served.clear()
        found = fused_attention(query_BHQE, kv, visible, bias_BHQK)
        weights = attention_weights(query_BHQE, kv.keys_BHKE, visible, bias_BHQK)
        torch.testing.assert_close(found, weights @ kv.values_BHKE, atol=1e-4, rtol=1e-4)
        return bool(served)

    query_BHQE, kv = asked(2, 4, 4, 64, torch.float32, "cuda")
    assert not serves(query_BHQE, kv, Visible())  # somebody may ask for gradients
    with torch.inference_mode():
        assert serves(query_BHQE, kv, Visible())
        assert not serves(query_BHQE, kv, Visible(is_causal=True))
        assert not serves(query_BHQE, kv, Visible(), torch.randn(2, 2, 4, 4, device="cuda"))
        assert not serves(*asked(2, 17, 5, 64, torch.float32, "cuda"), Visible())
        assert not serves(*asked(2, 4, 5, 48, torch.float32, "cuda"), Visible())
        assert not serves(*asked(2, 4, 5, 64, torch.float64, "cuda"), Visible())
        longer = few_queries.MANY_KEYS + 1
        assert not serves(*asked(1, 4, longer, 64, torch.float32, "cuda"), Visible())
        assert serves(*asked(few_queries.MANY_PROGRAMS, 4, longer, 64, torch.float32, "cuda"), Visible())


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("beam", [1, 4])
def test_a_search_finds_the_same_without_it(beam: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.layers import few_queries

    torch.manual_seed(3)
    sizes = TransformerSettings(encoder_layers=2, decoder_layers=2, d_model=128, d_ff=256, heads=4)
    model = Transformer(sizes, 500).eval().cuda()
    other = copy.deepcopy(model)  # with recordings of its own
    served = []
    plain = few_queries.attend
    monkeypatch.setattr(few_queries, "attend", lambda *parts: (served.append(1), plain(*parts))[1])

    def found(model: Transformer) -> list[list[Hypothesis]]:
        chosen = SearchSettings(beam=beam, nbest=beam)
        ids = [[[3 + (row * 7 + place * turn) % 400 for place in range(1 + row % 9)] for row in range(40)]
               for turn in range(3)]  # fmt: skip
        turns = [search(model, Tokens.padded(rows, 0).to(torch.device("cuda")), SPECIALS, chosen) for rows in ids]
        return [each for turn in turns for each in turn]

    with_it = found(model)
    assert served
    served.clear()
    monkeypatch.setattr(few_queries, "serves", lambda *parts: False)
    without = found(other)
    assert not served
    for mine, its in zip(with_it, without, strict=True):
        assert [each.tokens for each in mine] == [each.tokens for each in its]
        assert [each.score for each in mine] == pytest.approx([each.score for each in its], abs=1e-4)


@gpu
@pytest.mark.gpu
@torch.inference_mode()
def test_beams_see_what_they_wrote() -> None:
    torch.manual_seed(4)
    slots = Slots.empty(3, 4, 32, torch.device("cuda"))
    query_BHQE, kv = asked(3, 4, 128, 64, torch.bfloat16, "cuda")
    for _ in range(9):
        visible = slots.visible(Mask(causal=True))
        check(query_BHQE, kv, visible.allowed_BQK)
        slots.follow(torch.randint(4, (3, 4), device="cuda"))
