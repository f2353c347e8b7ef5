"""Beam search in memory that stays in place: on a GPU a whole round of it, model and all, is recorded and replayed.

Shapes: B sentences, N beams, R = B·N rows, T tokens, C candidates, P texts kept, L longest text, V vocabulary.

The same search as `regard.decoding.search`, for the settings most people use: penalties of length, no constraints.
`search` takes this one where it can and that one where it must. What differs is that no shape ever changes:

- keys and values stay in place, and beams find theirs by a table (`regard.layers.fixed`);
- a sentence that is done stays in the batch, frozen, until many of them are; then the others move to a smaller one;
- on a GPU, sentences, source and text are as long as the next of a few sizes, so that a few recordings serve all
  batches. A CPU records nothing: there all is as long as it must be, and what pays is that no beam is ever copied.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from threading import Lock
from typing import Any, Protocol, cast
from weakref import WeakKeyDictionary, proxy

import torch
from torch import Tensor, nn

from regard.batch import PADDING_SEGMENT, Specials, Tokens
from regard.decoding import graphs
from regard.decoding.beams import Candidates, Pool
from regard.decoding.constraints import Constraints
from regard.decoding.graphs import LateNumber, Recorded, batch_size, next_size
from regard.decoding.likeliest import likeliest
from regard.decoding.search import Hypothesis, SearchSettings, beam_search
from regard.layers.fixed import Slots
from regard.memory import keeps, made, weight, within_reach
from regard.models.interface import SequenceModel, State

REACH = 32  # a step looks at the first so many positions; then at twice as many, …
MOST_ENGINES = 8  # shapes whose memory and recordings are kept, for each model on a GPU,
MOST_SHARE = 0.25  # and how much of the GPU's memory within reach they may take together; the one in use may take more
ALIVE_ON_GPU, ALIVE_ON_CPU = 0.5, 0.75  # when fewer of a batch than this are alive, they move to a smaller one
SENTENCES_ON_CPU = 8  # from so many on, copying beams takes longer than seeing to it that nobody has to


class FixedState(State, Protocol):
    """A state whose memory can stay in place; see `regard.layers.fixed`."""

    def first(self, length: int) -> FixedState:
        """The part for the first `length` positions."""
        ...

    def load(self, other: Any, rows: Tensor) -> None:
        """Take over the given rows of another state."""
        ...

    def slots(self) -> Slots:
        """Where it is written."""
        ...


class FixedModel(Protocol):
    """A model that can decode in fixed memory: the Transformer and GPT."""

    def fixed(self, sentences: int, beams: int, capacity: int, source_length: int) -> FixedState:
        """Memory that stays in place."""
        ...

    def step(self, tokens_BT: Tensor, state: Any) -> tuple[Tensor, Any]:
        """As any model's."""
        ...


class OwnSearch(ABC):
    """What a model is that brings its own search: an engine that does not stop between two tokens."""

    @abstractmethod
    def search(
        self,
        source: Tokens,
        specials: Specials,
        settings: SearchSettings,
        constraints: Sequence[Constraints] | None = None,
    ) -> list[list[Hypothesis]]:
        """As `beam_search`; raises UsageError, by name, for what it cannot do."""

    @abstractmethod
    def attention(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[Tensor]:
        """For each target, [T, S], how much each of its tokens looked at each of the source but the end."""


def search(
    model: SequenceModel[Any],
    source: Tokens | None,
    specials: Specials,
    settings: SearchSettings,
    constraints: Sequence[Constraints] | None = None,
) -> list[list[Hypothesis]]:
    """`beam_search`, by the model's own search if it brings one; the fast way where that is possible and pays."""
    if source is not None and isinstance(model, OwnSearch):
        return model.search(source, specials, settings, constraints)
    if source is not None and constraints is None and _pays(source, settings) and able(model, settings):
        found = fast_search(model, source, specials, settings)
        if found is not None:
            return found
    return beam_search(model, source, specials, settings, constraints)


def _pays(source: Tokens, settings: SearchSettings) -> bool:
    """Whether `fast_search` is the faster one."""
    sentences = len(source.ids_BT)
    if source.ids_BT.device.type == "cuda":
        return sentences > 0
    return settings.beam > 1 and sentences >= SENTENCES_ON_CPU


def able(model: nn.Module, settings: SearchSettings) -> bool:
    """Whether `fast_search` can do what is asked for."""
    plain = not (settings.coverage or settings.min_length or settings.no_repeat or settings.groups > 1)
    watched = any(getattr(module, "watcher", None) is not None for module in model.modules())
    return plain and not watched and hasattr(model, "fixed")


@torch.inference_mode()
def fast_search(
    model: SequenceModel[Any], source: Tokens, specials: Specials, settings: SearchSettings
) -> list[list[Hypothesis]] | None:
    """For each source row its `nbest` best hypotheses; None if some row's scores are not numbers."""
    lengths = (source.places.segments_or_ones() != PADDING_SEGMENT).sum(dim=1).tolist()
    limits = [length + settings.extra_length + 1 for length in lengths]
    if model.context is not None:
        limits = [min(limit, model.context) for limit in limits]
    longest, gpu = max(limits), source.ids_BT.device.type == "cuda"
    shape = _Shape(len(limits), settings.beam, longest, source.ids_BT.shape[1])
    if gpu:
        shape = shape.rounded(model.context)
    engines = _engines(model)
    with engines.lock:
        engine = engines.get(shape, specials, settings)
        engine.begin(model.start(source, len(limits)), limits)
        sentences = list(range(len(limits)))
        results: list[list[Hypothesis] | None] = [None] * len(limits)
        for length in range(1, longest + 1):
            alive = engine.round(length)
            if alive == 0 or length == longest:
                break
            smaller = batch_size(alive) if gpu else alive
            if smaller <= engine.shape.sentences * (ALIVE_ON_GPU if gpu else ALIVE_ON_CPU):
                going, found = engine.finished(sentences, limits)
                for sentence, hypotheses in found.items():
                    results[sentence] = hypotheses
                if not going:
                    break
                left = replace(shape, sentences=batch_size(len(going)) if gpu else len(going))
                sentences = [sentences[row] for row in going]
                engine = engines.get(left, specials, settings).take_over(engine, going, length)
        for sentence, hypotheses in engine.finished(sentences, limits)[1].items():
            results[sentence] = hypotheses
    return None if any(not found for found in results) else cast(list[list[Hypothesis]], results)


@dataclass(frozen=True)
class _Shape:
    """What never changes in an engine's life."""

    sentences: int
    beams: int
    capacity: int
    source_length: int

    def rounded(self, context: int | None) -> _Shape:
        """The next shape of a few, so that its recordings are used again; `context` is the most a model can read."""
        source_length = next_size(self.source_length, 16)
        if context is not None:
            source_length = min(source_length, max(context, self.source_length))
        return _Shape(batch_size(self.sentences), self.beams, next_size(self.capacity, 64), source_length)


@dataclass(frozen=True)
class _Progress:
    """Where the search of each sentence stands; all of it memory that stays in place."""

    scores_BN: Tensor
    last_BN: Tensor
    written_BNL: Tensor
    limits_B: Tensor
    done_B: Tensor
    pool_scores_BP: Tensor
    pool_log_probabilities_BP: Tensor
    pool_lengths_BP: Tensor
    pool_tokens_BPL: Tensor

    @classmethod
    def empty(cls, shape: _Shape, device: torch.device) -> _Progress:
        pool = Pool.empty(shape.sentences, shape.beams, shape.capacity, device)
        whole_BN = torch.zeros_like(pool.lengths_BP)
        return cls(
            pool.scores_BP.clone(),
            whole_BN,
            torch.zeros_like(pool.tokens_BPL),
            whole_BN[:, 0].clone(),
            whole_BN[:, 0].bool(),
            *(part.clone() for part in vars(pool).values()),
        )

    @property
    def pool(self) -> Pool:
        return Pool(self.pool_scores_BP, self.pool_log_probabilities_BP, self.pool_lengths_BP, self.pool_tokens_BPL)

    def take_over(self, other: _Progress, rows_B: Tensor) -> None:
        for each in fields(self):
            getattr(self, each.name).copy_(getattr(other, each.name).index_select(0, rows_B))


class _Engine:
    """A search of one shape: its memory, and the recordings that work on it."""

    def __init__(
        self,
        model: FixedModel,
        shape: _Shape,
        specials: Specials,
        settings: SearchSettings,
        pool: graphs.GraphPool,
    ) -> None:
        self.model, self.shape, self.specials, self.settings = model, shape, specials, settings
        self.state = model.fixed(shape.sentences, shape.beams, shape.capacity, shape.source_length)
        self.device = self.state.slots().position_1.device
        self.progress = _Progress.empty(shape, self.device)
        self.alive_1 = torch.zeros(1, dtype=torch.long, device=self.device)
        self.weight = weight([self.state, self.progress, self.alive_1])
        self.recorded = Recorded(self._round, self.device, pool)
        self.alive = LateNumber(self.device)

    def begin(self, state: Any, limits: list[int]) -> None:
        """Start with a fresh state of as many rows as there are `limits`; the rows beyond them are idle."""
        rows = self._filled(list(range(len(limits))))
        self.state.load(state, rows)
        now = self.progress
        now.scores_BN.fill_(-torch.inf)
        now.scores_BN[:, 0] = 0.0  # all beams of a sentence are the same yet: one counts
        now.last_BN.fill_(self.specials.start)
        now.written_BNL.zero_()
        now.limits_B.copy_(torch.tensor(limits, device=self.device).index_select(0, rows))
        now.pool_scores_BP.fill_(-torch.inf)
        now.done_B.fill_(False)
        now.done_B[len(limits) :] = True
        self.alive = LateNumber(self.device)

    def take_over(self, other: _Engine, going: list[int], length: int) -> _Engine:
        """Go on with these rows of another engine, whose texts have `length` tokens."""
        rows = self._filled(going)
        self.state.load(other.state.first(length), rows)
        self.progress.take_over(other.progress, rows)
        self.progress.done_B[len(going) :] = True
        self.alive = LateNumber(self.device)
        return self

    def round(self, length: int) -> int:
        """Write token number `length` of every text; how many sentences were not done a moment ago."""
        reach = next_size(length, REACH) if self.device.type == "cuda" else length
        self.recorded(min(reach, self.shape.capacity))
        return self.alive.look(self.alive_1, self.shape.sentences)

    def finished(self, sentences: list[int], limits: list[int]) -> tuple[list[int], dict[int, list[Hypothesis]]]:
        """The rows that are not done, and the hypotheses of the sentences that are."""
        done = self.progress.done_B.tolist()[: len(sentences)]
        going = [row for row, it_is in enumerate(done) if not it_is]
        rows = [row for row, it_is in enumerate(done) if it_is]
        texts = self.progress.pool.select(torch.tensor(rows, dtype=torch.long, device=self.device)).texts()
        found = {
            sentences[row]: [
                Hypothesis(each.tokens, each.log_probability, each.score, each.length == limits[sentences[row]])
                for each in ended[: self.settings.nbest]
            ]
            for row, ended in zip(rows, texts, strict=True)
        }
        return going, found

    def _filled(self, rows: list[int]) -> Tensor:
        """The rows, and the first of them again for each idle one."""
        idle = self.shape.sentences - len(rows)
        return torch.tensor(rows + rows[:1] * idle, device=self.device)

    def _round(self, reach: Hashable) -> None:
        """One round, in place: a step of the model, the best continuations, what ended, who goes on."""
        assert isinstance(reach, int)
        now, end, beams = self.progress, self.specials.end, self.shape.beams
        slots = self.state.slots()
        logits_RV, _ = self.model.step(now.last_BN.view(-1, 1), self.state.first(reach))
        length_1 = slots.position_1 + 1
        candidates = self._candidates(logits_RV, length_1 >= now.limits_B)

        first = Candidates(*(part[:, :beams] for part in vars(candidates).values()))
        ended_BN = torch.where(first.token_BC == end, first.scores_BC, -torch.inf)
        lengths_BN = length_1.expand_as(ended_BN)
        tokens_BNL = now.written_BNL.gather(1, first.beam_BC[:, :, None].expand_as(now.written_BNL))
        pool = now.pool.add(Pool(ended_BN / self.settings.divisor(lengths_BN), ended_BN, lengths_BN, tokens_BNL))
        for kept, new in zip(vars(now.pool).values(), vars(pool).values(), strict=True):
            done = now.done_B.view(-1, *[1] * (kept.dim() - 1))
            kept.copy_(torch.where(done, kept, new))

        chosen = candidates.going_on(end, beams)
        written_BNL = now.written_BNL.gather(1, chosen.beam_BC[:, :, None].expand_as(now.written_BNL))
        now.written_BNL.copy_(written_BNL.index_copy_(2, slots.position_1, chosen.token_BC[:, :, None]))
        now.scores_BN.copy_(chosen.scores_BC)
        now.last_BN.copy_(chosen.token_BC)
        slots.follow(chosen.beam_BC)
        now.done_B.logical_or_(self._done())
        self.alive_1.copy_((~now.done_B).sum())

    def _candidates(self, logits_RV: Tensor, at_limit_B: Tensor) -> Candidates:
        """The 2·N best continuations of each sentence, best first; at its limit, only to end."""
        beams, end = self.shape.beams, self.specials.end
        end_R = logits_RV[:, end].float()
        found = likeliest(logits_RV, 2 * beams, self.specials.unwritten)
        values_BNC, tokens_BNC, normaliser_BN = (part.unflatten(0, (-1, beams)) for part in found)
        ending_BNC = torch.full_like(values_BNC, -torch.inf)
        ending_BNC[:, :, 0] = end_R.view_as(normaliser_BN) - normaliser_BN
        at_limit_B11 = at_limit_B[:, None, None]
        totals_BNC = self.progress.scores_BN[:, :, None] + torch.where(at_limit_B11, ending_BNC, values_BNC)
        tokens_BNC = torch.where(at_limit_B11, end, tokens_BNC)
        scores_BC, index_BC = totals_BNC.flatten(1).topk(min(2 * beams, totals_BNC[0].numel()), dim=1)
        tokens_BC = tokens_BNC.flatten(1).gather(1, index_BC)
        return Candidates(scores_BC, index_BC // values_BNC.shape[2], tokens_BC)

    def _done(self) -> Tensor:
        if self.shape.beams == 1:
            return self.progress.pool_scores_BP[:, 0] > -torch.inf
        reachable_B = self.progress.scores_BN.amax(dim=1) / self.settings.divisor(self.progress.limits_B)
        return self.progress.pool_scores_BP[:, self.settings.nbest - 1] >= reachable_B


class _Engines:
    """The engines of a model: the last used ones, as many as weigh no more than their share of the GPU's memory."""

    def __init__(self, model: nn.Module) -> None:
        # The engines live as long as the model, and must not be what keeps it alive.
        self.model, self.lock = proxy(model), Lock()
        self.pool = graphs.GraphPool()
        self.kept: OrderedDict[Hashable, _Engine] = OrderedDict()
        keeps(self)

    def get(self, shape: _Shape, specials: Specials, settings: SearchSettings) -> _Engine:
        """The engine for this shape, made if there is none. On a CPU there is nothing in one that is worth keeping."""
        parameter = next(self.model.parameters())
        make = partial(_Engine, cast(FixedModel, self.model), shape, specials, settings, self.pool)
        if parameter.device.type != "cuda":
            return make()
        key = (shape, specials, settings, parameter.device, parameter.dtype, parameter.data_ptr())
        engine = self.kept.pop(key, None)
        self.kept[key] = engine = engine or made(make, self.kept.clear)
        self._bound(MOST_ENGINES, MOST_SHARE * within_reach(parameter.device))
        return engine

    def forget(self) -> None:
        """Keep none of them, unless a search is under way; whoever tries again, with less, finds their memory free."""
        if self.lock.acquire(blocking=False):
            try:
                self.kept.clear()
            finally:
                self.lock.release()

    def _bound(self, most: int, heaviest: float) -> None:
        """Keep the last used ones, few and light enough; the very last in any case."""
        total = sum(engine.weight for engine in self.kept.values())
        while len(self.kept) > 1 and (len(self.kept) > most or total > heaviest):
            total -= self.kept.popitem(last=False)[1].weight


_ENGINES: WeakKeyDictionary[nn.Module, _Engines] = WeakKeyDictionary()
_LOCK = Lock()  # of them: searches of one model in several threads must find the same engines, with the same lock


def _engines(model: nn.Module) -> _Engines:
    with _LOCK:
        engines = _ENGINES.get(model)
        if engines is None:
            engines = _ENGINES[model] = _Engines(model)
        return engines
