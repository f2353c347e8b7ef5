"""A model whose steps are recorded: for sampling, and for any search that steps through `SequenceModel`.

Shapes: R rows, T tokens, D model, V vocabulary.

`recorded(model)` is the model as others know it, `start`, `step` and `select`. Behind it, keys and values move into
memory that stays (`regard.layers.fixed`) with the first single token, and on a GPU each further step is one launch.

Two things are different. A step uses up the state it was given, because it writes into the same memory; going on from
an older state is refused. And the scores of a step are good until the next one. Searches and samplers ask for no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from threading import Lock, RLock
from typing import Any

import torch
from torch import Tensor

from regard.batch import Batch, Tokens
from regard.decoding import graphs
from regard.decoding.graphs import Recorded, batch_size, next_size
from regard.errors import InternalError
from regard.memory import keeps, made, weight, within_reach
from regard.models.interface import SequenceModel

FIRST_CAPACITY = 256
REACH = 64  # a step looks at the first so many positions; then at twice as many, …
MOST_SHARE = 0.25  # of the GPU's memory within reach, which is kept for texts to come


def recorded(model: SequenceModel[Any]) -> SequenceModel[Any]:
    """The same model with recorded steps, where that helps: on a GPU, if it can decode in memory that stays."""
    on_gpu = next(model.parameters()).device.type == "cuda"
    return RecordedSteps(model) if on_gpu and not model.reads_source and hasattr(model, "fixed") else model


class _Memory:
    """Fixed memory for a number of rows, the last tokens, their scores, and the recordings between them."""

    def __init__(self, model: Any, rows: int, capacity: int, pool: graphs.GraphPool) -> None:
        self.model, self.rows, self.capacity = model, rows, capacity
        self.state = model.fixed(rows, 1, capacity, 0)
        device = self.state.slots().position_1.device
        self.last_R1 = torch.zeros(rows, 1, dtype=torch.long, device=device)
        self.stay_R1 = torch.zeros(rows, 1, dtype=torch.long, device=device)
        self.logits_RV: Tensor | None = None
        self.weight = weight(self.state)
        self.recorded = Recorded(self._step, device, pool)
        self.turn = 0  # counts what was written; a state of an earlier turn is used up

    def load(self, state: Any, rows: Tensor) -> None:
        """Take over these rows of another state; idle rows repeat the first."""
        filled = torch.cat([rows, rows[:1].expand(self.rows - len(rows))])
        self.state.load(state, filled)
        self.turn += 1

    def step(self, tokens_R1: Tensor, length: int) -> Tensor:
        """Read token number `length` of each row; the scores of what follows, [R, V]."""
        self.turn += 1
        self.last_R1[: len(tokens_R1)] = tokens_R1
        self.recorded(min(next_size(length, REACH), self.capacity))
        assert self.logits_RV is not None
        return self.logits_RV[: len(tokens_R1)]

    def _step(self, reach: object) -> None:
        logits_RV, _ = self.model.step(self.last_R1, self.state.first(reach))
        if self.logits_RV is None:
            self.logits_RV = torch.empty_like(logits_RV)  # made in the first, unrecorded step
        self.logits_RV.copy_(logits_RV)
        self.state.slots().follow(self.stay_R1)


class _Lease:
    """The right to use a memory; when nobody holds it any more, the memory and its recordings serve the next text."""

    def __init__(self, memory: _Memory, free: _Free) -> None:
        self.memory, self._free = memory, free

    def __del__(self) -> None:
        self._free.put(self.memory)


class _Free:
    """Memories that nobody uses, the last used ones, as many as weigh no more than `heaviest`."""

    def __init__(self, heaviest: float) -> None:
        self._heaviest, self._lock = heaviest, RLock()  # a lease may end while its thread is in here
        self._kept: list[_Memory] = []
        keeps(self)

    def put(self, memory: _Memory) -> None:
        """Keep it for another text."""
        with self._lock:
            self._kept.append(memory)
            while sum(each.weight for each in self._kept) > self._heaviest:
                self._kept.pop(0)

    def take(self, rows: int, capacity: int) -> _Memory | None:
        """One of this size, if there is one."""
        with self._lock:
            found = next((each for each in self._kept if (each.rows, each.capacity) == (rows, capacity)), None)
            if found is not None:
                self._kept.remove(found)
        return found

    def forget(self) -> None:
        """Keep none of them."""
        with self._lock:
            self._kept.clear()


@dataclass(frozen=True)
class RecordedState:
    """A usual state of the model, or rows of a memory that stays."""

    owner: RecordedSteps
    plain: Any
    lease: _Lease | None = None
    rows: int = 0
    length: int = 0
    turn: int = 0

    def select(self, rows: Tensor) -> RecordedState:
        """The given rows, in the given order; this state is used up."""
        if self.lease is None:
            return RecordedState(self.owner, self.plain.select(rows))
        memory = self.memory()
        if batch_size(len(rows)) != memory.rows:
            return self.owner.move(memory.state, rows, self.length, memory.capacity)
        memory.load(memory.state, rows)
        return RecordedState(self.owner, None, self.lease, len(rows), self.length, memory.turn)

    def memory(self) -> _Memory:
        """The memory, if this state is its newest."""
        assert self.lease is not None
        if self.lease.memory.turn != self.turn:
            raise InternalError("recorded steps: each state can be gone on from once, but this one was used; report it")
        return self.lease.memory


class RecordedSteps(SequenceModel[RecordedState]):
    """A model whose single steps are recorded and replayed."""

    def __init__(self, model: SequenceModel[Any]) -> None:
        super().__init__()
        self.model = model
        self.vocabulary, self.width, self.context = model.vocabulary, model.width, model.context
        device = next(model.parameters()).device
        on_gpu = device.type == "cuda"
        self._free = _Free(MOST_SHARE * within_reach(device) if on_gpu else inf)
        self._pool = graphs.GraphPool()
        self._lock = Lock()

    def features(self, batch: Batch) -> Tensor:
        """As the model's."""
        return self.model.features(batch)

    def logits(self, features_RTD: Tensor) -> Tensor:
        """As the model's."""
        return self.model.logits(features_RTD)

    def start(self, source: Tokens | None, rows: int) -> RecordedState:
        """As the model's."""
        return RecordedState(self, self.model.start(source, rows))

    def step(self, tokens_RT: Tensor, state: RecordedState) -> tuple[Tensor, RecordedState]:
        """As the model's; `state` is used up."""
        if state.lease is None and tokens_RT.shape[1] > 1:
            logits_RV, plain = self.model.step(tokens_RT, state.plain)
            return logits_RV, RecordedState(self, plain)
        if state.lease is None:
            length = state.plain.seen.positions_BT.shape[1]
            rows = torch.arange(len(tokens_RT), device=tokens_RT.device)
            state = self.move(state.plain, rows, length, self._capacity(length))
        for token_R1 in tokens_RT.split(1, dim=1):
            memory = state.memory()
            if state.length == memory.capacity:
                rows = torch.arange(state.rows, device=tokens_RT.device)
                state = self.move(memory.state, rows, state.length, self._capacity(state.length))
                memory = state.memory()
            with self._lock:  # several streams may write at once, but recordings share memory
                logits_RV = memory.step(token_R1, state.length + 1)
            state = RecordedState(self, None, state.lease, state.rows, state.length + 1, memory.turn)
        return logits_RV, state

    def move(self, state: Any, rows: Tensor, length: int, capacity: int) -> RecordedState:
        """These rows of a state in a memory of their own."""
        size = batch_size(len(rows))
        memory = self._free.take(size, capacity) or made(lambda: _Memory(self.model, size, capacity, self._pool))
        memory.load(state, rows)
        return RecordedState(self, None, _Lease(memory, self._free), len(rows), length, memory.turn)

    def _capacity(self, length: int) -> int:
        """Room for at least one token more; each time there is too little, twice as much."""
        capacity = FIRST_CAPACITY
        while capacity <= length:
            capacity *= 2
        return capacity if self.context is None else max(length + 1, min(capacity, self.context))
