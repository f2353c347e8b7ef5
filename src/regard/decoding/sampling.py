"""Drawing texts from a model, token by token.

Shapes: B rows, K tokens to choose from, P longest prompt, T tokens, V vocabulary.

From the scores z of the next token, in this order:

    repetition penalty   z_i ← z_i / r if z_i > 0 else z_i · r, for tokens already there   (Keskar et al. 2019)
    temperature          z ← z / t                                                         t = 0: the likeliest token
    top-k                keep the k likeliest                                              (Fan et al. 2018)
    top-p                keep the fewest likeliest tokens that hold p of the probability   (Holtzman et al. 2020)
    min-p                keep tokens at least m times as likely as the likeliest           (Nguyen et al. 2024)

Then the token is argmax_i z_i + g_i, where g is Gumbel noise: a draw from softmax(z). The noise follows from the row's
seed, the number of tokens drawn and i (`noise.py`), so that a text depends on its seed and prompt, not on the batch.
Small differences in z change such a draw hardly ever; they would often change a draw by cumulated probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from regard.batch import Specials, Tokens
from regard.decoding.beams import largest
from regard.decoding.beginnings import read_together
from regard.decoding.ensemble import select_rows
from regard.decoding.likeliest import likeliest
from regard.decoding.noise import Noise
from regard.errors import DataError, UsageError
from regard.models.interface import SequenceModel

Finish = Literal["end", "length", "stop"]
SPREAD = 32
"""Prompts whose lengths differ by at most this much share a batch: the ends of the longer ones are read token by token
while the shorter ones are continued."""


@dataclass(frozen=True)
class SamplingSettings:
    """How to draw; the defaults draw from the model as it is."""

    temperature: float = 1.0
    top_k: int = 0
    """0 is neutral."""
    top_p: float = 1.0
    """1 is neutral."""
    min_p: float = 0.0
    """0 is neutral."""
    repetition_penalty: float = 1.0
    """1 is neutral, more avoids what was written before."""
    max_tokens: int = 200
    alternatives: int = 0
    """How many of the likeliest tokens to report at each place."""
    start: bool = True
    """Read the start token before a prompt; an empty prompt and a model with a source need it in any case."""
    lines: int = 1
    """The most lines of a text, for a model of running text: what ends one is a token, and the next begins."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"`temperature` must be at least 0 (no chance) and finite, but is {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"`top_p` must be above 0 and at most 1 (all tokens), but is {self.top_p}")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"`min_p` must be from 0 (all tokens) to 1, but is {self.min_p}")
        if not 0 < self.repetition_penalty < math.inf:
            raise ValueError(f"`repetition_penalty` must be above 0 and finite, but is {self.repetition_penalty}")
        for name, least in (("top_k", 0), ("max_tokens", 1), ("alternatives", 0), ("lines", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"`{name}` must be at least {least}, but is {getattr(self, name)}")


@dataclass(frozen=True)
class Drawn:
    """One token, and its log-probability by the model alone: no temperature, no filter.

    `alternatives` are the likeliest tokens with theirs, likeliest first.
    """

    token: int
    log_probability: float
    alternatives: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Sample:
    """A text that was drawn, without its prompt and the last end token; where it has several lines, those between."""

    drawn: tuple[Drawn, ...]
    finish_reason: Finish
    """The model ended the text, it has as many tokens as it may have, or whoever was told of its tokens ended it."""
    prompt_cut: int = 0
    """How many tokens at the beginning of the prompt were not read, since the model's context is shorter."""
    slid: bool = False
    """The context filled up, so that the model went on from the later half of it."""

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens alone."""
        return tuple(each.token for each in self.drawn)

    @property
    def log_probability(self) -> float:
        """The sum over all tokens; the end is not counted."""
        return sum(each.log_probability for each in self.drawn)


OnToken = Callable[[int, Drawn], bool | None]
"""Called with a row and its newest token, as soon as it is drawn; if it answers True, the text ends there."""


def sample(
    model: SequenceModel[Any],
    prompts: Sequence[Sequence[int]],
    specials: Specials,
    settings: SamplingSettings,
    seeds: Sequence[int],
    on_token: OnToken | None = None,
    source: Tokens | None = None,
    running: bool = False,
) -> list[Sample]:
    """Continue each prompt by its own seed; an empty one starts from the start token.

    Of a prompt that is longer than the model's context, the last tokens that fit are read. When the context is full,
    a language model reads the later half of it anew and goes on; a model with a source ends there. Of a model that
    writes `running` text, lines that end before any text was drawn are kept, but do not count.
    """
    walk = drawing(model, prompts, specials, settings, seeds, on_token, source, running)
    while True:
        try:
            next(walk)
        except StopIteration as end:
            return end.value


@torch.inference_mode()
def drawing(
    model: SequenceModel[Any],
    prompts: Sequence[Sequence[int]],
    specials: Specials,
    settings: SamplingSettings,
    seeds: Sequence[int],
    on_token: OnToken | None = None,
    source: Tokens | None = None,
    running: bool = False,
) -> Generator[None, None, list[Sample]]:
    """`sample`, one step of the model at a time: whoever asks for the next one may do other things in between."""
    if len(seeds) != len(prompts):
        raise UsageError(f"sampling: there must be one seed a prompt ({len(prompts)}), but there are {len(seeds)}")
    if source is not None and source.ids_BT.shape[0] != len(prompts):
        raise UsageError(
            f"sampling: there must be one source row a prompt ({len(prompts)}), but there are {source.ids_BT.shape[0]}"
        )
    with_start = settings.start or source is not None
    read = [[specials.start, *prompt] if with_start or not prompt else list(prompt) for prompt in prompts]
    results: list[Sample | None] = [None] * len(prompts)
    for places in read_together([len(text) for text in read], SPREAD):
        part = source
        if source is not None and len(places) < len(prompts):
            part = select_rows(source, torch.tensor(places, device=source.ids_BT.device))
        texts = [read[place] for place in places]
        batch = _Batch(model, texts, specials, settings, [seeds[place] for place in places], part, running)
        for place, found in zip(places, (yield from batch.run(_for_batch(on_token, places))), strict=True):
            results[place] = found
    return [found for found in results if found is not None]


def _for_batch(on_token: OnToken | None, places: list[int]) -> OnToken | None:
    """`on_token` under the numbers that rows have inside a batch."""
    if on_token is None:
        return None
    return lambda row, drawn: on_token(places[row], drawn)


@dataclass
class _Row:
    """One text on its way: all the tokens it has, and those of them that were drawn."""

    number: int
    tokens: list[int]
    prompt: int  # how many tokens were given
    cut: int
    drawn: list[Drawn]
    slid: bool = False
    lines: int = 1  # begun
    begun: bool = False  # with something else than the end of a line


class _Batch:
    """Rows that are read in step. Every row has as many tokens read as any other."""

    def __init__(
        self,
        model: SequenceModel[Any],
        texts: list[list[int]],
        specials: Specials,
        settings: SamplingSettings,
        seeds: list[int],
        source: Tokens | None,
        running: bool,
    ) -> None:
        self.model, self.specials, self.settings, self.source = model, specials, settings, source
        self.running = running
        device = next(model.parameters()).device
        context = model.context or max(map(len, texts))
        self.rows = [
            _Row(number, text[-context:], min(len(text), context), max(0, len(text) - context), [])
            for number, text in enumerate(texts)
        ]
        self.prompts_BP = Tokens.padded([row.tokens for row in self.rows], specials.padding).ids_BT.to(device)
        self.lengths_B = torch.tensor([row.prompt for row in self.rows], device=device)
        self.noise = Noise(seeds, model.vocabulary, device)
        self.repeated_BV: Tensor | None = None
        if settings.repetition_penalty != 1:
            self.repeated_BV = torch.zeros(len(texts), model.vocabulary, dtype=torch.bool, device=device)
        self.results: list[Sample | None] = [None] * len(texts)

    def run(self, on_token: OnToken | None) -> Generator[None, None, list[Sample]]:
        """Draw until every row has ended, step by step."""
        read = min(row.prompt for row in self.rows)  # tokens of each row that the state holds
        state = self.model.start(self.source, len(self.rows))
        self._note(self.prompts_BP[:, :read])
        logits_BV, state = self.model.step(self.prompts_BP[:, :read], state)
        position = read  # tokens each row has so far
        while True:
            next_B, report = self._draw(logits_BV, position)
            stay = self._write(report.tolist(), position, on_token, full=read == self.model.context)
            if not stay:
                return [found for found in self.results if found is not None]
            if len(stay) < len(next_B):
                rows = torch.tensor(stay, device=next_B.device)
                self._keep(rows, stay)
                next_B, state = next_B[rows], state.select(rows)
            if self.settings.lines > 1 or self.running:
                # As in training: what follows the end of a line begins one.
                next_B = torch.where(next_B == self.specials.end, self.specials.start, next_B)
            position += 1
            self._note(next_B[:, None])
            if read == self.model.context:
                logits_BV, state, read = self._slide(max(1, read // 2))
            else:
                logits_BV, state = self.model.step(next_B[:, None], state)
                read += 1
            yield

    def _draw(self, logits_BV: Tensor, position: int) -> tuple[Tensor, Tensor]:
        """The next token of each row, [B], and what to tell of it: the token, its log-probability, alternatives."""
        settings = self.settings
        steps_B = (position - self.lengths_B).clamp(min=0)
        reach = position - min(row.prompt for row in self.rows)
        columns: list[Tensor] = []
        if (settings.top_k or not settings.temperature) and not settings.alternatives and self.repeated_BV is None:
            next_B, chance_B1 = self._choose_among_few(logits_BV, steps_B, reach)
        else:
            scores_BV = logits_BV.float()
            log_probabilities_BV = scores_BV.log_softmax(dim=-1)
            next_B = self._choose(scores_BV, steps_B, reach)
            chance_B1 = log_probabilities_BV.gather(1, next_B[:, None])
            if settings.alternatives:
                columns = [*reversed(largest(log_probabilities_BV, settings.alternatives))]
        if position < self.prompts_BP.shape[1]:  # of what is given, nobody asks for the probability
            next_B = torch.where(position < self.lengths_B, self.prompts_BP[:, position], next_B)
        columns = [next_B[:, None], chance_B1, *columns]
        # One table of doubles, which hold token ids exactly: the host has to wait for the device once.
        return next_B, torch.cat([column.double() for column in columns], dim=1)

    def _choose_among_few(self, logits_BV: Tensor, steps_B: Tensor, reach: int) -> tuple[Tensor, Tensor]:
        """As `_choose`, where the likeliest tokens are all that matters; and log P of what was chosen, [B, 1]."""
        settings = self.settings
        most = settings.top_k if settings.temperature else 1
        chances_BK, tokens_BK, _ = likeliest(logits_BV, most, self.specials.unwritten)
        best_B1 = steps_B.new_zeros(len(steps_B), 1)
        if most > 1:
            scores_BK = _thinned(_tempered(chances_BK, settings.temperature), settings)
            best_B1 = (scores_BK + self.noise.gumbel(steps_B, reach, tokens_BK)).argmax(dim=1, keepdim=True)
        return tokens_BK.gather(1, best_B1)[:, 0], chances_BK.gather(1, best_B1)

    def _choose(self, scores_BV: Tensor, steps_B: Tensor, reach: int) -> Tensor:
        """A token for each row, drawn or the likeliest, [B]."""
        settings = self.settings
        scores_BV = scores_BV.clone()
        for token in self.specials.unwritten:
            scores_BV[:, token] = -torch.inf
        if self.repeated_BV is not None:
            penalty = settings.repetition_penalty
            less_BV = torch.where(scores_BV > 0, scores_BV / penalty, scores_BV * penalty)
            scores_BV = torch.where(self.repeated_BV, less_BV, scores_BV)
        if settings.temperature == 0:
            return scores_BV.argmax(dim=1)
        scores_BK, tokens_BK = narrow(_tempered(scores_BV, settings.temperature), settings)
        best_B = (scores_BK + self.noise.gumbel(steps_B, reach, tokens_BK)).argmax(dim=1)
        return best_B if tokens_BK is None else tokens_BK.gather(1, best_B[:, None])[:, 0]

    def _write(self, report: list[list[float]], position: int, on_token: OnToken | None, full: bool) -> list[int]:
        """Take down the newest tokens; the places of the rows that go on."""
        stay = []
        for place, (row, values) in enumerate(zip(self.rows, report, strict=True)):
            token = int(values[0])
            finish_reason: Finish | None = None
            if position < row.prompt:
                stay.append(place)
                continue
            if math.isnan(values[1]):
                raise DataError(
                    f"sampling: a model must give scores that are numbers, but row {row.number} got none. The weights "
                    "are damaged, or training diverged; go back to an earlier checkpoint."
                )
            ends = token == self.specials.end and (row.begun or not self.running)
            if ends and row.lines == self.settings.lines:
                finish_reason = "end"
            else:
                row.lines += ends
                row.begun |= token != self.specials.end
                row.tokens.append(self.specials.start if token == self.specials.end else token)
                row.drawn.append(Drawn(token, values[1], _pairs(values[2:])))
                if on_token is not None and on_token(row.number, row.drawn[-1]):
                    finish_reason = "stop"
                elif len(row.drawn) == self.settings.max_tokens or (full and self.source is not None):
                    finish_reason = "length"
            if finish_reason is None:
                stay.append(place)
            else:
                self.results[row.number] = Sample(tuple(row.drawn), finish_reason, row.cut, row.slid)
        return stay

    def _slide(self, size: int) -> tuple[Tensor, Any, int]:
        """Read the last `size` tokens of each row as if they were the first."""
        for row in self.rows:
            row.slid = True
        last_BT = torch.tensor([row.tokens[-size:] for row in self.rows], device=self.lengths_B.device)
        logits_BV, state = self.model.step(last_BT, self.model.start(None, len(self.rows)))
        return logits_BV, state, size

    def _note(self, tokens_BT: Tensor) -> None:
        """Remember for the repetition penalty what was written. The start is no text, and may be the end, too."""
        if self.repeated_BV is not None:
            self.repeated_BV.scatter_(1, tokens_BT, True)[:, self.specials.start] = False

    def _keep(self, rows: Tensor, places: list[int]) -> None:
        """Drop all other rows."""
        self.rows = [self.rows[place] for place in places]
        self.prompts_BP, self.lengths_B = self.prompts_BP[rows], self.lengths_B[rows]
        self.noise.select(places)
        if self.repeated_BV is not None:
            self.repeated_BV = self.repeated_BV[rows]


def narrow(scores_BV: Tensor, settings: SamplingSettings) -> tuple[Tensor, Tensor | None]:
    """The scores that are left to choose from and their tokens, [B, K]; the tokens are None where all are left."""
    tokens_BK = None
    if settings.top_k:
        scores_BV, tokens_BK = largest(scores_BV, settings.top_k)
    elif settings.top_p < 1:
        scores_BV, tokens_BK = scores_BV.sort(dim=1, descending=True)
    return _thinned(scores_BV, settings), tokens_BK


def _tempered(scores_BK: Tensor, temperature: float) -> Tensor:
    """z / t, shifted so that the best token has 0, by a t that has an inverse: nothing outgrows what a float holds."""
    shifted_BK = scores_BK - scores_BK.amax(dim=1, keepdim=True)
    return shifted_BK / max(temperature, torch.finfo(torch.float).tiny)


def _thinned(scores_BK: Tensor, settings: SamplingSettings) -> Tensor:
    """The scores, by top-p in falling order, without the tokens that top-p and min-p leave out."""
    if settings.top_p < 1:
        chances_BK = scores_BK.softmax(dim=1)
        better_BK = chances_BK.cumsum(dim=1) - chances_BK  # what the likelier tokens hold together
        most = max(settings.top_p, torch.finfo(torch.float).tiny)  # less would be 0 here, and keep no token at all
        scores_BK = scores_BK.masked_fill(better_BK >= most, -torch.inf)
    if settings.min_p > 0:
        least_B1 = scores_BK.amax(dim=1, keepdim=True) + math.log(settings.min_p)
        scores_BK = scores_BK.masked_fill(scores_BK < least_B1, -torch.inf)
    return scores_BK


def _pairs(values: list[float]) -> tuple[tuple[int, float], ...]:
    half = len(values) // 2
    return tuple((int(token), value) for token, value in zip(values[:half], values[half:], strict=True))
