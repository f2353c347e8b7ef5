"""Does a model give the same answer however it is asked? Checks that anybody can run on their own model.

Shapes: B rows, T tokens, V vocabulary.

    neighbours   each text alone, and all in one batch
    order        the batch forwards and backwards
    padding      rows as long as the longest text, and longer
    batch size   batches of different sizes
    cache        one token at a time with what was read before kept, and all positions at once
    prefix       the first tokens in one step, and one by one
    at once      the texts as rows of one batch, all positions at once, as in training and evaluating; and each alone

The answers must have the same tokens. Their scores may differ by rounding, since other shapes of a batch make
other kernels sum in another order; a check says the largest difference it saw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from regard.batch import IGNORED, Batch, Specials, Tokens
from regard.decoding.fast import OwnSearch
from regard.decoding.fast import search as find
from regard.decoding.sampling import SamplingSettings, sample
from regard.decoding.search import SearchSettings
from regard.decoding.stepping import recorded
from regard.layers.quantised import Int8Linear
from regard.models.bert import Bert
from regard.models.interface import Learner, SequenceModel
from regard.models.labelling import LabelModel

Sentence = Sequence[int]
Answer = tuple[tuple[int, ...], float]
"""The tokens written for a text, and their score."""
Ask = Callable[[Sequence[int], int], list[Answer]]
"""(numbers of texts that share a batch, columns of padding beyond the longest) → the answer to each."""

TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4}
COARSE = 0.1  # of half precision
EIGHT_BITS = 0.5  # a sum that rounding moves may fall to the next of 256 levels
LONGEST = 24  # of random texts
BATCH = 3  # at most; of a few texts, half
PADDED_BY = 5
DRAWN = SamplingSettings(max_tokens=16)


@dataclass(frozen=True)
class Check:
    """What came of one check."""

    name: str
    meaning: str
    cases: int
    other_tokens: int
    """In how many cases the tokens were others."""
    needed: float
    """The largest difference between scores: the tolerance that would have been enough."""
    allowed: float

    @property
    def passed(self) -> bool:
        """The same tokens, and scores within what is allowed; a score that is no number is within nothing."""
        return not self.other_tokens and self.needed <= self.allowed

    def to_json(self) -> dict[str, object]:
        """The fields and the verdict."""
        return {**vars(self), "passed": self.passed}

    def __str__(self) -> str:
        verdict = "ok    " if self.passed else "FAILED"
        other = f"; other tokens in {self.other_tokens} of {self.cases}" if self.other_tokens else ""
        return f"{verdict}  {self.name:10}  {self.meaning}: needed {self.needed:.1e}, allowed {self.allowed:.0e}{other}"


def random_texts(vocabulary: int, specials: Specials, count: int, longest: int | None, seed: int) -> list[list[int]]:
    """Texts of random tokens and lengths, without special tokens; a model answers them, if not sensibly."""
    generator = torch.Generator().manual_seed(seed)
    words = [token for token in range(vocabulary) if token not in vars(specials).values()]
    most = LONGEST if longest is None else max(1, min(LONGEST, longest))

    def draw(below: int, size: int) -> list[int]:
        return torch.randint(below, (size,), generator=generator).tolist()

    return [[words[place] for place in draw(len(words), 1 + length)] for length in draw(most, count)]


def tolerance(model: Learner) -> float:
    """How far rounding may move a score, for the numbers this model computes with."""
    if any(isinstance(module, Int8Linear) for module in model.modules()):
        return EIGHT_BITS
    return TOLERANCE.get(next(model.parameters()).dtype, COARSE)


def verify_translator(
    model: SequenceModel[Any], specials: Specials, search: SearchSettings, sources: Sequence[Sentence], allowed: float
) -> Iterator[Check]:
    """The checks of a model that reads a source, one after another, on these sources (each with its end token)."""
    device = next(model.parameters()).device

    def ask(numbers: Sequence[int], extra: int) -> list[Answer]:
        texts = [sources[number] for number in numbers]
        tokens = Tokens.padded(texts, specials.padding, max(map(len, texts)) + extra).to(device)
        found = find(model, tokens, specials, replace(search, nbest=1))
        return [(best.tokens, best.score) for best, *_ in found]

    together = ask(range(len(sources)), 0)
    yield from _company(ask, together, allowed)
    longer = ask(range(len(sources)), PADDED_BY)
    yield _check("padding", f"rows {PADDED_BY} columns longer", together, longer, allowed)
    if not isinstance(model, OwnSearch):  # an engine that brings its own search takes no steps to compare
        yield from _steps(model, specials, [answer[0] for answer in together], sources, allowed)


def verify_generator(
    model: SequenceModel[Any], specials: Specials, prompts: Sequence[Sentence], allowed: float
) -> Iterator[Check]:
    """The checks of a language model, one after another, on what it draws after these prompts, each by its own seed."""
    model = recorded(model)  # as it is used

    def ask(numbers: Sequence[int], _: int) -> list[Answer]:
        found = sample(model, [prompts[number] for number in numbers], specials, DRAWN, numbers)
        return [(each.tokens, each.log_probability) for each in found]

    together = ask(range(len(prompts)), 0)
    yield from _company(ask, together, allowed)
    texts = [[*prompt, *answer[0]] for prompt, answer in zip(prompts, together, strict=True)]
    if model.context is not None:  # with the start token, so many can be read at once
        texts = [text[: model.context - 1] for text in texts]
    yield from _steps(model, specials, texts, None, allowed)


def verify_labels(
    model: LabelModel | Bert, specials: Specials, texts: Sequence[Sentence], allowed: float
) -> Iterator[Check]:
    """The checks of a model that gives labels or fills gaps, one after another, on these texts (without their ends)."""

    def ask(numbers: Sequence[int], extra: int) -> list[Answer]:
        rows = [[*texts[number], specials.end] for number in numbers]
        device = next(model.parameters()).device
        tokens = Tokens.padded(rows, specials.padding, max(map(len, rows)) + extra).to(device)
        with torch.inference_mode():
            chances_BNC = model(tokens).float().log_softmax(dim=-1)
        answers = []
        for row, chances_NC in zip(rows, chances_BNC, strict=True):
            best = chances_NC[: len(row)].max(dim=-1)
            answers.append((tuple(best.indices.tolist()), float(best.values.sum())))
        return answers

    together = ask(range(len(texts)), 0)
    yield from _company(ask, together, allowed)
    longer = ask(range(len(texts)), PADDED_BY)
    yield _check("padding", f"rows {PADDED_BY} columns longer", together, longer, allowed)


def _company(ask: Ask, together: Sequence[Answer], allowed: float) -> Iterator[Check]:
    numbers = range(len(together))
    alone = [ask([number], 0)[0] for number in numbers]
    yield _check("neighbours", "each text alone, and all together", together, alone, allowed)
    backwards = ask(numbers[::-1], 0)[::-1]
    yield _check("order", "forwards and backwards", together, backwards, allowed)
    size = min(BATCH, len(together) // 2)
    batches = [ask(numbers[first : first + size], 0) for first in range(0, len(together), size)]
    several = [answer for batch in batches for answer in batch]
    yield _check("batch size", f"batches of {len(together)} and of {size}", together, several, allowed)


def _check(name: str, meaning: str, ones: Sequence[Answer], others: Sequence[Answer], allowed: float) -> Check:
    pairs = list(zip(ones, others, strict=True))
    needed = torch.tensor([[one[1], other[1]] for one, other in pairs], dtype=torch.float64).diff(dim=1).abs().max()
    return Check(name, meaning, len(pairs), sum(one[0] != other[0] for one, other in pairs), float(needed), allowed)


@torch.inference_mode()
def _steps(
    model: SequenceModel[Any],
    specials: Specials,
    texts: Sequence[Sentence],
    sources: Sequence[Sentence] | None,
    allowed: float,
) -> Iterator[Check]:
    """Scores of the next token after every beginning of each text: all at once, one by one, and after a leap."""
    device = next(model.parameters()).device
    rows_BTD = model.features(_rows(specials, texts, sources).to(device))
    cached, leapt, joined = [], [], []
    for number, text in enumerate(texts):
        source = None if sources is None else Tokens.whole(torch.tensor([list(sources[number])], device=device))
        target = Tokens.whole(torch.tensor([[specials.start, *text]], device=device))
        batch = Batch(source, target, torch.full_like(target.ids_BT, IGNORED))
        at_once_TV = model(batch)[0].float().log_softmax(dim=-1)
        row_TV = model.logits(rows_BTD[number : number + 1, : len(text) + 1])[0].float().log_softmax(dim=-1)
        joined.append(_distance(at_once_TV, row_TV))
        one_by_one_TV = _read(model, source, target.ids_BT, first=1)
        cached.append(_distance(at_once_TV, one_by_one_TV))
        first = (len(text) + 2) // 2
        leapt.append(_distance(at_once_TV[first - 1 :], _read(model, source, target.ids_BT, first)))
    yield Check("cache", "all positions at once, and step by step", len(texts), 0, _worst(cached), allowed)
    yield Check("prefix", "the first half of a text in one step", len(texts), 0, _worst(leapt), allowed)
    yield Check("at once", "a batch of all texts, and each alone", len(texts), 0, _worst(joined), allowed)


def _rows(specials: Specials, texts: Sequence[Sentence], sources: Sequence[Sentence] | None) -> Batch:
    """All texts as one padded batch."""
    target = Tokens.padded([[specials.start, *text] for text in texts], specials.padding)
    source = None if sources is None else Tokens.padded(sources, specials.padding)
    return Batch(source, target, torch.full_like(target.ids_BT, IGNORED))


def _read(model: SequenceModel[Any], source: Tokens | None, ids_1T: Tensor, first: int) -> Tensor:
    """log P of what comes next after the first `first` tokens, read in one step, and after each further one, [T, V]."""
    state = model.start(source, 1)
    found = []
    for begin, end in pairwise([0, *range(first, ids_1T.shape[1] + 1)]):
        scores_1V, state = model.step(ids_1T[:, begin:end], state)
        found.append(scores_1V[0].float().log_softmax(dim=-1))
    return torch.stack(found)


def _distance(these: Tensor, those: Tensor) -> float:
    return float((these - those).abs().max())


def _worst(distances: Sequence[float]) -> float:
    return float(torch.tensor(distances, dtype=torch.float64).max())  # unlike Python's, torch's max passes on NaN
