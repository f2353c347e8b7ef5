"""A compiled model computes what the plain one does, as one graph, for a bounded number of shapes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from regard.batch import Batch
from regard.data.batching import Batches, BatchSettings, Layout, collate
from tests.contracts.cases import FIRST_WORD, SPECIALS
from tests.contracts.zoo import ZOO, Entry

VOCABULARY = 31

# torch.compile does not trace nn.RNN, nn.GRU and nn.LSTM unless an experimental switch of torch is set; and never the
# packed rows from which an LSTM with context = "last" learns its memory at each row's end.
RECURRENT = sorted(name for name in ZOO if name.startswith("recurrent"))
PACKED = ["recurrent-general"]
ALLOWED = sorted(set(RECURRENT) - set(PACKED))
COMPILED = sorted(ZOO.keys() - set(RECURRENT))

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def batch_of(entry: Entry, rows: int, length: int) -> Batch:
    """`rows` sentences of up to `length` tokens, the shorter ones padded."""
    draw = torch.Generator().manual_seed(rows * 100 + length)

    def sentence(row: int) -> list[int]:
        return torch.randint(FIRST_WORD, VOCABULARY, (max(1, length - row),), generator=draw).tolist()

    batch = collate([(sentence(row), sentence(row)) for row in range(rows)], SPECIALS)
    return batch if entry.reads_source else Batch(None, batch.target, batch.labels_BT)


def compiled_equals_eager(name: str, backend: str, device: str, tolerance: float) -> None:
    entry = ZOO[name]
    model = entry.build(VOCABULARY).eval().to(device)
    torch.compiler.reset()
    compiled: Any = torch.compile(model, fullgraph=True, backend=backend)
    with torch.inference_mode():
        for rows, length in ((3, 7), (2, 11)):
            batch = batch_of(entry, rows, length).to(torch.device(device))
            torch.testing.assert_close(compiled(batch), model(batch), atol=tolerance, rtol=0)


# Tracing takes seconds a model; by default one of each family is enough to tell.
OFTEN = {"transformer", "gpt", "wavenet"}


@pytest.mark.parametrize(
    "name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in COMPILED]
)
def test_the_forward_pass_is_one_graph(name: str) -> None:
    compiled_equals_eager(name, "aot_eager", "cpu", tolerance=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALLOWED)
def test_recurrent_models_are_one_graph_if_torch_is_told_to_allow_them(name: str) -> None:
    with torch._dynamo.config.patch(allow_rnn=True):
        compiled_equals_eager(name, "aot_eager", "cpu", tolerance=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "allow"), [(name, False) for name in RECURRENT] + [(name, True) for name in PACKED])
def test_torch_says_which_models_it_does_not_trace(name: str, allow: bool) -> None:
    """Should this fail, torch has learnt something, and the page on recurrent models can say so."""
    reason = "pack_padded_sequence" if name in PACKED else "RNN, GRU, or LSTM"
    with torch._dynamo.config.patch(allow_rnn=allow), pytest.raises(torch._dynamo.exc.Unsupported, match=reason):
        compiled_equals_eager(name, "eager", "cpu", tolerance=1e-5)


@pytest.mark.parametrize("layout", ["buckets", "packed"])
def test_an_epoch_of_batches_needs_no_more_graphs_than_shapes(layout: Layout) -> None:
    draw = random.Random(1)
    pairs = [([5] * draw.randint(1, 30), [6] * draw.randint(1, 30)) for _ in range(200)]
    batches = Batches(pairs, SPECIALS, BatchSettings(tokens=128, layout=layout, row=64, shapes=4), seed=1)
    graphs = 0

    def count(graph: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> Callable[..., Any]:
        nonlocal graphs
        graphs += 1
        return graph.forward

    torch.compiler.reset()
    model = ZOO["transformer"].build(VOCABULARY).eval()
    compiled: Any = torch.compile(model, fullgraph=True, dynamic=False, backend=count)
    with torch.inference_mode():
        for step in range(batches.per_epoch):
            compiled(batches[step])
    print(f"{layout}: {graphs} graphs for {batches.per_epoch} batches of {len(batches.shapes)} shapes")
    assert graphs == len(batches.shapes) <= {"buckets": 4, "packed": 1}[layout] < batches.per_epoch


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # torch's own call
@pytest.mark.parametrize("name", COMPILED + ALLOWED)
def test_compiled_code_agrees_on_cpu(name: str) -> None:
    with torch._dynamo.config.patch(allow_rnn=name in ALLOWED):
        compiled_equals_eager(name, "inductor", "cpu", tolerance=1e-5)


@gpu
@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # the compiler's advice about speed; this is about equality
@pytest.mark.parametrize("name", COMPILED + ALLOWED)
def test_compiled_code_agrees_on_gpu(name: str) -> None:
    exact = torch.backends.cudnn.flags(allow_tf32=False)  # cuDNN's LSTM rounds to ten bits unless told not to
    with torch._dynamo.config.patch(allow_rnn=name in ALLOWED), exact:
        compiled_equals_eager(name, "inductor", "cuda", tolerance=1e-4)
